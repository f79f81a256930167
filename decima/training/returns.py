"""From rewards to returns: what followed a decision, in total, discounted, or relative to the average.

Rewards are spread over the time from one sample to the next, which is not the same for all; so are returns.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["DifferentialReturns", "DiscountedReturns", "Returns", "TotalReturns"]


class Returns(Protocol):
    """A kind of return."""

    def __call__(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> NDArray[np.float64]:
        """The returns of one episode.

        Args:
            reward: float64 [n], from each sample to the next.
            time_ms: float64 [n], ms, of each sample.
            end_ms: when the episode was over, ms.

        Returns:
            float64 [n], from each sample on.
        """


class TotalReturns:
    """The sum of all that follows: for batches of jobs (Decima, section 5.3)."""

    def __call__(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> NDArray[np.float64]:
        """See ``Returns``."""
        return np.cumsum(reward[::-1])[::-1]


class DiscountedReturns:
    """Sum of ``exp(-dt / horizon)`` times the reward, dt later, in continuous time.

    A reward counts as spread evenly over the time in which it was earned.

    Args:
        horizon_ms: 1 / beta, ms.
    """

    def __init__(self, horizon_ms: float) -> None:
        self.horizon_ms = horizon_ms

    def __call__(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> NDArray[np.float64]:
        """See ``Returns``."""
        ages = np.diff(time_ms, append=end_ms) / self.horizon_ms
        factors = np.exp(-ages)
        # The mean of exp(-x) over [0, age]; 1 for no time at all.
        spread = np.divide(-np.expm1(-ages), ages, out=np.ones_like(ages), where=ages > 0)
        now = (reward * spread).tolist()
        result = np.empty(len(now))
        later = 0.0
        for place in range(len(now) - 1, -1, -1):
            later = now[place] + float(factors[place]) * later
            result[place] = later
        return result


class DifferentialReturns:
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

    def __call__(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> NDArray[np.float64]:
        """See ``Returns``."""
        durations = np.diff(time_ms, append=end_ms)
        return np.cumsum((reward - self.rate * durations)[::-1])[::-1]
