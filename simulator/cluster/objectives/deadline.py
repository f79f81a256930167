"""Objective: tardiness, with a penalty for each missed deadline."""

from __future__ import annotations

import numpy as np

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Deadline"]


class Deadline(Objective):
    """Sum of tardiness, plus a penalty for each missed deadline when the deadline passes.

    Args:
        penalty_s: penalty, s, not negative.

    Raises:
        ValueError: the penalty is negative or not finite.
    """

    attributes = frozenset({"deadline"})

    def __init__(self, penalty_s: float = 0.0) -> None:
        if not 0 <= penalty_s < np.inf:
            raise ValueError(f"the penalty must be finite and not negative, got {penalty_s:g}")
        self.penalty_s = penalty_s

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that jobs spend after their deadlines, plus penalties of deadlines in the interval."""
        late_ms = float(np.maximum(end_ms - np.maximum(jobs.deadline_ms, begin_ms), 0.0).sum())
        passed = (begin_ms <= jobs.deadline_ms) & (jobs.deadline_ms < end_ms)
        return late_ms + 1000 * self.penalty_s * int(passed.sum())
