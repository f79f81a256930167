"""Rules for jobs whose speedup from more executors differs.

Sources: high-efficiency SRPT, for jobs whose speed is a power of their number of executors (Berg et al., arXiv
1903.09346); inelastic first, which prefers jobs that cannot use more executors (Berg et al., SPAA 2020).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt, place_of
from decima.schedulers.srpt import LimitedSrpt
from simulator.cluster.alone import PARALLELISM, alone_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["HeSrpt", "InelasticFirst", "fractions", "speedup_exponent"]

#: Maximum exponent p of the speedup; beyond it, the smallest job would get all executors.
LARGEST_EXPONENT = 0.95


class HeSrpt(LimitedSrpt):
    """High-efficiency SRPT: a job with less remaining work gets a larger fraction of the cluster.

    If k executors make each job k^p times as fast, these fractions minimise the mean slowdown of a batch, and nearly
    minimise the mean completion time. Here p is fitted to the times of the live jobs alone, and averaged over the jobs.
    The assumptions do not hold exactly: real jobs have different exponents, which fall as k grows; fractions are
    rounded up to whole executors; arrivals change the fractions, but executors do not move for a few tasks.
    """

    def __init__(self) -> None:
        self._exponent: PerJob[float] = PerJob(speedup_exponent, lambda exponents: float(np.mean(exponents)))

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return fractions of the cluster for jobs with unclaimed tasks, 1 for other jobs."""
        limits = np.ones(work.size)
        wanting = np.flatnonzero(observation.job_unsaturated_stages > 0)
        ranked = wanting[np.argsort(-work[wanting], kind="stable")]
        shares = fractions(ranked.size, self._exponent(observation))
        limits[ranked] = np.ceil(observation.num_executors * shares)
        return limits


def fractions(jobs: int, exponent: float) -> NDArray[np.float64]:
    """Return each job's fraction of the executors, the largest job first, float64 [jobs]; ``exponent``: p, below 1."""
    bounds = (np.arange(jobs + 1) / max(jobs, 1)) ** (1 / (1 - exponent))
    return np.diff(bounds)


def speedup_exponent(profile: JobProfile, config: ClusterConfig) -> float:
    """Fit p of the speedup k^p to a job's times alone on k executors; return p, from 0 to ``LARGEST_EXPONENT``."""
    times = alone_ms(profile, config)
    if times.size < 2:
        return 0.0
    slope = np.polyfit(np.log(PARALLELISM[: times.size]), -np.log(np.maximum(times, 1.0)), 1)[0]
    return float(np.clip(slope, 0.0, LARGEST_EXPONENT))


class InelasticFirst(PricedSrpt):
    """The job with the least useful parallelism first, on a tie the earlier job; limits as in ``priced-srpt``.

    Inelastic jobs cannot use executors that elastic jobs leave at the end, so they should run while elastic jobs run
    too (B. Berg's thesis, 2021). The theory has two classes of jobs with exponential sizes; an inelastic job uses one
    executor. It proves optimality if elastic jobs are larger on average. Here elasticity is gradual.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the useful parallelism of each job."""
        return self._known(observation)[:, place_of(self.constants.measured)].copy()
