"""Orders of jobs whose sizes are estimates, or unknown.

Sources: Gittins index; preemptive shortest job first by the work estimated at arrival, and SRPT on estimates with a
bounce, which bounds the harm of estimates that are too small (Scully, Grosof and Mitzenmacher, ITCS 2022; 2110.00633);
size estimate hedging: SRPT on estimates until a job is known to be underestimated (Akbari-Moghaddam and Down); least
attained service, also called foreground-background (survey: Nuyens and Wierman, 2008).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation
from simulator.compiled import compiled

__all__ = ["Gittins", "Las", "Seh", "SjfEstimate", "SrptBounce", "index_over_median"]

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


class SjfEstimate(PricedSrpt):
    """Smallest estimate of the total work first, whatever is observed later; limits as in ``priced-srpt``.

    On one server the mean response time is within a constant factor of the optimum if estimates are off by bounded
    factors (2110.00633). The bound does not cover a cluster: jobs run in parallel, executors finish their task before
    they leave, and moves take time.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the work of each job as estimated at its arrival, ms."""
        return observation.job_first_work_ms


class SrptBounce(PricedSrpt):
    """Rank ``max(z - a, min(a, z))`` of estimate z and attained service a, lowest first; limits as in ``priced-srpt``.

    Up to half the estimate the rank is that of SRPT. Then it rises again, up to the estimate and no further: a job that
    outlives its estimate does not stay in front for ever, which is what makes naive SRPT on estimates arbitrarily bad
    (Scully, Grosof and Mitzenmacher, ITCS 2022). The proof is for one server and bounded errors. What tasks reveal of a
    job before its end is not used.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job, ms."""
        estimate, attained = observation.job_first_work_ms, observation.job_attained_ms
        rank: NDArray[np.float64] = np.maximum(estimate - attained, np.minimum(attained, estimate))
        return rank


class Seh(PricedSrpt):
    """The least that is left of the estimate first, but never less than a share of it; limits as in ``priced-srpt``.

    The priority of a job rises as in SRPT and is then frozen, so that an underestimated job does not go before all
    others (SEH, ACM TOMACS 33, 2023, for one server). The index of the paper has one parameter, too, but another form.

    Args:
        frozen: share of the estimate at which the priority is frozen. 0 is naive SRPT on estimates, 1 ``sjf-estimate``.

    Raises:
        ValueError: the share is not between 0 and 1.
    """

    def __init__(self, frozen: float = 0.5) -> None:
        if not 0 <= frozen <= 1:
            raise ValueError(f"the frozen share must be from 0 to 1, got {frozen:g}")
        super().__init__()
        self.frozen = frozen

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the remaining part of each job's first estimate, ms."""
        estimate = observation.job_first_work_ms
        left: NDArray[np.float64] = np.maximum(estimate - observation.job_attained_ms, self.frozen * estimate)
        return left


class Las(PricedSrpt):
    """The job whose finished tasks took the least executor time first; limits as in ``priced-srpt``.

    Without any estimate of sizes this order is optimal on one server if the hazard rate of the sizes decreases. A
    running task counts when it ends, so that jobs do not share as finely as in theory.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the executor time of finished tasks of each job, ms."""
        return observation.job_attained_ms
