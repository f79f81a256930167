"""Spark's FAIR mode inside one application, with a pool for each job."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from simulator.cluster.observation import Decision, Observation

__all__ = ["SparkFair"]


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
