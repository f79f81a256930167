"""What workers cost: CPU time over all processes, and bytes that travel, of an iteration of the recipe batch.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_worker_cost.py``. It prints the figures of
``docs/guides/scaling.md``.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from decima.learning.cluster.config import read_config
from decima.learning.cluster.curriculum import plan_iteration
from decima.learning.cluster.learner import Learner
from decima.learning.cluster.simulation import Simulation
from decima.policy.threads import one_thread
from tests.decima.workers.ray_cluster import NEEDS_RAY

pytestmark = pytest.mark.benchmark

CONFIG = read_config("batch")
ITERATIONS = 4
#: Of an iteration's CPU time.
AT_MOST = 0.10


def cpu_s() -> float:
    """CPU time of this process and all that it started, s."""
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


def measure(workers: int | str) -> tuple[float, float, float]:
    """CPU time of an iteration over all processes, of its episodes as workers count it, and of its update, s."""
    conditions = CONFIG.conditions()
    learner = Learner(CONFIG, conditions, "cpu")
    with one_thread(), Simulation(conditions, learner.policy.config, workers) as simulation:
        learner.learn(simulation, 0)  # compiles, or loads what was compiled
        learner.learn(simulation, 1)
        begun, episodes, update = cpu_s(), simulation.cpu_s, learner.cpu_s
        for iteration in range(2, 2 + ITERATIONS):
            learner.learn(simulation, iteration)
        return (
            (cpu_s() - begun) / ITERATIONS,
            (simulation.cpu_s - episodes) / ITERATIONS,
            (learner.cpu_s - update) / ITERATIONS,
        )


@pytest.mark.parametrize(
    "workers", [pytest.param(2, id="processes"), pytest.param("ray:2", id="ray", marks=NEEDS_RAY)]
)
def test_workers_cost_a_tenth_of_an_iteration_at_most(workers: int | str) -> None:
    """What is neither an episode nor the update: sending, receiving, and whoever sees to it."""
    assert (CONFIG.episodes.sequences * CONFIG.episodes.per_sequence, CONFIG.workload.jobs) == (16, 20)
    alone, with_them = measure(1), measure(workers)
    costs = {name: each[0] - each[1] - each[2] for name, each in (("alone", alone), ("them", with_them))}
    share = (costs["them"] - costs["alone"]) / with_them[0]
    print(
        f"\n{alone[0]:.2f} s of CPU an iteration in one process, {with_them[0]:.2f} s with {workers}: episodes "
        f"{with_them[1]:.2f} s, update {with_them[2]:.2f} s, workers {share:.1%}",
        end="",
    )
    assert share <= AT_MOST


def test_what_travels_and_what_is_serial() -> None:
    conditions = CONFIG.conditions()
    learner = Learner(CONFIG, conditions, "cpu")
    plans = [plan for group in plan_iteration(CONFIG, 0) for plan in group]
    with one_thread(), Simulation(conditions, learner.policy.config, 1) as simulation:
        learner.learn(simulation, 0)
        samples = simulation.roll_out(learner.policy, plans)
        measured = learner.learn(simulation, 1)
    with FlopCounterMode(display=False) as flops:
        samples.evaluate(learner.policy, np.arange(len(samples)))[0].sum().backward()
    sizes = {
        "once": conditions,
        "weights": learner.policy.arrays,
        "plans": plans,
        "samples": samples,
    }
    text = ", ".join(f"{name} {len(pickle.dumps(each, 5)) / 1000:,.1f} kB" for name, each in sizes.items())
    passes = measured["steps"] / CONFIG.update.minibatches
    print(
        f"\n{text}; {len(samples):,} samples; an update of {measured['update_cpu_s']:.2f} s in {measured['steps']:.0f} "
        f"steps, {passes:.1f} passes of {flops.get_total_flops() / 1e9:.2f} GFLOP (matrix products)",
        end="",
    )
    assert len(pickle.dumps(sizes["weights"], 5)) < 1e6
