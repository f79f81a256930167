"""Baselines: what return to expect at a time, so that only what a decision changed is learned from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curve", "NoBaseline", "SequenceBaseline", "curve_baseline"]

#: Returns over time: float64 [n] times (ms, ascending), float64 [n] returns, and when the episode was over (ms).
Curve = tuple[NDArray[np.float64], NDArray[np.float64], float]


class NoBaseline:
    """Nothing is expected."""

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        """Zeros like the returns."""
        return [np.zeros_like(returns) for _, returns, _ in curves]


class SequenceBaseline:
    """The mean return, at the same time, of the other episodes of the same arrival sequence.

    They met the same jobs at the same times, so that what differs is what was decided: the input-dependent
    baseline of Decima, section 5.3 (challenge 2). Leaving the episode itself out keeps the gradient unbiased.
    """

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        """For each episode of one sequence, float64 [n] as its returns. A single episode gets zeros."""
        if len(curves) < 2:
            return NoBaseline()(curves)
        return [
            np.mean(
                [_at(times, other) for place, other in enumerate(curves) if place != own],
                axis=0,
            )
            for own, (times, _, _) in enumerate(curves)
        ]


def curve_baseline(curves: Sequence[Curve], expected: Curve) -> list[NDArray[np.float64]]:
    """The returns of one other run on the same sequence, such as a heuristic's."""
    return [_at(times, expected) for times, _, _ in curves]


def _at(times: NDArray[np.float64], curve: Curve) -> NDArray[np.float64]:
    """A curve at some times, between its samples interpolated linearly; 0 after its end."""
    known, returns, end_ms = curve
    if not known.size:
        return np.zeros_like(times)
    expected: NDArray[np.float64] = np.interp(times, np.append(known, end_ms), np.append(returns, 0.0))
    return expected
