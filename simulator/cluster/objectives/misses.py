"""Objective: missed deadlines, smoothed."""

from __future__ import annotations

import numpy as np

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Misses"]


class Misses(Objective):
    """Sum of tardiness, where the tardiness of a job counts up to a bound.

    Divided by the bound this is the number of missed deadlines, where a slightly late job counts in part. Unlike with
    ``Deadline``, a job that can no longer meet its deadline has no further cost.

    Args:
        bound_s: bound, s, positive.

    Raises:
        ValueError: the bound is not positive or not finite.
    """

    attributes = frozenset({"deadline"})

    def __init__(self, bound_s: float = 10.0) -> None:
        if not 0 < bound_s < np.inf:
            raise ValueError(f"the bound must be finite and above 0, got {bound_s:g}")
        self.bound_s = bound_s

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that jobs spend after their deadlines and within the bound."""
        last_ms = np.minimum(jobs.deadline_ms + 1000 * self.bound_s, end_ms)
        return float(np.maximum(last_ms - np.maximum(jobs.deadline_ms, begin_ms), 0.0).sum())
