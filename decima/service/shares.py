"""Shares of Spark's pools: slots are divided between pools as in Spark, and a scheduler decides within each pool."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import only_jobs
from decima.schedulers.spark import pool_need
from simulator.cluster.episode import DecidesStages
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant

if TYPE_CHECKING:
    from decima.service.snapshot import Snapshot

__all__ = ["decide_in_pools", "divide"]


def divide(pools: Sequence[Tenant], demand: Sequence[int], slots: int) -> list[int]:
    """Divide slots between pools by minimum shares and weights; no pool gets more than its demand.

    Source: Spark 3.5, ``FairSchedulingAlgorithm``.

    Args:
        pools: weights and minimum shares.
        demand: number of slots that each pool can use.
        slots: total number of slots.

    Returns:
        Number of slots of each pool.
    """
    shares = [0] * len(pools)
    queue = [(pool_need(pool, 0), place) for place, pool in enumerate(pools) if demand[place]]
    heapq.heapify(queue)
    for _ in range(slots):
        if not queue:
            break
        _, place = queue[0]
        shares[place] += 1
        if shares[place] < demand[place]:
            heapq.heapreplace(queue, (pool_need(pools[place], shares[place]), place))
        else:
            heapq.heappop(queue)
    return shares


def decide_in_pools(snapshot: Snapshot, scheduler: DecidesStages) -> list[int] | None:
    """Commit the slots of each pool to its jobs.

    A pool below its share gets its slots immediately, although tasks of other pools may still run on them. The other
    pools do not refill these slots, so the shares hold after one task. Slots of a pool that the scheduler leaves idle
    go to the pool's ready stages in order of arrival.

    Returns:
        For each job, the number of running tasks whose slots go to another pool; None, without any commitment, if
        fewer than two pools have tasks.

    Raises:
        SchedulingError: the scheduler made an invalid decision.
    """
    jobs, pools = snapshot.jobs, snapshot.tenants
    running, demand = [0] * len(pools), [0] * len(pools)
    for job, pool in zip(jobs, snapshot.tenant, strict=True):
        ready = sum(left for left, is_ready in zip(job.pending, job.ready, strict=True) if is_ready)
        running[pool] += sum(job.running)
        demand[pool] += sum(job.running) + ready
    if sum(map(bool, demand)) < 2:
        return None
    shares = divide(pools, demand, snapshot.config.num_executors)
    snapshot.pool_free()
    tenant = np.array(snapshot.tenant)
    for pool in sorted(range(len(pools)), key=lambda pool: pool_need(pools[pool], running[pool])):
        if (count := shares[pool] - running[pool]) > 0:
            before = snapshot.launched
            snapshot.offer(_Inside(scheduler, tenant == pool), -1, count)
            snapshot.fill(np.flatnonzero(tenant == pool).tolist(), count - (snapshot.launched - before))
    return _released(snapshot, [held - share for held, share in zip(running, shares, strict=True)])


def _released(snapshot: Snapshot, excess: list[int]) -> list[int]:
    """Return each job's number of slots to release so that no pool exceeds its share; last jobs release first."""
    released = [0] * len(snapshot.jobs)
    for place, pool in enumerate(snapshot.tenant):
        excess[pool] -= snapshot.finishing(place)  # these slots become free anyway
    for place in reversed(range(len(snapshot.jobs))):
        pool = snapshot.tenant[place]
        refilled = sum(snapshot.jobs[place].running) - snapshot.finishing(place)
        released[place] = max(0, min(excess[pool], refilled))
        excess[pool] -= released[place]
    return released


class _Inside:
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
