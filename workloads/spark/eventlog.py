"""Read the event logs that Spark writes (3.x and 4.x) as applications with their queries.

A query is a SQL execution with all Spark jobs that it started, or a single Spark job outside of SQL. Its stages are the
stages that ran; `workloads.spark.query` finds their edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.errors import check_path, check_paths
from workloads.job import WorkloadError
from workloads.spark.logfile import NO_LOG, EventLog, Problems, UnusableLogError, events, find_event_logs
from workloads.spark.names import query_name
from workloads.spark.query import TASK_COLUMNS, SparkQuery, stage_dag, stages_by_output
from workloads.spark.reader import (
    DATABRICKS_PART,
    EVENT_NAMES,
    EventTables,
    Execution,
    SparkExecutor,
    SparkJob,
    SparkStage,
    TaskOutcome,
    UnsupportedVersionError,
    measured_runs,
    successful_tasks,
)

__all__ = ["LogReport", "SparkApplication", "read_event_log", "read_event_logs"]

#: Maximum number of names of ignored events in a report.
MOST_IGNORED = 4

_APPLICATION_START = "SparkListenerApplicationStart"
_LOG_STARTS = ("RunMeta", "SparkListenerLogStart", _APPLICATION_START)
#: Events that Spark writes before the start of the application.
_BEFORE_APPLICATION = {
    *_LOG_STARTS, DATABRICKS_PART, "SparkListenerEnvironmentUpdate", "SparkListenerResourceProfileAdded",
    "SparkListenerBlockManagerAdded", "SparkListenerExecutorAdded",
}  # fmt: skip
_MOST_HELD = 1000


@dataclass(frozen=True)
class LogReport:
    """Counts and problems of a log.

    Args:
        failed_tasks: task attempts that failed by themselves.
        killed_tasks: attempts that were killed, usually because a speculative copy was faster.
        fetch_failures: attempts that failed because the output of a parent stage was lost.
        lost_tasks: attempts that ended because their executor left.
        speculative_tasks: speculative attempts.
        retried_tasks: attempts after the first one, without speculative ones.
        repeated_tasks: successful attempts after an earlier success, whose output was lost.
        unfinished_tasks: attempts whose end is not in the log.
        missing_tasks: tasks of completed stages that are not in the log (Spark may drop events under load).
        stage_retries: attempts of stages after the first one.
        lost_executors: executors that left unexpectedly before the end of the application, see
            `workloads.spark.removals`.
        restored_jobs: jobs whose start is not in the log, restored from their stages and their end.
        failed_queries: queries that ended with an error.
        unfinished_queries: queries whose end is not in the log.
        outside_parents: parents of stages that ran in another query, or before the log begins.
        ignored_events: number of ignored events by name.
        problems: damage of the log, one line each; empty unless a partial log was accepted.
    """

    failed_tasks: int = 0
    killed_tasks: int = 0
    fetch_failures: int = 0
    lost_tasks: int = 0
    speculative_tasks: int = 0
    retried_tasks: int = 0
    repeated_tasks: int = 0
    unfinished_tasks: int = 0
    missing_tasks: int = 0
    stage_retries: int = 0
    lost_executors: int = 0
    restored_jobs: int = 0
    failed_queries: int = 0
    unfinished_queries: int = 0
    outside_parents: int = 0
    ignored_events: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Format the report: a line for each problem, then one line with every count that is not 0."""
        counts = [
            f"{value} {name.replace('_', ' ')}"
            for name, value in vars(self).items()
            if isinstance(value, int) and value
        ]
        if self.ignored_events:
            kinds = Counter(self.ignored_events).most_common()
            named = ", ".join(
                f"{count} {name.rpartition('.')[2].removeprefix('SparkListener')}"
                for name, count in kinds[:MOST_IGNORED]
            )
            more = f" and {len(kinds) - MOST_IGNORED} other kinds" if len(kinds) > MOST_IGNORED else ""
            total = sum(count for _, count in kinds)
            counts.append(f"{total} events without information on durations ({named}{more})")
        return [*self.problems, *([", ".join(counts)] if counts else [])]


