"""Results of episodes on DeepRM's grid, as arrays and a pandas table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.grid.config import GridConfig
from workloads.grid_jobs import JobSets

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GridRecord"]


@dataclass(frozen=True, eq=False)
class GridRecord:
    """Results of N episodes on a grid. Times of jobs that were never booked are NaN.

    In a truncated episode, a booked job counts as finished at the end of its booking, as in the public code.

    Attributes:
        jobs: sets of jobs; J jobs in the largest one.
        start: int32 [N, J], step in which the job starts; -1 for a job that was never booked.
        machine: int32 [N, J], machine of the job; -1 for a job that was never booked.
        dropped: bool [N, J], jobs dropped because the backlog was full.
        num_entered: int32 [N], number of jobs that have entered or were dropped.
        clock: int32 [N], number of steps that have passed.
    """

    config: GridConfig
    jobs: JobSets
    start: NDArray[np.int32]
    machine: NDArray[np.int32]
    dropped: NDArray[np.bool_]
    num_entered: NDArray[np.int32]
    clock: NDArray[np.int32]

    @cached_property
    def is_job(self) -> NDArray[np.bool_]:
        """Mask of jobs that can enter, bool [N, J]; other entries are padding."""
        places = np.arange(self.jobs.enter.shape[1])
        first = 0 if self.config.semantics.first_step else 1
        return (places < self.jobs.num_jobs[:, None]) & (self.jobs.enter >= first)

    @cached_property
    def unfinished(self) -> NDArray[np.int64]:
        """Number of jobs of each episode that were never booked, including dropped jobs, int64 [N]."""
        return np.asarray(np.count_nonzero(self.is_job & (self.start < 0), axis=1))

    @cached_property
    def waiting(self) -> NDArray[np.float64]:
        """Number of steps from entering to starting, float64 [N, J]."""
        return np.where(self.start >= 0, self.start - self.jobs.enter, np.nan)

    @cached_property
    def completion(self) -> NDArray[np.float64]:
        """Job completion time: number of steps from entering to finishing, float64 [N, J]."""
        return self.waiting + self.jobs.duration

    def slowdown(self, *, whole: bool = False) -> NDArray[np.float64]:
        """Return slowdown: completion time over duration, at least 1, float64 [N, J].

        Args:
            whole: round slowdowns down, like the public code.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            slowdown = np.where(self.start >= 0, self.completion / self.jobs.duration, np.nan)
        return np.floor(slowdown) if whole else slowdown

    @cached_property
    def makespan(self) -> NDArray[np.int64]:
        """Makespan: step in which the last booked job finishes, int64 [N]."""
        finish = np.where(self.start >= 0, self.start + self.jobs.duration, 0)
        return np.asarray(finish.max(axis=1, initial=0), dtype=np.int64)

    @cached_property
    def utilisation(self) -> NDArray[np.float64]:
        """Fraction of the units of all resources in use until the last booked job finishes, float64 [N]."""
        work = np.where(self.start >= 0, self.jobs.duration, 0) * self.jobs.demand.sum(axis=2)
        units = self.config.machines * self.config.units * self.config.num_resources
        return np.asarray(work.sum(axis=1) / np.maximum(self.makespan * units, 1))

    def table(self) -> pd.DataFrame:
        """Return a table with a row per job: set, job, enter, duration, demands, machine, start, finish, waiting, .."""
        import pandas as pd  # slow to import, and needed for tables only

        at = which, job = np.nonzero(self.is_job)
        booked = self.start[at] >= 0
        columns = {
            "set": which,
            "job": job,
            "enter": self.jobs.enter[at],
            "duration": self.jobs.duration[at],
            **{f"demand_{k}": self.jobs.demand[which, job, k] for k in range(self.jobs.num_resources)},
            "machine": np.where(booked, self.machine[at], np.nan),
            "start": np.where(booked, self.start[at], np.nan),
            "finish": np.where(booked, self.start[at] + self.jobs.duration[at], np.nan),
            "waiting": self.waiting[at],
            "completion": self.completion[at],
            "slowdown": self.slowdown()[at],
            "dropped": self.dropped[at],
        }
        return pd.DataFrame(columns)
