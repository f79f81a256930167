"""Objective: weighted job completion time."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Weighted"]


class Weighted(Objective):
    """Sum of job completion times, each times the weight of the job."""

    attributes = frozenset({"weight"})

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the jobs spend in the system, each job's times its weight."""
        return float(jobs.weight.sum()) * (end_ms - begin_ms)
