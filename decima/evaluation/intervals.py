"""Confidence intervals of means, by Student's t distribution."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # the whole of scipy.stats takes a second to import

__all__ = ["Interval", "mean_interval", "paired_change"]

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean and half its 95 % confidence interval; NaN where they are not defined."""

    mean: float
    half_width: float


def mean_interval(values: ArrayLike, weights: ArrayLike | None = None) -> Interval:
    """Return the mean of independent values and half of its 95 % confidence interval.

    Args:
        values: float [n]; for paired measurements, their differences. The mean is NaN if n = 0, the interval if n < 2.
        weights: float [n], positive: sizes of the groups that the values are means of. The mean is then the ratio of
            two sums.
    """
    sample = np.asarray(values, dtype=np.float64)
    count = sample.size
    if count == 0:
        return Interval(math.nan, math.nan)
    if weights is None:
        mean = float(sample.mean())
        error = float(sample.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    else:
        # The error of a ratio is that of the deviations, each weighted by its share.
        shares = np.asarray(weights, dtype=np.float64)
        mean = float(np.average(sample, weights=shares))
        deviations = shares / shares.mean() * (sample - mean)
        error = float(np.sqrt(np.square(deviations).sum() / (count * (count - 1)))) if count > 1 else math.nan
    return Interval(mean, float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error)


def paired_change(values: ArrayLike, reference: ArrayLike) -> Interval:
    """Return the relative difference of two means of paired values, with its interval; NaN if the second is 0."""
    ours, others = np.asarray(values), np.asarray(reference)
    difference, half_width = mean_interval(ours - others)
    mean = float(others.mean())
    return Interval(difference / mean, half_width / mean) if mean else Interval(math.nan, math.nan)
