"""Baselines: what return to expect, so that only what a decision changed is learned from.

A baseline is called with the curves of a group of episodes, and gives what is expected at each of their samples; or its
``lockstep`` with arrays [S, N] of episodes in lock-step. Each class has what makes sense for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.learning.part import TrainingPart

__all__ = ["ActionBaseline", "Baseline", "Curve", "HeuristicBaseline", "NoBaseline", "SequenceBaseline"]

#: Longer than any episode, ms: sets what happened between two arrivals apart from what happened before and after.
APART_MS = 1e9


class Curve(NamedTuple):
    """Numbers over the time of an episode, such as its returns.

    Attributes:
        time_ms: float64 [n], ascending, ms.
        value: float64 [n] or [n, k].
        end_ms: when the episode was over, ms; all values are 0 after it.
        arrived: int64 [n]; jobs that had arrived by then. Values may jump when one arrives.
    """

    time_ms: NDArray[np.float64]
    value: NDArray[np.float64]
    end_ms: float
    arrived: NDArray[np.int64]


class Baseline(TrainingPart, ABC):
    """What to expect of episodes; the user's own ones are subclasses."""

    @abstractmethod
    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        """What is expected at each sample of each episode, float64 as its values.

        Args:
            curves: the returns of the episodes of a group, which had the same sequence of jobs; with a critic, its
                advantages.
        """


class NoBaseline(Baseline):
    """Nothing is expected."""

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        """Zeros like the values."""
        return [np.zeros_like(curve.value) for curve in curves]

    def lockstep(
        self, returns: NDArray[np.float64], clock: NDArray[np.int32], per_set: int
    ) -> NDArray[np.float64]:
        """Zeros like the returns."""
        return np.zeros_like(returns)


class SequenceBaseline(Baseline):
    """The mean, at the same time, of the other episodes of the same arrival sequence.

    They met the same jobs at the same times, so that what differs is what was decided: the input-dependent
    baseline of Decima, section 5.3 (challenge 2). Leaving the episode itself out keeps the gradient unbiased.
    """

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        """For each episode of one sequence, float64 as its values. A single episode gets zeros."""
        if len(curves) < 2:
            return NoBaseline()(curves)
        return [
            _mean(curve, [other for place, other in enumerate(curves) if place != own])
            for own, curve in enumerate(curves)
        ]

    def lockstep(
        self, returns: NDArray[np.float64], clock: NDArray[np.int32], per_set: int
    ) -> NDArray[np.float64]:
        """Of episodes whose time is a whole number: the return of the first action then, 0 without one.

        Args:
            returns: float64 [S, N]; the episodes of a set lie side by side.
            clock: int32 [S, N] or longer.
            per_set: how many they are, at least 2.

        Returns:
            Float64 [S, N].
        """
        episodes = np.arange(returns.shape[1])
        by_time = np.zeros((returns.shape[1], int(clock.max()) + 1))
        for step in range(len(returns) - 1, -1, -1):  # the first action at a time is written last
            by_time[episodes, clock[step]] = returns[step]
        sets = by_time.reshape(-1, per_set, by_time.shape[1])
        others = (sets.sum(axis=1, keepdims=True) - sets) / (per_set - 1)
        return np.asarray(others.reshape(by_time.shape)[episodes, clock[: len(returns)]])


class ActionBaseline:
    """The mean after as many actions, over all episodes of a set: that of DeepRM's public code."""

    def lockstep(
        self, returns: NDArray[np.float64], clock: NDArray[np.int32], per_set: int
    ) -> NDArray[np.float64]:
        """Float64 [S, N]; as ``SequenceBaseline.lockstep``."""
        means = returns.reshape(len(returns), -1, per_set).mean(axis=2)
        return np.repeat(means, per_set, axis=1)


class HeuristicBaseline(Baseline):
    """The same time of a heuristic's run on the same sequence.

    Args:
        runs: the heuristic's, one for each of the curves that will be asked about.
    """

    def __init__(self, runs: Sequence[Curve]) -> None:
        self.runs = runs

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        """For each episode, float64 as its values."""
        return [_mean(curve, [run]) for curve, run in zip(curves, self.runs, strict=True)]


def _mean(own: Curve, others: Sequence[Curve]) -> NDArray[np.float64]:
    """The mean of other curves at an episode's times: of those with a sample between the same arrivals, if any."""
    known = np.array([np.isin(own.arrived, other.arrived) for other in others])
    weight = np.where(known.any(axis=0), known, True)
    values = np.array([_at(own, other) for other in others])
    weight = weight.reshape(weight.shape + (1,) * (values.ndim - weight.ndim))
    mean: NDArray[np.float64] = (values * weight).sum(axis=0) / weight.sum(axis=0)
    return mean


def _at(own: Curve, other: Curve) -> NDArray[np.float64]:
    """Another curve at an episode's times, interpolated linearly between samples that no arrival parts."""
    if not other.time_ms.size:
        return np.zeros_like(own.value)
    known = np.append(other.time_ms, other.end_ms) + APART_MS * np.append(other.arrived, other.arrived[-1])
    wanted = own.time_ms + APART_MS * own.arrived
    columns = other.value.reshape(other.time_ms.size, -1).T
    values = [np.interp(wanted, known, np.append(column, 0.0)) for column in columns]
    return np.column_stack(values).reshape(own.value.shape)
