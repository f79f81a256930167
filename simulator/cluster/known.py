"""Jobs as schedulers of a cluster see them: with the work and the mean task durations expected on this cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.alone import estimate, useful_executors
from simulator.cluster.config import ClusterConfig, ClusterKey, cluster_key
from workloads.arrivals import JobSequence
from workloads.errors import LONGEST_MS
from workloads.job import JobProfile, StageProfile

__all__ = ["known_profile", "known_sequence", "work_ms"]

_known: WeakKeyDictionary[JobProfile, dict[ClusterKey, JobProfile]] = WeakKeyDictionary()


def work_ms(profile: JobProfile, config: ClusterConfig) -> NDArray[np.float64]:
    """Estimate the executor time of each stage when a job is alone, float64 [num_stages], ms.

    A task takes the mean time of its wave: ``Wave.FRESH`` for an executor's first task of the job, ``Wave.FIRST`` for
    its first task of another stage, ``Wave.REST`` for all others. The job runs on all executors if durations do not
    depend on the parallelism level, else on ``useful_executors(profile, config, 0)``.
    """
    levels = max(stage.durations.levels.size for stage in profile.stages)
    limit = config.num_executors if levels == 1 else useful_executors(profile, config, 0.0)
    work: NDArray[np.float64]
    _, [work] = estimate(profile, config, (limit,))
    return work


def known_profile(profile: JobProfile, config: ClusterConfig) -> JobProfile:
    """Return the profile that schedulers of a cluster see, with the mean task durations on this cluster.

    The mean of a stage is its ``work_ms`` divided by its number of tasks, unless the profile has a mean
    (``TaskDurations.mean_ms``), as the published and the embedded TPC-H profiles do.

    Returns:
        ``profile`` itself if its means do not depend on the cluster; else the same object for the same arguments.
    """
    if profile.means_are_known:
        return profile
    by_cluster, key = _known.setdefault(profile, {}), cluster_key(config)
    if key not in by_cluster:
        work = work_ms(profile, config).tolist()
        stages = (_known_stage(stage, ms) for stage, ms in zip(profile.stages, work, strict=True))
        by_cluster[key] = replace(profile, stages=tuple(stages))
    return by_cluster[key]


def known_sequence(sequence: JobSequence, config: ClusterConfig) -> JobSequence:
    """Return a sequence with the profiles that schedulers of a cluster see, ``known_profile``."""
    profiles = tuple(known_profile(profile, config) for profile in sequence.profiles)
    factors = [
        max(seen.work_ms, 1.0) / max(profile.work_ms, 1.0)
        for seen, profile in zip(profiles, sequence.profiles, strict=True)
        if seen is not profile
    ]
    if not factors:
        return sequence
    # Task durations of the workload's other jobs on this cluster are unknown.
    mean = math.exp(sum(map(math.log, factors)) / len(profiles))
    return replace(
        sequence,
        profiles=profiles,
        prior=sequence.work_prior.times(mean),
        library=tuple(known_profile(profile, config) for profile in sequence.library),
    )


def _known_stage(stage: StageProfile, work_ms: float) -> StageProfile:
    if stage.durations.mean_is_known:
        return stage
    mean_ms = min(work_ms / stage.num_tasks, LONGEST_MS)
    return replace(stage, durations=replace(stage.durations, mean_ms=mean_ms))
