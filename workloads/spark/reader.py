"""Collect the events of one Spark application in tables: jobs, stages, task runs, executors, SQL executions.

A task run is a row of compact arrays (about 120 bytes), and everything else a small object, so that logs of many
gigabytes fit into memory. Field names of events are those of Spark's ``JsonProtocol`` (3.0 to 4.x). All times are ms
since the epoch, and NaN if they are not in the log.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.job import MOST_BYTES, MOST_TASKS, Wave, WorkloadError
from workloads.spark.names import group_name
from workloads.spark.plans import CompiledNode, FileScan, compiled_nodes, file_scans, stage_operators
from workloads.spark.removals import is_loss

NAN = float("nan")
#: Maximum length of an operator's name in a plan; longer names are cut.
LONGEST_OPERATOR = 1024
_Event = Mapping[str, Any]
_SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
#: Maximum time between the completion of a job's last stage and the end of the job, ms.
MOST_UNTIL_END_MS = 1000
#: Event with which Databricks begins each part of a rolled log.
DATABRICKS_PART = "DBCEventLoggingListenerMetadata"
#: Maximum number of cores of an executor.
MOST_CORES = 2**16
#: Properties with amounts of resources: owner, and resource or cores.
_AMOUNT = re.compile(r"spark\.(executor|task)\.(?:resource\.(.+)\.amount|(cores|cpus))")
#: Smaller shares of a device do not limit the number of tasks.
_SMALLEST_SHARE = 1e-6


class UnsupportedVersionError(WorkloadError):
    """The version of Spark does not log what is needed."""


class TaskOutcome(IntEnum):
    """Outcome of a task attempt."""

    SUCCESS = 0
    FAILED = 1
    """The task's own failure."""
    KILLED = 2
    """Usually because a speculative copy was faster."""
    FETCH_FAILED = 3
    """The output of a parent stage was lost."""
    LOST = 4
    """The executor left with the running task, or with its result."""


@dataclass(frozen=True)
class SparkExecutor:
    """One executor process of an application."""

    name: str  # Spark's executor id
    place: int = 0  # index of the executor in the application
    cores: int = 1  # number of cores; 1 if unknown
    slots: int = 0  # number of tasks that the executor can run at once; 0 if it failed to start
    host: str = ""  # machine of the executor; empty if unknown
    requested_ms: float = NAN  # time when the executor was requested, or granted by the cluster
    registered_ms: float = NAN  # time when it was ready for tasks
    removed_ms: float = NAN  # time when it left; NaN if it stayed to the end
    lost: bool = False  # whether it left unexpectedly, see `workloads.spark.removals`
    resources: Mapping[str, int] = field(default_factory=dict)  # number of devices by resource, such as GPUs
    resource_profile: int = 0  # number of its `ResourceProfile`

    @property
    def startup_ms(self) -> float:
        """Time from request to registration, ms: the cost of moving an executor to a job; NaN if unknown."""
        return self.registered_ms - self.requested_ms


@dataclass(frozen=True)
class ResourceProfile:
    """Amounts of resources by name. Cores are ``cores`` of an executor and ``cpus`` of a task."""

    of_executor: Mapping[str, float] = field(default_factory=dict)
    of_task: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SparkStage:
    """One stage, with all its attempts."""

    stage_id: int  # Spark's number of the stage
    name: str  # operators that the stage runs, or Spark's name of it
    num_tasks: int  # number of tasks
    submitted_ms: float = NAN  # time when its first attempt was submitted
    completed_ms: float = NAN  # time when its last attempt completed
    rdd: int = -1  # number of its last RDD
    parents: tuple[int, ...] = ()  # numbers of its parent stages
    attempts: int = 0  # number of attempts
    completed: bool = False  # whether an attempt completed
    writes_shuffle: bool = False  # whether its tasks write a shuffle; else they return a result to the driver
    call_site: str = ""  # Spark's name of it, such as ``count at etl.py:12``
    resource_profile: int = 0  # number of the `ResourceProfile` of its tasks
    operators: tuple[str, ...] = ()  # operators of its tasks, see `workloads.spark.plans`
    file_bytes: int | None = None  # size of the files that its tasks read; None if the log does not tell


