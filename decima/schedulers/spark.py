"""Spark's own scheduling within an application: order of stages in FIFO mode, pools with weights in FAIR mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant

__all__ = ["FairPools", "SparkFair", "SparkFifo", "SparkPools"]


class SparkFifo(Scheduler):
    """Spark's FIFO mode: stages in the order of their Spark jobs.

    With adaptive execution each stage of a query is a Spark job, submitted when its parents end. So later stages queue
    behind the first stages of later queries. Without adaptive execution a query is one Spark job, and all its stages
    have the position of the first one.

    The rule is meant for ``SPARK`` semantics, in which executors are offered after each task.

    Source: Spark 3.5, ``FIFOSchedulingAlgorithm``: order by number of the Spark job, then by number of the stage.

    Args:
        adaptive: for each job of the sequence, whether each of its stages is a Spark job.
    """

    def __init__(self, adaptive: Sequence[bool]) -> None:
        self._adaptive = adaptive
        self._first: dict[int, int] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode without submitted Spark jobs."""
        self._first = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the ready stage whose Spark job was submitted first, for all offered executors."""
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
    """Spark's FAIR mode: give each executor to the job with the fewest executors, on a tie to the first pool by name.

    Each job has a pool, whose name is the job's number as text. With more jobs than executors the same jobs run all the
    time: a job that ends its last task has no executor, and is first again by its name.

    The rule is meant for ``SPARK`` semantics, in which executors are offered after each task.

    Source: Spark 3.5, ``FairSchedulingAlgorithm`` (pools of weight 1 without a minimum share).
    """

    def pool(self, job: int) -> str:
        """Return the name of a job's pool."""
        return str(job)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the next stage of the job with the fewest executors, for its part of the offered executors."""
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
    """Spark's FAIR mode with given names of the jobs' pools.

    Args:
        names: name of each job's pool, in the order of the sequence; names should differ.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def pool(self, job: int) -> str:
        """Return the name of a job's pool."""
        return self._names[job]


class FairPools(Scheduler):
    """Spark's FAIR mode with weights: give each executor to the neediest pool, and to its first job by arrival.

    Pools are tenants. Pools with fewer executors than their minimum share come first, in order of the ratio of both.
    Other pools follow, in order of executors over weight. Ties: the first pool by name. Without tenants all jobs are in
    one pool.

    The rule is meant for ``SPARK`` semantics, in which executors are offered after each task.

    Source: Spark 3.5, ``FairSchedulingAlgorithm``, ``FIFOSchedulingAlgorithm``.
    """

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the next stage of the neediest pool's first job, for its part of the offered executors."""
        stages, pool_of = observation.next_stage, observation.job_tenant.tolist()
        pools = observation.tenants or (Tenant(),)
        held = [0] * len(pools)
        for job, pool in enumerate(pool_of):
            held[pool] += observation.held(job)
        jobs = np.flatnonzero(stages >= 0).tolist()
        open_tasks = {job: int(observation.unclaimed_tasks[stages[job]]) for job in jobs}
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
    """Return Spark's sort key of a pool that holds ``held`` executors; the neediest pool has the least key."""
    if held < pool.min_share:
        return False, held / max(pool.min_share, 1), pool.name
    return True, held / pool.weight, pool.name
