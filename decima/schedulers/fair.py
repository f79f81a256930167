"""Fair and weighted fair sharing of the executors among jobs (Decima, section 7.1, baselines 3 to 5)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["Fair", "NaiveWeightedFair", "WeightedFair"]

#: Keeps a share that is a whole number from being rounded up to the next one.
_ROUNDING = 1e-9
#: The largest alpha; beyond it, the smallest or the largest job gets everything anyway.
STEEPEST = 100
#: Exponents of weights beyond this would make sums of them infinite, or zero.
OVERFLOW = 300.0


class WeightedFair(Scheduler):
    """Share the executors by weight: job i may hold T_i^alpha / sum of T_j^alpha of them, T_i being its total work.

    Shares are rounded up and taken over the jobs in the system that still have unclaimed tasks. Executors that
    become idle stay with their job while it has work; otherwise the first job in order of arrival that is below
    its share gets them. Executors that no job may claim go to the job furthest below its share, rather than idle.
    With alpha = 0 this is the published simulator's ``dynamic_partition``, with alpha = 1 naive weighted fair.

    Args:
        alpha: exponent of the total work; negative values favour short jobs.
    """

    keeps_executors = True

    def __init__(self, alpha: float = 0.0):
        if not abs(alpha) <= STEEPEST:
            raise ValueError(f"alpha must be from -{STEEPEST} to {STEEPEST}, got {alpha:g}")
        self.alpha = alpha
        self._weights = PerJob(_log_work, self._relative)

    def _relative(self, log_work: list[float]) -> NDArray[np.float64]:
        """Return the weights T^alpha of the live jobs over their geometric mean, so that no exponent overflows."""
        logarithm = np.array(log_work)
        exponents = np.clip(self.alpha * (logarithm - logarithm.mean()), -OVERFLOW, OVERFLOW)
        weights: NDArray[np.float64] = np.exp(exponents)
        return weights

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the source job's next stage with all executors, else the next stage of a job below its share."""
        stages = self.next_stage(observation)
        if observation.source >= 0 and stages[observation.source] >= 0:
            return all_offered(observation, int(stages[observation.source]))
        shares = self._shares(observation)
        held = observation.job_executors
        below = (stages >= 0) & (held < shares)
        first = int(below.argmax())
        if below[first]:
            return Decision(int(stages[first]), int(shares[first]))
        neediest = int(np.where(stages >= 0, held / shares, np.inf).argmin())
        return all_offered(observation, int(stages[neediest]))

    def next_stage(self, observation: Observation) -> NDArray[np.int64]:
        """Return the next stage of each live job, int64 [J], place in the stage arrays; -1 for none."""
        return observation.next_stage

    def _shares(self, observation: Observation) -> NDArray[np.float64]:
        """Return the number of executors that each live job may hold: float64 [J], whole numbers from 1."""
        weights = self._weights(observation)
        total = weights @ (observation.job_unsaturated_stages > 0)
        return np.maximum(np.ceil(weights * (observation.num_executors / total) - _ROUNDING), 1)


def _log_work(profile: JobProfile, _: ClusterConfig) -> float:
    """Return the logarithm of a job's total work in ms; a job without work counts as tiny."""
    return math.log(max(profile.work_ms, 1e-3))


class Fair(WeightedFair):
    """Equal shares of the executors for all jobs in the system."""

    def __init__(self) -> None:
        super().__init__(alpha=0.0)


class NaiveWeightedFair(WeightedFair):
    """Shares proportional to the jobs' total work."""

    def __init__(self) -> None:
        super().__init__(alpha=1.0)
