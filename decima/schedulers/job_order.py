"""Scheduler with a fixed order of jobs, for a search over all orders (Decima, "Optimality of Decima")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.sjf_cp import first_job, on_critical_path
from simulator.cluster.observation import Decision, Observation

__all__ = ["JobOrder"]


class JobOrder(Scheduler):
    """Serve jobs in a fixed order, each along its critical path.

    With the jobs in order of total work this is ``SjfCp``.

    Args:
        order: permutation of the jobs' numbers in the sequence, the most urgent job first.
        ahead: whether a job also gets executors for stages whose parents run their last tasks. These executors are
            idle until the stage opens, but then no long task of another job delays the stage.

    Raises:
        ValueError: the order is not a permutation.
    """

    def __init__(self, order: Sequence[int], ahead: bool = True):
        numbers = np.array(order)
        if not np.array_equal(np.sort(numbers), np.arange(numbers.size)):
            expected = f"expected a permutation of the numbers 0 to {numbers.size - 1}"
            raise ValueError(f"{expected} as the order of the jobs, got {list(order)}")
        self.ahead = ahead
        self._rank: NDArray[np.int64] = np.argsort(numbers)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the critical path's stage of the first job with a schedulable stage, for all offered executors.

        Raises:
            ValueError: a live job is not in the order.
        """
        numbers = observation.job_id
        if numbers[0] < 0 or numbers[-1] >= self._rank.size:
            raise ValueError(f"an order of {self._rank.size} jobs lacks some of the jobs {numbers.tolist()}")
        job = first_job(observation.jobs, observation.stages, self._rank[numbers], self.ahead)
        return on_critical_path(observation, job) if job >= 0 else None
