"""Orders of jobs for objectives other than the mean JCT: weighted mean, deadlines, tails.

Sources: Smith's ratio (Smith, 1956); earliest deadline first (Liu and Layland, 1973); least slack first, also called
least laxity first (Mok, 1983); gamma-boost, the order of arrival with earlier arrivals of small jobs (Yu and Scully,
arXiv 2404.08826); apparent tardiness cost (Vepsalainen and Morton, Management Science 33(8), 1987).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Kind
from decima.schedulers.decisions import check_positive
from decima.schedulers.srpt import BY_WORK, OrderedRule
from simulator.cluster.alone import alone_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["Atc", "AtcConstants", "Edf", "GammaBoost", "LeastSlack", "WeightedSrpt"]

#: Maximum exponent of the order in ``Atc``: all jobs with more slack, and jobs without a deadline, have this exponent.
FARTHEST = 8.0
#: Bounds of the pressure of a deadline, see ``AtcConstants``.
PRESSURE = (0.05, 1.0)


class Edf(OrderedRule):
    """The job with the earliest deadline first; limits as in ``srpt``.

    Jobs without a deadline come last, in order of remaining work. On one executor that is offered after each task of
    unit length, this order meets all deadlines if any schedule does.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job by its deadline."""
        return rank(observation, observation.job_deadline_ms)


def rank(observation: Observation, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each job from 1, float64 [J], by ``values``; on a tie the least remaining work comes first.

    Ranks are positive, because ``OrderedRule`` multiplies the order of the job whose executors are offered by a factor
    below 1. This factor does not change which rank is first.
    """
    order = np.lexsort((observation.work_ms(observation.remaining_tasks), values))
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1.0, len(order) + 1)
    return ranks


class WeightedSrpt(OrderedRule):
    """The job with the least ratio of remaining work and weight first; limits as in ``srpt``.

    On one executor and for jobs that arrive together, this order has the least weighted mean JCT.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the remaining work of each job over its weight, ms."""
        return observation.work_ms(observation.remaining_tasks) / observation.job_weight


class LeastSlack(OrderedRule):
    """The job with the least slack first; limits as in ``srpt``.

    Slack: time until the deadline minus the remaining time of the job alone on the cluster. The remaining time is the
    estimate for the whole job times the remaining share of its work. Jobs without a deadline come last.
    """

    def __init__(self, jitter: float = 0.0, **constants: float) -> None:
        super().__init__(jitter, **constants)
        self._pace = PerJob(_pace, np.array)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job by its slack."""
        left_ms = observation.work_ms(observation.remaining_tasks) * self._pace(observation)
        return rank(observation, observation.job_deadline_ms - observation.time_ms - left_ms)


def _pace(profile: JobProfile, config: ClusterConfig) -> float:
    """Return the ratio of a job's time alone and its total work."""
    return float(alone_ms(profile, config).min()) / max(profile.work_ms, 1.0)


