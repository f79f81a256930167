"""Gathers the events of one Spark application into tables: jobs, stages, tasks, executors, SQL executions.

A task becomes one row of compact arrays (about 120 bytes), everything else a small object, so that logs of
many gigabytes fit into memory. Field names are those of Spark's ``JsonProtocol`` (3.0 to 4.x).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd

from workloads.job import MOST_TASKS

__all__ = ["EVENT_NAMES", "EventTables", "Execution", "Executor", "Job", "Stage", "TaskOutcome"]

NAN = float("nan")
#: What is kept of the name of an operator in a plan, characters.
LONGEST_OPERATOR = 1024
_Event = Mapping[str, Any]
_SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


class TaskOutcome(IntEnum):
    """How a run of a task ended."""

    SUCCESS = 0
    FAILED = 1
    KILLED = 2
    """Usually because a speculative copy of it was faster."""


@dataclass
class Executor:
    """One executor process. Times in ms since the epoch, NaN where the log does not tell."""

    executor_id: str
    place: int
    cores: int = 1
    host: str = ""
    requested_ms: float = NAN
    registered_ms: float = NAN
    removed_ms: float = NAN
    lost: bool = False


@dataclass
class Stage:
    """One stage, all its attempts together."""

    stage_id: int
    name: str
    rdd: int
    num_tasks: int
    parents: tuple[int, ...]
    attempts: int = 0
    submitted_ms: float = NAN
    completed_ms: float = NAN
    completed: bool = False
    writes_shuffle: bool = False


@dataclass
class Job:
    """One Spark job; ``execution`` is its root SQL execution, None outside of SQL."""

    job_id: int
    execution: int | None
    name: str
    stage_ids: tuple[int, ...]
    submitted_ms: float
    ended_ms: float = NAN
    failed: bool = False
    pool: str = ""


@dataclass
class Execution:
    """One root SQL execution; ``plan`` has the operators of its first physical plan, each before its children."""

    description: str
    started_ms: float
    plan: tuple[str, ...] = ()
    ended_ms: float = NAN
    failed: bool = False


#: Column of every task run, each an int64; times in ms since the epoch, sizes in bytes.
_TASK_COLUMNS = (
    "stage_id", "partition", "executor", "launch_ms", "finish_ms", "outcome", "run_ms", "cpu_ns",
    "input_bytes", "shuffle_read_bytes", "shuffle_write_bytes",
)  # fmt: skip


@dataclass
class EventTables:
    """What the events of one application say, as far as they have been added.

    `add` raises ArithmeticError, LookupError, TypeError or ValueError for an event that lacks a field
    or has one of a wrong type.
    """

    name: str = ""
    application_id: str = ""
    spark_version: str = ""
    started_ms: float = NAN
    ended_ms: float = NAN
    cores_per_task: int = 1
    master: str = ""
    scheduler: str = ""
    recording: dict[str, Any] = field(default_factory=dict)
    executors: dict[str, Executor] = field(default_factory=dict)
    executions: dict[int, Execution] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    stages: dict[int, Stage] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    tally: Counter[str] = field(default_factory=Counter)
    _tasks: tuple[array[int], ...] = field(default_factory=lambda: tuple(array("q") for _ in _TASK_COLUMNS))

    def add(self, name: str, event: _Event | None) -> None:
        """Add one event; events without a meaning here are counted by name."""
        if event is None:
            self.ignored[name] += 1
        else:
            _HANDLERS[name](self, event)

    @property
    def started(self) -> bool:
        """The application has introduced itself."""
        return self.started_ms == self.started_ms

    def task_runs(self) -> pd.DataFrame:
        """One row for each run of a task that ended, in order of its end; columns as in ``_TASK_COLUMNS``.

        ``executor`` is an executor's ``place``; ``outcome`` a `TaskOutcome`.
        """
        columns = {
            name: np.frombuffer(values, dtype=np.int64).copy() if values else np.zeros(0, dtype=np.int64)
            for name, values in zip(_TASK_COLUMNS, self._tasks, strict=True)
        }
        return pd.DataFrame(columns)

    def _add_recording(self, event: _Event) -> None:
        """Our recorder's own line: how the run was made; it also knows when executors were asked for."""
        self.recording = {key: value for key, value in event.items() if key != "Event"}
        for executor_id, times in self.recording.get("executors", {}).items():
            self._executor(executor_id).requested_ms = float(times.get("granted", NAN))

    def _add_log_start(self, event: _Event) -> None:
        self.spark_version = str(event["Spark Version"])

    def _add_environment(self, event: _Event) -> None:
        properties = dict(event.get("Spark Properties", {}))
        self.cores_per_task = int(properties.get("spark.task.cpus", 1))
        self.master = str(properties.get("spark.master", ""))
        in_charge = "decima" in str(properties.get("spark.plugins", "")).lower()
        self.scheduler = (
            "decima" if in_charge else str(properties.get("spark.scheduler.mode", "FIFO")).upper()
        )

    def _add_application_start(self, event: _Event) -> None:
        self.name, self.application_id = str(event["App Name"]), str(event.get("App ID", ""))
        self.started_ms = _ms(event["Timestamp"])

    def _add_application_end(self, event: _Event) -> None:
        self.ended_ms = _ms(event["Timestamp"])

    def _add_executor(self, event: _Event) -> None:
        executor, info = self._executor(event["Executor ID"]), event["Executor Info"]
        executor.cores, executor.host = int(info["Total Cores"]), str(info.get("Host", ""))
        executor.registered_ms = _ms(info.get("Registration Time", event["Timestamp"]))
        if "Request Time" in info:
            executor.requested_ms = _ms(info["Request Time"])

    def _remove_executor(self, event: _Event) -> None:
        executor = self._executor(event["Executor ID"])
        executor.removed_ms = _ms(event["Timestamp"])
        reason = str(event.get("Removed Reason", "")).lower()
        executor.lost = not ("killed by driver" in reason or "decommission" in reason)

    def _start_execution(self, event: _Event) -> None:
        execution = int(event["executionId"])
        if int(event.get("rootExecutionId", execution)) == execution:
            self.executions[execution] = Execution(
                str(event.get("description", "")), _ms(event["time"]), _plan(event.get("sparkPlanInfo"))
            )

    def _end_execution(self, event: _Event) -> None:
        if execution := self.executions.get(int(event["executionId"])):
            execution.ended_ms = _ms(event["time"])
            execution.failed = bool(event.get("errorMessage"))

    def _start_job(self, event: _Event) -> None:
        properties = event.get("Properties") or {}
        execution = properties.get("spark.sql.execution.root.id") or properties.get("spark.sql.execution.id")
        infos = event["Stage Infos"]
        for info in infos:
            self._stage(info)
        job = Job(
            job_id=int(event["Job ID"]),
            execution=None if execution is None else int(execution),
            name=str(properties.get("spark.job.description") or properties.get("spark.jobGroup.id") or ""),
            stage_ids=tuple(sorted(int(info["Stage ID"]) for info in infos)),
            submitted_ms=_ms(event["Submission Time"]),
            pool=str(properties.get("spark.scheduler.pool") or ""),
        )
        self.jobs[job.job_id] = job

    def _end_job(self, event: _Event) -> None:
        if job := self.jobs.get(int(event["Job ID"])):
            job.ended_ms = _ms(event["Completion Time"])
            job.failed = event["Job Result"]["Result"] != "JobSucceeded"

    def _submit_stage(self, event: _Event) -> None:
        info = event["Stage Info"]
        stage = self._stage(info)
        stage.attempts += 1
        if stage.attempts == 1:
            stage.submitted_ms = float(info.get("Submission Time", NAN))

    def _complete_stage(self, event: _Event) -> None:
        info = event["Stage Info"]
        stage = self._stage(info)
        if not info.get("Failure Reason"):
            stage.completed = True
            stage.completed_ms = float(info.get("Completion Time", NAN))

    def _start_task(self, event: _Event) -> None:
        info = event["Task Info"]
        self.tally["started_tasks"] += 1
        self.tally["speculative_tasks"] += bool(info.get("Speculative"))
        self.tally["retried_tasks"] += int(info["Attempt"]) > 0 and not info.get("Speculative")

    def _end_task(self, event: _Event) -> None:
        reason = event["Task End Reason"]["Reason"]
        if reason == "Resubmitted":  # not an end: the output of a task that had succeeded was lost
            self.tally["resubmitted_tasks"] += 1
            return
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        read = metrics.get("Shuffle Read Metrics", {})
        stage_id = int(event["Stage ID"])
        if int(info["Finish Time"]) < int(info["Launch Time"]):
            raise ValueError("Finish Time: it is before the Launch Time")
        row = (
            stage_id,
            # A later attempt of a stage numbers only the tasks that it repeats; partitions keep their number.
            int(info.get("Partition ID", info["Index"])),
            self._executor(info["Executor ID"]).place,
            int(info["Launch Time"]),
            int(info["Finish Time"]),
            {"Success": TaskOutcome.SUCCESS, "TaskKilled": TaskOutcome.KILLED}.get(
                reason, TaskOutcome.FAILED
            ),
            int(metrics.get("Executor Run Time", 0)),
            int(metrics.get("Executor CPU Time", 0)) + int(metrics.get("Executor Deserialize CPU Time", 0)),
            int(metrics.get("Input Metrics", {}).get("Bytes Read", 0)),
            int(read.get("Remote Bytes Read", 0)) + int(read.get("Local Bytes Read", 0)),
            int(metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)),
        )
        for column, value in zip(
            self._tasks, array("q", row), strict=True
        ):  # all of them are int64, or none is added
            column.append(value)
        self.tally["ended_tasks"] += 1
        if stage := self.stages.get(stage_id):
            stage.writes_shuffle = event.get("Task Type") == "ShuffleMapTask"

    def _executor(self, executor_id: str) -> Executor:
        return self.executors.setdefault(executor_id, Executor(executor_id, place=len(self.executors)))

    def _stage(self, info: _Event) -> Stage:
        stage_id = int(info["Stage ID"])
        if stage_id not in self.stages:
            parents = tuple(int(parent) for parent in info["Parent IDs"])
            if not all(parent < stage_id for parent in parents):
                raise ValueError("Parent IDs: a stage is made after its parents")
            if not 0 <= int(info["Number of Tasks"]) <= MOST_TASKS:
                raise ValueError(f"Number of Tasks: {info['Number of Tasks']}")
            # The stage's own RDD comes first, then those that it is computed from within the stage.
            rdds = info.get("RDD Info") or [{"RDD ID": -1 - stage_id}]
            self.stages[stage_id] = Stage(
                stage_id=stage_id,
                name=_operators(rdds) or str(info.get("Stage Name", "")),
                rdd=int(rdds[0]["RDD ID"]),
                num_tasks=int(info["Number of Tasks"]),
                parents=parents,
            )
        return self.stages[stage_id]


