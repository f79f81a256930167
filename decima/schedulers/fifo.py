"""FIFO, Spark's default: first in, first out (Decima, section 7.1, baseline 1)."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from decima.schedulers.decisions import all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation

__all__ = ["Fifo"]


class Fifo(Scheduler):
    """Jobs in order of arrival, each with as many executors as it can use.

    With the published simulator's semantics (``Semantics.fifo_reuses_grants`` off) this is its ``spark_fifo``:
    executors stay with their job while it has work, and the executors that a job gets from outside, in total over its
    lifetime, are at most the number of executors of the cluster, even if the job returned some of them.
    """

    def __init__(self) -> None:
        self._reuses_grants = True
        self._granted: dict[int, int] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode without grants of executors."""
        self._reuses_grants = config.semantics.fifo_reuses_grants
        self._granted = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the next stage of the first job that has one, with all offered executors."""
        if not self._reuses_grants:
            return self._decide_by_grants(observation)
        head = int(np.argmax(observation.next_stage >= 0))
        return all_offered(observation, int(observation.next_stage[head]))

    def _decide_by_grants(self, observation: Observation) -> Decision | None:
        if observation.source >= 0 and observation.next_stage[observation.source] >= 0:
            return all_offered(observation, int(observation.next_stage[observation.source]))
        for job in np.flatnonzero(observation.next_stage >= 0).tolist():
            job_id, stage = int(observation.job_id[job]), int(observation.next_stage[job])
            left = observation.num_executors - self._granted.get(job_id, 0)
            if left > 0:
                count = min(int(observation.unclaimed_tasks[stage]), left, observation.offered)
                self._granted[job_id] = self._granted.get(job_id, 0) + count
                return Decision(stage, observation.held(job) + count)
        return None
