"""Estimate, from a job's profile, its completion time alone on a cluster, and the parallelism that it uses well.

The estimate follows the engine's rules: executors move to the job at once, stages are served in the order in which they
become ready, and executors that finish wait for the next stage. But tasks take their mean time, and executors form a
few groups, so that the cost does not grow with the number of tasks. The effect of noise (a stage is as slow as its
slowest executor) is estimated from variances.

One effect is left out: in the engine, an executor whose stage has no task left may move to a later stage of its own
job, which takes time. ``simulator.cluster.engine.solo`` simulates the job instead.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig, ExecutorClass
from simulator.cluster.engine import waves
from simulator.cluster.engine.profiles import pack
from workloads.job import JobProfile

__all__ = ["PARALLELISM", "alone_ms", "estimate", "useful_executors", "useful_parallelism"]

#: Candidate parallelism limits; those above the number of executors are not used.
PARALLELISM = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)


def useful_executors(profile: JobProfile, config: ClusterConfig, thrift: float) -> int:
    """Return the useful parallelism of a job for one cost exponent; see ``useful_parallelism``."""
    return useful_parallelism(profile, config, (thrift,))[0]


@lru_cache(maxsize=10_000)
def useful_parallelism(
    profile: JobProfile, config: ClusterConfig, exponents: tuple[float, ...]
) -> tuple[int, ...]:
    """Return the parallelism limits that a job uses well, one for each cost exponent of executors.

    The limit k minimises ``time * (k * time) ** exponent``, where ``time`` is the job's time alone with k executors.

    Args:
        config: the cluster; its objective and ``max_time_ms`` do not matter.
        exponents: weights of the executors that a job occupies, relative to the time that it takes.

    Returns:
        Limits from ``PARALLELISM``, at most the cluster's executors; the smallest of equally good ones.
    """
    times = alone_ms(profile, config)
    limits, thrift = PARALLELISM[: times.size], np.asarray(exponents)[:, None]
    cost = np.log(np.maximum(times, 1.0)) * (1 + thrift) + np.log(limits) * thrift
    return tuple(limits[index] for index in cost.argmin(axis=1).tolist())


def alone_ms(profile: JobProfile, config: ClusterConfig) -> NDArray[np.float64]:
    """Estimate a job's time alone with each limit of ``PARALLELISM`` that the cluster has: float64 [limits], ms."""
    most = min(config.num_executors, PARALLELISM[-1])
    return estimate(profile, config, tuple(limit for limit in PARALLELISM if limit <= most))[0]


def estimate(
    profile: JobProfile, config: ClusterConfig, limits: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate completion time and work of a job alone, under each parallelism limit.

    Args:
        config: the cluster; its objective and ``max_time_ms`` do not matter.
        limits: parallelism limits, ascending.

    Returns:
        Completion time, float64 [limits], ms; executor time of each stage, float64 [limits, num_stages], ms.
    """
    semantics = config.semantics
    return _estimate(
        profile,
        limits,
        config.executor_classes,
        config.moving_delay_ms,
        config.warmup_delay_ms,
        semantics.nearest_level,
        semantics.waiting_keeps_jvm,
        semantics.longest_path_first,
    )


@lru_cache(maxsize=10_000)
def _estimate(
    profile: JobProfile,
    limits: tuple[int, ...],
    classes: tuple[ExecutorClass, ...],
    moving_delay_ms: float,
    warmup_delay_ms: float,
    nearest_level: bool,
    waiting_keeps_jvm: bool,
    longest_path_first: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    job = pack(profile)
    stages, seats = job.stages, np.zeros(profile.num_stages, dtype=np.int64)
    for executor_class in classes:
        seats += executor_class.count * (
            (stages["cpu"] <= executor_class.cpu) & (stages["memory"] <= executor_class.memory)
        )
    seats = np.maximum(seats, 1)  # the cluster rejects stages that fit no class
    levels = np.zeros(len(job.levels), dtype=waves.LEVEL)
    waves.fill_levels(levels, job.levels, job.values, float(warmup_delay_ms))
    times, work = np.zeros(len(limits)), np.zeros((len(limits), len(stages)))
    waves.estimate(
        times,
        work,
        np.array(limits),
        stages,
        stages["path_rank"].copy() if longest_path_first else np.arange(len(stages)),
        seats,
        job.children,
        levels,
        float(moving_delay_ms),
        nearest_level,
        waiting_keeps_jvm,
    )
    times.setflags(write=False)
    work.setflags(write=False)
    return times, work
