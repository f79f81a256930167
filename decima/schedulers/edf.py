"""Earliest deadline first (Liu and Layland, 1973)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation

__all__ = ["Edf", "rank"]


class Edf(PricedSrpt):
    """The job with the earliest deadline first; limits as in ``priced-srpt``.

    Jobs without a deadline come last, the one with the least remaining work first. On one executor that is offered
    after each task of unit length, this meets all deadlines if any schedule does.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job by its deadline."""
        return rank(observation, observation.job_deadline_ms)


def rank(observation: Observation, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each job, float64 [J], from 1, by ``values``; of equals, the least remaining work first.

    ``PricedSrpt`` multiplies the order of the job whose executors are offered by a factor below 1, which is meant for
    positive quantities such as work, and does not change which rank is the first.
    """
    order = np.lexsort((observation.work_ms(observation.remaining_tasks), values))
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1.0, len(order) + 1)
    return ranks