class GammaBoost(OrderedRule):
    """The job with the earliest boosted arrival first, for short tails of the JCT; limits as in ``srpt``.

    The boost of a job of size s is ``log(1 / (1 - exp(-gamma s))) / gamma``, and moves its arrival to an earlier time.
    The size is the total work over the number of executors. On one server with light-tailed sizes this order has the
    best tail of the response time if gamma is the decay rate of the work in the system. Here gamma is the rate for
    exponential sizes with the workload's mean: ``(1 - load)`` over the mean size. With a load near 1, or a small
    ``decay``, the order is shortest job first; with a large ``decay`` it is first come, first served.

    Args:
        load: load of the cluster, at least 0 and below 1.
        decay: factor on gamma, positive.
        constants: fields of ``srpt_weights.Constants``, positive.

    Raises:
        ValueError: the load is out of range, or another constant is not positive.
        TypeError: unknown constant.
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
    """Return the mean work of the workload's jobs, ms; of the live jobs if the workload's prior is unknown."""
    prior = observation.prior
    if prior is None:
        total_ms = float(np.maximum(observation.job_first_work_ms, 1.0).sum())
        return total_ms / max(len(observation.jobs), 1) or 1.0
    return math.exp(prior.mean_log_ms + prior.sd_log**2 / 2)


class AtcConstants(NamedTuple):
    """Constants of ``atc``, in addition to those of ``srpt``; ``decima tune`` tunes them.

    Attributes:
        lookahead: slack that decreases a job's urgency by a factor of e, in mean remaining times of the live jobs.
        margin: factor on the remaining time of a job alone in the computation of its slack.
        given_up: factor on the order of a job that can no longer meet its deadline.
        given_up_limit: factor on the limit of a job that can no longer meet its deadline.
        pressed: exponent of three times the pressure, a factor on the limit. The pressure is the ratio of the job's
            remaining time alone and the time until its deadline.
        weighted: exponent of the weight over the geometric mean of the live jobs' weights, a factor on the limit.
    """

    lookahead: float = 2.0
    margin: float = 1.0
    given_up: float = 20.0
    given_up_limit: float = 0.5
    pressed: float = 0.3
    weighted: float = 0.2


class Atc(LeastSlack):
    """Apparent tardiness cost: remaining work over weight, times a factor that falls towards the deadline; least first.

    Jobs that can no longer meet their deadline come last and get fewer executors. Limits are those of ``srpt``,
    with more executors for jobs with a large weight or a near deadline. Without weights and deadlines, this is
    ``srpt``.

    Args:
        constants: fields of ``AtcConstants`` and of ``srpt_weights.Constants``, positive.

    Raises:
        ValueError: a constant is not positive.
        TypeError: unknown constant.
    """

    def __init__(self, **constants: float) -> None:
        atc_constants = {name: constants.pop(name) for name in AtcConstants._fields if name in constants}
        check_positive(**atc_constants)
        super().__init__(**constants)
        self.own = AtcConstants(**atc_constants)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return an empty array: the order is the remaining work, multiplied by factors."""
        return BY_WORK

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        constants, weight = self.own, observation.job_weight
        time_ms = observation.job_deadline_ms - observation.time_ms
        order, limit = 1.0 / weight, np.ones(len(weight))
        if len(weight) and weight.min() < weight.max():
            limit = (weight / np.exp(np.log(weight).mean())) ** constants.weighted
        if np.isfinite(time_ms).any():
            left_ms = observation.work_ms(observation.remaining_tasks) * self._pace(observation)
            spare_ms = time_ms - constants.margin * left_ms
            urgency_ms = constants.lookahead * max(float(left_ms.mean()), 1.0)
            order = order * np.exp(np.clip(spare_ms / urgency_ms, 0.0, FARTHEST))
            pressure = np.clip(left_ms / np.maximum(time_ms, 1.0), *PRESSURE)
            lost = spare_ms < 0
            order = np.where(lost, constants.given_up * order, order)
            limit = limit * np.where(lost, constants.given_up_limit, (3 * pressure) ** constants.pressed)
        factors = np.array([order, limit])
        return factors * super()._factors(observation, jitter) if jitter else factors


class AtcForMisses(Atc):
    """``atc`` with constants that a search found for few missed deadlines, in streams of TPC-H jobs."""

    kind = Kind.TUNED_RULE

    def __init__(self) -> None:
        super().__init__(**searched_constants("misses"))


class AtcForWeights(Atc):
    """``atc`` with constants that a search found for a short weighted mean JCT, in streams of TPC-H jobs."""

    kind = Kind.TUNED_RULE

    def __init__(self) -> None:
        super().__init__(**searched_constants("weighted"))


def searched_constants(objective: str) -> dict[str, float]:
    """Return the constants of ``atc`` that a search (CMA-ES) found for an objective, ``misses`` or ``weighted``."""
    constants: dict[str, dict[str, float]] = json.loads(
        Path(__file__).with_name("atc_tuned.json").read_text(encoding="utf-8")
    )
    return constants[objective]