@dataclass(frozen=True, eq=False)
class SparkApplication:
    """One Spark application. Times are ms since the epoch.

    Args:
        name: name of the application.
        application_id: Spark's application id.
        spark_version: version of Spark, such as ``3.5.9``.
        start_ms: start of the application.
        end_ms: end of the application; NaN if it is not in the log.
        executors: all executors that the application had at any time.
        queries: queries that ran tasks, in order of their start.
        report: counts and problems of the log.
        recording: notes of this project's recorder; empty for other logs.
        master: Spark's master, such as ``spark://host:7077``; empty if unknown.
        scheduler: ``FIFO`` or ``FAIR``, or ``decima`` with the plugin; empty if unknown.
    """

    name: str
    application_id: str
    spark_version: str
    start_ms: float
    end_ms: float
    executors: tuple[SparkExecutor, ...]
    queries: tuple[SparkQuery, ...]
    report: LogReport
    recording: Mapping[str, Any] = field(default_factory=dict)
    master: str = ""
    scheduler: str = ""


def read_event_log(path: str | Path, *, partial: bool = False) -> list[SparkApplication]:
    """Read a log file, a rolled log (a folder ``eventlog_v2_*``, or Databricks' ``eventlog``), or a folder of logs.

    A log that is cut off or still being written, or whose application died, is read with a note in its report. In a
    folder, files that are no logs and applications without queries are left out; `read_event_logs` counts them.

    Args:
        path: the log, whatever its name: plain, gzip, zstd, LZ4 or Snappy as Spark writes them (the last three need
            the extra ``[spark]``); or a zip archive of logs, as Spark's history server gives it.
        partial: keep the readable part of a damaged log, and the part of failed or unfinished queries that ran. By
            default a damaged log is rejected, and such queries are left out and counted.

    Raises:
        WorkloadError: a log is unusable. The message is one line that names the file, and the line if known.
    """
    return read_event_logs([check_path(path, "path", WorkloadError)], partial=partial)[0]


def read_event_logs(
    paths: Iterable[str | Path], *, partial: bool = False
) -> tuple[list[SparkApplication], list[str]]:
    """Read several logs and folders of logs, see `read_event_log`.

    Returns:
        The applications; and for each folder one line for each reason why logs in it were skipped, with their number
        and the first path.

    Raises:
        WorkloadError: a log is unusable and was not skipped, or nothing is left of a folder.
    """
    applications: list[SparkApplication] = []
    useful: set[Path] = set()  # folders with an application
    skipped: dict[Path, dict[str, list[Path]]] = {}
    for log in find_event_logs(*check_paths(paths, "paths", WorkloadError)):
        with _skipping(log, skipped):
            for tables, problems in _read_log(log, partial):
                with _skipping(log, skipped):
                    applications.append(_application(log, tables, problems))
                    useful |= {log.found_in} if log.found_in else set()
    reasons = {folder: _skipped_lines(folder, places) for folder, places in skipped.items()}
    for folder, lines in reasons.items():
        if folder not in useful:
            raise WorkloadError(f"{folder}: nothing to import: {'; '.join(lines)}")
    return applications, [f"{folder}: {line}" for folder, lines in reasons.items() for line in lines]


@contextmanager
def _skipping(log: EventLog, skipped: dict[Path, dict[str, list[Path]]]) -> Iterator[None]:
    """Note that a log in a folder is unusable; an error if the caller named this log."""
    try:
        yield
    except UnusableLogError as error:
        if log.found_in is None:
            raise
        skipped.setdefault(log.found_in, {}).setdefault(error.reason, []).append(log.path)


def _skipped_lines(folder: Path, places: Mapping[str, list[Path]]) -> list[str]:
    """Return a line for each reason, with the number of skipped logs and the first of them."""
    lines = []
    for reason, paths in places.items():
        first = paths[0].relative_to(folder) if paths[0] != folder else folder.name
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        lines.append(f"skipped {first}{more}: {reason}")
    return lines


