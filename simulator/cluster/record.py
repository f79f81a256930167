"""Record of an episode: what happened, as arrays and pandas tables. Times are in ms.

``simulator.cluster.metrics`` computes metrics from a record, such as slowdown, utilisation and energy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from workloads.arrivals import JobSequence
from workloads.display import count_text

if TYPE_CHECKING:
    import pandas as pd

    from simulator.cluster.kept import Kept

__all__ = ["EpisodeRecord"]

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, eq=False, repr=False)
class EpisodeRecord:
    """Task runs of an episode, moves and losses of executors, and completion times of jobs.

    Values that depend on the end of a job are NaN for incomplete jobs.

    Tasks are numbered by job, then by stage, then in the order of their first start.

    The arrays ``task_*`` have a row per run (attempt or copy of a task). The first ``num_tasks`` rows are the last run
    of each task; lost runs follow, in order of their end. Without faults ``num_runs`` is ``num_tasks``.

    Attributes:
        task_start_ms: float64 [num_runs], ms; NaN where a task never started.
        task_finish_ms: float64 [num_runs], ms; NaN where a task never started.
        task_executor: int32 [num_runs]; -1 where a task never started.
        task_wave: int8 [num_runs], a ``workloads.Wave``; -1 where a task never started.
        task_parallelism: int32 [num_runs], executors attached to the job when the task started.
        completion_ms: float64 [num_jobs], ms; NaN for a job that did not complete.
        move_executor: int32 [num_moves]; moves in order of departure.
        move_job: int64 [num_moves], job that the executor moves to.
        move_depart_ms: float64 [num_moves], ms.
        end_ms: time of the end of the episode, ms.
        num_decisions: number of decisions, including those that the engine took on the scheduler's behalf.
        num_guarded: number of decisions of a learned policy that its guard changed.
        kept: statistics of the scheduler's guarantees; None if it has none.
        lost_task: int64 [num_runs - num_tasks], task of each lost run.
        lost_outcome: int8 [num_runs - num_tasks], ``Outcome`` of each lost run.
        failed_job: int64 [num_failed], jobs that failed.
        failed_ms: float64 [num_failed], time of failure, ms.
        change_executor: int32 [num_changes], executors that were lost or joined, in order of time.
        change_ms: float64 [num_changes], time of the change, ms.
        change_joins: bool [num_changes], whether the executor joined.
    """

    config: ClusterConfig
    sequence: JobSequence
    task_start_ms: NDArray[np.float64]
    task_finish_ms: NDArray[np.float64]
    task_executor: NDArray[np.int32]
    task_wave: NDArray[np.int8]
    task_parallelism: NDArray[np.int32]
    completion_ms: NDArray[np.float64]
    move_executor: NDArray[np.int32]
    move_job: NDArray[np.int64]
    move_depart_ms: NDArray[np.float64]
    end_ms: float
    num_decisions: int
    num_guarded: int = 0
    kept: Kept | None = None
    lost_task: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    lost_outcome: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    failed_job: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    failed_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    change_executor: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    change_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    change_joins: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def __repr__(self) -> str:
        completed = np.count_nonzero(~np.isnan(self.completion_ms))
        jobs = f"{completed:,} of {count_text(len(self.sequence), 'job')} complete"
        times = f"mean JCT {self.mean_jct_ms / 1000:.1f} s, end {self.end_ms / 1000:.1f} s"
        cluster = f"{count_text(self.config.num_executors, 'executor')}, seed {self.sequence.seed}"
        return f"EpisodeRecord({jobs}, {times}, {cluster})"

    # ---- jobs --------------------------------------------------------------------------------------------

    @cached_property
    def jct_ms(self) -> NDArray[np.float64]:
        """Job completion time (JCT), completion - arrival, float64 [num_jobs], ms; NaN for an incomplete job."""
        return self.completion_ms - self.sequence.arrival_ms

    @property
    def mean_jct_ms(self) -> float:
        """Mean JCT of the completed jobs, ms; NaN without completed jobs."""
        completed = self.jct_ms[~np.isnan(self.jct_ms)]
        return float(completed.mean()) if completed.size else float("nan")

    @cached_property
    def ended_ms(self) -> NDArray[np.float64]:
        """Time at which each job completed or failed, float64 [num_jobs], ms; NaN for other jobs."""
        ended_ms = self.completion_ms.copy()
        ended_ms[self.failed_job] = self.failed_ms
        return ended_ms

    @property
    def makespan_ms(self) -> float:
        """Makespan: last end of a job - first arrival, ms; NaN if a job has not ended."""
        return float(self.ended_ms.max() - self.sequence.arrival_ms[0])

    # ---- runs of tasks, moves ----------------------------------------------------------------------------

    @cached_property
    def task_job(self) -> NDArray[np.int64]:
        """Number of the job of each run, int64 [num_runs]."""
        return self.of_runs(np.repeat(self._stage_job, self.stage_size))

    @cached_property
    def task_stage(self) -> NDArray[np.int64]:
        """Number of the stage of each run within its job, int64 [num_runs]."""
        return self.of_runs(np.repeat(count_within(self._stage_job), self.stage_size))

    @cached_property
    def executor_class(self) -> NDArray[np.int64]:
        """Class of each executor, index in ``config.executor_classes``, int64 [num_executors]."""
        counts = [executor_class.count for executor_class in self.config.executor_classes]
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def move_arrive_ms(self) -> NDArray[np.float64]:
        """End of each move, or loss of its executor if earlier, float64 [num_moves], ms; can be after the episode."""
        arrive_ms = self.move_depart_ms + self.config.moving_delay_ms
        for executor in np.unique(self.change_executor):
            lost_ms = np.append(
                self.change_ms[(self.change_executor == executor) & ~self.change_joins], np.inf
            )
            mine = self.move_executor == executor
            next_ms = lost_ms[np.searchsorted(lost_ms, self.move_depart_ms[mine], "right")]
            arrive_ms[mine] = np.minimum(arrive_ms[mine], next_ms)
        return arrive_ms

    @cached_property
    def stage_size(self) -> NDArray[np.int64]:
        """Number of tasks of each stage of all jobs, int64 [num_stages]."""
        sizes = {
            profile: np.array([stage.num_tasks for stage in profile.stages], dtype=np.int64)
            for profile in set(self.sequence.profiles)
        }
        return np.concatenate([sizes[profile] for profile in self.sequence.profiles])

    def of_runs(self, value: NDArray[_Number]) -> NDArray[_Number]:
        """Extend an array over tasks, [num_tasks], to an array over runs, [num_runs]."""
        return np.concatenate([value, value[self.lost_task]]) if self.lost_task.size else value

    @cached_property
    def _stage_job(self) -> NDArray[np.int64]:
        """Job of each stage of all jobs, int64 [num_stages]."""
        stages = [profile.num_stages for profile in self.sequence.profiles]
        return np.repeat(np.arange(len(stages), dtype=np.int64), stages)

    # ---- tables (pandas is slow to import) ---------------------------------------------------------------

    def jobs(self) -> pd.DataFrame:
        """Return a table with a row per job, in order of arrival.

        Columns: ``name``, ``arrival_ms``, ``completion_ms``, ``jct_ms``, ``work_ms`` (expected executor time alone),
        ``busy_ms`` and ``moving_ms`` (executor time of tasks and of moves to the job), ``slowdown``,
        ``work_inflation``. With attributes also ``weight``, ``tenant``, ``deadline_ms``, ``tardiness_ms``, with a
        signal ``carbon``.
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.jobs(self)

    def tasks(self) -> pd.DataFrame:
        """Return a table of task runs, in the order of the arrays ``task_*``.

        Columns: ``job``, ``stage`` (number in the job), ``task`` (number in the stage), ``executor``, ``wave``,
        ``parallelism``, ``start_ms``, ``finish_ms``. With several classes also ``executor_class``, -1 for tasks that
        never started. With faults also ``outcome``, an ``Outcome``.
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.tasks(self)

    def moves(self) -> pd.DataFrame:
        """Return a table of moves, in order of departure: ``executor``, ``job``, ``depart_ms``, ``arrive_ms``."""
        from simulator.cluster import tables  # pandas is slow to import

        return tables.moves(self)

    def jobs_in_system(self) -> pd.Series[int]:
        """Return the number of jobs in the system over time, as a step function: values int64, index in ms.

        A value holds from its index to the next one. If all jobs complete, the area below is the sum of their JCTs
        (Little's law).
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.jobs_in_system(self)

    def metrics(self) -> pd.Series[float]:
        """Return the metrics of the episode by name.

        Entries: ``mean_jct_ms``, ``p50_jct_ms``, ``p95_jct_ms``, ``p99_jct_ms``, ``makespan_ms``,
        ``utilisation``, ``mean_jobs_in_system``, ``mean_slowdown``, ``mean_work_inflation`` (means over jobs with a
        value), ``worst_slowdown``, ``busy_ms``, ``moving_ms`` (sums over the jobs),
        ``completed_jobs``. With faults also ``failed_jobs``, ``lost_runs``, and ``lost_ms``, the executor time of lost
        runs. With attributes also ``weighted_mean_jct_ms``, ``deadline_misses``, ``mean_tardiness_ms``. With a signal
        also ``executor_hours``, ``energy_kwh``, ``carbon``.
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.metrics(self)


def count_within(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number elements 0, 1, 2, .. within each group of equal values of an ascending array."""
    return np.arange(group.size, dtype=np.int64) - np.searchsorted(group, group)
