"""Rules for executor classes and demands of several resources: packing as in Tetris, and dominant resource fairness.

Sources: Tetris (SIGCOMM 2014; Decima, appendix E), which packs by the dot product of demands and free resources; DRF
(NSDI 2011).
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.decisions import all_offered
from simulator.cluster.observation import Decision, Observation, PerJob

__all__ = ["Drf", "Tetris", "demands"]


class Tetris(Scheduler):
    """Choose the stage whose demand aligns best with the offered executor, for all executors that it can use.

    The defaults are pure packing, as in the Decima paper. The parameters add terms of the Tetris paper: a higher score
    for jobs with little remaining work, and exclusion of jobs with many executors. Ties: the first job, and in
    a job the stage with the longest path to the job's end.

    Args:
        remaining: weight of the remaining work; 1 is the weight of packing.
        fairness: share of the jobs that are excluded, those with the most executors; at least 0 and below 1.

    Raises:
        ValueError: a parameter is out of range.
    """

    def __init__(self, remaining: float = 0.0, fairness: float = 0.0) -> None:
        if not remaining >= 0:
            raise ValueError(f"the weight of remaining work must not be negative, got {remaining:g}")
        if not 0 <= fairness < 1:
            raise ValueError(f"the fairness must be at least 0 and below 1, got {fairness:g}")
        self.remaining = remaining
        self.fairness = fairness
        self._path_rank: PerJob[NDArray[np.int64]] = PerJob(
            lambda profile, _: profile.path_rank, np.concatenate
        )

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the candidate stage with the highest score, see the class."""
        stages = self.candidates(observation)
        needs, offered = demands(observation)
        score = needs[stages] @ offered
        score -= self.penalty(observation, stages, needs, float(score.mean()))
        return all_offered(observation, int(stages[score.argmax()]))

    def candidates(self, observation: Observation) -> NDArray[np.int64]:
        """Return the schedulable stages of jobs that ``fairness`` does not exclude, int64 [candidates].

        They are sorted by the arrival of their jobs, and in a job by the longest path.
        """
        stages = np.flatnonzero(observation.schedulable)
        stages = stages[np.lexsort((self._path_rank(observation)[stages], observation.stage_job[stages]))]
        if not self.fairness:
            return stages
        jobs = observation.stage_job[stages]
        return stages[np.isin(jobs, self._furthest_below_share(observation, np.unique(jobs)))]

    def penalty(
        self, observation: Observation, stages: NDArray[np.int64], needs: NDArray[np.float64], scale: float
    ) -> NDArray[np.float64]:
        """Return the penalty for the remaining work of the stages' jobs, float64 [len(stages)].

        Args:
            observation: state of the cluster.
            stages: candidate stages.
            needs: demand of each stage, see ``demands``.
            scale: mean of the other term of the score; the mean penalty is ``remaining * scale``.
        """
        if not self.remaining:
            return np.zeros(stages.size)
        work = observation.remaining_tasks * observation.mean_task_ms * needs.sum(axis=1)
        left = np.bincount(observation.stage_job, work)[observation.stage_job[stages]]
        penalty: NDArray[np.float64] = self.remaining * scale * left / max(left.mean(), 1e-9)
        return penalty

    def _furthest_below_share(self, observation: Observation, jobs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the jobs with the fewest executors among some jobs; all jobs have the same fair share."""
        held = np.array([observation.held(int(job)) for job in jobs])
        count = math.ceil((1 - self.fairness) * jobs.size)
        return jobs[np.argsort(held, kind="stable")[:count]]


def demands(observation: Observation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the demand of a task of each stage, float64 [S, 2], and the size of an offered executor, float64 [2].

    Columns are CPU and memory, as shares of the largest executor class.
    """
    classes, stages = observation.classes, observation.stages
    sizes = np.array([classes["cpu"], classes["memory"]])
    largest = np.maximum(sizes.max(axis=1), 1e-12)
    needs = np.array([stages["cpu"], stages["memory"]]).T / largest
    return needs, sizes[:, observation.executor_class] / largest


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
