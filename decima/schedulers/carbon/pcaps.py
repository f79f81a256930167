"""PCAPS: defer decisions on less important stages while the carbon intensity is high."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.carbon.base import CarbonAware, window_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.carbon import Signal
from workloads.job import JobProfile

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["Pcaps", "threshold"]


class Pcaps(CarbonAware):
    """PCAPS: defer stages of low relative importance while the carbon intensity is high (arXiv 2502.09717).

    A decision is deferred if the intensity is above the ``threshold`` for its stage's importance relative to the most
    important stage with tasks to start, unless no executor is busy. The importance in the paper is the probability of
    the stage in a stochastic policy. Rules have no probabilities, so here the importance is the share of the job's
    critical path that starts at the stage, over the job's remaining work. Limits of the other scheduler are multiplied
    by a factor that falls linearly from 1 at the lower bound of the forecast to ``1 - gamma`` at the upper bound. The
    factor of the paper, ``exp(gamma (low - intensity))``, depends on the unit of the intensity.

    Args:
        gamma: carbon awareness, from 0 (none) to 1.
        base: the other scheduler; by default ``priced-srpt``.

    Raises:
        ValueError: gamma is out of range.
    """

    def __init__(self, gamma: float = 0.5, base: DecidesStages | None = None) -> None:
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must be from 0 to 1, got {gamma:g}")
        super().__init__(base)
        self.gamma = gamma
        self._path = PerJob(_path, np.concatenate)

    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the other scheduler's decision with a lower limit, or None to defer the decision."""
        if (decision := self.base.decide(observation)) is None or not self.gamma:
            return decision
        low, high = signal.bounds(observation.time_ms, window_ms(signal))
        intensity = signal.at(observation.time_ms)
        importance = self._importance(observation)
        available = observation.schedulable | (observation.ready_rank >= 0)
        relative = float(importance[decision.stage] / importance[available].max())
        if intensity > threshold(relative, self.gamma, low, high) and self.busy(observation) > 0:
            return None
        held = observation.held(int(observation.stage_job[decision.stage]))
        height = (intensity - low) / (high - low) if high > low else 0.0
        return Decision(decision.stage, max(math.ceil(decision.limit * (1 - self.gamma * height)), held + 1))

    def _importance(self, observation: Observation) -> NDArray[np.float64]:
        """Return the importance of each stage, float64 [S]."""
        work = np.maximum(observation.work_ms(observation.remaining_tasks), 1.0)
        importance: NDArray[np.float64] = self._path(observation) / work[observation.stage_job]
        return importance


def threshold(relative: float, gamma: float, low: float, high: float) -> float:
    """Return the intensity above which a stage is deferred, from its relative importance (0 to 1; ``high`` for 1)."""
    least = gamma * low + (1 - gamma) * high
    if relative >= 1 or not gamma:
        return high
    return least + (high - least) * math.expm1(gamma * relative) / math.expm1(gamma)


def _path(profile: JobProfile, _: ClusterConfig) -> NDArray[np.float64]:
    """Return the ratio of the critical paths from each stage on and of the job, float64 [stages]."""
    path = np.asarray(profile.critical_path_ms, dtype=np.float64)
    return np.maximum(path / max(float(path.max()), 1e-9), 1e-3)
