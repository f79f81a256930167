"""Dominant resource fairness (DRF, NSDI 2011)."""

from __future__ import annotations

import heapq

import numpy as np

from decima.schedulers.base import Scheduler
from simulator.cluster.observation import Decision, Observation

__all__ = ["Drf"]


class Drf(Scheduler):
    """Give each executor to the job with the smallest dominant share.

    A job's share of a resource is the demand of its running and claimed tasks over the capacity of all executors. The
    dominant share is the largest of these shares. With one resource this is max-min fairness. Ties: the first job.
    """

    def decide(self, observation: Observation) -> Decision | None:
        """Assign all offered executors one by one, and return the part of the first job that gets one."""
        classes, stages = observation.classes, observation.stages
        total = np.array([classes["executors"] @ classes["cpu"], classes["executors"] @ classes["memory"]])
        needs = np.array([stages["cpu"], stages["memory"]]).T / np.maximum(total, 1e-12)
        # An executor is committed to a task before it runs it.
        tasks = stages["running_executors"] + stages["remaining_tasks"] - stages["unclaimed_tasks"]
        used = np.zeros((len(observation.jobs), 2))
        np.add.at(used, observation.stage_job, tasks[:, None] * needs)

        jobs = np.flatnonzero(observation.next_stage >= 0).tolist()
        shares = [(float(used[job].max()), job) for job in jobs]
        heapq.heapify(shares)
        first, count = shares[0][1], 0
        left = {job: int(observation.unclaimed_tasks[observation.next_stage[job]]) for job in jobs}
        for _ in range(observation.offered):
            job = shares[0][1]
            count += job == first
            left[job] -= 1
            used[job] += needs[observation.next_stage[job]]
            if left[job]:
                heapq.heapreplace(shares, (float(used[job].max()), job))
            else:
                heapq.heappop(shares)
                if not shares or job == first:
                    break
        return Decision(int(observation.next_stage[first]), observation.held(first) + count)
