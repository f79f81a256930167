"""Packing by the dot product of what tasks need and what is there (Tetris, SIGCOMM 2014; Decima, appendix E)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.observation import Decision, Observation

__all__ = ["Tetris", "demands"]


class Tetris(Scheduler):
    """The stage whose demand points most in the direction of what is offered, with all the parallelism that it needs.

    Without parameters as the Decima paper reads Tetris: pure packing. With them as its own paper has it: a job with
    little left scores higher, and jobs that hold much are passed over. On a tie the first stage goes.

    Args:
        remaining: how much the work that a job has left counts, where 1 makes it count as much as packing does.
        fairness: share of the jobs, from 0 to below 1, that are passed over, as they hold the most executors.

    Raises:
        ValueError: a parameter out of range.
    """

    def __init__(self, remaining: float = 0.0, fairness: float = 0.0) -> None:
        if not remaining >= 0:
            raise ValueError(f"the weight of remaining work must not be negative, got {remaining:g}")
        if not 0 <= fairness < 1:
            raise ValueError(f"the fairness must be at least 0 and below 1, got {fairness:g}")
        self.remaining = remaining
        self.fairness = fairness

    def decide(self, observation: Observation) -> Decision | None:
        """The stage that fits best; see the class."""
        stages = self.candidates(observation)
        needs, offered = demands(observation)
        score = needs[stages] @ offered
        score -= self.penalty(observation, stages, needs, float(score.mean()))
        return all_offered(observation, int(stages[score.argmax()]))

    def candidates(self, observation: Observation) -> NDArray[np.int64]:
        """Stages that may be chosen, but those of jobs that are passed over."""
        stages = np.flatnonzero(observation.schedulable)
        if not self.fairness:
            return stages
        jobs = observation.stage_job[stages]
        return stages[np.isin(jobs, self._furthest_below_share(observation, np.unique(jobs)))]

    def penalty(
        self, observation: Observation, stages: NDArray[np.int64], needs: NDArray[np.float64], scale: float
    ) -> NDArray[np.float64]:
        """For what is left of the jobs of these stages, float64 [len(stages)]; ``remaining * scale`` on average."""
        if not self.remaining:
            return np.zeros(stages.size)
        work = observation.remaining_tasks * observation.mean_task_ms * needs.sum(axis=1)
        left = np.bincount(observation.stage_job, work)[observation.stage_job[stages]]
        penalty: NDArray[np.float64] = self.remaining * scale * left / max(left.mean(), 1e-9)
        return penalty

    def _furthest_below_share(self, observation: Observation, jobs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of these jobs, those that hold the fewest executors: all have the same share."""
        held = np.array([observation.held(int(job)) for job in jobs])
        count = math.ceil((1 - self.fairness) * jobs.size)
        return jobs[np.argsort(held, kind="stable")[:count]]


def demands(observation: Observation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a task of each stage needs, float64 [S, 2], and what an offered executor has, float64 [2]: cpu and memory.

    As shares of what the largest class has.
    """
    classes, stages = observation.classes, observation.stages
    sizes = np.array([classes["cpu"], classes["memory"]])
    largest = np.maximum(sizes.max(axis=1), 1e-12)
    needs = np.array([stages["cpu"], stages["memory"]]).T / largest
    return needs, sizes[:, observation.executor_class] / largest
