"""Objective: fairness between tenants, by Jain's index."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Fairness"]


class Fairness(Objective):
    """Sum of job completion times, divided at each time by Jain's fairness index of the tenants' live jobs.

    Jain's index is computed from each tenant's number of live jobs over the tenant's weight: 1 if it is equal for all
    tenants, 1/n if all live jobs belong to one of n tenants. By Little's law, tenants with equal arrival rates and
    numbers of live jobs have equal mean job completion times. With one tenant this is the sum of job completion times.

    Source: Jain, Chiu, Hawe (1984) for the index.
    """

    attributes = frozenset({"tenant"})

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the live jobs spend in the system, divided by Jain's index."""
        live = jobs.by_tenant
        total = float(live.sum())
        if not total:
            return 0.0
        return len(jobs) * live.size * float((live**2).sum()) / total**2 * (end_ms - begin_ms)
