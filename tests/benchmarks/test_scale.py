"""Cost of a task and of a decision on clusters of thousands of executors, in CPU time.

Jobs are drawn from Alibaba's trace, with repetition; the arrival rate is proportional to the number of executors
(3,000 in the trace). Bounds are relative to SimPy callbacks and matrix products, see ``yardstick``. Run alone:
``pytest -n 0 -m benchmark -s tests/benchmarks``.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from decima.policy.threads import one_thread
from decima.registry import make_scheduler
from decima.schedulers import Fair
from simulator import TRACE, Cluster, ClusterConfig, run_episode
from simulator.cluster.texts import parse_classes
from tests.benchmarks.memory import measure_memory
from tests.benchmarks.yardstick import callback_s, product_s
from workloads import JobSequence, read_alibaba, trace_arrivals

pytestmark = pytest.mark.benchmark

HOUR_MS = 3_600_000.0


@pytest.fixture(scope="module")
def trace(shared: Callable[[str], Path]) -> JobSequence:
    return read_alibaba(shared("traces/alibaba2018_dag_tasks/selected_DAGs.csv.gz")).sequence


def enlarged(trace: JobSequence, times: int) -> JobSequence:
    """Return the sequence with 2,000 jobs times a factor, at the arrival rate times the same factor."""
    random = np.random.default_rng(0)
    jobs = random.integers(len(trace), size=2000 * times)
    arrival_ms = random.choice(trace.arrival_ms, size=len(jobs)) / times
    return trace_arrivals([trace.profiles[job] for job in jobs], arrival_ms - arrival_ms.min())


def cluster_of(times: int, hours: float) -> ClusterConfig:
    """Return a cluster of 3,000 executors of four classes times a factor."""
    classes = ",".join(f"{750 * times}x{memory}" for memory in (0.25, 0.5, 0.75, 1))
    return ClusterConfig(executor_classes=parse_classes(classes), max_time_ms=hours * HOUR_MS, semantics=TRACE)


def task_cost(trace: JobSequence, times: int, hours: float) -> float:
    """Return the CPU time per task started within a number of hours, in SimPy callbacks; everything included.

    Callbacks are measured before and after, and averaged, since the machine's speed varies.
    """
    taken_gb, before_s = measure_memory(), callback_s()
    started = time.process_time()
    record = run_episode(cluster_of(times, hours), enlarged(trace, times), Fair())
    spent = time.process_time() - started
    tasks = int(np.isfinite(record.task_start_ms).sum())
    memory_gb = taken_gb()
    print(
        f"\n{3000 * times:,} executors: {1e6 * spent / tasks:.2f} us a task, {tasks:,} tasks,"
        f" {record.num_decisions / tasks:.2f} decisions each, {memory_gb:.2f} GB",
        end="",
    )
    assert memory_gb < 8
    return spent / tasks / ((before_s + callback_s()) / 2)


def test_a_task_on_three_thousand_executors(trace: JobSequence) -> None:
    task_cost(trace, 1, 1.0)  # compiles, or loads what was compiled
    assert task_cost(trace, 1, 200.0) < 4


def test_a_task_on_thirty_thousand_executors(trace: JobSequence) -> None:
    """The first hour, with one decision for every 16 tasks."""
    assert task_cost(trace, 10, 1.0) < 25


def test_a_decision_of_the_learned_policy_among_three_hundred_jobs(trace: JobSequence) -> None:
    config, sequence = cluster_of(10, 20.0), enlarged(trace, 10)
    cluster, fair, decima = Cluster(config, sequence), Fair(), make_scheduler("decima", 0)
    cluster.keeps_executors = True
    times, units = [], []
    with one_thread():
        while not cluster.done and len(times) < 200:
            observation = cluster.observe()
            if observation.num_schedulable and len(observation.jobs) >= 300:
                started = time.process_time()
                decima.decide(observation)
                times.append(1000 * (time.process_time() - started))
                if len(times) % 20 == 0:
                    units.append(1000 * product_s())
            cluster.decide(fair.decide(observation) if observation.num_schedulable else None)
    products = np.median(times) / np.median(units)
    print(
        f"\n{np.median(times):.2f} ms a decision with {len(observation.jobs)} live jobs, {products:.1f} products",
        end="",
    )
    assert products <= 18
