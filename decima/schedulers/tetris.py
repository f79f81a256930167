"""Packing by the dot product of demands and free resources (Tetris, SIGCOMM 2014; Decima, appendix E)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.observation import Decision, Observation

__all__ = ["Tetris", "demands"]


class Tetris(Scheduler):
    """Choose the stage whose demand aligns best with the offered executor, for all executors that it can use.

    The defaults are pure packing, as in the Decima paper. The parameters add terms of the Tetris paper: a higher score
    for jobs with little remaining work, and exclusion of jobs with many executors. Ties: the first stage.

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

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the candidate stage with the highest score, see the class."""
        stages = self.candidates(observation)
        needs, offered = demands(observation)
        score = needs[stages] @ offered
        score -= self.penalty(observation, stages, needs, float(score.mean()))
        return all_offered(observation, int(stages[score.argmax()]))

    def candidates(self, observation: Observation) -> NDArray[np.int64]:
        """Return the schedulable stages of jobs that ``fairness`` does not exclude, int64 [candidates]."""
        stages = np.flatnonzero(observation.schedulable)
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
            needs: demand of each stage, see :func:`demands`.
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
