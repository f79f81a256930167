"""Shortest job first, along the critical path (Decima, section 7.1, baseline 2, and appendix G)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["SjfCp", "on_critical_path"]


class SjfCp(Scheduler):
    """Jobs by total work, smallest first; inside a job the stage with the longest critical path.

    Every stage gets all executors that it can use before the next stage, and every job before the next job. Stages
    that can start at once go before those whose parents are still finishing.
    """

    def __init__(self) -> None:
        self._work_ms: PerJob[NDArray[np.float64]] = PerJob(_work_ms, np.array)

    def decide(self, observation: Observation) -> Decision | None:
        """The smallest job's stage on its critical path, with all executors offered."""
        jobs = np.flatnonzero(observation.next_stage >= 0)
        return on_critical_path(observation, int(jobs[np.argmin(self._work_ms(observation)[jobs])]))


def _work_ms(profile: JobProfile, _: ClusterConfig) -> float:
    return profile.work_ms


def on_critical_path(observation: Observation, job: int) -> Decision:
    """Give the stage of a job that has the longest critical path as many of the offered executors as it can use.

    Stages that can start at once go before those whose parents are still finishing; on a tie the first goes.

    Args:
        observation: what is offered.
        job: a live job (place in the job arrays) with a schedulable stage.
    """
    stages, critical_path_ms = observation.stages_of(job), observation.profiles[job].critical_path_ms
    candidates = np.flatnonzero(observation.schedulable[stages])
    ready = observation.ready_rank[stages][candidates] >= 0
    best = candidates[np.lexsort((-candidates, critical_path_ms[candidates], ready))[-1]]
    return all_offered(observation, stages.start + int(best))
