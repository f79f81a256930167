"""Shortest job first, along the critical path (Decima, section 7.1, baseline 2, and appendix G)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled
from workloads.job import JobProfile

__all__ = ["SjfCp", "first_job", "on_critical_path"]


class SjfCp(Scheduler):
    """Jobs by total work, smallest first; inside a job the stage with the longest critical path.

    Every stage gets all executors that it can use before the next stage, and every job before the next job. Stages
    that can start at once go before those whose parents are still finishing.
    """

    def __init__(self) -> None:
        self._work_ms: PerJob[NDArray[np.float64]] = PerJob(_work_ms, np.array)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the smallest job's stage on its critical path, with all executors offered."""
        job = first_job(observation.jobs, observation.stages, self._work_ms(observation), True)
        return on_critical_path(observation, job)


def _work_ms(profile: JobProfile, _: ClusterConfig) -> float:
    return profile.work_ms


def on_critical_path(observation: Observation, job: int) -> Decision:
    """Return the decision for a job's stage with the longest critical path: all offered executors that it can use.

    Ready stages go before stages whose parents are still finishing; ties go to the first stage.

    Args:
        observation: the current observation.
        job: a live job (place in the job arrays) with a schedulable stage.
    """
    stages, critical_path_ms = observation.stages_of(job), observation.profiles[job].critical_path_ms
    return all_offered(
        observation, stages.start + _longest_path(observation.stages[stages], critical_path_ms)
    )


@compiled
def first_job(jobs, stages, key, ahead):  # type: ignore[no-untyped-def]
    """Return the live job (place in the job arrays) with the least key, [J], and a schedulable stage; -1 for none.

    Unless ``ahead``, that stage must be ready.
    """
    first = -1
    for job in range(len(jobs)):
        # A job's next stage is a ready one if it has any.
        stage = jobs[job].next_stage
        if stage >= 0 and (ahead or stages[stage].ready_rank >= 0) and (first < 0 or key[job] < key[first]):
            first = job
    return first


@compiled
def _longest_path(stages, critical_path_ms):  # type: ignore[no-untyped-def]
    """Return a job's schedulable stage with the longest path, ready stages first; -1 for none."""
    best, best_key = -1, (False, 0.0)
    for stage in range(len(stages)):
        key = (stages[stage].ready_rank >= 0, critical_path_ms[stage])
        if stages[stage].schedulable and (best < 0 or key > best_key):
            best, best_key = stage, key
    return best
