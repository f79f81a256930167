"""Objective: mean job completion time (JCT)."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Mean"]


class Mean(Objective):
    """Sum of job completion times (Decima, section 5.3)."""

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the jobs spend in the system."""
        return len(jobs) * (end_ms - begin_ms)
