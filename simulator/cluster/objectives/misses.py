"""Missed deadlines, smoothed."""

from __future__ import annotations

import numpy as np

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Misses"]


class Misses(Objective):
    """The sum of tardiness, up to a bound for each job.

    Over the bound this is the number of missed deadlines, where a job that is a little late counts in part. Unlike
    ``Deadline``, nothing is gained by a job that can no longer meet its deadline.

    Args:
        bound_s: bound, s, positive.

    Raises:
        ValueError: a bound that is not positive or not finite.
    """

    attributes = frozenset({"deadline"})

    def __init__(self, bound_s: float = 10.0) -> None:
        if not 0 < bound_s < np.inf:
            raise ValueError(f"the bound must be finite and above 0, got {bound_s:g}")
        self.bound_s = bound_s

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time after the jobs' deadlines and within the bound."""
        last_ms = np.minimum(jobs.deadline_ms + 1000 * self.bound_s, end_ms)
        return float(np.maximum(last_ms - np.maximum(jobs.deadline_ms, begin_ms), 0.0).sum())