@dataclass(frozen=True)
class SparkJob:
    """One Spark job."""

    job_id: int
    execution: int | None  # number of its SQL execution, None outside of SQL
    description: str  # description given by the application or by Spark
    stage_ids: tuple[int, ...]
    submitted_ms: float
    ended_ms: float = NAN
    failed: bool = False
    pool: str = ""  # pool of the FAIR scheduler
    group: str = ""  # job group given by the application
    call_site: str = ""  # Spark's name of its last stage, such as ``count at etl.py:12``


@dataclass(frozen=True)
class Execution:
    """One root SQL execution; ``plan`` lists the operators of its first physical plan, each before its children."""

    description: str
    started_ms: float
    plan: tuple[str, ...] = ()
    ended_ms: float = NAN
    failed: bool = False


#: Columns of the table of task runs, int64 each; times in ms since the epoch, sizes in bytes.
_TASK_COLUMNS = (
    "stage_id", "partition", "executor", "launch_ms", "finish_ms", "outcome", "run_ms", "cpu_ns",
    "input_bytes", "input_rows", "shuffle_read_bytes", "shuffle_write_bytes",
)  # fmt: skip


@dataclass
class EventTables:
    """Tables of the events of one application.

    `add` raises ArithmeticError, LookupError, TypeError or ValueError if an event lacks a field, or a field has a wrong
    type.
    """

    name: str = ""
    application_id: str = ""
    spark_version: str = ""
    start_ms: float = NAN
    end_ms: float = NAN
    default_resources: ResourceProfile = field(default_factory=ResourceProfile)
    resource_profiles: dict[int, ResourceProfile] = field(default_factory=dict)
    master: str = ""
    scheduler: str = ""
    recording: dict[str, Any] = field(default_factory=dict)
    executors: dict[str, SparkExecutor] = field(default_factory=dict)
    executions: dict[int, Execution] = field(default_factory=dict)
    roots: dict[int, int] = field(default_factory=dict)
    jobs: dict[int, SparkJob] = field(default_factory=dict)
    stages: dict[int, SparkStage] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    tally: Counter[str] = field(default_factory=Counter)
    _unknown_ends: dict[int, float] = field(default_factory=dict)
    _properties: dict[int, dict[str, Any]] = field(default_factory=dict)
    _scopes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _execution_of: dict[int, int] = field(default_factory=dict)
    _nodes: dict[int, dict[str, list[CompiledNode]]] = field(default_factory=dict)
    _scans: dict[int, set[FileScan]] = field(default_factory=dict)
    _file_bytes: dict[int, dict[int, int]] = field(default_factory=dict)
    _tasks: tuple[array[int], ...] = field(default_factory=lambda: tuple(array("q") for _ in _TASK_COLUMNS))

    def add(self, name: str, event: _Event | None) -> None:
        """Add one event; the content None stands for an event that is only counted by name."""
        if event is None:
            self.ignored[name] += 1
        else:
            _HANDLERS[name](self, event)

    @property
    def started(self) -> bool:
        """Whether the start event of the application has been added."""
        return not math.isnan(self.start_ms)

    def task_runs(self) -> pd.DataFrame:
        """Return a table with a row per task run that ended, in order of the ends; see ``_TASK_COLUMNS``.

        ``executor`` is the ``place`` of an executor, ``outcome`` a `TaskOutcome`.
        """
        pairs = zip(_TASK_COLUMNS, self._tasks, strict=True)
        return pd.DataFrame({name: np.array(values, dtype=np.int64) for name, values in pairs})

    def slots(self) -> list[int]:
        """Return the number of tasks that each executor can run at once, by ``place``.

        Executors whose registration is not in the log are assumed to be alike: they have the cores that the master or
        the configuration names, else those of most other executors, and at least as many slots as tasks ran at once.
        """
        registered = [
            executor for executor in self.executors.values() if not math.isnan(executor.registered_ms)
        ]
        slots = {executor.place: self._num_slots(executor, executor.cores) for executor in registered}
        if len(registered) < len(self.executors):
            runs = self.task_runs()
            usual = Counter(executor.cores for executor in registered).most_common(1)
            unregistered = [executor for executor in self.executors.values() if executor.place not in slots]
            by_executor = runs[~runs["executor"].isin(list(slots))].groupby("executor")
            at_once = max((_most_at_once(tasks) for _, tasks in by_executor), default=1)
            for executor in unregistered:
                profile = self._profile(executor.resource_profile)
                cores = _cores_of_master(self.master) or int(profile.of_executor.get("cores", 0))
                cores = cores or (usual[0][0] if usual else 1)
                slots[executor.place] = max(self._num_slots(executor, min(cores, MOST_CORES)), at_once)
        return [slots[index] for index in range(len(slots))]

    def _num_slots(self, executor: SparkExecutor, cores: int) -> int:
        """Return the least number of tasks at once over all resources that a task needs."""
        profile = self._profile(executor.resource_profile)
        limits = [math.floor(cores / max(profile.of_task.get("cpus", 1.0), 1.0))]
        for name, per_task in profile.of_task.items():
            amount = executor.resources.get(name) or profile.of_executor.get(name, 0.0)
            if name == "cpus" or not amount or per_task < _SMALLEST_SHARE:
                continue
            # Several tasks may share one device, but a task with a fraction never uses two.
            limits.append(int(amount) * int(1 / per_task) if per_task < 1 else int(amount / per_task))
        return max(min(limits), 1)

    def _profile(self, number: int) -> ResourceProfile:
        """Return a resource profile; the configuration of the application if it is not in the log."""
        resource_profile = self.resource_profiles.get(number)
        if resource_profile is None:
            return self.default_resources
        if number:
            return resource_profile
        configured = self.default_resources
        return ResourceProfile(
            {**configured.of_executor, **resource_profile.of_executor},
            {**configured.of_task, **resource_profile.of_task},
        )

    def is_same_application(self, event: _Event) -> bool:
        """Return whether a start event repeats the start of this application."""
        try:
            other = EventTables()
            other._add_application_start(event)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return False
        return (other.application_id, other.start_ms) == (self.application_id, self.start_ms)

    def _add_recording(self, event: _Event) -> None:
        """Add the recorder's own line, which has the times when executors were granted."""
        self.recording = {key: value for key, value in event.items() if key != "Event"}
        for executor_id, times in self.recording.get("executors", {}).items():
            self._update_executor(executor_id, requested_ms=float(times.get("granted", NAN)))

    def _add_log_start(self, event: _Event) -> None:
        self.spark_version = str(event["Spark Version"])

    def _add_databricks_part(self, event: _Event) -> None:
        self.spark_version = self.spark_version or str(event.get("Spark Version", ""))

    def _add_resource_profile(self, event: _Event) -> None:
        of_executor, of_task = (
            {name: _amount(request["Amount"]) for name, request in event[key].items()}
            for key in ("Executor Resource Requests", "Task Resource Requests")
        )
        self.resource_profiles[int(event["Resource Profile Id"])] = ResourceProfile(of_executor, of_task)

    def _add_environment(self, event: _Event) -> None:
        properties = dict(event.get("Spark Properties", {}))
        amounts: dict[str, dict[str, float]] = {"executor": {}, "task": {}}
        for key, value in properties.items():
            if match := _AMOUNT.fullmatch(key):
                amounts[match[1]][match[2] or match[3]] = _amount(value)
        self.default_resources = ResourceProfile(amounts["executor"], amounts["task"])
        self.master = str(properties.get("spark.master", ""))
        self.scheduler = str(properties.get("spark.scheduler.mode", "FIFO")).upper()
        if "decima" in str(properties.get("spark.plugins", "")).lower():
            self.scheduler = "decima"

    def _add_application_start(self, event: _Event) -> None:
        self.name, self.application_id = str(event["App Name"]), str(event.get("App ID", ""))
        self.start_ms = _ms(event["Timestamp"])

    def _add_application_end(self, event: _Event) -> None:
        self.end_ms = _ms(event["Timestamp"])

    def _add_executor(self, event: _Event) -> None:
        info = event["Executor Info"]
        cores = int(info["Total Cores"])
        if cores > MOST_CORES:
            raise ValueError(f"Total Cores: {cores}, expected at most {MOST_CORES}")
        resources = info.get("Resources") or {}
        self._update_executor(
            event["Executor ID"],
            cores=cores,
            resources={name: len(devices["addresses"]) for name, devices in resources.items()},
            resource_profile=int(info.get("Resource Profile Id", 0)),
            host=str(info.get("Host", "")),
            registered_ms=_ms(info.get("Registration Time", event["Timestamp"])),
            **({"requested_ms": _ms(info["Request Time"])} if "Request Time" in info else {}),
        )

    def _remove_executor(self, event: _Event) -> None:
        removed_ms, lost = _ms(event["Timestamp"]), is_loss(str(event.get("Removed Reason", "")))
        # A second event of an executor only tells how its process ended, after the driver had given it up.
        if math.isnan(self._executor(event["Executor ID"]).removed_ms):
            self._update_executor(event["Executor ID"], removed_ms=removed_ms, lost=lost)

    def _start_execution(self, event: _Event) -> None:
        execution = int(event["executionId"])
        self._add_plan(execution, event.get("sparkPlanInfo"))
        root = event.get("rootExecutionId")  # Spark 3.4 and later
        if root is not None and int(root) != execution:
            self.roots[execution] = int(root)
            return
        self.executions[execution] = Execution(
            str(event.get("description", "")), _ms(event["time"]), _plan(event.get("sparkPlanInfo"))
        )

    def _update_execution(self, event: _Event) -> None:
        """Add the nodes of a plan that adaptive execution changed."""
        self._add_plan(int(event["executionId"]), event["sparkPlanInfo"])

    def _add_plan(self, execution: int, plan: _Event | None) -> None:
        self._nodes[execution] = compiled_nodes(plan)
        self._scans.setdefault(execution, set()).update(file_scans(plan))

    def _set_file_bytes(self, event: _Event) -> None:
        """Keep the sizes of files that scans will read; the driver also reports other metrics in this event."""
        execution = int(event["executionId"])
        sizes = {scan.size for scan in self._scans.get(execution, ())}
        updates = {int(number): int(value) for number, value in event["accumUpdates"]}
        known = {
            number: value for number, value in updates.items() if number in sizes and 0 <= value <= MOST_BYTES
        }
        self._file_bytes.setdefault(execution, {}).update(known)

    def _end_execution(self, event: _Event) -> None:
        number = int(event["executionId"])
        for of_execution in (self._nodes, self._scans, self._file_bytes):
            of_execution.pop(number, None)  # those of many queries would fill the memory
        if execution := self.executions.get(number):
            ended_ms, failed = _ms(event["time"]), bool(event.get("errorMessage"))
            self.executions[number] = replace(execution, ended_ms=ended_ms, failed=failed)

    def _start_job(self, event: _Event) -> None:
        self._check_version(event, "Stage Infos")
        infos = event["Stage Infos"]
        stage_ids = tuple(sorted(self._stage(info).stage_id for info in infos))
        job_id, submitted_ms = int(event["Job ID"]), _ms(event["Submission Time"])
        self.jobs[job_id] = self._job(job_id, stage_ids, submitted_ms, self._job_properties(event))
        execution = (event.get("Properties") or {}).get("spark.sql.execution.id")
        if execution is not None:
            self._execution_of |= dict.fromkeys(stage_ids, int(execution))

    def _job(
        self, job_id: int, stage_ids: tuple[int, ...], submitted_ms: float, properties: Mapping[str, Any]
    ) -> SparkJob:
        call_site = self.stages[stage_ids[-1]].call_site if stage_ids else ""
        return SparkJob(
            job_id=job_id, stage_ids=stage_ids, submitted_ms=submitted_ms, call_site=call_site, **properties
        )

    def _job_properties(self, event: _Event) -> dict[str, Any]:
        """Return the fields of a `Job` that Spark keeps as properties, also of its stages; note a nested execution."""
        properties = event.get("Properties") or {}
        execution = properties.get("spark.sql.execution.id")
        root = properties.get("spark.sql.execution.root.id", execution)
        if root is not None and execution is not None and int(root) != int(execution):
            self.roots[int(execution)] = int(root)
        description = str(properties.get("spark.job.description") or "")
        return {
            "execution": None if root is None else int(root),
            "description": description,
            "pool": str(properties.get("spark.scheduler.pool") or ""),
            "group": group_name(str(properties.get("spark.jobGroup.id") or ""), description),
        }

    def _end_job(self, event: _Event) -> None:
        job, ended_ms = int(event["Job ID"]), _ms(event["Completion Time"])
        failed = event["Job Result"]["Result"] != "JobSucceeded"
        if job in self.jobs:
            self.jobs[job] = replace(self.jobs[job], ended_ms=ended_ms, failed=failed)
        elif not failed:
            self._unknown_ends[job] = ended_ms

    def restore_jobs(self) -> int:
        """Add the jobs whose start is not in the log, if their stages and their end are; return their number.

        Spark drops events under load. A job ends as soon as its last stage has completed.
        """
        listed = {stage for job in self.jobs.values() for stage in job.stage_ids}
        left = {stage_id: stage for stage_id, stage in self.stages.items() if stage_id not in listed}
        parents = {parent for stage in left.values() for parent in stage.parents}
        last = [
            stage
            for stage_id, stage in left.items()
            if stage_id not in parents and stage.submitted_ms <= stage.completed_ms
        ]
        last.sort(key=lambda stage: (stage.completed_ms, stage.stage_id), reverse=True)
        ready: list[SparkStage] = []
        restored = 0
        for number, ended_ms in sorted(self._unknown_ends.items(), key=lambda end: end[1]):
            while last and last[-1].completed_ms <= ended_ms:
                ready.append(last.pop())
            if not ready or ended_ms - ready[-1].completed_ms > MOST_UNTIL_END_MS:
                continue
            of_job: dict[int, SparkStage] = {}
            pending = [ready.pop().stage_id]
            while pending:
                if stage := left.pop(pending.pop(), None):
                    of_job[stage.stage_id] = stage
                    pending += stage.parents
            submitted_ms = min(
                stage.submitted_ms for stage in of_job.values() if not math.isnan(stage.submitted_ms)
            )
            properties = next(
                (self._properties[stage_id] for stage_id in of_job if stage_id in self._properties),
                self._job_properties({}),
            )
            job = self._job(number, tuple(sorted(of_job)), submitted_ms, properties)
            self.jobs[number] = replace(job, ended_ms=ended_ms)
            restored += 1
        return restored

    def root_of(self, execution: int) -> int:
        """Return the SQL execution that contains an execution, over all levels of nesting."""
        seen = {execution}
        while (root := self.roots.get(execution, execution)) not in seen:
            seen.add(root)
            execution = root
        return execution

    def _submit_stage(self, event: _Event) -> None:
        info = event["Stage Info"]
        if int(info["Stage ID"]) not in self.stages:  # the start of its job is not in the log
            self._properties[int(info["Stage ID"])] = self._job_properties(event)
        stage = self._stage(info)
        submitted_ms = stage.submitted_ms if stage.attempts else _known_ms(info, "Submission Time")
        self.stages[stage.stage_id] = replace(stage, attempts=stage.attempts + 1, submitted_ms=submitted_ms)

    def _complete_stage(self, event: _Event) -> None:
        info = event["Stage Info"]
        stage = self._stage(info)
        if not info.get("Failure Reason"):
            # The event of its submission may have been dropped.
            submitted_ms = stage.submitted_ms if stage.attempts else _known_ms(info, "Submission Time")
            execution = self._execution_of.get(stage.stage_id, -1)
            updated = {int(accumulator["ID"]) for accumulator in info.get("Accumulables", ())}
            file_bytes = self._file_bytes.get(execution, {})
            sizes = [
                file_bytes[scan.size]
                for scan in self._scans.get(execution, ())
                if scan.size in file_bytes and not scan.accumulators.isdisjoint(updated)
            ]
            self.stages[stage.stage_id] = replace(
                stage,
                submitted_ms=submitted_ms,
                completed=True,
                completed_ms=_known_ms(info, "Completion Time"),
                operators=stage_operators(
                    self._scopes[stage.stage_id], self._nodes.get(execution, {}), updated
                ),
                file_bytes=min(sum(sizes), MOST_BYTES) if sizes else None,
            )

    def _start_task(self, event: _Event) -> None:
        info = event["Task Info"]
        self.tally["started_tasks"] += 1
        self.tally["speculative_tasks"] += bool(info.get("Speculative"))
        self.tally["retried_tasks"] += int(info["Attempt"]) > 0 and not info.get("Speculative")

    def _end_task(self, event: _Event) -> None:
        reason = event["Task End Reason"]["Reason"]
        if reason == "Resubmitted":  # not an end: the output of a successful task was lost
            self.tally["resubmitted_tasks"] += 1
            return
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        read = metrics.get("Shuffle Read Metrics", {})
        stage_id = int(event["Stage ID"])
        if int(info["Finish Time"]) < int(info["Launch Time"]):
            raise ValueError("Finish Time: it is before the Launch Time")
        row = (
            stage_id,
            # A later attempt of a stage only numbers the tasks that it repeats; partitions keep their numbers.
            int(info.get("Partition ID", info["Index"])),
            self._executor(info["Executor ID"]).place,
            int(info["Launch Time"]),
            int(info["Finish Time"]),
            _OUTCOMES.get(reason, TaskOutcome.FAILED),
            int(metrics.get("Executor Run Time", 0)),
            int(metrics.get("Executor CPU Time", 0)) + int(metrics.get("Executor Deserialize CPU Time", 0)),
            int(metrics.get("Input Metrics", {}).get("Bytes Read", 0)),
            int(metrics.get("Input Metrics", {}).get("Records Read", 0)),
            int(read.get("Remote Bytes Read", 0)) + int(read.get("Local Bytes Read", 0)),
            int(metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)),
        )
        # A row with a value outside of int64 is left out.
        for column, value in zip(self._tasks, array("q", row), strict=True):
            column.append(value)
        self.tally["ended_tasks"] += 1
        stage, writes = self.stages.get(stage_id), event.get("Task Type") == "ShuffleMapTask"
        if stage and stage.writes_shuffle != writes:
            self.stages[stage_id] = replace(stage, writes_shuffle=writes)

    def _executor(self, executor_id: str) -> SparkExecutor:
        if executor_id not in self.executors:
            self.executors[executor_id] = SparkExecutor(executor_id, place=len(self.executors))
        return self.executors[executor_id]

    def _update_executor(self, executor_id: str, **changes: Any) -> None:
        self.executors[executor_id] = replace(self._executor(executor_id), **changes)

    def _stage(self, info: _Event) -> SparkStage:
        stage_id = int(info["Stage ID"])
        if stage_id not in self.stages:
            self._check_version(info, "Parent IDs")
            parents = tuple(int(parent) for parent in info["Parent IDs"])
            if not all(parent < stage_id for parent in parents):
                raise ValueError("Parent IDs: a stage is made after its parents")
            if not 0 <= int(info["Number of Tasks"]) <= MOST_TASKS:
                raise ValueError(f"Number of Tasks: {info['Number of Tasks']}")
            # The stage's own RDD comes first, then the RDDs from which it is computed within the stage.
            rdds = info.get("RDD Info") or [{"RDD ID": -1 - stage_id}]
            scopes = self._scopes[stage_id] = _scopes(rdds)
            self.stages[stage_id] = SparkStage(
                stage_id=stage_id,
                name=" > ".join(scopes) or str(info.get("Stage Name", "")),
                num_tasks=int(info["Number of Tasks"]),
                call_site=str(info.get("Stage Name", "")),
                rdd=int(rdds[0]["RDD ID"]),
                parents=parents,
                resource_profile=int(info.get("Resource Profile Id", 0)),
            )
        return self.stages[stage_id]

    def _check_version(self, event: _Event, name: str) -> None:
        """Raise if a field is missing because the version of Spark is too old."""
        version = re.match(r"(\d+)\.(\d+)", self.spark_version or "0.0")
        if name not in event and version and (int(version[1]), int(version[2])) < (1, 4):
            raise UnsupportedVersionError(
                "Spark before 1.4 does not log the parents of stages, expected a log of Spark 1.4 or newer"
            )


