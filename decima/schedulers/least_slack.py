"""Least slack first, also called least laxity first (Mok, 1983)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.edf import rank
from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.alone import alone_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["LeastSlack"]


class LeastSlack(PricedSrpt):
    """The job with the least time to spare first; limits as in ``priced-srpt``.

    Time to spare: time until the deadline, less the time that the rest of the job takes alone on the cluster. That is
    the estimate for the whole job times the share of its work that remains. Jobs without a deadline come last.
    """

    def __init__(self, jitter: float = 0.0) -> None:
        super().__init__(jitter)
        self._pace = PerJob(_pace, np.array)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job by its time to spare."""
        left_ms = observation.work_ms(observation.remaining_tasks) * self._pace(observation)
        return rank(observation, observation.job_deadline_ms - observation.time_ms - left_ms)


def _pace(profile: JobProfile, config: ClusterConfig) -> float:
    """Return the time of a job alone over its total work."""
    return float(alone_ms(profile, config).min()) / max(profile.work_ms, 1.0)
