"""Jobs like those of a profile, but of longer or shorter tasks, or of more or fewer."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from workloads.errors import check_instance, check_number
from workloads.job import JobProfile, StageProfile, WorkloadError

__all__ = ["scaled"]


def scaled(profile: JobProfile, durations: float = 1.0, tasks: float = 1.0) -> JobProfile:
    """A job with the same DAG, demands and name.

    Args:
        profile: the job.
        durations: factor on all task durations.
        tasks: factor on the number of tasks of each stage, rounded; at least 1 is left.

    Raises:
        WorkloadError: a factor that is not positive and finite, or durations that become too long.

    Example:
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


# Simulator and policies keep what they compute from a profile by its identity: a second call returns the same one.
@lru_cache(maxsize=4096)
def _scaled_job(profile: JobProfile, durations: float, tasks: float) -> JobProfile:
    return replace(profile, stages=tuple(_scaled(stage, durations, tasks) for stage in profile.stages))


def _scaled(stage: StageProfile, durations: float, tasks: float) -> StageProfile:
    known = stage.durations
    if durations != 1:
        known = replace(known, values=durations * known.values, mean_ms=durations * known.given_mean_ms)
    return replace(stage, num_tasks=max(1, round(tasks * stage.num_tasks)), durations=known)