def _amount(value: Any) -> float:
    """Convert an amount of a resource; raise ValueError if it is negative, or larger than any machine's."""
    if not 0 <= (amount := float(value)) < 1e15:
        raise ValueError(f"amount of a resource: {value}")
    return amount


def _cores_of_master(master: str) -> int:
    """Return the cores of an executor that a local master names, such as 4 of ``local[4]``; 0 if it names none."""
    pattern = r"local(?:\[(\d{1,9})(?:,\d+)?\]|-cluster\[\d+,(\d{1,9}),\d+\])?"
    match = re.fullmatch(pattern, master.replace(" ", ""))
    return int(match[1] or match[2] or 1) if match else 0


def _most_at_once(runs: pd.DataFrame) -> int:
    """Return how many of the task runs of one executor ran at the same time at most."""
    launch_ms, run_ms = runs["launch_ms"].to_numpy(), runs["run_ms"].to_numpy()
    lasted_ms = runs["finish_ms"].to_numpy() - launch_ms
    # A slot is free before the driver has noted the end of its task. The time in the task's code is surely in the slot.
    busy_ms = np.where(run_ms > 0, np.minimum(run_ms, lasted_ms), lasted_ms)
    times = np.concatenate([launch_ms, launch_ms + busy_ms])
    changes = np.repeat([1, -1], len(runs))
    running = changes[np.lexsort((changes, times))].cumsum()  # of simultaneous changes, ends come first
    return int(running.max(initial=1))


