"""Record of an episode: task runs, jobs and executor moves, as arrays and pandas tables.

Times are milliseconds (``*_ms``) in every array and column; tables and pictures convert them to seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.cluster.alone import work_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.engine.solo import time_alone
from workloads.arrivals import JobSequence
from workloads.display import count_text, html_table
from workloads.job import JobProfile

__all__ = ["EpisodeRecord"]

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, eq=False, repr=False)
class EpisodeRecord:
    """One episode.

    Tasks are numbered job by job, stage by stage, in the order in which a stage hands them out. Jobs that did
    not complete are NaN wherever their end is spoken of; means and percentiles are over the completed jobs.

    The arrays ``task_*`` have a row per run. The first ``num_tasks`` rows are the last run of each task; the runs that
    were lost follow, in order of their end. Without faults ``num_runs`` is ``num_tasks``.

    Attributes:
        config: the cluster.
        sequence: the jobs.
        task_start_ms: float64 [num_runs], ms; NaN where a task never started.
        task_finish_ms: float64 [num_runs], ms; NaN where a task never started.
        task_executor: int32 [num_runs]; -1 where a task never started.
        task_wave: int8 [num_runs], a ``workloads.Wave``; -1 where a task never started.
        task_parallelism: int32 [num_runs], executors attached to the job when the task started.
        completion_ms: float64 [num_jobs], ms; NaN for a job that did not complete.
        move_executor: int32 [num_moves]; moves in order of departure.
        move_job: int64 [num_moves], the job moved to.
        move_depart_ms: float64 [num_moves], ms.
        end_ms: the clock when the episode ended, ms.
        num_decisions: decisions that the scheduler was asked for.
        num_guarded: of these, decisions of a learned policy that its guard changed.
        lost_task: int64 [num_runs - num_tasks], the task of each run that was lost.
        lost_outcome: int8 [num_runs - num_tasks], how it ended: an ``Outcome``.
        failed_job: int64 [num_failed], jobs that failed.
        failed_ms: float64 [num_failed], when, ms.
        change_executor: int32 [num_changes], executors that were lost or joined, in order of time.
        change_ms: float64 [num_changes], when, ms.
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
    lost_task: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    lost_outcome: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    failed_job: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    failed_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    change_executor: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    change_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    change_joins: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def __repr__(self) -> str:
        jobs = f"{self._completed_jct_ms.size:,} of {count_text(len(self.sequence), 'job')} complete"
        times = f"mean JCT {self.mean_jct_ms / 1000:.1f} s, end {self.end_ms / 1000:.1f} s"
        cluster = f"{count_text(self.config.num_executors, 'executor')}, seed {self.sequence.seed}"
        return f"EpisodeRecord({jobs}, {times}, {cluster})"

    def _repr_html_(self) -> str:
        rows = ((name, f"{value:.6g}") for name, value in self.metrics().items())
        return html_table(repr(self), ("metric", "value"), rows)

    # ---- who is who ------------------------------------------------------------------------------------

    @cached_property
    def task_job(self) -> NDArray[np.int64]:
        """The job of each run, int64 [num_runs]."""
        return self._of_runs(np.repeat(self._stage_job, self._stage_size))

    @cached_property
    def task_stage(self) -> NDArray[np.int64]:
        """The stage of each run, numbered inside its job, int64 [num_runs]."""
        return self._of_runs(np.repeat(_count_within(self._stage_job), self._stage_size))

    @cached_property
    def task_outcome(self) -> NDArray[np.int8]:
        """How each run ended, an ``Outcome``, int8 [num_runs]; finished for one that has not ended or not started."""
        num_tasks = self.task_start_ms.size - self.lost_task.size
        return np.concatenate([np.zeros(num_tasks, dtype=np.int8), self.lost_outcome])

    @cached_property
    def executor_class(self) -> NDArray[np.int64]:
        """The class of each executor, its place in ``config.executor_classes``; int64 [num_executors]."""
        counts = [kind.count for kind in self.config.executor_classes]
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def move_arrive_ms(self) -> NDArray[np.float64]:
        """When each move ends or its executor is lost, float64 [num_moves], ms; the episode may end before."""
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
        """When executors were not in the cluster: executor, int32 [n], and begin and end, ms, float64 [n, 2]."""
        spans = []
        for executor in np.unique(self.change_executor).tolist():
            times = self.change_ms[self.change_executor == executor].tolist()
            spans += [(executor, *times[place : place + 2]) for place in range(0, len(times), 2)]
        ended = np.array([(*span, self.end_ms)[:3] for span in spans]).reshape(-1, 3)
        return ended[:, 0].astype(np.int32), ended[:, 1:]

    # ---- per job ---------------------------------------------------------------------------------------

    @cached_property
    def jct_ms(self) -> NDArray[np.float64]:
        """Job completion time: completion - arrival, float64 [num_jobs], ms; NaN for an unfinished job."""
        return self.completion_ms - self.sequence.arrival_ms

    @cached_property
    def busy_ms(self) -> NDArray[np.float64]:
        """Executor time spent on each job's tasks until the episode's end, float64 [num_jobs], ms."""
        duration = np.minimum(self.task_finish_ms, self.end_ms) - self.task_start_ms
        return self._sum_by_job(self.task_job, np.maximum(np.nan_to_num(duration), 0.0))

    @cached_property
    def moving_ms(self) -> NDArray[np.float64]:
        """Executor time lost on the way to each job until the episode's end, float64 [num_jobs], ms."""
        duration = np.minimum(self.move_arrive_ms, self.end_ms) - self.move_depart_ms
        return self._sum_by_job(self.move_job, duration)

    @cached_property
    def alone_ms(self) -> NDArray[np.float64]:
        """Expected JCT of each job alone on this cluster under its best limit, float64 [num_jobs], ms."""
        return self._per_job(lambda profile: time_alone(profile, self.config).mean_ms)

    @cached_property
    def slowdown(self) -> NDArray[np.float64]:
        """JCT over the job's expected time alone on the same cluster, float64 [num_jobs].

        That is the job's mean JCT where it is the only job and its parallelism limit is the one with the shortest mean,
        its best limit; delays are included (``simulator.cluster.engine.solo.time_alone``). So a job that runs alone
        under its best limit has slowdown 1 on average, and less with lucky tasks. NaN for a job that is unfinished, or
        that takes no time alone.
        """
        return _ratio(self.jct_ms, self.alone_ms)

    @cached_property
    def work_inflation(self) -> NDArray[np.float64]:
        """Executor time spent on the job's tasks over what its profile expects, float64 [num_jobs].

        The expectation is that of the job alone on this cluster (``simulator.cluster.alone.work_ms``): more cold starts
        or a higher parallelism than it has there push the ratio above 1, fewer below. NaN for a job that is unfinished
        or without work. Source: Decima, Figure 10(e).
        """
        spent = np.where(np.isnan(self.completion_ms), np.nan, self.busy_ms)
        return _ratio(spent, self._work_ms)

    # ---- per episode -----------------------------------------------------------------------------------

    @property
    def mean_jct_ms(self) -> float:
        """Average JCT of the completed jobs, ms; NaN if there are none."""
        return float(self._completed_jct_ms.mean()) if self._completed_jct_ms.size else float("nan")

    def jct_percentile_ms(self, percent: float) -> float:
        """A percentile (0 to 100, interpolated linearly) of the completed jobs' JCT, ms; NaN without any."""
        completed = self._completed_jct_ms
        return float(np.percentile(completed, percent)) if completed.size else float("nan")

    @property
    def makespan_ms(self) -> float:
        """Last end of a job - first arrival, ms; NaN if a job is unfinished."""
        return float(self._gone_ms.max() - self.sequence.arrival_ms[0])

    @property
    def observed_ms(self) -> float:
        """First arrival to last end of a job, or to the episode's end if a job is unfinished, ms."""
        last = self.end_ms if np.isnan(self._gone_ms).any() else float(self._gone_ms.max())
        return float(last - self.sequence.arrival_ms[0])

    @property
    def utilisation(self) -> float:
        """Busy executor time over that of executors in the cluster, 0 to 1; moving and waiting are not busy."""
        capacity = self.capacity_ms
        return float(self.busy_ms.sum() / capacity) if capacity else float("nan")

    @property
    def capacity_ms(self) -> float:
        """Time of executors in the cluster, summed over the observed time, ms."""
        begin_ms, observed_ms = float(self.sequence.arrival_ms[0]), self.observed_ms
        left_ms = observed_ms - np.clip(self.change_ms - begin_ms, 0, observed_ms)
        return self.config.num_executors * observed_ms + float(np.where(self.change_joins, 1, -1) @ left_ms)

    def busy_until(self, time_ms: float) -> float:
        """Executor time spent on tasks from the episode's start to some moment, ms."""
        ran = self.task_executor >= 0
        end_ms = np.minimum(self.task_finish_ms[ran], min(time_ms, self.end_ms))
        return float(np.maximum(end_ms - self.task_start_ms[ran], 0.0).sum())

    @property
    def fragmentation(self) -> dict[str, float]:
        """Of the ``cpu`` and ``memory`` of busy executors, the shares that their tasks did not demand, 0 to 1.

        NaN where busy executors have none. Source: Decima, section 7.3.
        """
        ran = self.task_executor >= 0
        busy_ms = np.minimum(self.task_finish_ms[ran], self.end_ms) - self.task_start_ms[ran]
        unused = {}
        for resource in ("cpu", "memory"):
            size, demand = self._resource(resource)
            held = float(busy_ms @ size[self.task_executor[ran]])
            unused[resource] = 1 - float(busy_ms @ demand[ran]) / held if held else math.nan
        return unused

    @property
    def mean_jobs_in_system(self) -> float:
        """Time average of the number of jobs that have arrived and not ended, over the observed time."""
        time_in_system = self._departure_ms - np.minimum(self.sequence.arrival_ms, self.end_ms)
        return float(time_in_system.sum() / self.observed_ms) if self.observed_ms else float("nan")

    # ---- tables ----------------------------------------------------------------------------------------

    def tasks(self) -> pd.DataFrame:
        """One row per run of a task, in the order of the attributes: the last run of each task, then lost runs.

        Columns: ``job``, ``stage`` (inside the job), ``task`` (inside the stage), ``executor``, ``wave``,
        ``parallelism``, ``start_ms``, ``finish_ms``; as in the attributes for tasks that never started. With several
        classes of executors also ``executor_class``, -1 for such tasks. With faults also ``outcome``, an ``Outcome``.
        """
        table = pd.DataFrame(
            {
                "job": self.task_job,
                "stage": self.task_stage,
                "task": self._of_runs(
                    _count_within(np.repeat(np.arange(self._stage_size.size), self._stage_size))
                ),
                "executor": self.task_executor,
                "wave": self.task_wave,
                "parallelism": self.task_parallelism,
                "start_ms": self.task_start_ms,
                "finish_ms": self.task_finish_ms,
            }
        )
        if len(self.config.executor_classes) > 1:
            kind = np.where(self.task_executor < 0, -1, self.executor_class[self.task_executor])
            table.insert(4, "executor_class", kind)
        if self.config.faults.active:
            table["outcome"] = self.task_outcome
        return table

    def jobs(self) -> pd.DataFrame:
        """One row per job, in order of arrival.

        Columns: ``name``, ``arrival_ms``, ``completion_ms``, ``jct_ms``, ``work_ms`` (expected alone), ``busy_ms``
        and ``moving_ms`` (executor time on it and on the way to it), ``slowdown``, ``work_inflation``.
        """
        return pd.DataFrame(
            {
                "name": [profile.name for profile in self.sequence.profiles],
                "arrival_ms": self.sequence.arrival_ms,
                "completion_ms": self.completion_ms,
                "jct_ms": self.jct_ms,
                "work_ms": self._work_ms,
                "busy_ms": self.busy_ms,
                "moving_ms": self.moving_ms,
                "slowdown": self.slowdown,
                "work_inflation": self.work_inflation,
            }
        ).rename_axis("job")

    def moves(self) -> pd.DataFrame:
        """One row per move, in order of departure.

        Columns: ``executor``, ``job`` (where it moves to), ``depart_ms``, ``arrive_ms``.
        """
        return pd.DataFrame(
            {
                "executor": self.move_executor,
                "job": self.move_job,
                "depart_ms": self.move_depart_ms,
                "arrive_ms": self.move_arrive_ms,
            }
        )

    def jobs_in_system(self) -> pd.Series[int]:
        """How many jobs have arrived and neither completed nor failed, as a step function.

        Each value (int64) holds from its index (float64, ms) to the next; the last one from there on. With
        all jobs complete, the area below is the sum of their JCTs (Little's law).
        """
        ended = np.sort(self._gone_ms[~np.isnan(self._gone_ms)])
        arrived = self.sequence.arrival_ms[self.sequence.arrival_ms <= self.end_ms]
        times = np.unique(np.concatenate([arrived, ended]))
        counts = np.searchsorted(arrived, times, "right") - np.searchsorted(ended, times, "right")
        return pd.Series(counts, index=pd.Index(times, name="time_ms"), name="jobs")

    @property
    def jobs_found(self) -> NDArray[np.int64]:
        """How many jobs are in the system when each arrives, int64 [num_jobs]; those that come with it, too."""
        steps = self.jobs_in_system()
        places = np.searchsorted(steps.index.to_numpy(), self.sequence.arrival_ms, "right") - 1
        return steps.to_numpy()[places].astype(np.int64)

    def resources(self) -> pd.DataFrame:
        """What busy executors have, and what their tasks demand of it, as step functions.

        Each row holds from its index (``time_ms``, float64, ms) to the next. Columns, float64: ``cpu_held``,
        ``cpu_demanded``, ``memory_held``, ``memory_demanded``, and how many executors are busy of each class:
        ``class_0``, ``class_1``, .. What is held and not demanded is fragmentation. Source: Decima, appendix F.
        """
        ran = self.task_executor >= 0
        executor = self.task_executor[ran]
        weights: dict[str, NDArray[np.float64]] = {}
        for resource in ("cpu", "memory"):
            size, demand = self._resource(resource)
            weights |= {f"{resource}_held": size[executor], f"{resource}_demanded": demand[ran]}
        for kind in range(len(self.config.executor_classes)):
            weights[f"class_{kind}"] = (self.executor_class[executor] == kind).astype(np.float64)
        finish = np.minimum(self.task_finish_ms[ran], self.end_ms)
        times, place = np.unique(np.concatenate([self.task_start_ms[ran], finish]), return_inverse=True)
        columns = {
            name: np.cumsum(np.bincount(place, np.concatenate([value, -value]), minlength=times.size))
            for name, value in weights.items()
        }
        # Sums of fractions do not come back to 0 exactly.
        return pd.DataFrame(columns, index=pd.Index(times, name="time_ms")).round(9) + 0.0

    def metrics(self) -> pd.Series[float]:
        """The episode in numbers.

        Entries: ``mean_jct_ms``, ``p50_jct_ms``, ``p95_jct_ms``, ``p99_jct_ms``, ``makespan_ms``,
        ``utilisation``, ``mean_jobs_in_system``, ``mean_slowdown``, ``mean_work_inflation`` (means over the
        jobs where they are defined), ``busy_ms``, ``moving_ms`` (sums over the jobs), ``completed_jobs``. With faults
        also ``failed_jobs``, ``lost_runs``, and ``lost_ms``, the executor time of lost runs.
        """
        return pd.Series(
            {
                "mean_jct_ms": self.mean_jct_ms,
                **{f"p{percent}_jct_ms": self.jct_percentile_ms(percent) for percent in (50, 95, 99)},
                "makespan_ms": self.makespan_ms,
                "utilisation": self.utilisation,
                "mean_jobs_in_system": self.mean_jobs_in_system,
                "mean_slowdown": float(pd.Series(self.slowdown).mean()),
                "mean_work_inflation": float(pd.Series(self.work_inflation).mean()),
                "busy_ms": float(self.busy_ms.sum()),
                "moving_ms": float(self.moving_ms.sum()),
                "completed_jobs": float(self._completed_jct_ms.size),
                **self._losses,
            },
            name="metrics",
        )

    @property
    def _losses(self) -> dict[str, float]:
        """Counts and times of lost and failed runs; empty without faults."""
        if not self.config.faults.active:
            return {}
        first = self.task_start_ms.size - self.lost_task.size
        lost_ms = float((self.task_finish_ms[first:] - self.task_start_ms[first:]).sum())
        counts = {"failed_jobs": float(self.failed_job.size), "lost_runs": float(self.lost_task.size)}
        return counts | {"lost_ms": lost_ms}

    # ---- helpers ---------------------------------------------------------------------------------------

    def _resource(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each executor has of ``cpu`` or ``memory``, and what each task demands, float64 [executors], [tasks]."""
        classes = self.config.executor_classes
        stages = [stage for profile in self.sequence.profiles for stage in profile.stages]
        size = np.array([getattr(kind, name) for kind in classes], dtype=np.float64)[self.executor_class]
        demand = np.array([getattr(stage, name) for stage in stages], dtype=np.float64)
        return size, self._of_runs(np.repeat(demand, self._stage_size))

    def _of_runs(self, value: NDArray[_Number]) -> NDArray[_Number]:
        """From a number of each task to that of each run."""
        return np.concatenate([value, value[self.lost_task]]) if self.lost_task.size else value

    @cached_property
    def _stage_size(self) -> NDArray[np.int64]:
        """Tasks of each stage, over all jobs, int64 [num_stages]."""
        sizes = {
            profile: np.array([stage.num_tasks for stage in profile.stages], dtype=np.int64)
            for profile in set(self.sequence.profiles)
        }
        return np.concatenate([sizes[profile] for profile in self.sequence.profiles])

    @cached_property
    def _stage_job(self) -> NDArray[np.int64]:
        """Job of each stage, over all jobs, int64 [num_stages]."""
        stages = [profile.num_stages for profile in self.sequence.profiles]
        return np.repeat(np.arange(len(stages), dtype=np.int64), stages)

    @property
    def _completed_jct_ms(self) -> NDArray[np.float64]:
        return self.jct_ms[~np.isnan(self.jct_ms)]

    @property
    def _departure_ms(self) -> NDArray[np.float64]:
        """When each job left the observed system, float64 [num_jobs], ms."""
        return np.where(np.isnan(self._gone_ms), self.end_ms, self._gone_ms)

    @cached_property
    def _gone_ms(self) -> NDArray[np.float64]:
        """When each job completed or failed, float64 [num_jobs], ms; NaN for a job that did neither."""
        gone_ms = self.completion_ms.copy()
        gone_ms[self.failed_job] = self.failed_ms
        return gone_ms

    def _per_job(self, value: Callable[[JobProfile], float]) -> NDArray[np.float64]:
        """A number of each job's profile, asked for once per distinct profile; float64 [num_jobs]."""
        known = {profile: value(profile) for profile in set(self.sequence.profiles)}
        return np.array([known[profile] for profile in self.sequence.profiles], dtype=np.float64)

    @cached_property
    def _work_ms(self) -> NDArray[np.float64]:
        """Executor time that each job is expected to take alone on this cluster, float64 [num_jobs], ms."""
        return self._per_job(lambda profile: float(work_ms(profile, self.config).sum()))

    def _sum_by_job(self, job: NDArray[np.int64], value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(job, weights=value, minlength=len(self.sequence)).astype(np.float64)


def _count_within(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, 2, .. inside each run of equal values of an ascending array."""
    return np.arange(group.size, dtype=np.int64) - np.searchsorted(group, group)


def _ratio(value: NDArray[np.float64], to: NDArray[np.float64]) -> NDArray[np.float64]:
    """``value / to``, NaN where ``to`` is 0."""
    return np.divide(value, to, out=np.full_like(value, np.nan), where=to > 0)
