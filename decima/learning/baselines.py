"""Baselines: what return to expect at a time, so that only what a decision changed is learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curve", "NoBaseline", "SequenceBaseline", "curve_baseline"]

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


class NoBaseline:
    """Nothing is expected."""

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        """Zeros like the values."""
        return [np.zeros_like(curve.value) for curve in curves]


class SequenceBaseline:
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


def curve_baseline(curves: Sequence[Curve], expected: Curve) -> list[NDArray[np.float64]]:
    """The values of one other run on the same sequence, such as a heuristic's."""
    return [_mean(curve, [expected]) for curve in curves]


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
