"""From rewards to returns: what followed a decision, in total, discounted, or relative to the average.

Between the decisions of a cluster passes any time, over which rewards are spread; a grid's clock moves in steps, and
its episodes are in lock-step: S actions in each of N episodes, where a clock that stands still discounts nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decima.learning.part import TrainingPart, wrong_part

__all__ = [
    "DifferentialReturns",
    "DiscountedReturns",
    "Returns",
    "TotalReturns",
    "accumulate",
    "checked_steps",
    "n_step_returns",
    "returns_to_go",
]


class Returns(TrainingPart, ABC):
    """A kind of return; the user's own ones are subclasses."""

    def observe(self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float) -> None:
        """Told of every episode of an iteration before its returns are asked for; as ``steps`` is."""

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
        bootstrap_value: float = 0.0,
    ) -> NDArray[np.float64]:
        """The returns of one episode, float64 [n], from each sample on.

        The bootstrap value is the return to expect after the end of an episode that was truncated.
        """
        return accumulate(*checked_steps(self, reward, time_ms, end_ms), bootstrap_value)


def checked_steps(
    returns: Returns, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What ``Returns.steps`` gives.

    Raises:
        PartError: it is something else than it should be.
    """
    found = returns.steps(reward, time_ms, end_ms)
    shapes = [np.shape(each) for each in found] if isinstance(found, tuple) else []
    if shapes != [reward.shape] * 2:
        got = ", ".join(str(list(shape)) for shape in shapes) or type(found).__name__
        raise wrong_part("returns.kind", returns, f"two arrays of shape {list(reward.shape)}, gave {got}")
    return found


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
    values: NDArray[np.float64], factors: NDArray[np.float64], bootstrap_value: float = 0.0
) -> NDArray[np.float64]:
    """From each place on, the sum of values, each times the factors of the places before it.

    Of rewards and discounts it makes returns; of TD errors and discounts times lambda, the advantages of GAE.

    Args:
        values: float64 [n] or [n, k].
        factors: likewise; ``factors[i]`` is how much counts what comes after i.
        bootstrap_value: what comes after the last one.

    Returns:
        Float64 like the values.
    """
    result = np.empty_like(values)
    later: Any = bootstrap_value
    for place in range(len(values) - 1, -1, -1):
        later = result[place] = values[place] + factors[place] * later
    return result


def returns_to_go(
    rewards: NDArray[np.float64], clock: NDArray[np.int32], discount: float = 1.0
) -> NDArray[np.float64]:
    """What follows each action of episodes in lock-step, float64 [S, N].

    Args:
        rewards: float64 [S, N].
        clock: int32 [S + 1, N].
        discount: of what comes after a step of the clock.
    """
    return accumulate(rewards, _discounts(clock, discount))


def n_step_returns(
    rewards: NDArray[np.float64],
    clock: NDArray[np.int32],
    values: NDArray[np.float64],
    steps: int,
    discount: float = 1.0,
) -> NDArray[np.float64]:
    """What follows each action within n actions, and the bootstrap value of the state after them, float64 [S, N].

    Args:
        rewards: float64 [S, N].
        clock: int32 [S + 1, N].
        values: float64 [S + 1, N]; a critic's, of the state before each action and at the end.
        steps: n.
        discount: of what comes after a step of the clock.
    """
    length, discounts = len(rewards), _discounts(clock, discount)
    returns = values[np.minimum(np.arange(length) + steps, length)]
    for ahead in range(min(steps, length) - 1, -1, -1):
        first = length - ahead  # from here on an episode ends earlier
        returns[:first] = rewards[ahead:] + discounts[ahead:] * returns[:first]
    return returns


def _discounts(clock: NDArray[np.int32], discount: float) -> NDArray[np.float64]:
    """How much counts what comes after each action, float64 [S, N]."""
    return np.where(np.diff(clock, axis=0) > 0, discount, 1.0)
