"""Confidence intervals of means, by Student's t distribution."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # the whole of scipy.stats takes a second to import

__all__ = ["Interval", "mean_interval"]

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean and half its 95 % confidence interval; NaN where they are not defined."""

    mean: float
    half_width: float


def mean_interval(values: ArrayLike, weights: ArrayLike | None = None) -> Interval:
    """The mean of independent values, and half its 95 % confidence interval.

    Args:
        values: float [n]; the mean is NaN without any, the half width with fewer than two. Of what was measured in
            pairs, the differences.
        weights: float [n], positive, such as the sizes of the groups that the values are means of; the mean is then a
            ratio, of what the groups add up to and of their sizes.
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
