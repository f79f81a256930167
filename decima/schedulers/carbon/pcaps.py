"""PCAPS: decisions on less important stages wait while the carbon intensity is high."""

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

    A decision is deferred if the intensity is above ``threshold`` of its stage's importance relative to the most
    important stage with tasks to start, unless no executor is busy. The paper's importance is the probability of the
    stage in a stochastic policy. A rule has none, so here it is the share of its job's critical path that begins at the
    stage, over the remaining work of the job. Limits fall from those of the other scheduler to ``1 - gamma`` times as
    much, linearly from the lower to the upper bound; the paper's ``exp(gamma (low - intensity))`` depends on the unit.

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
        """Return the other scheduler's decision, or None to defer it."""
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
    """Return the intensity above which a stage of this relative importance, 0 to 1, is deferred; ``high`` for 1."""
    least = gamma * low + (1 - gamma) * high
    if relative >= 1 or not gamma:
        return high
    return least + (high - least) * math.expm1(gamma * relative) / math.expm1(gamma)


def _path(profile: JobProfile, _: ClusterConfig) -> NDArray[np.float64]:
    """Return the critical path from each stage on, over that of the job, float64 [stages]."""
    path = np.asarray(profile.critical_path_ms, dtype=np.float64)
    return np.maximum(path / max(float(path.max()), 1e-9), 1e-3)
