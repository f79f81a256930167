"""Jobs without what makes Spark's executors unequal, for studies of the order of jobs alone."""

from __future__ import annotations

from dataclasses import replace

from workloads.errors import check_instance
from workloads.job import JobProfile, TaskDurations, WorkloadError

__all__ = ["simplified"]


def simplified(profile: JobProfile) -> JobProfile:
    """The same job, with every task as long as the mean of its stage.

    DAG, numbers of tasks, demands and total work stay. Neither the wave nor the number of executors that the job
    holds matters any more, and nothing is left to luck. On a cluster without moving delay this is the setting in
    which Decima is compared with exhaustive search.

    Source: Decima, appendix "Optimality of Decima" (Figure 21).
    """
    check_instance(profile, JobProfile, "profile", WorkloadError)
    stages = (
        replace(stage, durations=TaskDurations.constant(stage.durations.mean_ms)) for stage in profile.stages
    )
    return replace(profile, stages=tuple(stages))