def _ms(value: Any) -> float:
    """Convert a time, ms; raise ValueError if it is far outside of any calendar."""
    if not abs(time := float(value)) < 2.5e14:
        raise ValueError(f"time: {value}")
    return time


def _known_ms(info: _Event, name: str) -> float:
    """Return a time, ms; NaN if it is not given."""
    return _ms(info[name]) if name in info else NAN


def _plan(root: _Event | None) -> tuple[str, ...]:
    """Return the operators of a physical plan, each before its children; empty without a plan."""
    operators, pending = [], [root] if root else []
    while pending:
        node = pending.pop()
        operators.append(str(node["nodeName"])[:LONGEST_OPERATOR])
        pending += reversed(node["children"])
    return tuple(operators)


def _scopes(rdds: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the operators that made a stage's RDDs, in order of execution, each once."""
    names: dict[str, None] = {}
    for rdd in sorted(rdds, key=lambda rdd: int(rdd["RDD ID"])):
        scope = str(rdd.get("Scope", ""))
        if scope.startswith("{"):  # Spark writes the scope as JSON within JSON
            scope = scope.partition('"name":"')[2].partition('"')[0]
        names.setdefault(scope.strip())
    return tuple(name for name in names if name)


_HANDLERS: dict[str, Callable[[EventTables, _Event], None]] = {
    "RunMeta": EventTables._add_recording,
    DATABRICKS_PART: EventTables._add_databricks_part,
    "SparkListenerLogStart": EventTables._add_log_start,
    "SparkListenerEnvironmentUpdate": EventTables._add_environment,
    "SparkListenerResourceProfileAdded": EventTables._add_resource_profile,
    "SparkListenerApplicationStart": EventTables._add_application_start,
    "SparkListenerApplicationEnd": EventTables._add_application_end,
    "SparkListenerExecutorAdded": EventTables._add_executor,
    "SparkListenerExecutorRemoved": EventTables._remove_executor,
    _SQL + "Start": EventTables._start_execution,
    _SQL + "End": EventTables._end_execution,
    "org.apache.spark.sql.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate": EventTables._update_execution,
    "org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates": EventTables._set_file_bytes,
    "SparkListenerJobStart": EventTables._start_job,
    "SparkListenerJobEnd": EventTables._end_job,
    "SparkListenerStageSubmitted": EventTables._submit_stage,
    "SparkListenerStageCompleted": EventTables._complete_stage,
    "SparkListenerTaskStart": EventTables._start_task,
    "SparkListenerTaskEnd": EventTables._end_task,
}

#: Names of the events that `EventTables` uses.
EVENT_NAMES = frozenset(_HANDLERS)
#: Outcomes by Spark's reason for the end of a task; the task failed for all other reasons.
_OUTCOMES = {
    "Success": TaskOutcome.SUCCESS,
    "TaskKilled": TaskOutcome.KILLED,
    "TaskCommitDenied": TaskOutcome.KILLED,  # another attempt had already written the output
    "FetchFailed": TaskOutcome.FETCH_FAILED,
    "ExecutorLostFailure": TaskOutcome.LOST,
    "TaskResultLost": TaskOutcome.LOST,
}


def measured_runs(tables: EventTables, slots: Sequence[int]) -> pd.DataFrame:
    """Return a table with a row per task run that ended, in order of launch.

    Args:
        slots: number of slots of each executor, see `EventTables.slots`.

    Columns besides `EventTables.task_runs`: duration_ms and cpu_ms (float64), slot, wave and level (int64); see
    `workloads.spark.query.SparkQuery`.
    """
    runs = tables.task_runs().sort_values("launch_ms", kind="stable", ignore_index=True)
    slot, wave = _slots_and_waves(runs, slots)
    durations = (runs["finish_ms"] - runs["launch_ms"]).astype(float)
    return runs.assign(
        duration_ms=durations,
        slot=slot,
        wave=wave,
        level=_levels(runs, tables, slots),
        cpu_ms=runs["cpu_ns"] / 1e6,
    )


def successful_tasks(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row per task, its first successful run, in order of launch."""
    succeeded = runs[runs["outcome"] == TaskOutcome.SUCCESS].sort_values("finish_ms", kind="stable")
    first = succeeded.drop_duplicates(["stage_id", "partition"])
    return first.sort_values("launch_ms", kind="stable", ignore_index=True)


def _slots_and_waves(
    runs: pd.DataFrame, num_slots: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign each run to the slot of its executor that became free last, as the driver refills a slot at once."""
    busy_until = [[-1] * count for count in num_slots]
    seen: set[tuple[int, int, int]] = set()
    slot_of = np.zeros(len(runs), dtype=np.int64)
    wave_of = np.zeros(len(runs), dtype=np.int64)
    columns = (runs[name].tolist() for name in ("executor", "stage_id", "launch_ms", "finish_ms"))
    for row, (executor, stage, launch, finish) in enumerate(zip(*columns, strict=True)):
        ends = busy_until[executor]
        free = [slot for slot, end in enumerate(ends) if end <= launch]
        slot = max(free, key=ends.__getitem__) if free else int(np.argmin(ends))
        if ends[slot] < 0:
            wave_of[row] = Wave.FRESH
        else:
            wave_of[row] = Wave.REST if (executor, slot, stage) in seen else Wave.FIRST
        slot_of[row] = slot
        seen.add((executor, slot, stage))
        ends[slot] = max(ends[slot], finish)
    return slot_of, wave_of


def _levels(runs: pd.DataFrame, tables: EventTables, slots: Sequence[int]) -> NDArray[np.int64]:
    """Return the number of slots that the application held when each run was launched, at least 1, int64 [runs]."""
    launch = runs["launch_ms"].to_numpy()
    first_launch = runs.groupby("executor")["launch_ms"].min()
    held = np.zeros(len(runs), dtype=np.int64)
    for executor in tables.executors.values():
        # An executor without a registration event joined at its first task.
        joined = np.nanmin([executor.registered_ms, first_launch.get(executor.place, np.inf)])
        held += slots[executor.place] * ((launch >= joined) & ~(launch >= executor.removed_ms))
    return np.maximum(held, 1)
