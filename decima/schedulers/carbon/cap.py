"""CAP: a quota of executors that falls as the carbon intensity rises."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from decima.schedulers.carbon.base import CarbonAware, window_ms
from simulator.cluster.observation import Decision, Observation
from workloads.carbon import Signal

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["Cap", "quota", "thresholds"]

#: Minimum ratio of the bounds. With a lower bound of 0, the quota would be the minimum unless the intensity is 0.
LEAST_RATIO = 1e-3


class Cap(CarbonAware):
    """CAP: limit the number of busy executors by the carbon intensity, around any scheduler (arXiv 2502.09717).

    ``quota`` computes the limit from the bounds of the forecast. There is no preemption: executors get further work
    only while fewer executors than the quota are busy. Parallelism limits of the other scheduler are multiplied by the
    quota's share of the executors.

    Args:
        minimum: minimum quota, as a share of the executors; 1 has no effect. The paper has 20 of 100 executors.
        base: the other scheduler; by default ``priced-srpt``.

    Raises:
        ValueError: the minimum is out of range.
    """

    def __init__(self, minimum: float = 0.2, base: DecidesStages | None = None) -> None:
        if not 0 < minimum <= 1:
            raise ValueError(f"the minimum must be above 0 and at most 1, got {minimum:g}")
        super().__init__(base)
        self.minimum = minimum

    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the other scheduler's decision within the quota."""
        executors = max(observation.num_executors, 1)
        low, high = signal.bounds(observation.time_ms, window_ms(signal))
        least = max(1, math.ceil(self.minimum * executors))
        most = quota(signal.at(observation.time_ms), low, high, executors, least)
        room = most - self.busy(observation)
        if room <= 0:
            return None
        if (decision := self.base.decide(observation)) is None:
            return None
        held = observation.held(int(observation.stage_job[decision.stage]))
        limit = max(math.ceil(decision.limit * most / executors), held + 1)
        return Decision(decision.stage, min(limit, held + room))


def quota(intensity: float, low: float, high: float, executors: int, least: int) -> int:
    """Return the maximum number of busy executors: ``least`` plus the number of thresholds not below the intensity.

    Args:
        intensity: current carbon intensity.
        low, high: bounds of the forecast.
        executors: number of executors of the cluster, the quota at the lower bound.
        least: minimum quota, at the upper bound.
    """
    if intensity <= low or least >= executors:
        return executors
    found = thresholds(max(low, LEAST_RATIO * high), high, executors - least)
    return least + sum(threshold >= intensity for threshold in found)


@lru_cache(maxsize=1024)
def thresholds(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return the thresholds of k-search for k = ``count`` items, descending from below ``high`` to about ``low``.

    Threshold i from 1 to k is ``high - (high - high / alpha) (1 + 1 / (k alpha))^(i - 1)``, where alpha solves
    ``(1 + 1 / (k alpha))^k = (high - low) / (high (1 - 1 / alpha))`` (arXiv 2502.09717, section 4.2).
    """
    least, most = 1.0, high / low
    for _ in range(100):  # bisection: the left side minus the right side grows with alpha
        alpha = (least + most) / 2
        left = count * math.log1p(1 / (count * alpha))
        right = math.log((high - low) / (high * (1 - 1 / alpha))) if alpha > 1 else math.inf
        least, most = (alpha, most) if left < right else (least, alpha)
    growth = 1 + 1 / (count * most)
    return tuple(high - (high - high / most) * growth**number for number in range(count))
