"""From rewards to returns: what followed a decision, in total, discounted, or relative to the average.

Rewards are spread over the time from one sample to the next, which is not the same for all; so are returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["DifferentialReturns", "DiscountedReturns", "Returns", "TotalReturns", "accumulate"]


class Returns(ABC):
    """A kind of return."""

    @abstractmethod
    def steps(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What counts of each step of an episode.

        Args:
            reward: float64 [n], from each sample to the next.
            time_ms: float64 [n], ms, of each sample.
            end_ms: when the episode was over, ms.

        Returns:
            float64 [n], the rewards; and float64 [n], how much all that comes after each of them counts.
        """

    def __call__(
        self,
        reward: NDArray[np.float64],
        time_ms: NDArray[np.float64],
        end_ms: float,
        beyond: float = 0.0,
    ) -> NDArray[np.float64]:
        """The returns of one episode, float64 [n], from each sample on.

        ``beyond`` is what would have followed, had the episode not been cut off.
        """
        return accumulate(*self.steps(reward, time_ms, end_ms), beyond)


class TotalReturns(Returns):
    """The sum of all that follows: for batches of jobs (Decima, section 5.3)."""

    def steps(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See ``Returns``."""
        return reward, np.ones_like(reward)


class DiscountedReturns(Returns):
    """Sum of ``exp(-dt / horizon)`` times the reward, dt later, in continuous time.

    A reward counts as spread evenly over the time in which it was earned.

    Args:
        horizon_ms: 1 / beta, ms.
    """

    def __init__(self, horizon_ms: float) -> None:
        self.horizon_ms = horizon_ms

    def steps(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See ``Returns``."""
        ages = np.diff(time_ms, append=end_ms) / self.horizon_ms
        # The mean of exp(-x) over [0, age]; 1 for no time at all.
        spread = np.divide(-np.expm1(-ages), ages, out=np.ones_like(ages), where=ages > 0)
        return reward * spread, np.exp(-ages)


class DifferentialReturns(Returns):
    """Sum of what follows, relative to the average reward per time (Decima, appendix on the average reward).

    The average is that of the last samples of all episodes seen so far; those that took no time do not count.

    Args:
        window: number of samples to average over.
    """

    def __init__(self, window: int) -> None:
        self.recent: deque[tuple[float, float]] = deque(maxlen=window)

    def observe(self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float) -> None:
        """Let an episode enter the average."""
        durations = np.diff(time_ms, append=end_ms)
        took_time = durations > 0
        self.recent.extend(zip(reward[took_time].tolist(), durations[took_time].tolist(), strict=True))

    @property
    def rate(self) -> float:
        """Average reward per ms."""
        duration = sum(duration for _, duration in self.recent)
        return sum(reward for reward, _ in self.recent) / duration if duration > 0 else 0.0

    def steps(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See ``Returns``."""
        durations = np.diff(time_ms, append=end_ms)
        return reward - self.rate * durations, np.ones_like(reward)


def accumulate(
    values: NDArray[np.float64], factors: NDArray[np.float64], beyond: float = 0.0
) -> NDArray[np.float64]:
    """From each place on, the sum of values, each times the factors of the places before it.

    Args:
        values: float64 [n].
        factors: float64 [n]; ``factors[k]`` is how much counts what comes after k.
        beyond: what comes after the last one.

    Returns:
        float64 [n].
    """
    result = np.empty(values.size)
    later = beyond
    for place, (value, factor) in enumerate(zip(values[::-1].tolist(), factors[::-1].tolist(), strict=True)):
        later = value + factor * later
        result[place] = later
    return result[::-1]
