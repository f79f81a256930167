"""Shortest remaining work first, with few executors for each job."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from simulator import Decision, Observation

__all__ = ["CappedSrpt"]

#: Work in units of this, ms.
UNIT_MS = 100_000.0
FEWEST = 4


class CappedSrpt(Scheduler):
    """Shortest remaining work first; no job gets more than it can use well, while others wait.

    Tasks take longer the more executors their job holds, so a job is limited to ``coefficient`` times the root of
    its remaining work (in 100 s, tasks times their mean duration), but at least to 4 executors and to its share
    of the cluster. Executors that are left when every job has reached its limit go to the shortest job all the same.

    Args:
        coefficient: executors for a job with 100 s of work left.
    """

    def __init__(self, coefficient: float = 5.0) -> None:
        self.coefficient = coefficient

    def decide(self, observation: Observation) -> Decision | None:
        """The shortest job below its limit, else the shortest one."""
        jobs = observation.job_executors.size
        work = np.bincount(
            observation.stage_job, observation.remaining_tasks * observation.mean_task_ms, minlength=jobs
        )
        most = observation.num_executors
        limit = np.clip(self.coefficient * np.sqrt(work / UNIT_MS), max(FEWEST, most // jobs), most).astype(
            np.int64
        )
        held = observation.job_executors.copy()
        if observation.source >= 0:
            held[observation.source] -= observation.offered
        ready = observation.next_stage >= 0
        for bound in (limit, np.full(jobs, most)):
            chosen = np.flatnonzero(ready & (held < bound))
            if chosen.size:
                job = chosen[np.argmin(work[chosen])]
                return Decision(int(observation.next_stage[job]), int(bound[job]))
        return None
