"""Gamma-boost: in order of arrival, where small jobs count as arrived earlier (Yu and Scully, arXiv 2404.08826)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.edf import rank
from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation

__all__ = ["GammaBoost"]


class GammaBoost(PricedSrpt):
    """The job with the earliest boosted arrival first, for short tails of the JCT; limits as in ``priced-srpt``.

    A job of size s counts as arrived ``log(1 / (1 - exp(-gamma s))) / gamma`` earlier. The size is its total work over
    the executors of the cluster. On one server with light-tailed sizes this order has the best tail of the response
    time if gamma is the decay rate of the work in the system. Here gamma is that of exponential sizes with the
    workload's mean: ``(1 - load)`` over the mean size. A load near 1 gives the shortest job first, whenever it arrived.

    Args:
        load: load of the cluster, at least 0 and below 1.

    Raises:
        ValueError: a load out of range.
    """

    def __init__(self, load: float = 0.7) -> None:
        if not 0 <= load < 1:
            raise ValueError(f"the load must be at least 0 and below 1, got {load:g}")
        super().__init__()
        self.load = load

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job by its boosted arrival."""
        executors = max(observation.num_executors, 1)
        size_ms = np.maximum(observation.job_first_work_ms, 1.0) / executors
        gamma = (1 - self.load) / (_mean_work_ms(observation) / executors)
        return rank(observation, observation.job_arrival_ms + np.log(-np.expm1(-gamma * size_ms)) / gamma)


def _mean_work_ms(observation: Observation) -> float:
    """Return the mean work of a job in the workload; that of the live jobs if it is unknown."""
    prior = observation.prior
    if prior is None:
        return (
            float(np.maximum(observation.job_first_work_ms, 1.0).sum()) / max(len(observation.jobs), 1) or 1.0
        )
    return math.exp(prior.mean_log_ms + prior.sd_log**2 / 2)
