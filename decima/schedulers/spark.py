"""Spark's own scheduling: FIFO's order of stages and FAIR's pools inside one application, pools with weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant

__all__ = ["FairPools", "SparkFair", "SparkFifo", "SparkPools"]


class SparkFifo(Scheduler):
    """Stages in the order of their Spark jobs, as Spark's FIFO mode serves them.

    With adaptive execution a query is several Spark jobs, one a stage, each submitted when its parents end. So later
    stages queue behind the first stages of later queries. Without it a query is one Spark job, and all its stages have
    the place of the first.

    Meant for ``SPARK`` semantics, where executors are offered after each task.

    Source: Spark 3.5, ``FIFOSchedulingAlgorithm``: by the number of the Spark job, then of the stage.

    Args:
        adaptive: for each job of the sequence, whether its stages are Spark jobs of their own.
    """

    def __init__(self, adaptive: Sequence[bool]) -> None:
        self._adaptive = adaptive
        self._first: dict[int, int] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Drop the order of arrivals of the last episode."""
        self._first = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Return the ready stage whose Spark job was submitted first, with all executors offered."""
        ranks = observation.ready_rank
        best, chosen = (0, 0), -1
        for stage in np.flatnonzero(observation.schedulable & (ranks >= 0)).tolist():
            job, rank = int(observation.job_id[observation.stage_job[stage]]), int(ranks[stage])
            first = self._first.setdefault(job, rank)
            key = (rank if self._adaptive[job] else first, rank)
            if chosen < 0 or key < best:
                best, chosen = key, stage
        return all_offered(observation, chosen) if chosen >= 0 else None


class SparkFair(Scheduler):
    """Give each executor to the job with the fewest executors; on a tie to the first pool by name.

    Names are the jobs' numbers, compared as texts. With more jobs than executors the same jobs run all the time: a job
    that ends a task then has no executor, and comes first again by its name.

    Meant for ``SPARK`` semantics, where executors are offered after each task.

    Source: Spark 3.5, ``FairSchedulingAlgorithm`` (pools of weight 1 without a minimum share).
    """

    def pool(self, job: int) -> str:
        """Return the name of a job's pool."""
        return str(job)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the next stage of the job with the fewest executors, with its part of the offered executors."""
        stages = observation.next_stage
        jobs = np.flatnonzero(stages >= 0).tolist()
        tasks = observation.unclaimed_tasks[stages[jobs]].tolist()
        name = {job: self.pool(int(observation.job_id[job])) for job in jobs}
        held = {job: observation.held(job) for job in jobs}
        most = {job: held[job] + count for job, count in zip(jobs, tasks, strict=True)}
        first = min(jobs, key=lambda job: (held[job], name[job]))
        for _ in range(observation.offered):
            open_jobs = [job for job in jobs if held[job] < most[job]]
            if open_jobs:
                held[min(open_jobs, key=lambda job: (held[job], name[job]))] += 1
        return Decision(int(stages[first]), held[first])


class SparkPools(SparkFair):
    """Spark's FAIR mode with the names that the jobs' pools had.

    Args:
        names: for each job of the sequence; they should differ.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def pool(self, job: int) -> str:
        """Return the name of a job's pool."""
        return self._names[job]


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
            pool = min(waiting, key=lambda pool: pool_need(pools[pool], held[pool]))
            job = next(job for job, tasks in open_tasks.items() if tasks and pool_of[job] == pool)
            first = job if first < 0 else first
            count += job == first
            open_tasks[job] -= 1
            held[pool] += 1
        return Decision(int(stages[first]), observation.held(first) + count)


def pool_need(pool: Tenant, held: int) -> tuple[bool, float, str]:
    """Return the key by which Spark sorts pools that hold ``held`` executors; the neediest has the least."""
    if held < pool.min_share:
        return False, held / max(pool.min_share, 1), pool.name
    return True, held / pool.weight, pool.name
