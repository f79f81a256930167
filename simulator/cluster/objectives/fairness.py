"""Unequal service between tenants."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Fairness"]


class Fairness(Objective):
    """The time that jobs spend in the system, over Jain's index of the tenants' live jobs.

    The index is over the number of live jobs of each tenant, divided by the tenant's weight: 1 if all tenants have
    as many, 1/n if all live jobs belong to one of n tenants. By Little's law, tenants with equal arrival rates and
    numbers of live jobs have equal mean job completion times. With one tenant this is the sum of job completion times.

    Source: Jain, Chiu, Hawe (1984) for the index.
    """

    attributes = frozenset({"tenant"})

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the jobs spend in the system, over the index."""
        live = jobs.by_tenant
        total = float(live.sum())
        if not total:
            return 0.0
        return len(jobs) * live.size * float((live**2).sum()) / total**2 * (end_ms - begin_ms)
