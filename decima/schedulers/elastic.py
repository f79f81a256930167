"""Rules for jobs that gain differently from more executors.

Sources: high-efficiency SRPT, executors for jobs whose speed is a power of their number (Berg et al., 1903.09346);
inelastic first, jobs that cannot use more executors before jobs that can (Berg et al., SPAA 2020).
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

#: No job is taken to gain more: beyond this, the smallest job would get all executors.
LARGEST_EXPONENT = 0.95


class HeSrpt(LimitedSrpt):
    """Executors by the rank of the remaining work: the smaller the job, the larger its fraction of the cluster.

    If k executors make every job k^p times as fast, these fractions minimise the mean slowdown of a batch, and nearly
    the mean completion time. Here p is fitted to the times that the live jobs take alone, and averaged over them. Real
    jobs have an exponent of their own each, which also falls as k grows; fractions are rounded up to whole executors;
    a job that comes later changes the fractions, but executors do not move for a few tasks.
    """

    def __init__(self) -> None:
        self._exponent: PerJob[float] = PerJob(speedup_exponent, lambda exponents: float(np.mean(exponents)))

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return fractions of the cluster for jobs with unclaimed tasks, 1 for other jobs."""
        limits = np.ones(work.size)
        wanting = np.flatnonzero(observation.job_unsaturated_stages > 0)
        ranked = wanting[np.argsort(-work[wanting], kind="stable")]
        limits[ranked] = np.ceil(
            observation.num_executors * fractions(ranked.size, self._exponent(observation))
        )
        return limits


def fractions(jobs: int, exponent: float) -> NDArray[np.float64]:
    """Return the fraction of the executors of each job, the largest job first, float64 [jobs]."""
    bounds = (np.arange(jobs + 1) / max(jobs, 1)) ** (1 / (1 - exponent))
    return np.diff(bounds)


def speedup_exponent(profile: JobProfile, config: ClusterConfig) -> float:
    """Fit p of the speedup k^p to the times that a job takes alone with k executors; from 0 to 0.95."""
    times = alone_ms(profile, config)
    if times.size < 2:
        return 0.0
    slope = np.polyfit(np.log(PARALLELISM[: times.size]), -np.log(np.maximum(times, 1.0)), 1)[0]
    return float(np.clip(slope, 0.0, LARGEST_EXPONENT))


class InelasticFirst(PricedSrpt):
    """The job that uses the fewest executors well first, of equals the earlier one; limits as in ``priced-srpt``.

    Inelastic jobs cannot use executors that elastic ones leave behind, so that they should run while others could run
    too (B. Berg's thesis, 2021). The theory has two kinds of jobs, with exponential sizes and one executor for each
    inelastic job, and proves optimality where elastic jobs are the larger ones on average. Here elasticity is gradual.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the useful parallelism of each job."""
        return self._known(observation)[:, place_of(self.constants.measured)].copy()
