"""Jobs derived from other jobs: longer tasks or more of them, mean durations only, drawn memory demands."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from workloads.arrivals import JobSequence, RandomStream, random_stream
from workloads.errors import WorkloadError, check_instance, check_number
from workloads.job import JobProfile, StageProfile, TaskDurations

__all__ = ["scaled", "simplified", "uniform_memory"]


def scaled(profile: JobProfile, durations: float = 1.0, tasks: float = 1.0) -> JobProfile:
    """Return a job with the same DAG, demands and name, but longer tasks or more of them.

    Args:
        durations: factor on all task durations.
        tasks: factor on the number of tasks of each stage, rounded to at least 1 task.

    Raises:
        WorkloadError: a factor is not positive and finite, or durations become too long.

    Examples:
        >>> from workloads import scaled, synthetic_profiles
        >>> [job] = synthetic_profiles(1)
        >>> round(scaled(job, durations=10).work_ms / job.work_ms)
        10
    """
    check_instance(profile, JobProfile, "profile", WorkloadError)
    for name, factor in (("durations", durations), ("tasks", tasks)):
        check_number(factor, f"the factor on {name}", WorkloadError)
        if not (math.isfinite(factor) and factor > 0):
            raise WorkloadError(f"the factor on {name} must be positive and finite, got {factor}")
    return profile if durations == tasks == 1 else _scaled_job(profile, durations, tasks)


# Cached, as simulator and policies cache values by the identity of a profile.
@lru_cache(maxsize=4096)
def _scaled_job(profile: JobProfile, durations: float, tasks: float) -> JobProfile:
    return replace(profile, stages=tuple(_scaled(stage, durations, tasks) for stage in profile.stages))


def _scaled(stage: StageProfile, durations: float, tasks: float) -> StageProfile:
    durations_known = stage.durations
    if durations != 1:
        durations_known = replace(
            durations_known,
            values=durations * durations_known.values,
            mean_ms=durations * durations_known.given_mean_ms,
        )
    return replace(stage, num_tasks=max(1, round(tasks * stage.num_tasks)), durations=durations_known)


def simplified(profile: JobProfile) -> JobProfile:
    """Return a job in which each task takes the mean duration of its stage, for studies of job order alone.

    DAG, numbers of tasks, demands and total work stay the same. Durations depend neither on the wave nor on the number
    of executors, and are not random. On a cluster without moving delay this is the setting in which Decima is compared
    with exhaustive search.

    Source: Decima, appendix "Optimality of Decima" (Figure 21).
    """
    check_instance(profile, JobProfile, "profile", WorkloadError)
    stages = (
        replace(stage, durations=TaskDurations.constant(stage.durations.mean_ms)) for stage in profile.stages
    )
    return replace(profile, stages=tuple(stages))


def uniform_memory(sequence: JobSequence) -> JobSequence:
    """Draw the memory demand of each stage of each job uniformly from (0, 1] (Decima, section 7.3).

    The seed of the sequence is also the seed of the draws.
    """
    check_instance(sequence, JobSequence, "sequence", WorkloadError)
    return replace(sequence, profiles=_with_uniform_memory(sequence.profiles, sequence.seed))


# Each scheduler of a comparison gets the same profiles, so that values known by profile, such as times alone, are
# computed once.
@lru_cache(maxsize=32)
def _with_uniform_memory(profiles: tuple[JobProfile, ...], seed: int) -> tuple[JobProfile, ...]:
    random = random_stream(seed, RandomStream.DEMANDS)
    jobs = []
    for profile in profiles:
        memory = 1.0 - random.random(profile.num_stages)
        stages = zip(profile.stages, memory.tolist(), strict=True)
        jobs.append(replace(profile, stages=tuple(replace(stage, memory=size) for stage, size in stages)))
    return tuple(jobs)
