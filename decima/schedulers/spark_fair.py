"""What Spark's FAIR mode does inside one application, where each job has a pool of its own."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from simulator.cluster.observation import Decision, Observation

__all__ = ["SparkFair"]


class SparkFair(Scheduler):
    """Each executor goes to the job that has the fewest; of several, to the one whose pool has the first name.

    Names are compared as texts, and are the jobs' numbers here. With more jobs than executors, it so is always the same
    jobs that run: who ends a task has no executor then, and is first again by its name.

    Meant for ``SPARK`` semantics, where executors are offered after each task.

    Source: Spark 3.5, ``FairSchedulingAlgorithm`` (pools of weight 1 without a minimum share).
    """

    def pool(self, job: int) -> str:
        """The name of a job's pool."""
        return str(job)

    def decide(self, observation: Observation) -> Decision | None:
        """The next stage of the job with the fewest executors, with all that it gets of those that are offered."""
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
