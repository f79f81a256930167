"""Speed of the simulator: CPU time as ratios within one run.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks``.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simpy.events import Event

from decima.schedulers import Fair
from decima.schedulers.srpt import Srpt
from simulator import Cluster, ClusterConfig, run_episode
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import Knowledge
from tests.benchmarks.memory import measure_memory
from tests.benchmarks.yardstick import callback_s, simpy_rate
from workloads import JobProfile, StageProfile, TaskDurations, batch_arrivals, load_tpch, poisson_arrivals

pytestmark = pytest.mark.benchmark


@pytest.fixture(scope="module")
def profiles(shared: Callable[[str], Path]) -> tuple[JobProfile, ...]:
    return load_tpch(shared("tpch"))


def task_rate(profiles: tuple[JobProfile, ...], num_jobs: int, num_executors: int, interval_ms: float) -> float:
    """Return the tasks simulated per second of CPU time, everything after loading the profiles included."""
    started = time.process_time()
    sequence = poisson_arrivals(profiles, num_jobs, interval_ms, seed=1)
    run_episode(ClusterConfig(num_executors), sequence, Fair())
    return sequence.num_tasks / (time.process_time() - started)


def test_a_task_costs_less_than_half_a_simpy_callback(profiles: tuple[JobProfile, ...]) -> None:
    task_rate(profiles, 20, 50, 25_000)  # compiles, or loads what was compiled
    ratios = []
    for _ in range(5):
        callbacks, tasks = simpy_rate(), task_rate(profiles, 200, 50, 25_000)
        ratios.append(tasks / callbacks)
        print(f"\n{tasks:,.0f} tasks/s, {callbacks:,.0f} SimPy callbacks/s, ratio {tasks / callbacks:.2f}", end="")
    assert sorted(ratios)[2] >= 2


def test_a_task_on_30_000_executors_costs_less_than_three_simpy_callbacks(profiles: tuple[JobProfile, ...]) -> None:
    task_rate(profiles, 20, 50, 25_000)
    callbacks, tasks = simpy_rate(), task_rate(profiles, 1_000, 30_000, 30)
    print(f"\n{1e6 / tasks:.2f} us per task, {1e6 / callbacks:.2f} us per callback", end="")
    assert tasks > callbacks / 3


def test_deciding_in_compiled_code_is_faster(profiles: tuple[JobProfile, ...]) -> None:
    class Asked(Fair):
        engine_rule = None

    sequence, config, ratios = poisson_arrivals(profiles, 200, 25_000, seed=1), ClusterConfig(50), []
    for _ in range(6):
        started = time.process_time()
        run_episode(config, sequence, Fair())
        between = time.process_time()
        run_episode(config, sequence, Asked())
        ratios.append((between - started) / (time.process_time() - between))
    print(f"\n{sorted(ratios)[2]:.2f} of the time of an episode with decisions in Python", end="")
    assert sorted(ratios)[2] < 0.9


def test_a_process_on_the_clock_costs_its_own_events_only(profiles: tuple[JobProfile, ...]) -> None:
    """Compiled code stops at each event of the process; the unit is a callback of bare SimPy."""
    sequence, config, unit_s = poisson_arrivals(profiles, 100, 25_000, seed=1), ClusterConfig(50), callback_s()
    ticks, taken = 0, []

    class Watched(Fair):
        def watch(self, cluster: Cluster) -> None:
            cluster.clock.process(self.wake_up(cluster))

        def wake_up(self, cluster: Cluster) -> Iterator[Event]:
            nonlocal ticks
            while True:
                ticks += 1
                yield cluster.clock.timeout(100.0)

    for _ in range(5):
        ticks, started = 0, time.process_time()
        run_episode(config, sequence, Watched())
        between = time.process_time()
        run_episode(config, sequence, Fair())
        taken.append((2 * between - started - time.process_time()) / ticks / unit_s)
    print(f"\n{sorted(taken)[2]:.1f} callbacks an event, {ticks:,} events", end="")
    assert sorted(taken)[2] < 15


def test_ten_thousand_jobs_on_a_thousand_executors(profiles: tuple[JobProfile, ...]) -> None:
    task_rate(profiles, 20, 50, 25_000)
    small = max(task_rate(profiles, 200, 50, 25_000) for _ in range(3))
    taken_gb = measure_memory()
    large = task_rate(profiles, 10_000, 1_000, 850)
    memory_gb = taken_gb()
    print(
        f"\n{1e6 / large:.2f} us per task instead of {1e6 / small:.2f}: {small / large:.2f} times; {memory_gb:.2f} GB",
        end="",
    )
    assert memory_gb < 2
    assert small / large < 3


@pytest.mark.parametrize(("how", "most"), [({}, 300), ({"futures": 1, "arrivals": False}, 1200)])
def test_a_fork_without_the_log_costs_as_much_as_some_hundred_callbacks(
    profiles: tuple[JobProfile, ...], how: dict[str, Any], most: float
) -> None:
    """In the middle of a batch of 20 live jobs."""
    cluster, scheduler, taken = Cluster(ClusterConfig(50), batch_arrivals(profiles, 20, seed=1)), Fair(), []
    for _ in range(30):
        seen = cluster.observe()
        cluster.decide(scheduler.decide(seen) if seen.num_schedulable else None)
    assert len(cluster.observe().jobs) == 20
    cluster.fork(log=False, **how)  # compiles, or loads what was compiled
    for _ in range(7):
        unit_s, started = callback_s(), time.process_time()
        for _ in range(100):
            cluster.fork(log=False, **how)
        forked_s = (time.process_time() - started) / 100
        taken.append(forked_s / unit_s)
        print(f"\n{1000 * forked_s:.3f} ms a fork, {taken[-1]:.0f} callbacks", end="")
    assert sorted(taken)[3] < most


def test_wrong_estimates_cost_a_few_callbacks_a_decision(profiles: tuple[JobProfile, ...]) -> None:
    """CPU time of a decision with its part of the episode; the best of six of each, alternately."""
    sequence = poisson_arrivals(profiles, 80, 14_000, seed=1000)
    best = {}
    for _ in range(6):
        for knowledge in (Knowledge(), Knowledge(job_error=1.0), Knowledge(stage_error=1.0)):
            started = time.process_time()
            record = run_episode(ClusterConfig(50, knowledge=knowledge), sequence, Srpt())
            taken_us = 1e6 * (time.process_time() - started) / record.num_decisions
            best[knowledge] = min(best.get(knowledge, math.inf), taken_us)
    exact, *wrong = best.values()
    print("".join(f"\n{each:.1f} us a decision instead of {exact:.1f}" for each in wrong), end="")
    assert max(wrong) - exact < 12 * 1e6 * callback_s()


def alone_us(profiles: Sequence[JobProfile]) -> float:
    """Return the CPU time to compute the useful parallelism of a new job, microseconds; the best of five."""
    best = math.inf
    for _ in range(5):
        unseen = [replace(profile) for profile in profiles]
        started = time.process_time()
        for profile in unseen:
            useful_executors(profile, ClusterConfig(50), 2.5)
        best = min(best, time.process_time() - started)
    return 1e6 * best / len(profiles)


def test_useful_executors_cost_as_much_as_some_hundred_callbacks(profiles: tuple[JobProfile, ...]) -> None:
    random = np.random.default_rng(0)
    edges = np.array([(random.integers(max(0, child - 20), child), child) for child in range(1, 500)])

    def large(num_tasks: int) -> JobProfile:
        stages = [StageProfile(num_tasks, TaskDurations.sampled(1000 * random.lognormal(0, 1, 20))) for _ in range(500)]
        return JobProfile("large", tuple(stages), edges)

    published, few, many = alone_us(profiles), alone_us([large(2)]), alone_us([large(200)])
    print(f"\n{published:.0f} us a TPC-H job; {few:.0f} us for 500 stages, {many:.0f} with 100,000 tasks", end="")
    unit_us = 1e6 * callback_s()
    assert published < 600 * unit_us
    assert many < 12_000 * unit_us
    assert many / few < 3