def _read_log(log: EventLog, partial: bool) -> Iterator[tuple[EventTables, Problems]]:
    """Yield the events and problems of each application of one log; several if logs were joined."""
    problems = Problems(partial)
    if log.in_progress:
        problems.note(f"{log.path}: the application is still running, or died (.inprogress)")
    tables = EventTables()
    # Events since a start of the log, until the next one tells whether another application begins: a rolled log may
    # repeat these events in each part.
    held: list[tuple[str, str, Any]] = []
    next_part = 0
    for place, name, event in events(log, EVENT_NAMES, problems):
        if name == DATABRICKS_PART and event is not None:
            next_part = _check_part(place, event, next_part, problems)
        if not held and not (tables.started and name in _LOG_STARTS):
            _add_event(tables, place, name, event, problems)
            continue
        held.append((place, name, event))
        begins = name == _APPLICATION_START
        if begins and not tables.is_same_application(event):
            yield tables, problems
            tables, problems = EventTables(), Problems(partial)
        if begins or name not in _BEFORE_APPLICATION or len(held) >= _MOST_HELD:
            for line in held:
                _add_event(tables, *line, problems)
            held.clear()
    for line in held:
        _add_event(tables, *line, problems)
    if not tables.started and not tables.stages:
        raise UnusableLogError(log.path, NO_LOG, " (no SparkListenerApplicationStart)")
    yield tables, problems


