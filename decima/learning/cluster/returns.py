"""Returns other than the total reward: discounted and differential reward, and rewards in units of the jobs' times."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from decima.learning.cluster.advantages import Floats, Returns
from decima.learning.cluster.rollout import LIVE_JOBS, EpisodePlan, Trajectories

__all__ = ["DifferentialReturns", "DiscountedReturns", "in_units", "mean_times_ms", "relative_scale"]

#: Length of the unit of relative returns, ms.
UNIT_MS = 1000.0


class DiscountedReturns(Returns):
    """Discounted reward in continuous time: a reward dt later is weighted by ``exp(-dt / horizon)``.

    Each reward is spread evenly over the time between its samples.
    """

    def __init__(self, horizon_ms: float) -> None:
        self.horizon_ms = horizon_ms

    def steps(self, reward: Floats, time_ms: Floats, end_ms: float) -> tuple[Floats, Floats]:
        """See ``Returns.steps``."""
        ages = np.diff(time_ms, append=end_ms) / self.horizon_ms
        # Mean of exp(-x) over x in [0, age]; 1 if no time passes.
        spread = np.divide(-np.expm1(-ages), ages, out=np.ones_like(ages), where=ages > 0)
        return reward * spread, np.exp(-ages)


class DifferentialReturns(Returns):
    """Differential reward: reward minus the average reward per time (Decima, appendix B).

    The average is a moving average over the last samples of all episodes, without samples of zero duration.

    Args:
        window: number of samples in the average.

    Attributes:
        recent: reward and duration (ms) of these samples.
    """

    def __init__(self, window: int) -> None:
        self.recent: deque[tuple[float, float]] = deque(maxlen=window)
        self._rate: float | None = None  # cached average, since its sums are slow; None after a change

    def observe(self, reward: Floats, time_ms: Floats, end_ms: float) -> None:
        """Add the samples of an episode to the average."""
        durations = np.diff(time_ms, append=end_ms)
        took_time = durations > 0
        self.recent.extend(zip(reward[took_time].tolist(), durations[took_time].tolist(), strict=True))
        self._rate = None

    @property
    def rate(self) -> float:
        """Average reward per ms."""
        if self._rate is None:
            duration = sum(duration for _, duration in self.recent)
            self._rate = sum(reward for reward, _ in self.recent) / duration if duration > 0 else 0.0
        return self._rate

    def steps(self, reward: Floats, time_ms: Floats, end_ms: float) -> tuple[Floats, Floats]:
        """See ``Returns.steps``."""
        durations = np.diff(time_ms, append=end_ms)
        return reward - self.rate * durations, np.ones_like(reward)


# Relative returns.


def mean_times_ms(
    samples: Trajectories, groups: Sequence[Sequence[EpisodePlan]], reward_scale_ms: float
) -> list[float]:
    """Return the mean time that jobs spend in the system, for each group of episodes, ms; with the reward ``jct``."""
    units_ms = []
    for group in groups:
        episodes = [plan.episode for plan in group]
        spent = -sum(float(samples.reward[samples.samples(episode)].sum()) for episode in episodes)
        arrived = float((samples.num_completed[episodes] + samples.end_load[episodes, LIVE_JOBS]).sum())
        mean_ms = spent * reward_scale_ms / max(arrived, 1.0)
        units_ms.append(mean_ms if mean_ms > 0 else UNIT_MS)
    return units_ms


def in_units(samples: Trajectories, unit_ms: Floats) -> Trajectories:
    """Rescale the times of E episodes so that each episode's unit, float64 [E], ms, becomes ``UNIT_MS``."""
    factor = UNIT_MS / unit_ms
    scale = relative_scale(factor, samples.num_executors)
    of_sample = np.repeat(np.arange(samples.num_episodes), np.diff(samples.first))
    return replace(
        samples,
        time_ms=samples.time_ms * factor[of_sample],
        reward=samples.reward * factor[of_sample],
        load=samples.load * scale[of_sample],
        end_ms=samples.end_ms * factor,
        end_load=samples.end_load * scale,
    )


def relative_scale(factor: Floats, num_executors: NDArray[np.int64]) -> Floats:
    """Return factors, float64 [E, 7], that convert the sums of ``load_of`` to sums for relative times.

    In these, w is the rescaled work divided by the number of executors. The fourth and sixth sum of ``load_of`` are
    already divided by that number.

    Args:
        factor: float64 [E], factor of all times of each episode.
        num_executors: int64 [E], number of executors of each episode.
    """
    one, share = np.ones_like(factor), factor / num_executors
    root = np.sqrt(share)
    return np.column_stack([one, one, share, factor, root, factor, root])
