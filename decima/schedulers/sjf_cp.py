"""SJF-CP: shortest job first, and in a job the critical path (Decima, section 7.1, baseline 2, and appendix G)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.decisions import all_offered
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled

__all__ = ["SjfCp", "first_job", "on_critical_path"]


class SjfCp(Scheduler):
    """The job with the least total work first, and within a job the stage with the longest critical path.

    A stage gets all executors that it can use before the next stage gets any, and so does a job. Ready stages come
    before stages whose parents run their last tasks.
    """

    def __init__(self) -> None:
        self._work_ms: PerJob[NDArray[np.float64]] = PerJob(lambda profile, _: profile.work_ms, np.array)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the smallest job's stage on its critical path, for all offered executors."""
        job = first_job(observation.jobs, observation.stages, self._work_ms(observation), True)
        return on_critical_path(observation, job)


def on_critical_path(observation: Observation, job: int) -> Decision:
    """Return the decision that gives all offered executors to a job's stage with the longest critical path.

    Ready stages come before stages whose parents run their last tasks. Ties: the first stage.

    Args:
        observation: state of the cluster.
        job: live job (index in the job arrays) with a schedulable stage.
    """
    stages, critical_path_ms = observation.stages_of(job), observation.profiles[job].critical_path_ms
    chosen = _longest_path(observation.stages[stages], critical_path_ms)
    return all_offered(observation, stages.start + chosen)


@compiled
def first_job(jobs, stages, key, ahead):  # type: ignore[no-untyped-def]
    """Return the job with the least ``key`` [J] among live jobs with a schedulable stage (index in the job arrays).

    Unless ``ahead``, the stage must be ready. Without such a job, return -1.
    """
    first = -1
    for job in range(len(jobs)):
        # A job's next stage is ready if the job has a ready stage.
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
