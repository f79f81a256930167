"""Spark's own scheduling: order of stages (FIFO), pools with weights (FAIR), and standalone mode.

In FIFO and FAIR mode the jobs share one application. In standalone mode each job is an application, the master grants
executors to applications, and drivers assign tasks to them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decima.schedulers.base import Scheduler
from decima.schedulers.decisions import all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant

__all__ = ["FairPools", "SparkFair", "SparkFifo", "SparkPools", "SparkStandalone"]


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


class SparkStandalone(Scheduler):
    """Applications in order of arrival, each with a constant number of executors until its end.

    An application (job) may hold ``executors_max`` executors (``spark.cores.max``). If this is the whole cluster,
    applications run one after the other, first in, first out; otherwise they share the cluster. Granted executors stay
    with the application, idle or not. A free executor takes a task of the ready stage with the lowest number.

    Executors without cores are driver threads, which profiles of `workloads.spark.profiles` need. Each application
    has driver threads from its arrival, even while it waits for executors.

    Args:
        executors_max: maximum number of executors of an application, at least 1.

    Raises:
        ValueError: ``executors_max`` is below 1.
    """

    def __init__(self, executors_max: int):
        if executors_max < 1:
            raise ValueError(f"an application needs at least one executor, got {executors_max}")
        self.executors_max = executors_max
        self._driver_threads: dict[int, int] = {}
        self._arrived_ms: dict[int, float] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode without applications."""
        self._driver_threads = {}
        self._arrived_ms = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Keep executors with their application, and grant free executors in order of arrival."""
        if observation.source >= 0:
            stage = _first_stage(observation, observation.source, ready=True)
            return None if stage is None else all_offered(observation, stage)
        if observation.classes["cpu"][observation.executor_class] == 0:
            return self._start_driver(observation)
        return self._grant(observation)

    def _start_driver(self, observation: Observation) -> Decision | None:
        """Give a new application the driver threads of its first stage.

        Driver tasks that wait for the end of planning are claimed immediately, else executors could not start before.
        """
        for job, job_id in enumerate(observation.job_id.tolist()):
            arrived_ms = self._arrived_ms.setdefault(job_id, observation.time_ms)
            stage = _first_stage(observation, job, ready=False)
            if stage is not None and observation.time_ms == arrived_ms:
                threads = min(int(observation.unclaimed_tasks[stage]), observation.offered)
                self._driver_threads[job_id] = self._driver_threads.get(job_id, 0) + threads
                return Decision(stage, observation.held(job) + threads)
        return None

    def _grant(self, observation: Observation) -> Decision | None:
        left = int(observation.classes["executors"][observation.classes["cpu"] > 0].sum())
        for job, job_id in enumerate(observation.job_id.tolist()):
            granted = min(self.executors_max, left)
            left -= granted
            held = observation.held(job) - self._driver_threads.get(job_id, 0)
            # Executors start whether or not a stage is ready.
            stage = _first_stage(observation, job, ready=False)
            if held < granted and stage is not None:
                return Decision(stage, observation.held(job) + granted - held)
        return None


def _first_stage(observation: Observation, job: int, ready: bool) -> int | None:
    """Return a live job's first schedulable stage, ready stages first; with ``ready``, only a ready stage."""
    stages = observation.stages_of(job)
    schedulable = observation.schedulable[stages]
    is_ready = schedulable & (observation.ready_rank[stages] >= 0)
    candidates = np.flatnonzero(is_ready if ready or is_ready.any() else schedulable)
    return stages.start + int(candidates[0]) if candidates.size else None
