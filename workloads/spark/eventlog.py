"""Reads the event logs that Spark writes (3.x and 4.x): the DAG, tasks and executors of every query in them.

A query is a SQL execution with all Spark jobs that it started, or a single Spark job outside of SQL. Its
stages are those that ran; `workloads.spark.dag` tells how they depend on each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.errors import check_path
from workloads.job import WorkloadError
from workloads.spark.application import (
    TASK_COLUMNS,
    LogReport,
    SparkApplication,
    SparkExecutor,
    SparkQuery,
    SparkStage,
)
from workloads.spark.dag import stage_dag, stages_by_output
from workloads.spark.events import EVENT_NAMES, EventTables, Execution, Job, Stage, TaskOutcome
from workloads.spark.logfile import EventLog, Problems, events, find_event_logs
from workloads.spark.tasks import measured_runs, slots, successful_tasks

__all__ = ["LogReport", "SparkApplication", "SparkExecutor", "SparkQuery", "SparkStage", "read_event_log"]


def read_event_log(path: str | Path, *, partial: bool = False) -> list[SparkApplication]:
    """Read a log file, a rolled log (a folder ``eventlog_v2_*``), or a folder of logs.

    Args:
        path: plain, gzip or zstd (which needs the extra ``[spark]``), whatever the name.
        partial: keep what can be read of a log that is damaged; queries that failed or did not end are kept as
            far as they ran. Otherwise such a log is refused, and queries that failed or did not end are left out and
            counted. A log that is cut off, still being written, or whose application died, is read in both
            cases. The applications' reports say what is wrong.

    Raises:
        WorkloadError: one line that names the file, and the line where there is one.
    """
    return [
        application
        for log in find_event_logs(check_path(path, "path", WorkloadError))
        for application in _read_log(log, partial)
    ]


def _read_log(log: EventLog, partial: bool) -> Iterator[SparkApplication]:
    """The applications of one log; several if logs were joined."""
    problems = Problems(partial)
    if log.in_progress:
        problems.note(f"{log.path}: the application is still running, or died (.inprogress)")
    tables = EventTables()
    for place, name, event in events(log, EVENT_NAMES, problems):
        if tables.started and name in ("RunMeta", "SparkListenerLogStart"):
            yield _application(log, tables, problems)
            tables, problems = EventTables(), Problems(partial)
        try:
            tables.add(name, event)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            problems.report(f"{place}: {name} without a usable {error}")
    if not tables.started and not tables.jobs:
        raise WorkloadError(f"{log.path}: not a Spark event log (no SparkListenerApplicationStart)")
    yield _application(log, tables, problems)


def _application(log: EventLog, tables: EventTables, problems: Problems) -> SparkApplication:
    if np.isnan(tables.ended_ms) and not log.in_progress:
        problems.note(
            f"{log.path}: no SparkListenerApplicationEnd: the application died, or is still running"
        )
    if not tables.jobs:
        problems.report(f"{log.path}: the log holds no Spark jobs")
    runs = measured_runs(tables)
    tasks = successful_tasks(runs)
    queries, tally = _queries(tables, tasks, problems)
    if tables.jobs and not queries:
        problems.report(
            f"{log.path}: no query ran to its end ({tally['failed_queries']} failed, "
            f"{tally['unfinished_queries']} unfinished)"
        )
    outcomes = runs["outcome"].value_counts()
    # Where Spark fails to start executors, the log says that they were removed. They were never there.
    used = set(runs["executor"].tolist())
    there = {
        executor.place: executor.place in used or not np.isnan(executor.registered_ms)
        for executor in tables.executors.values()
    }
    return SparkApplication(
        name=tables.name,
        application_id=tables.application_id,
        spark_version=tables.spark_version,
        start_ms=tables.started_ms,
        end_ms=tables.ended_ms,
        executors=tuple(
            SparkExecutor(
                name=executor.executor_id,
                slots=slots(executor, tables) if there[executor.place] else 0,
                requested_ms=executor.requested_ms,
                registered_ms=executor.registered_ms,
                host=executor.host,
                removed_ms=executor.removed_ms,
                lost=executor.lost,
            )
            for executor in tables.executors.values()
        ),
        queries=queries,
        report=LogReport(
            failed_tasks=int(outcomes.get(TaskOutcome.FAILED, 0)),
            killed_tasks=int(outcomes.get(TaskOutcome.KILLED, 0)),
            speculative_tasks=tables.tally["speculative_tasks"],
            retried_tasks=tables.tally["retried_tasks"],
            repeated_tasks=int(outcomes.get(TaskOutcome.SUCCESS, 0)) - len(tasks),
            unfinished_tasks=max(tables.tally["started_tasks"] - len(runs), 0),
            stage_retries=sum(max(stage.attempts - 1, 0) for stage in tables.stages.values()),
            lost_executors=sum(
                executor.lost and there[executor.place] for executor in tables.executors.values()
            ),
            ignored_events=dict(tables.ignored),
            problems=problems.lines,
            **tally,
        ),
        recording=tables.recording,
        master=tables.master,
        scheduler=tables.scheduler,
    )


def _queries(
    tables: EventTables, tasks: pd.DataFrame, problems: Problems
) -> tuple[tuple[SparkQuery, ...], Counter[str]]:
    """The application's queries in order of their start, and what was counted on the way."""
    rows = _rows_by_stage(tasks)
    outputs = stages_by_output(stage for stage in tables.stages.values() if stage.stage_id in rows)
    queries: list[SparkQuery] = []
    tally: Counter[str] = Counter()
    listed: set[int] = set()
    for jobs in _jobs_by_query(tables):
        times = _QueryTimes.of(jobs, tables.executions)
        tally["failed_queries"] += times.failed
        tally["unfinished_queries"] += bool(np.isnan(times.end_ms))
        complete = not times.failed and not np.isnan(times.end_ms)
        own = {stage for job in jobs for stage in job.stage_ids} - listed
        listed |= own
        ran = frozenset(
            stage for stage in own if stage in rows and (_done(tables.stages[stage], rows) or not complete)
        )
        if not ran or not (complete or problems.partial):
            continue
        dag = stage_dag(jobs, tables.stages, ran, outputs)
        tally["outside_parents"] += dag.num_outside
        tally["missing_tasks"] += sum(
            tables.stages[stage].num_tasks - len(rows[stage]) for stage in ran if complete
        )
        queries.append(
            SparkQuery(
                name=_query_name(jobs, tables.executions),
                application_id=tables.application_id,
                stages=tuple(_stage(tables.stages[stage]) for stage in dag.stage_ids),
                dag=dag,
                tasks=_query_tasks(tasks, [rows[stage] for stage in dag.stage_ids]),
                start_ms=times.start_ms,
                submitted_ms=min(job.submitted_ms for job in jobs),
                last_job_end_ms=float(np.max([job.ended_ms for job in jobs])),
                end_ms=times.end_ms,
                num_jobs=len(jobs),
                num_skipped=sum(tables.stages[stage].num_tasks > 0 for stage in own - ran),
                complete=complete,
                plan=_plan(jobs, tables.executions),
                pool=jobs[0].pool,
            )
        )
    return tuple(sorted(queries, key=lambda query: query.start_ms)), tally


