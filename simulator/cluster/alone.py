"""How many executors a job uses well: how long it takes alone with more and more of them, estimated from its profile.

The estimate follows the engine's rules for a job that is alone: its executors move to it at once, stages are served in
the order in which they become ready, and who is done waits for the next one. But tasks take their mean time, and
executors are told apart in a few groups only, so that the cost does not grow with the number of tasks. What chance
adds (a stage is as slow as its slowest executor) is estimated from the variances.

One thing is left out: in the engine, an executor that was sent to a stage and finds nothing left there may leave for a
later stage of its own job, and lose the time of a move.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig, ExecutorClass
from simulator.cluster.engine import waves
from simulator.cluster.engine.state import pack
from workloads.job import JobProfile

__all__ = ["PARALLELISM", "alone_ms", "useful_executors"]

#: Limits that a profile is tried with, up to the number of executors.
PARALLELISM = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)


def useful_executors(profile: JobProfile, config: ClusterConfig, thrift: float) -> int:
    """The limit k with the least ``time * (k * time) ** thrift``, where the job takes that time alone with k.

    Args:
        profile: the job.
        config: the cluster; its objective and its end do not matter.
        thrift: how much the executors that a job occupies count, beside the time that it takes.

    Returns:
        One of ``PARALLELISM``, at most the cluster's executors; the smallest of equals.
    """
    times = alone_ms(profile, config)
    limits = PARALLELISM[: times.size]
    cost = np.log(np.maximum(times, 1.0)) * (1 + thrift) + np.log(limits) * thrift
    return limits[int(np.argmin(cost))]


def alone_ms(profile: JobProfile, config: ClusterConfig) -> NDArray[np.float64]:
    """About how long a job takes alone, with each limit of ``PARALLELISM`` that the cluster allows: float64, ms."""
    semantics = config.semantics
    return _alone_ms(
        profile,
        config.executor_classes,
        config.moving_delay_ms,
        config.warmup_delay_ms,
        semantics.nearest_level,
        semantics.waiting_keeps_jvm,
    )


@lru_cache(maxsize=10_000)
def _alone_ms(
    profile: JobProfile,
    classes: tuple[ExecutorClass, ...],
    moving_delay_ms: float,
    warmup_delay_ms: float,
    nearest_level: bool,
    waiting_keeps_jvm: bool,
) -> NDArray[np.float64]:
    job = pack(profile)
    tables, packed = job.durations, job.stages
    stages = np.zeros(profile.num_stages, dtype=waves.STAGE)
    for name in ("num_tasks", "first_child", "end_child", "first_level", "end_level"):
        stages[name] = packed[name]
    stages["num_parents"] = packed["open_parents"]
    for kind in classes:
        stages["seats"] += kind.count * ((packed["cpu"] <= kind.cpu) & (packed["memory"] <= kind.memory))
    stages["seats"] = np.maximum(stages["seats"], 1)  # the cluster refuses what fits nowhere
    levels = np.zeros(len(tables.levels), dtype=waves.LEVEL)
    waves.fill_levels(levels, tables.levels, tables.values, float(warmup_delay_ms))
    most = min(sum(kind.count for kind in classes), PARALLELISM[-1])
    limits = np.array([limit for limit in PARALLELISM if limit <= most])
    times = np.zeros(limits.size)
    waves.estimate(
        times, limits, stages, job.children, levels, float(moving_delay_ms), nearest_level, waiting_keeps_jvm
    )
    times.setflags(write=False)
    return times