def _add_event(tables: EventTables, place: str, name: str, event: Any, problems: Problems) -> None:
    try:
        tables.add(name, event)
    except UnsupportedVersionError as error:
        raise UnusableLogError(place, str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problems.report(f"{place}: {name} without a usable {error}")


def _check_part(place: str, event: Mapping[str, Any], expected: int, problems: Problems) -> int:
    """Report missing parts before a part of a rolled log of Databricks; return the number of the next part."""
    part = event.get("Rollover Number")
    if not isinstance(part, int):
        return expected
    if part > expected:
        report = problems.report if expected else problems.note
        report(f"{place}: parts {expected} to {part - 1} of the rolled log are missing")
    return part + 1


def _application(log: EventLog, tables: EventTables, problems: Problems) -> SparkApplication:
    if np.isnan(tables.end_ms) and not log.in_progress:
        problems.note(
            f"{log.path}: no SparkListenerApplicationEnd: the application died, or is still running"
        )
    restored_jobs = tables.restore_jobs()
    if not tables.jobs:
        _report_unusable(log, problems, "the log contains no Spark jobs")
    of_executors = {executor.resource_profile for executor in tables.executors.values()}
    foreign = [
        stage
        for stage in tables.stages.values()
        if stage.attempts and stage.resource_profile not in of_executors
    ]
    if foreign:
        problems.note(
            f"{log.path}: {len(foreign)} stages ran on executors of another resource profile; "
            "the slots are those of the executors' profile"
        )
    slots = tables.slots()
    runs = measured_runs(tables, slots)
    tasks = successful_tasks(runs)
    _note_outside_jobs(log, tables, tasks, problems)
    queries, tally = _queries(tables, runs, tasks, problems)
    if tables.jobs and not queries:
        counts = f" ({tally['failed_queries']} failed, {tally['unfinished_queries']} unfinished)"
        _report_unusable(log, problems, "no query ran to its end", counts)
    outcomes = runs["outcome"].value_counts()
    used = set(runs["executor"].tolist())
    # For an executor that failed to start, Spark only writes its removal.
    executors = tuple(
        replace(
            executor,
            slots=slots[executor.place]
            if executor.place in used or not np.isnan(executor.registered_ms)
            else 0,
            lost=executor.lost and not executor.removed_ms >= tables.end_ms,
        )
        for executor in tables.executors.values()
    )
    report = LogReport(
        failed_tasks=int(outcomes.get(TaskOutcome.FAILED, 0)),
        killed_tasks=int(outcomes.get(TaskOutcome.KILLED, 0)),
        fetch_failures=int(outcomes.get(TaskOutcome.FETCH_FAILED, 0)),
        lost_tasks=int(outcomes.get(TaskOutcome.LOST, 0)),
        speculative_tasks=tables.tally["speculative_tasks"],
        retried_tasks=tables.tally["retried_tasks"],
        repeated_tasks=int(outcomes.get(TaskOutcome.SUCCESS, 0)) - len(tasks),
        unfinished_tasks=max(tables.tally["started_tasks"] - len(runs), 0),
        stage_retries=sum(max(stage.attempts - 1, 0) for stage in tables.stages.values()),
        lost_executors=sum(executor.lost and executor.slots > 0 for executor in executors),
        restored_jobs=restored_jobs,
        ignored_events=dict(tables.ignored),
        problems=problems.lines,
        **tally,
    )
    names = (
        "name",
        "application_id",
        "spark_version",
        "start_ms",
        "end_ms",
        "recording",
        "master",
        "scheduler",
    )
    tables_of = {name: getattr(tables, name) for name in names}
    if not tables.started:  # such as the last parts of a rolled log
        tables_of |= {"name": log.path.name, "application_id": str(log.path)}
    return SparkApplication(executors=executors, queries=queries, report=report, **tables_of)


def _report_unusable(log: EventLog, problems: Problems, reason: str, details: str = "") -> None:
    """Raise if an application contains nothing to import; collect the problem of a partial log that was named."""
    if log.found_in is not None or not problems.partial:
        raise UnusableLogError(log.path, reason, details)
    problems.note(f"{log.path}: {reason}{details}")


def _note_outside_jobs(log: EventLog, tables: EventTables, tasks: pd.DataFrame, problems: Problems) -> None:
    """Note the stages that ran and belong to no job, as the start of their job is not in the log."""
    listed = {stage for job in tables.jobs.values() for stage in job.stage_ids}
    ran = tasks["stage_id"].value_counts().to_dict()
    completed = {stage_id: stage.num_tasks for stage_id, stage in tables.stages.items() if stage.completed}
    outside = {
        stage_id: count for stage_id, count in (completed | ran).items() if count and stage_id not in listed
    }
    if outside:
        problems.note(
            f"{log.path}: {len(outside)} stages with {sum(outside.values())} tasks left out: "
            "the start of their jobs is not in the log (Spark drops events under load)"
        )


def _queries(
    tables: EventTables, runs: pd.DataFrame, tasks: pd.DataFrame, problems: Problems
) -> tuple[tuple[SparkQuery, ...], Counter[str]]:
    """Return the queries of an application in order of their start, and counts for the report."""
    rows_of = tasks.groupby("stage_id").indices
    rows: Mapping[Any, NDArray[np.int64]] = {stage: np.asarray(rows) for stage, rows in rows_of.items()}
    # Attempts that were killed, or lost with their executor or their input, did not end by themselves.
    ended = runs[runs["outcome"].isin((TaskOutcome.SUCCESS, TaskOutcome.FAILED))]
    num_runs = ended["stage_id"].value_counts().to_dict()
    num_failures = ended.loc[ended["outcome"] == TaskOutcome.FAILED, "stage_id"].value_counts().to_dict()
    outputs = stages_by_output(stage for stage in tables.stages.values() if stage.stage_id in rows)
    queries: list[SparkQuery] = []
    tally: Counter[str] = Counter()
    listed: set[int] = set()
    for (in_sql, key), jobs in _jobs_by_query(tables).items():
        execution = tables.executions.get(key) if in_sql else None
        execution = execution or _execution(jobs)
        # Before 3.4 Spark did not write whether an execution failed. A query may succeed although one of its jobs was
        # cancelled, unless this was the last job.
        failed, unfinished = execution.failed or jobs[-1].failed, bool(np.isnan(execution.ended_ms))
        tally["failed_queries"] += failed
        tally["unfinished_queries"] += unfinished
        complete = not failed and not unfinished
        unlisted = {stage for job in jobs for stage in job.stage_ids} - listed
        ran = frozenset(
            stage
            for stage in unlisted
            if stage in rows and (_ended(tables.stages[stage], rows) or not complete)
        )
        if not ran or not (complete or problems.partial):
            continue
        listed |= unlisted
        dag = stage_dag(jobs, tables.stages, ran, outputs)
        stages = tuple(tables.stages[stage] for stage in dag.stage_ids)
        tally["outside_parents"] += dag.num_outside
        if complete:
            tally["missing_tasks"] += sum(stage.num_tasks - len(rows[stage.stage_id]) for stage in stages)
        group = next((job.group for job in jobs if job.group), "")
        descriptions = [execution.description, *(job.description for job in jobs)]
        name = query_name(descriptions, jobs[-1].call_site, group)
        queries.append(
            SparkQuery(
                name=name or f"{'execution' if in_sql else 'job'} {key}",
                application_id=tables.application_id,
                stages=stages,
                dag=dag,
                tasks=_query_tasks(tasks, [rows[stage] for stage in dag.stage_ids]),
                start_ms=execution.started_ms,
                submitted_ms=min(job.submitted_ms for job in jobs),
                last_job_end_ms=float(np.max([job.ended_ms for job in jobs])),
                end_ms=execution.ended_ms,
                num_jobs=len(jobs),
                num_skipped=sum(tables.stages[stage].num_tasks > 0 for stage in unlisted - ran),
                complete=complete,
                plan=execution.plan,
                pool=next((job.pool for job in jobs if job.pool), ""),
                group=group,
                num_runs=sum(num_runs.get(stage, 0) for stage in dag.stage_ids),
                num_failures=sum(num_failures.get(stage, 0) for stage in dag.stage_ids),
            )
        )
    return tuple(sorted(queries, key=lambda query: query.start_ms)), tally


def _jobs_by_query(tables: EventTables) -> dict[tuple[bool, int], list[SparkJob]]:
    """Return the jobs of each root SQL execution by (True, its number); (False, job) has a job outside of SQL."""
    groups: dict[tuple[bool, int], list[SparkJob]] = {}
    for job in sorted(tables.jobs.values(), key=lambda job: job.job_id):
        in_sql = job.execution is not None
        key = job.job_id if job.execution is None else tables.root_of(job.execution)
        groups.setdefault((in_sql, key), []).append(job)
    return groups


def _execution(jobs: list[SparkJob]) -> Execution:
    """Return an execution that spans the given jobs, which are outside of SQL or of an unknown execution."""
    submitted, ended = (
        np.array([getattr(job, name) for job in jobs]) for name in ("submitted_ms", "ended_ms")
    )
    return Execution("", float(submitted.min()), ended_ms=float(ended.max()))


def _ended(stage: SparkStage, rows: Mapping[int, NDArray[np.int64]]) -> bool:
    """Return whether a stage completed; Spark may have dropped the completion event under load."""
    return stage.completed or len(rows[stage.stage_id]) >= stage.num_tasks


def _query_tasks(tasks: pd.DataFrame, rows: list[NDArray[np.int64]]) -> pd.DataFrame:
    """Return the tasks of a query's stages, with stages numbered by their index."""
    chosen = np.concatenate(rows)
    columns = {name: tasks[name].to_numpy()[chosen] for name in TASK_COLUMNS[1:]}
    columns |= {name: columns[name].astype(float) for name in ("launch_ms", "run_ms")}
    stage = np.repeat(np.arange(len(rows)), [len(of_stage) for of_stage in rows])
    order = np.lexsort((columns["partition"], stage, columns["launch_ms"]))
    return pd.DataFrame({name: column[order] for name, column in ({"stage": stage} | columns).items()})
