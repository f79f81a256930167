"""Log of an episode: task runs, moves and losses of executors, as arrays and pandas tables. Times are in ms."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from workloads.arrivals import JobSequence

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NOTHING_KEPT", "EpisodeLog", "Kept", "Overruled", "count_within"]

_Number = TypeVar("_Number", bound=np.generic)


class Overruled(NamedTuple):
    """A decision of a scheduler that a guarantee changed.

    Attributes:
        decision: number of the decision in the episode, from 0; decisions of the engine are not counted.
        time_ms: simulated time, ms.
        guarantee: ``floor``, ``ceiling`` or ``no-later-than``.
    """

    decision: int
    time_ms: float
    guarantee: str


class Kept(NamedTuple):
    """Statistics of a scheduler's guarantees in an episode, see ``decima.schedulers.guarantees``.

    Attributes:
        overruled: decisions that the guarantees changed, in order.
        below_floor_ms: longest time for which a tenant that could use executors had fewer than its floor, ms.
        slack_ms: largest slack that all jobs had in common, ms; 0 if each job has its own slack.
    """

    overruled: tuple[Overruled, ...] = ()
    below_floor_ms: float = 0.0
    slack_ms: float = 0.0


#: Statistics of a scheduler without guarantees.
NOTHING_KEPT = Kept()


@dataclass(frozen=True, eq=False, repr=False)
class EpisodeLog:
    """Task runs of an episode, moves and losses of executors, and completion times of jobs.

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
        kept: statistics of the scheduler's guarantees.
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
    kept: Kept = NOTHING_KEPT
    lost_task: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    lost_outcome: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    failed_job: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    failed_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    change_executor: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    change_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    change_joins: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @cached_property
    def task_job(self) -> NDArray[np.int64]:
        """Number of the job of each run, int64 [num_runs]."""
        return self.of_runs(np.repeat(self._stage_job, self.stage_size))

    @cached_property
    def task_stage(self) -> NDArray[np.int64]:
        """Number of the stage of each run within its job, int64 [num_runs]."""
        return self.of_runs(np.repeat(count_within(self._stage_job), self.stage_size))

    @cached_property
    def task_outcome(self) -> NDArray[np.int8]:
        """``Outcome`` of each run, int8 [num_runs]; finished for tasks that have not started or not ended."""
        num_tasks = self.task_start_ms.size - self.lost_task.size
        return np.concatenate([np.zeros(num_tasks, dtype=np.int8), self.lost_outcome])

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
    def absences(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Intervals of executors out of the cluster: executor, int32 [n]; start and end, ms, float64 [n, 2]."""
        spans = []
        for executor in np.unique(self.change_executor).tolist():
            times = self.change_ms[self.change_executor == executor].tolist()
            spans += [(executor, *times[index : index + 2]) for index in range(0, len(times), 2)]
        ended = np.array([(*span, self.end_ms)[:3] for span in spans]).reshape(-1, 3)
        return ended[:, 0].astype(np.int32), ended[:, 1:]

    def busy_until(self, time_ms: float) -> float:
        """Return the executor time spent on tasks from the start of the episode until ``time_ms``, ms."""
        ran = self.task_executor >= 0
        end_ms = np.minimum(self.task_finish_ms[ran], min(time_ms, self.end_ms))
        return float(np.maximum(end_ms - self.task_start_ms[ran], 0.0).sum())

    @property
    def fragmentation(self) -> dict[str, float]:
        """Fractions of ``cpu`` and of ``memory`` of busy executors that their tasks do not demand, 0 to 1.

        NaN if busy executors have none of the resource. Source: Decima, section 7.3.
        """
        ran = self.task_executor >= 0
        busy_ms = np.minimum(self.task_finish_ms[ran], self.end_ms) - self.task_start_ms[ran]
        unused = {}
        for resource in ("cpu", "memory"):
            size, demand = self.resource(resource)
            # The threads of BLAS make products of such long vectors slower.
            held = float((busy_ms * size[self.task_executor[ran]]).sum())
            unused[resource] = 1 - float((busy_ms * demand[ran]).sum()) / held if held else math.nan
        return unused

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

    def resources(self) -> pd.DataFrame:
        """Return resources of busy executors and demands of their tasks over time, as step functions.

        A row holds from its index (``time_ms``, float64, ms) to the next one. Columns, float64: ``cpu_held``,
        ``cpu_demanded``, ``memory_held``, ``memory_demanded``, and numbers of busy executors by class: ``class_0``,
        ``class_1``, .. Source: Decima, appendix F.
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.resources(self)

    def resource(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a resource of each executor, float64 [executors], and the demand of each run, float64 [runs]."""
        classes = self.config.executor_classes
        stages = [stage for profile in self.sequence.profiles for stage in profile.stages]
        size = np.array([getattr(executor_class, name) for executor_class in classes], dtype=np.float64)[
            self.executor_class
        ]
        demand = np.array([getattr(stage, name) for stage in stages], dtype=np.float64)
        return size, self.of_runs(np.repeat(demand, self.stage_size))

    def of_runs(self, value: NDArray[_Number]) -> NDArray[_Number]:
        """Extend an array over tasks, [num_tasks], to an array over runs, [num_runs]."""
        return np.concatenate([value, value[self.lost_task]]) if self.lost_task.size else value

    @cached_property
    def stage_size(self) -> NDArray[np.int64]:
        """Number of tasks of each stage of all jobs, int64 [num_stages]."""
        sizes = {
            profile: np.array([stage.num_tasks for stage in profile.stages], dtype=np.int64)
            for profile in set(self.sequence.profiles)
        }
        return np.concatenate([sizes[profile] for profile in self.sequence.profiles])

    @cached_property
    def _stage_job(self) -> NDArray[np.int64]:
        """Job of each stage of all jobs, int64 [num_stages]."""
        stages = [profile.num_stages for profile in self.sequence.profiles]
        return np.repeat(np.arange(len(stages), dtype=np.int64), stages)


def count_within(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number elements 0, 1, 2, .. within each group of equal values of an ascending array."""
    return np.arange(group.size, dtype=np.int64) - np.searchsorted(group, group)
