"""Decisions of all schedulers on small workloads equal the recorded ones.

The mean job completion time depends on every decision of an episode. Published figures depend on them too, so that
changes must be deliberate. After such a change: ``python -m tests.decima.schedulers.test_decisions`` records it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from decima.registry import SCHEDULERS, make_scheduler
from decima.schedulers import Scheduler
from decima.schedulers.spark import SparkFifo, SparkPools, SparkStandalone
from decima.schedulers.srpt import Srpt
from simulator import DECIMA_SIM, SPARK, Cluster, ClusterConfig, ExecutorClass
from tests.decima.policy.examples import random_sequence
from tests.simulator.cluster.build import inflating
from workloads.arrivals import JobSequence

RECORDED = Path(__file__).with_name("decisions.txt")
CLASSES = (
    ExecutorClass(2, cpu=1.0, memory=0.5),
    ExecutorClass(3, cpu=2.0, memory=0.25),
    ExecutorClass(2, cpu=1.0, memory=1.0),
)
CLUSTERS = {
    "alike": ClusterConfig(9, moving_delay_ms=40.0),
    "classes": ClusterConfig(executor_classes=CLASSES, moving_delay_ms=40.0),
    "published": ClusterConfig(5, moving_delay_ms=40.0, semantics=DECIMA_SIM),
    "spark": ClusterConfig(6, moving_delay_ms=0.0, semantics=SPARK),
}
JOBS = 10
NAMES = (
    *(name for name in SCHEDULERS if name != "weighted-fair"),
    *("weighted-fair:-1.3", "srpt:0.3", "srpt:price_with_classes=2,coverage_exponent=0.5"),
    *("tetris:1:0.3", "graphene-star:-1:0.5:0.5", "graphene:1:0.3"),
)
MAKERS: dict[str, Callable[[], Scheduler]] = {
    **{name: partial(make_scheduler, name) for name in NAMES},
    "spark-standalone:3": lambda: SparkStandalone(3),
    "spark-fifo": lambda: SparkFifo([number % 2 == 0 for number in range(JOBS)]),
    "spark-pools": lambda: SparkPools([f"pool {number * 7 % JOBS}" for number in range(JOBS)]),
}


@cache
def sequence(uniform: bool) -> JobSequence:
    """Return ten small jobs, some of which arrive later; all stages fit on all executors if they are ``uniform``."""
    found = [random_sequence(np.random.default_rng(seed), 5, 5) for seed in range(8)]
    profiles = [profile for each in found for profile in each.profiles if profile.num_stages > 1][: JOBS - 3]
    profiles += [inflating(30, {1: 80.0 * size, 3: 100.0 * size, 9: 300.0 * size}) for size in (1, 2, 3)]
    demanding = []
    for profile in profiles:
        stages = [
            replace(each, memory=0.0) if uniform else replace(each, cpu=2.0 if 0 < each.memory <= 0.25 else 1.0)
            for each in profile.stages
        ]
        demanding.append(replace(profile, stages=tuple(stages)))
    arrival_ms = np.repeat([0.0, 300.0, 600.0], [4, 3, 3])
    return JobSequence(tuple(demanding[number * 7 % JOBS] for number in range(JOBS)), arrival_ms, seed=1)


def decisions(name: str) -> list[str]:
    """Return lines of the record: cluster, scheduler, mean JCT in ms; for a rule also sums of all its results."""
    lines = []
    for cluster, config in CLUSTERS.items():
        if name.startswith("spark-") and cluster != "spark":
            continue
        scheduler = MAKERS[name]()
        scheduler.reset(config)
        episode, asked = Cluster(config, sequence(uniform=cluster != "classes")), np.zeros(2)
        while not episode.done:
            seen = episode.observe()
            if isinstance(scheduler, Srpt):
                rule = scheduler.ask(seen)
                asked += rule.limits.sum(), rule.price
            episode.decide(scheduler.decide(seen) if seen.num_schedulable else None)
        answers = " ".join(f"{value:.6g}" for value in asked) if asked.any() else ""
        lines.append(f"{cluster} {name} {episode.record().mean_jct_ms:.3f} {answers}".strip())
    return lines


@pytest.mark.parametrize("name", MAKERS)
def test_decisions_are_the_recorded_ones(name: str) -> None:
    recorded = [line for line in RECORDED.read_text().splitlines() if line.split()[1] == name]
    assert decisions(name) == recorded


if __name__ == "__main__":
    RECORDED.write_text("".join(f"{line}\n" for name in MAKERS for line in decisions(name)))
