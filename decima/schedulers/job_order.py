"""A fixed order of jobs, as tried by an exhaustive search (Decima, "Optimality of Decima")."""

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

    With the jobs by total work this is ``SjfCp``.

    Args:
        order: numbers of the jobs in the sequence, each once, the most urgent first.
        ahead: whether a job also gets executors for stages whose parents are still finishing. They idle there, but
            no long task of another job delays the stage when it opens.

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
        """Choose the first job that can use executors, and its stage on the critical path, with all executors offered.

        Raises:
            ValueError: a live job is not in the order.
        """
        numbers = observation.job_id
        if numbers[0] < 0 or numbers[-1] >= self._rank.size:
            raise ValueError(f"an order of {self._rank.size} jobs has not all of the jobs {numbers.tolist()}")
        job = first_job(observation.jobs, observation.stages, self._rank[numbers], self.ahead)
        return on_critical_path(observation, job) if job >= 0 else None
