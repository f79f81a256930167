"""A fixed order of jobs: what an exhaustive search tries one after the other (Decima, "Optimality of Decima")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.sjf_cp import first_job, on_critical_path
from simulator.cluster.observation import Decision, Observation

__all__ = ["JobOrder"]


class JobOrder(Scheduler):
    """Executors go to the first job of the order that can use them; inside it along the critical path.

    With the jobs by total work this is ``SjfCp``.

    Args:
        order: numbers of the jobs in the sequence, each once, the most urgent first.
        ahead: whether a job also gets executors for stages whose parents are still finishing. They wait there
            while others might use them; but then no long task of another job is in the way when the stage opens.

    Raises:
        ValueError: the order is no permutation.
    """

    def __init__(self, order: Sequence[int], ahead: bool = True):
        numbers = np.array(order)
        if not np.array_equal(np.sort(numbers), np.arange(numbers.size)):
            expected = f"expected each of the numbers 0 to {numbers.size - 1} once"
            raise ValueError(f"{expected} as the order of the jobs, got {list(order)}")
        self.ahead = ahead
        self._rank: NDArray[np.int64] = np.argsort(numbers)

    def decide(self, observation: Observation) -> Decision | None:
        """The stage on the critical path of the first job that can use executors, with all that are offered.

        Raises:
            ValueError: the order has no such job.
        """
        numbers = observation.job_id
        if numbers[0] < 0 or numbers[-1] >= self._rank.size:
            raise ValueError(f"an order of {self._rank.size} jobs has not all of the jobs {numbers.tolist()}")
        job = first_job(observation.jobs, observation.stages, self._rank[numbers], self.ahead)
        return on_critical_path(observation, job) if job >= 0 else None
