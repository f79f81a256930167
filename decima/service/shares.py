"""Shares of the slots: of Spark's pools in an application, and of tenants on a cluster that applications share.

Slots are divided by priority, quota, minimum share and weight, and a scheduler decides within each pool or tenant.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.decisions import only_jobs
from decima.schedulers.spark import pool_need
from simulator.cluster.observation import Decision, Observation

if TYPE_CHECKING:
    from decima.service.snapshot import Share, Snapshot
    from simulator.cluster.episode import DecidesStages

__all__ = ["OnlyJobs", "decide_in_pools", "divide", "offer_to_tenants"]


def divide(pools: Sequence[Share], demand: Sequence[int], slots: int) -> list[int]:
    """Divide slots between pools or tenants; none gets more than its demand and its quota.

    A higher priority is served first; equal priorities share by minimum shares and weights (Spark 3.5,
    ``FairSchedulingAlgorithm``).

    Args:
        demand: number of slots that each pool can use.

    Returns:
        Number of slots of each pool.
    """
    shares = [0] * len(pools)
    most = [min(wanted, pool.quota) for pool, wanted in zip(pools, demand, strict=True)]
    for priority in sorted({pool.priority for pool in pools}, reverse=True):
        queue = [
            (pool_need(pool, 0), index)
            for index, pool in enumerate(pools)
            if pool.priority == priority and most[index]
        ]
        heapq.heapify(queue)
        while queue and slots:
            _, index = queue[0]
            shares[index] += 1
            slots -= 1
            if shares[index] < most[index]:
                heapq.heapreplace(queue, (pool_need(pools[index], shares[index]), index))
            else:
                heapq.heappop(queue)
    return shares


def decide_in_pools(snapshot: Snapshot, scheduler: DecidesStages) -> list[int] | None:
    """Commit the slots of each pool to its jobs.

    A pool below its share gets its slots immediately, although tasks of other pools may still run on them. The other
    pools do not refill these slots, so the shares hold after one task. Slots of a pool that the scheduler leaves idle
    go to the pool's ready stages in order of arrival.

    Returns:
        For each job, the number of running tasks whose slots go to another pool or exceed the pool's quota; None,
        without any commitment, if fewer than two pools have tasks and none of them can exceed its quota.

    Raises:
        SchedulingError: the scheduler made an invalid decision.
    """
    jobs, pools = snapshot.jobs, snapshot.tenants
    running, demand = [0] * len(pools), [0] * len(pools)
    for job, pool in zip(jobs, snapshot.tenant, strict=True):
        ready = sum(left for left, is_ready in zip(job.pending, job.ready, strict=True) if is_ready)
        running[pool] += sum(job.running)
        demand[pool] += sum(job.running) + ready
    if sum(map(bool, demand)) < 2 and all(
        wanted <= pool.quota for pool, wanted in zip(pools, demand, strict=True)
    ):
        return None
    shares = divide(pools, demand, snapshot.config.num_executors)
    snapshot.pool_free()
    tenant = np.array(snapshot.tenant)
    for pool in sorted(range(len(pools)), key=lambda pool: pool_need(pools[pool], running[pool])):
        if (count := shares[pool] - running[pool]) > 0:
            before = snapshot.launched
            snapshot.offer(OnlyJobs(scheduler, tenant == pool), -1, count)
            snapshot.fill(np.flatnonzero(tenant == pool).tolist(), count - (snapshot.launched - before))
    return _released(snapshot, [held - share for held, share in zip(running, shares, strict=True)])


def offer_to_tenants(
    snapshot: Snapshot,
    scheduler: DecidesStages,
    tenants: Sequence[Share],
    of_job: NDArray[np.int64],
    held: Sequence[int],
    kept: Sequence[int],
) -> list[int]:
    """Offer each tenant its idle executors, and executors up to its share of the slots, from wherever they come.

    A scheduler decides within each tenant. What it leaves idle is offered to the other tenants, up to their quotas.

    Args:
        of_job: index of each job's tenant, int64 [jobs].
        held: number of slots of each tenant's applications.
        kept: number of slots that each tenant keeps for applications without pending tasks.

    Returns:
        Number of slots of each tenant above its share, which others can use.

    Raises:
        SchedulingError: the scheduler made an invalid decision.
    """
    demand = list(kept)
    for job, tenant in enumerate(of_job):
        demand[tenant] += snapshot.demand(job)
    shares = divide(tenants, demand, snapshot.config.num_executors)
    order = sorted(range(len(tenants)), key=lambda index: -tenants[index].priority)
    inside = [OnlyJobs(scheduler, of_job == index) for index in range(len(tenants))]
    room = [tenant.quota - slots for tenant, slots in zip(tenants, held, strict=True)]
    spare = 0
    for index in order:
        snapshot.offer_all(inside[index], np.flatnonzero(of_job == index).tolist())
        if (count := shares[index] - held[index]) > 0:
            left = snapshot.offer(inside[index], -1, count)
            room[index] -= count - left
            spare += left
    # Executors that the scheduler leaves idle in one tenant are for the jobs of the others.
    for index in order:
        if (count := min(spare, room[index])) > 0:
            used = count - snapshot.offer(inside[index], -1, count)
            room[index] -= used
            spare -= used
        for job in np.flatnonzero(of_job != index).tolist():
            if (count := min(snapshot.waiting[job], room[index])) > 0:
                used = count - snapshot.offer(inside[index], job, count)
                room[index] -= used
                snapshot.waiting[job] -= used
    return [max(slots - share, 0) for slots, share in zip(held, shares, strict=True)]


def _released(snapshot: Snapshot, excess: list[int]) -> list[int]:
    """Return each job's number of slots to release so that no pool exceeds its share; last jobs release first."""
    released = [0] * len(snapshot.jobs)
    for index, pool in enumerate(snapshot.tenant):
        excess[pool] -= snapshot.finishing(index)  # these slots become free anyway
    for index in reversed(range(len(snapshot.jobs))):
        pool = snapshot.tenant[index]
        refilled = sum(snapshot.jobs[index].running) - snapshot.finishing(index)
        released[index] = max(0, min(excess[pool], refilled))
        excess[pool] -= released[index]
    return released


class OnlyJobs:
    """Restricts a scheduler to stages of some jobs; ``jobs``: bool [num_jobs]."""

    def __init__(self, scheduler: DecidesStages, jobs: NDArray[np.bool_]) -> None:
        self._scheduler, self._jobs = scheduler, jobs
        self.reset = scheduler.reset
        self.probability = math.nan

    def decide(self, observation: Observation) -> Decision | None:
        """Return the scheduler's decision for one of the jobs; None without such a decision."""
        masked = only_jobs(observation, self._jobs)
        decision = self._scheduler.decide(masked) if masked.num_schedulable else None
        if decision is None or not masked.stages["schedulable"][decision.stage]:
            return None  # a scheduler that ignores the mask may choose another pool's job
        self.probability = float(getattr(self._scheduler, "probability", math.nan))
        return decision
