"""Spark's FAIR mode with pools that have weights and minimum shares; a tenant is a pool."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant

__all__ = ["FairPools"]


class FairPools(Scheduler):
    """Give each executor to the neediest pool, a tenant, and inside a pool to the first job to arrive.

    Pools with fewer executors than their minimum share come first, by the ratio of both; then the others, by executors
    over weight; on a tie the first by name. Without tenants all jobs are in one pool.

    Meant for ``SPARK`` semantics, where executors are offered after each task.

    Source: Spark 3.5, ``FairSchedulingAlgorithm``, ``FIFOSchedulingAlgorithm``.
    """

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the next stage of the first job of the neediest pool, with its part of the offered executors."""
        stages, pool_of = observation.next_stage, observation.job_tenant.tolist()
        pools = observation.tenants or (Tenant(),)
        held = [0] * len(pools)
        for job, pool in enumerate(pool_of):
            held[pool] += observation.held(job)
        open_tasks = {
            job: int(observation.unclaimed_tasks[stages[job]]) for job in np.flatnonzero(stages >= 0).tolist()
        }
        first, count = -1, 0
        for _ in range(observation.offered):
            waiting = {pool_of[job] for job, tasks in open_tasks.items() if tasks}
            if not waiting:
                break
            pool = min(waiting, key=lambda pool: _need(pools[pool], held[pool]))
            job = next(job for job, tasks in open_tasks.items() if tasks and pool_of[job] == pool)
            first = job if first < 0 else first
            count += job == first
            open_tasks[job] -= 1
            held[pool] += 1
        return Decision(int(stages[first]), observation.held(first) + count)


def _need(pool: Tenant, held: int) -> tuple[bool, float, str]:
    """Return the key by which Spark sorts pools; the neediest has the least."""
    if held < pool.min_share:
        return False, held / max(pool.min_share, 1), pool.name
    return True, held / pool.weight, pool.name
