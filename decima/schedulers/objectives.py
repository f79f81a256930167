"""Orders of jobs for other objectives than the mean JCT: weighted mean, deadlines, tails.

Sources: Smith's ratio (Smith, 1956); earliest deadline first (Liu and Layland, 1973); least slack first, also called
least laxity first (Mok, 1983); gamma-boost, in order of arrival, where small jobs count as arrived earlier (Yu and
Scully, arXiv 2404.08826); apparent tardiness cost (Vepsalainen and Morton, Management Science 33(8), 1987).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import check_positive
from decima.schedulers.priced_srpt import BY_WORK, PricedSrpt
from simulator.cluster.alone import alone_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["Atc", "AtcConstants", "Edf", "GammaBoost", "LeastSlack", "WeightedSrpt"]

#: Largest exponent of the order: jobs with more time to spare, or without a deadline, count alike.
FARTHEST = 8.0
#: Bounds of the pressure of a deadline.
PRESSURE = (0.05, 1.0)


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


class WeightedSrpt(PricedSrpt):
    """The job with the least remaining work over its weight first; limits as in ``priced-srpt``.

    On one executor and for jobs that arrive together, this order has the least weighted mean JCT.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the remaining work of each job over its weight, ms."""
        return observation.work_ms(observation.remaining_tasks) / observation.job_weight


class LeastSlack(PricedSrpt):
    """The job with the least time to spare first; limits as in ``priced-srpt``.

    Time to spare: time until the deadline, less the time that the rest of the job takes alone on the cluster. That is
    the estimate for the whole job times the share of its work that remains. Jobs without a deadline come last.
    """

    def __init__(self, jitter: float = 0.0, **constants: float) -> None:
        super().__init__(jitter, **constants)
        self._pace = PerJob(_pace, np.array)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job by its time to spare."""
        left_ms = observation.work_ms(observation.remaining_tasks) * self._pace(observation)
        return rank(observation, observation.job_deadline_ms - observation.time_ms - left_ms)


def _pace(profile: JobProfile, config: ClusterConfig) -> float:
    """Return the time of a job alone over its total work."""
    return float(alone_ms(profile, config).min()) / max(profile.work_ms, 1.0)


class GammaBoost(PricedSrpt):
    """The job with the earliest boosted arrival first, for short tails of the JCT; limits as in ``priced-srpt``.

    A job of size s counts as arrived ``log(1 / (1 - exp(-gamma s))) / gamma`` earlier. The size is its total work over
    the executors of the cluster. On one server with light-tailed sizes this order has the best tail of the response
    time if gamma is the decay rate of the work in the system. Here gamma is that of exponential sizes with the
    workload's mean: ``(1 - load)`` over the mean size. A load near 1 gives the shortest job first, whenever it arrived.

    Args:
        load: load of the cluster, at least 0 and below 1.
        decay: factor on gamma, positive; near 0 gives the shortest job first, a large one first come, first served.
        constants: fields of ``PricedConstants``, positive.

    Raises:
        ValueError: a load out of range, or another constant is not positive.
        TypeError: there is no such constant.
    """

    def __init__(self, load: float = 0.7, decay: float = 1.0, **constants: float) -> None:
        if not 0 <= load < 1:
            raise ValueError(f"the load must be at least 0 and below 1, got {load:g}")
        check_positive(decay=decay)
        super().__init__(**constants)
        self.load, self.decay = load, decay

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job by its boosted arrival."""
        executors = max(observation.num_executors, 1)
        size_ms = np.maximum(observation.job_first_work_ms, 1.0) / executors
        gamma = self.decay * (1 - self.load) / (_mean_work_ms(observation) / executors)
        return rank(observation, observation.job_arrival_ms + np.log(-np.expm1(-gamma * size_ms)) / gamma)


def _mean_work_ms(observation: Observation) -> float:
    """Return the mean work of a job in the workload; that of the live jobs if it is unknown."""
    prior = observation.prior
    if prior is None:
        return (
            float(np.maximum(observation.job_first_work_ms, 1.0).sum()) / max(len(observation.jobs), 1) or 1.0
        )
    return math.exp(prior.mean_log_ms + prior.sd_log**2 / 2)


class AtcConstants(NamedTuple):
    """Constants of ``atc``, beside those of ``priced-srpt``; ``decima tune`` finds others.

    Attributes:
        lookahead: time to spare that makes a job less urgent by a factor of e, in mean remaining times of a live job.
        margin: factor on the remaining time of a job alone when its time to spare is computed.
        given_up: factor on the order of a job that can no longer meet its deadline.
        given_up_limit: factor on its limit.
        pressed: the limit is multiplied by the pressure to this power. Pressure: remaining time of the job alone over
            the time until its deadline, times 3.
        weighted: the limit is multiplied by the weight, over the geometric mean of the live jobs, to this power.
    """

    lookahead: float = 2.0
    margin: float = 1.0
    given_up: float = 20.0
    given_up_limit: float = 0.5
    pressed: float = 0.3
    weighted: float = 0.2


class Atc(LeastSlack):
    """Remaining work over weight, times a factor that falls as the deadline comes near; the least first.

    Jobs that can no longer meet their deadline come after the others and get fewer executors. Limits are those of
    ``priced-srpt``, more for jobs with a large weight or a near deadline. Without weights and deadlines, this is
    ``priced-srpt``.

    Args:
        constants: fields of ``AtcConstants`` and of ``PricedConstants``, positive.

    Raises:
        ValueError: a constant is not positive.
        TypeError: there is no such constant.
    """

    def __init__(self, **constants: float) -> None:
        own = {name: constants.pop(name) for name in AtcConstants._fields if name in constants}
        check_positive(**own)
        super().__init__(**constants)
        self.own = AtcConstants(**own)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return an empty array: the order is the remaining work, times factors."""
        return BY_WORK

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        own, weight = self.own, observation.job_weight
        time_ms = observation.job_deadline_ms - observation.time_ms
        order, limit = 1.0 / weight, np.ones(len(weight))
        if len(weight) and weight.min() < weight.max():
            limit = (weight / np.exp(np.log(weight).mean())) ** own.weighted
        if np.isfinite(time_ms).any():
            left_ms = observation.work_ms(observation.remaining_tasks) * self._pace(observation)
            spare_ms = time_ms - own.margin * left_ms
            urgency_ms = own.lookahead * max(float(left_ms.mean()), 1.0)
            order = order * np.exp(np.clip(spare_ms / urgency_ms, 0.0, FARTHEST))
            pressure = np.clip(left_ms / np.maximum(time_ms, 1.0), *PRESSURE)
            lost = spare_ms < 0
            order = np.where(lost, own.given_up * order, order)
            limit = limit * np.where(lost, own.given_up_limit, (3 * pressure) ** own.pressed)
        factors = np.array([order, limit])
        return factors * super()._factors(observation, jitter) if jitter else factors
