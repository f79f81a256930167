"""Shortest job first, along the critical path (Decima, section 7.1, baseline 2, and appendix G)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator import ClusterConfig, Decision, Observation
from workloads.arrivals import JobSequence

__all__ = ["SjfCp", "on_critical_path"]


class SjfCp(Scheduler):
    """Jobs by total work, smallest first; inside a job the stage with the longest critical path.

    Every stage gets all executors that it can use before the next stage, and every job before the next job. Stages
    that can start at once go before those whose parents are still finishing.
    """

    def __init__(self) -> None:
        self._work_ms: NDArray[np.float64] = np.zeros(0)
        self._critical_path_ms: list[NDArray[np.float64]] = []

    def reset(self, config: ClusterConfig, sequence: JobSequence) -> None:
        """Look up total work and critical paths."""
        self._work_ms = np.array([profile.work_ms for profile in sequence.profiles])
        self._critical_path_ms = [profile.critical_path_ms for profile in sequence.profiles]

    def decide(self, observation: Observation) -> Decision | None:
        """The smallest job's stage on its critical path, with all executors offered."""
        jobs = np.flatnonzero(observation.next_stage >= 0)
        job = int(jobs[np.argmin(self._work_ms[observation.job_id[jobs]])])
        return on_critical_path(observation, job, self._critical_path_ms[observation.job_id[job]])


def on_critical_path(observation: Observation, job: int, critical_path_ms: NDArray[np.float64]) -> Decision:
    """Give the stage of a job that has the longest critical path as many of the offered executors as it can use.

    Stages that can start at once go before those whose parents are still finishing; on a tie the first goes.

    Args:
        observation: what is offered.
        job: a live job (place in the job arrays) with a schedulable stage.
        critical_path_ms: of its stages, float64 [stages of the job], ms.
    """
    stages = observation.stages_of(job)
    candidates = np.flatnonzero(observation.schedulable[stages])
    ready = observation.ready_rank[stages][candidates] >= 0
    best = candidates[np.lexsort((-candidates, critical_path_ms[candidates], ready))[-1]]
    return all_offered(observation, stages.start + int(best))