def _jobs_by_query(tables: EventTables) -> Iterator[list[Job]]:
    """The jobs of each SQL execution; a job outside of SQL stands alone."""
    groups: dict[tuple[str, int], list[Job]] = {}
    for job in sorted(tables.jobs.values(), key=lambda job: job.job_id):
        key = ("job", job.job_id) if job.execution is None else ("execution", job.execution)
        groups.setdefault(key, []).append(job)
    yield from groups.values()


@dataclass(frozen=True)
class _QueryTimes:
    start_ms: float
    end_ms: float
    failed: bool

    @classmethod
    def of(cls, jobs: list[Job], executions: Mapping[int, Execution]) -> _QueryTimes:
        last = jobs[-1]
        execution = None if last.execution is None else executions.get(last.execution)
        if execution is None:
            submitted, ended = (
                np.array([getattr(job, name) for job in jobs]) for name in ("submitted_ms", "ended_ms")
            )
            return cls(float(submitted.min()), float(ended.max()), last.failed)
        # Before 3.4 Spark did not write whether an execution failed. A query may well succeed although a job
        # of it was cancelled, but not if that was its last.
        return cls(execution.started_ms, execution.ended_ms, execution.failed or last.failed)


def _query_name(jobs: list[Job], executions: Mapping[int, Execution]) -> str:
    execution = jobs[0].execution
    if execution is None:
        return jobs[0].name or f"job {jobs[0].job_id}"
    known = executions.get(execution)
    return jobs[0].name or (known.description if known else "") or f"execution {execution}"


def _plan(jobs: list[Job], executions: Mapping[int, Execution]) -> tuple[str, ...]:
    execution = jobs[0].execution
    known = None if execution is None else executions.get(execution)
    return known.plan if known else ()


def _rows_by_stage(tasks: pd.DataFrame) -> dict[int, NDArray[np.int64]]:
    """Where in ``tasks`` each stage's rows are."""
    stages, counts = np.unique(tasks["stage_id"].to_numpy(), return_counts=True)
    order = np.argsort(tasks["stage_id"].to_numpy(), kind="stable")
    return (
        dict(zip(stages.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True)) if len(tasks) else {}
    )


def _done(stage: Stage, rows: Mapping[int, NDArray[np.int64]]) -> bool:
    """The stage came to its end; the event that says so may have been dropped by Spark under load."""
    return stage.completed or len(rows[stage.stage_id]) >= stage.num_tasks


def _stage(stage: Stage) -> SparkStage:
    return SparkStage(stage.stage_id, stage.name, stage.num_tasks, stage.submitted_ms, stage.completed_ms)


def _query_tasks(tasks: pd.DataFrame, rows: list[NDArray[np.int64]]) -> pd.DataFrame:
    """The rows of the query's stages, numbered by the stages' places."""
    places = np.repeat(np.arange(len(rows)), [len(found) for found in rows])
    table = tasks.iloc[np.concatenate(rows)].assign(stage=places)
    table = table.astype({"launch_ms": float, "run_ms": float})
    return table[list(TASK_COLUMNS)].sort_values(["launch_ms", "stage", "partition"], ignore_index=True)
