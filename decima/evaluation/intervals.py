"""Confidence intervals of a mean, by Student's t distribution."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["mean_and_half_width", "student_t_quantile"]


@lru_cache
def student_t_quantile(degrees_of_freedom: int, confidence: float = 0.95) -> float:
    """The t for which P(-t <= T <= t) is ``confidence``, T of Student's distribution.

    For whole degrees of freedom the probability is a finite sum in the angle atan(t / sqrt(df)), which grows
    with t: bisection finds the angle to the last bit.

    Args:
        degrees_of_freedom: at least 1.
        confidence: between 0 and 1, both excluded.

    Raises:
        ValueError: an argument out of range.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    if degrees_of_freedom < 1 or not 0 < confidence < 1:
        raise ValueError(f"no t quantile for {degrees_of_freedom} degrees of freedom and {confidence}")
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _central_probability(middle, degrees_of_freedom) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees_of_freedom) * math.tan(low)


def mean_and_half_width(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Mean of independent ``values`` (float [n]) and half the width of its confidence interval.

    Returns:
        The mean, NaN without values; the half width, NaN with fewer than two.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 2:
        return (float(sample[0]) if sample.size else math.nan), math.nan
    standard_error = float(sample.std(ddof=1)) / math.sqrt(sample.size)
    return float(sample.mean()), student_t_quantile(sample.size - 1, confidence) * standard_error


def _central_probability(angle: float, degrees_of_freedom: int) -> float:
    """P(-t <= T <= t) for t = sqrt(df) * tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees_of_freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(
        1 + odd, degrees_of_freedom, 2
    ):  # the factors are 2/3, 4/5, .. if odd; 1/2, 3/4, .. if even
        total += term
        term *= cosine * cosine * k / (k + 1)
    return (2 / math.pi) * (angle + sine * total) if odd else sine * total
