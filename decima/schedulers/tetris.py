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
        stages = np.flatnonzero(observation.schedulable)
        jobs = observation.stage_job[stages]
        if self.fairness:
            fairest = self._furthest_below_share(observation, np.unique(jobs))
            stages, jobs = stages[np.isin(jobs, fairest)], jobs[np.isin(jobs, fairest)]
        needs, offered = demands(observation)
        score = needs[stages] @ offered
        if self.remaining:
            left = np.bincount(
                observation.stage_job,
                observation.remaining_tasks * observation.mean_task_ms * needs.sum(axis=1),
                minlength=len(observation.jobs),
            )[jobs]
            # Scaled so that both terms are alike on average.
            score -= self.remaining * score.mean() * left / max(left.mean(), 1e-9)
        return all_offered(observation, int(stages[score.argmax()]))

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
