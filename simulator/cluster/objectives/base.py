"""Interface of objectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["LiveJobs", "Objective"]


class LiveJobs:
    """Jobs in the system. Arrays are made when they are needed, in order of arrival.

    Args:
        jobs: numbers of the jobs.
        of_all: arrival in ms, weight, and deadline in ms of all jobs of the sequence, float64 [num_jobs] each.
    """

    def __init__(
        self,
        jobs: Collection[int],
        of_all: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    ) -> None:
        self._jobs, self._of_all = jobs, of_all

    def __len__(self) -> int:
        return len(self._jobs)

    @cached_property
    def arrival_ms(self) -> NDArray[np.float64]:
        """Arrival of each job, float64 [jobs], ms."""
        return self._of_all[0][sorted(self._jobs)]

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Weight of each job, float64 [jobs]."""
        return self._of_all[1][sorted(self._jobs)]

    @cached_property
    def deadline_ms(self) -> NDArray[np.float64]:
        """Deadline of each job, float64 [jobs], ms; infinite for a job without one."""
        return self._of_all[2][sorted(self._jobs)]


class Objective(ABC):
    """A cost that accrues over time; a policy minimises its sum."""

    #: Whether the cost depends on the jobs in the system; else it depends on the time alone.
    depends_on_jobs = True
    #: Attributes of jobs that the cost is computed from: ``weight``, ``deadline``.
    attributes: frozenset[str] = frozenset()

    @abstractmethod
    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the cost of a time in which these jobs are in the system.

        Args:
            begin_ms: beginning of the time (exclusive), ms.
            end_ms: its end (inclusive), ms.
            jobs: jobs in the system all that time.
            scale_ms: rewards are divided by this, ms.
        """