def _ms(value: Any) -> float:
    """A time since 1970 that a calendar has, ms."""
    if not abs(time := float(value)) < 2.5e14:
        raise ValueError(f"time: {value}")
    return time


def _plan(root: _Event | None) -> tuple[str, ...]:
    """The operators of a physical plan, each before its children; none where the log does not tell."""
    found, pending = [], [root] if root else []
    while pending:
        node = pending.pop()
        found.append(str(node["nodeName"])[:LONGEST_OPERATOR])
        pending += reversed(node["children"])
    return tuple(found)


def _operators(rdds: list[dict[str, Any]]) -> str:
    """The operators that made a stage's RDDs, in order of execution: ``Scan parquet > Exchange``."""
    names: dict[str, None] = {}
    for rdd in sorted(rdds, key=lambda rdd: int(rdd["RDD ID"])):
        scope = str(rdd.get("Scope", ""))
        if scope.startswith("{"):  # Spark writes the scope as JSON within JSON
            scope = scope.partition('"name":"')[2].partition('"')[0]
        names.setdefault(scope.strip())
    return " > ".join(name for name in names if name)


_HANDLERS: dict[str, Callable[[EventTables, _Event], None]] = {
    "RunMeta": EventTables._add_recording,
    "SparkListenerLogStart": EventTables._add_log_start,
    "SparkListenerEnvironmentUpdate": EventTables._add_environment,
    "SparkListenerApplicationStart": EventTables._add_application_start,
    "SparkListenerApplicationEnd": EventTables._add_application_end,
    "SparkListenerExecutorAdded": EventTables._add_executor,
    "SparkListenerExecutorRemoved": EventTables._remove_executor,
    _SQL + "Start": EventTables._start_execution,
    _SQL + "End": EventTables._end_execution,
    "SparkListenerJobStart": EventTables._start_job,
    "SparkListenerJobEnd": EventTables._end_job,
    "SparkListenerStageSubmitted": EventTables._submit_stage,
    "SparkListenerStageCompleted": EventTables._complete_stage,
    "SparkListenerTaskStart": EventTables._start_task,
    "SparkListenerTaskEnd": EventTables._end_task,
}

#: The events that `EventTables` understands.
EVENT_NAMES = frozenset(_HANDLERS)
