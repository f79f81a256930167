"""Gittins index for jobs of which a log-normal distribution of the work that is left is known."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation
from simulator.compiled import compiled

__all__ = ["Gittins", "index_over_median"]

#: Standard deviations in the table of ranks, and how many of them the search for the best quantum goes through.
LARGEST_SD, ENTRIES, SEARCHED = 4.0, 81, 2000


class Gittins(PricedSrpt):
    """Highest Gittins index first: chance of completion over expected service; limits as in ``priced-srpt``.

    The posterior of a job's work is log-normal, given its estimate, the workload's distribution of job sizes and the
    job's completed tasks. The rank is the least expected service per completion over all quanta of service d:
    ``E[min(X, d)] / P(X <= d)``, where X is the remaining work. Uncertain jobs come earlier than by their mean,
    because they may be short. The order is optimal in the M/G/1 queue with unknown sizes (Gittins, 1979; Aalto, Ayesta
    and Righter, 2009). Here jobs run in parallel, and completed tasks are evidence beyond the job's being incomplete.
    """

    def __init__(self, jitter: float = 0.0) -> None:
        super().__init__(jitter)
        self._sd = np.linspace(0.0, LARGEST_SD, ENTRIES)
        self._rank = np.array([index_over_median(sd) for sd in self._sd.tolist()])

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the reciprocal of the index of each job, ms."""
        work = observation.work_ms(observation.remaining_tasks)
        rank: NDArray[np.float64] = work * np.interp(observation.job_log_sd, self._sd, self._rank)
        return rank


@compiled
def index_over_median(sd):  # type: ignore[no-untyped-def]
    """Return the least of ``E[min(X, d)] / P(X <= d)`` over d, of a log-normal X with median 1 and this deviation."""
    if sd == 0:
        return 1.0
    least = math.inf
    for number in range(SEARCHED):
        z = 10.0 * number / SEARCHED - 5.0  # logarithm of d, in standard deviations
        completed = _normal(z)
        served = math.exp(sd * sd / 2) * _normal(z - sd) + math.exp(sd * z) * (1 - completed)
        least = min(least, served / completed)
    return least


@compiled
def _normal(z):  # type: ignore[no-untyped-def]
    return math.erfc(-z / math.sqrt(2)) / 2
