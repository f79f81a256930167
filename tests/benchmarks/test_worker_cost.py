"""Cost of workers: CPU time over all processes, and bytes sent, in an iteration of the recipe ``batch``.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_worker_cost.py``. It prints the figures of
``docs/guides/scaling.md``.
"""

import pickle
from pathlib import Path

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from decima.learning import ClusterTraining, read_config
from decima.learning.cluster.rollout import plan_iteration, roll_out, start_episodes
from decima.policy.threads import one_thread
from tests.decima.workers.ray_cluster import NEEDS_RAY

pytestmark = pytest.mark.benchmark

CONFIG = read_config("batch")
ITERATIONS = 4
#: Of an iteration's CPU time.
AT_MOST = 0.10


def cpu_s() -> float:
    """Return the CPU time of this process and its children, s."""
    psutil = pytest.importorskip("psutil")
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def measure(workers: int | str, out: Path) -> tuple[float, float, float]:
    """Return the CPU time of an iteration over all processes, of its episodes and of its update, s."""
    with one_thread(), ClusterTraining(CONFIG, out, workers=workers).started() as training:
        training.learn(0)  # compiles, or loads what was compiled
        training.learn(1)
        begun = cpu_s()
        measured = [training.learn(iteration) for iteration in range(2, 2 + ITERATIONS)]
        return (
            (cpu_s() - begun) / ITERATIONS,
            sum(each["rollout_cpu_s"] for each in measured) / ITERATIONS,
            sum(each["update_cpu_s"] for each in measured) / ITERATIONS,
        )


@pytest.mark.parametrize("workers", [pytest.param(2, id="processes"), pytest.param("ray:2", id="ray", marks=NEEDS_RAY)])
def test_workers_cost_a_tenth_of_an_iteration_at_most(workers: int | str, tmp_path: Path) -> None:
    """All CPU time except that of episodes and update in one process, that is for sending and receiving."""
    assert (CONFIG.episodes.sequences * CONFIG.episodes.per_sequence, CONFIG.workload.num_jobs) == (16, 20)
    alone, with_them = measure(1, tmp_path / "alone"), measure(workers, tmp_path / "them")
    share = (with_them[0] - alone[0]) / with_them[0]
    print(
        f"\n{alone[0]:.2f} s of CPU an iteration in one process, {with_them[0]:.2f} s with {workers}: episodes "
        f"{with_them[1]:.2f} s, update {with_them[2]:.2f} s, workers {share:.1%}",
        end="",
    )
    assert share <= AT_MOST


def test_what_travels_and_what_is_serial(tmp_path: Path) -> None:
    conditions = CONFIG.conditions()
    plans = [plan for group in plan_iteration(CONFIG, 0) for plan in group]
    with one_thread(), ClusterTraining(CONFIG, tmp_path / "out").started() as training:
        training.learn(0)
        policy = training.policy
        samples = roll_out(policy, start_episodes(policy.config, conditions, plans))
        measured = training.learn(1)
    with FlopCounterMode(display=False) as flops:
        samples.evaluate(policy, np.arange(len(samples)))[0].sum().backward()
    sizes = {"once": conditions, "weights": policy.arrays, "plans": plans, "samples": samples}
    text = ", ".join(f"{name} {len(pickle.dumps(each, 5)) / 1000:,.1f} kB" for name, each in sizes.items())
    passes = measured["steps"] / CONFIG.update.minibatches
    print(
        f"\n{text}; {len(samples):,} samples; an update of {measured['update_cpu_s']:.2f} s in {measured['steps']:.0f} "
        f"steps, {passes:.1f} passes of {flops.get_total_flops() / 1e9:.2f} GFLOP (matrix products)",
        end="",
    )
    assert len(pickle.dumps(sizes["weights"], 5)) < 1e6
