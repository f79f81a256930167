"""Objective: makespan, the time until all jobs are complete."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Makespan"]


class Makespan(Objective):
    """Elapsed time until the last job is complete."""

    depends_on_jobs = False

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the length of the interval."""
        return end_ms - begin_ms
