"""Tiny workload and comparisons for tests."""

from typing import Any

import numpy as np
import pandas as pd

from decima.evaluation import Comparison, Conditions
from simulator.cluster.config import ClusterConfig
from workloads import JobProfile, StageProfile, TaskDurations, Workload

#: Prefix of the names of custom schedulers, as a user writes them.
OWN = "tests.decima.schedulers.own_schedulers:"


def profile(name: str, tasks: int) -> JobProfile:
    """Return a chain of two stages; each size has a few times the work of the next smaller one."""
    durations = TaskDurations.sampled(np.geomspace(400.0, 1200.0, 50))
    stages = tuple(StageProfile(tasks, durations, name) for name in ("map", "reduce"))
    return JobProfile(name, stages, np.array([[0, 1]]))


LIBRARY = Workload(tuple(profile(f"job-{tasks}", tasks) for tasks in (2, 5, 11, 20)), None, "tiny")
CLUSTER = ClusterConfig(num_executors=4)


def conditions(**changes: Any) -> Conditions:
    """Return three experiments of four jobs on four executors."""
    given = {"workload": LIBRARY, "cluster": CLUSTER, "num_jobs": 4, "num_experiments": 3, "seed": 5}
    return Conditions(**{**given, **changes})


def comparison(*schedulers: str, num_training: int = 2, policy: str | None = None, **changes: Any) -> Comparison:
    """Return a comparison, by default of fifo and fair."""
    names = schedulers or ("fifo", "fair")
    return Comparison(conditions(**changes), names, num_training=num_training, policy=policy)


def run(*schedulers: str, workers: int = 1, **changes: Any) -> Comparison:
    """Return a comparison that has been run."""
    compared = comparison(*schedulers, **changes)
    compared.run(workers)
    return compared


def finished(jct_s: dict[str, list[float]]) -> Comparison:
    """Return a comparison with given results: the mean JCT of each experiment, s."""
    compared = comparison(*jct_s, num_experiments=len(next(iter(jct_s.values()))))
    for name, values in jct_s.items():
        seeds = compared.conditions.seeds
        compared.add(name, dict(zip(seeds, values, strict=True)))
    return compared


def runs_of(compared: Comparison, scheduler: str) -> pd.DataFrame:
    """Return the rows of ``Comparison.runs`` of a scheduler, indexed by seed."""
    runs = compared.runs
    return runs[runs["scheduler"] == scheduler].drop(columns="scheduler").set_index("seed")
