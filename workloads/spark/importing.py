"""Import event logs of any Spark cluster as a workload: a job profile for each query, and measured variation.

**Variation.** The logarithm of a task's duration is the sum of a mean, which depends on the task, its wave and the
number of executors, and of independent errors of the run (job error), of the stage within the run, and of the task
within the stage. Their variances are estimated by the method of moments, from runs of a query on the same number of
executors; stages are weighted by their work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.arrivals import JobSequence, trace_arrivals
from workloads.attributes import DEFAULT_TENANT, JobAttributes
from workloads.display import count_text
from workloads.errors import LARGEST_ERROR, check_one_of
from workloads.imperfections import Imperfections
from workloads.job import JobProfile, Wave, WorkloadError
from workloads.sources.tpch import LEVELS
from workloads.sources.workload_file import Workload
from workloads.spark.eventlog import SparkApplication, read_event_logs
from workloads.spark.model import SparkModel, fit
from workloads.spark.profiles import modelled_profile
from workloads.spark.query import QueryRuns, SparkQuery, add_run, alike

__all__ = ["MUCH_SLOWER", "SparkImport", "import_event_logs", "measure_imperfections", "median_startup_ms"]

#: Executors of one host compete for its cores if scans are slower by this factor.
MUCH_SLOWER = 1.2
#: Cold runs are left out if their tasks take this many times as long as those of later runs.
_MUCH_COLDER = 1.2
#: Shorter durations are below the resolution of the clock of Spark's logs, ms.
_SHORTEST_MS = 1.0
_MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, eq=False)
class SparkImport:
    """Result of an import of event logs.

    Args:
        workload: a profile for each query; ``about`` describes their source.
        model: model fitted to the queries, with the parameters that were set by hand.
        applications: each application once.
        queries: runs by query name, in the order of the workload's profiles. They are the queries of the applications,
            with their stages matched.
        pooled: the runs of which each profile is made, by query name: all, or those that are not cold.
        measured_ms: time of each job of the workload from its start to its end, float64 [jobs], NaN if it did not
            end; empty without arrivals.
        notes: counts and problems to show to the user, one line each.
        variation: differences between runs, and failures, to show to the user, one line each.
    """

    workload: Workload
    model: SparkModel
    applications: tuple[SparkApplication, ...]
    queries: Mapping[str, QueryRuns]
    pooled: Mapping[str, QueryRuns]
    measured_ms: NDArray[np.float64]
    notes: tuple[str, ...]
    variation: tuple[str, ...]


def import_event_logs(
    paths: Iterable[str | Path],
    *,
    partial: bool = False,
    arrivals: bool = False,
    warm_ups: bool = True,
    cold_runs: bool = False,
    shared_machine: bool | None = None,
    levels: Iterable[int] = LEVELS,
    parameters: Mapping[str, float] | None = None,
    name: str = "",
    tenants: Literal["pool", "group"] | None = None,
) -> SparkImport:
    """Read event logs, pool the runs of each query, and complete their measurements by a model.

    Runs belong to one query if they have the same name, the same DAG and the same numbers of tasks. Other runs of that
    name become separate queries, with a number appended to the name.

    Args:
        paths: logs and folders of logs; see `workloads.spark.eventlog.read_event_log`. What is skipped in folders is
            noted.
        partial: keep the readable part of damaged logs, and the part of queries that ran.
        arrivals: keep the arrival time of each query, so that the workload can be replayed. A query that waited for
            the end of another one keeps its arrival time.
        warm_ups: keep the warm-up jobs of an application: jobs that ran one by one before the first two that
            overlapped, to prepare data or to load and compile code. If they are more than half of an application's
            jobs, all are kept.
        cold_runs: pool cold runs with the others. A run is cold if it is the first one of its query in an application
            that ran the query again, on executors that had run other tasks: Spark compiles the query's code, and reads
            its files for the first time. Cold runs are noted and left out if their tasks take ``_MUCH_COLDER`` times
            as long as those of later runs, unless all is to be pooled. Their arrivals are kept. (First tasks on new
            executors are a wave of their own in a profile.)
        shared_machine: whether the executors shared the cores of one machine, see `workloads.spark.model`. By
            default this is assumed if all executors of each application were on one host, and scans took
            ``MUCH_SLOWER`` times as long as on the smallest number of executors.
        levels: parallelism levels that every profile has at least.
        parameters: parameters of the model that replace fitted ones, by name.
        name: name of the workload.
        tenants: tenant of each query of the sequence: the ``pool`` of Spark's FAIR scheduler
            (``spark.scheduler.pool``), or the job ``group`` (``spark.jobGroup.id``); by default queries have none.

    Raises:
        WorkloadError: a log is unusable, there are no queries, a parameter is unknown, or tenants lack arrivals.
    """
    if tenants is not None:
        check_one_of(tenants, ("pool", "group"), "tenants", WorkloadError)
        if not arrivals:
            raise WorkloadError("tenants need arrivals, as they belong to arriving jobs")
    found, skipped = read_event_logs(paths, partial=partial)
    applications, repeated = _unique(found)
    notes = [*skipped, *repeated]
    if not warm_ups:
        applications, left_out = _without_warm_ups(applications)
        notes += left_out
    applications, queries = _matched(applications)
    if not queries:
        raise WorkloadError("the logs contain no query with a finished task")
    pooled, cold_note = (queries, []) if cold_runs else _without_cold_runs(queries)
    ended = [group for group in pooled.values() if group.runs[0].complete]
    model, contention_note = _fit_model(ended or list(pooled.values()), applications, shared_machine)
    model = model.having(parameters or {})
    profiles = [modelled_profile(model, group, levels=levels, name=name) for name, group in pooled.items()]
    sequence, measured_ms = _arrivals(queries, profiles, tenants) if arrivals else (None, np.zeros(0))
    imperfections, variation = measure_imperfections(list(pooled.values()), applications)
    workload = Workload(tuple(profiles), sequence, name, _about(applications, model, queries), imperfections)
    notes = [*_notes(applications), *notes, *cold_note, *contention_note]
    return SparkImport(
        workload, model, applications, queries, pooled, measured_ms, tuple(notes), tuple(variation)
    )


def _unique(applications: Sequence[SparkApplication]) -> tuple[tuple[SparkApplication, ...], list[str]]:
    """Return each application once, from the log with most of its queries, and notes about the other logs."""
    unique: dict[tuple[str, str, float], SparkApplication] = {}
    notes = []
    for app in applications:
        key = (app.application_id, app.name, app.start_ms)
        if key in unique:
            notes.append(
                f"{app.name}: {app.application_id or 'the same application'} is given twice, counted once"
            )
        if key not in unique or len(app.queries) > len(unique[key].queries):
            unique[key] = app
    return tuple(unique.values()), notes


def _without_warm_ups(
    applications: Sequence[SparkApplication],
) -> tuple[tuple[SparkApplication, ...], list[str]]:
    """Return the applications without their warm-up jobs, and notes about these jobs."""
    kept, notes = [], []
    for app in applications:
        if count := _warm_ups(app.queries):
            notes.append(
                f"{app.name}: {count} jobs left out as warm-up: "
                "they ran one by one before the first two that ran at once"
            )
        kept.append(replace(app, queries=app.queries[count:]))
    return tuple(kept), notes


def _warm_ups(queries: Sequence[SparkQuery]) -> int:
    """Return the number of warm-up jobs at the beginning of ``queries``, which are in order of their start."""
    until_ms = -np.inf
    for count, query in enumerate(queries):
        if query.start_ms < until_ms:
            alone = count - 1  # the query before this one overlaps with it
            return alone if 2 * alone <= len(queries) else 0
        until_ms = query.ended_ms
    return 0


def _without_cold_runs(queries: Mapping[str, QueryRuns]) -> tuple[Mapping[str, QueryRuns], list[str]]:
    """Return the runs of each query without cold runs, with a note; all runs if cold ones are not much slower."""
    pooled, count, cold_ms, later_ms = {}, 0, 0.0, 0.0
    for name, group in queries.items():
        by_application: dict[str, list[SparkQuery]] = {}
        for run in group.runs:
            by_application.setdefault(run.application_id, []).append(run)
        cold = []
        for runs in by_application.values():
            first, *later = sorted(runs, key=lambda run: run.start_ms)
            if later and first.complete and not (first.tasks["wave"] == Wave.FRESH).any():
                cold.append(first)
                cold_ms += float(first.tasks["duration_ms"].sum())
                later_ms += float(np.mean([run.tasks["duration_ms"].sum() for run in later]))
        count += len(cold)
        pooled[name] = QueryRuns(tuple(run for run in group.runs if run not in cold))
    if cold_ms < _MUCH_COLDER * later_ms or not count:
        return queries, []
    note = (
        f"{count_text(count, 'cold run')} left out, the first of its query in an application: "
        f"tasks took {cold_ms / max(later_ms, _SHORTEST_MS):.2g} times as long as in later runs"
    )
    return pooled, [note]


def _fit_model(
    queries: Sequence[QueryRuns], applications: Sequence[SparkApplication], shared: bool | None
) -> tuple[SparkModel, list[str]]:
    """Fit the model; return it, with a note if the logs show that the executors shared a machine."""
    if shared is not None or not all(_on_one_host(app) for app in applications):
        return fit(queries, shared_machine=bool(shared)), []
    model = fit(queries, shared_machine=True)
    slowest = max(model.contention, key=lambda level: model.contention[level], default=1)
    factor = model.contention.get(slowest, 1.0)
    if factor < MUCH_SLOWER:
        return fit(queries), []
    note = (
        f"all executors were on one machine, where scans took {factor:.2g} times as long on {slowest} executors as on "
        "the fewest: removed from all durations"
    )
    return model, [note]


def _on_one_host(app: SparkApplication) -> bool:
    hosts = {executor.host for executor in app.executors}
    return len(hosts) == 1 and "" not in hosts


def _arrivals(
    queries: Mapping[str, QueryRuns], profiles: Sequence[JobProfile], tenants: Literal["pool", "group"] | None
) -> tuple[JobSequence, NDArray[np.float64]]:
    """Return a job for each run of a query, which arrives when the query started, and the run times of the jobs, ms."""
    runs = [
        (query.start_ms, query.wall_ms, profile, getattr(query, tenants) if tenants else "")
        for group, profile in zip(queries.values(), profiles, strict=True)
        for query in group.runs
    ]
    runs.sort(key=lambda run: run[0])
    start_ms, wall_ms, jobs, names = zip(*runs, strict=True)
    attributes = [JobAttributes(tenant=name or DEFAULT_TENANT) for name in names]
    arrival_ms = np.subtract(start_ms, start_ms[0])
    return trace_arrivals(jobs, arrival_ms, attributes=attributes), np.array(wall_ms)


def median_startup_ms(applications: Iterable[SparkApplication]) -> float:
    """Return the median start-up time of an executor, ms; NaN if the logs do not give any."""
    startup_ms = [executor.startup_ms for app in applications for executor in app.executors]
    finite_ms = [time_ms for time_ms in startup_ms if np.isfinite(time_ms)]
    return float(np.median(finite_ms)) if finite_ms else float("nan")


def _matched(
    applications: Sequence[SparkApplication],
) -> tuple[tuple[SparkApplication, ...], dict[str, QueryRuns]]:
    """Match the stages of all runs of each query; return the applications with these runs, and the runs by query."""
    by_name: dict[str, list[list[SparkQuery]]] = {}
    kept = []
    for app in applications:
        names = (query.name if query.complete else f"{query.name} (incomplete)" for query in app.queries)
        queries = [
            add_run(by_name.setdefault(name, []), query)
            for name, query in zip(names, app.queries, strict=True)
        ]
        kept.append(replace(app, queries=tuple(queries)))
    matched: dict[str, QueryRuns] = {}
    for name, groups in by_name.items():
        for index, group in enumerate(groups, start=1):
            unused = name if index == 1 else f"{name} ({index})"
            while unused in matched:
                unused += "'"
            matched[unused] = QueryRuns(tuple(group))
    return tuple(kept), matched


def _about(
    applications: Sequence[SparkApplication], model: SparkModel, queries: Mapping[str, QueryRuns]
) -> dict[str, Any]:
    days = sorted(
        datetime.fromtimestamp(app.start_ms / 1000, UTC).date().isoformat()
        for app in applications
        if np.isfinite(app.start_ms)
    )
    measured = {level for group in queries.values() for level in group.tasks["level"].unique().tolist()}
    startup_ms = median_startup_ms(applications)
    plans = {name: list(group.runs[0].plan) for name, group in queries.items() if group.runs[0].plan}
    return {
        "source": "Spark event logs",
        "spark": sorted({app.spark_version for app in applications}),
        "recorded": sorted({*days[:1], *days[-1:]}),
        "applications": len(applications),
        "queries": sum(len(app.queries) for app in applications),
        "executor_startup_ms": round(startup_ms) if np.isfinite(startup_ms) else None,
        "measured_levels": sorted(measured),
        "model": model.to_json(),
        # The service finds a query by its plan.
        **({"plans": plans} if plans else {}),
    }


def _notes(applications: Sequence[SparkApplication]) -> Iterable[str]:
    for app in applications:
        for line in app.report.lines():
            yield f"{app.name}: {line}"
    startup_ms = median_startup_ms(applications)
    if np.isfinite(startup_ms):
        yield f"an executor took {startup_ms / 1000:.1f} s to start (median): the cluster's moving delay"


def measure_imperfections(
    queries: Sequence[QueryRuns], applications: Iterable[SparkApplication]
) -> tuple[Imperfections, list[str]]:
    """Measure variation between runs, and failures.

    Args:
        queries: runs of each query; incomplete runs are left out.
        applications: source of failed tasks and lost executors.

    Returns:
        The measurements, and two lines that describe them. Errors are None if no query ran twice on the same number of
        executors.
    """
    complete = [group for group in queries if group.runs[0].complete]
    errors, line = _errors(complete)
    counts = [(0, 0, 0, 0.0), *map(_failures, applications)]
    failed, ended, lost, lived_ms = (sum(count) for count in zip(*counts, strict=True))
    measured = Imperfections(
        **errors,
        task_failures=failed / ended if ended > failed else None,
        executor_lifetime_s=lived_ms / 1000 / lost if lost and lived_ms > 0 else None,
    )
    failures = (
        f"{failed:,} of {ended:,} runs of tasks failed, "
        f"{lost:,} executors were lost in {lived_ms / _MS_PER_HOUR:.3g} executor hours"
    )
    return measured, [line, failures]


def _errors(queries: Sequence[QueryRuns]) -> tuple[dict[str, float], str]:
    """Return the errors by name, and a line that describes them."""
    moments = [
        row for group in queries for _, tasks in group.tasks.groupby("level") for row in _moments(tasks)
    ]
    if not moments:
        return {}, "errors of estimates are unknown: no query ran twice on the same number of executors"
    freedom, job, stage, task, squares = np.array(moments).T
    freedom /= freedom.sum()
    of_stage = max(freedom @ stage, 0.0) / (1 - freedom @ squares) if freedom @ squares < 1 else 0.0
    variances = {
        "job_error": freedom @ (job - of_stage * squares),
        "stage_error": of_stage,
        "task_error": freedom @ task,
        "task_count_error": _task_count_variance(queries),
    }
    errors = {name: float(np.sqrt(max(variance, 0.0))) for name, variance in variances.items()}
    errors = {name: min(round(error, 3), LARGEST_ERROR) for name, error in errors.items()}
    listed = ", ".join(
        f"{name.removesuffix('_error').replace('_', ' ')} {error:g}" for name, error in errors.items()
    )
    return errors, f"runs of the same query differ, standard deviation of the logarithm: {listed}"


def _moments(tasks: pd.DataFrame) -> list[tuple[float, ...]]:
    """Return second moments of the runs of a query on one number of executors; empty if it ran only once.

    A row has the degrees of freedom; the variances of the runs' mean errors, of the stages' mean errors within the run
    (both without the part due to tasks) and of the tasks' errors within the stage; and the sum of squares of the
    stages' weights.
    """
    run, stage, wave, partition, ms = (
        tasks[name].to_numpy() for name in ("run", "stage", "wave", "partition", "duration_ms")
    )
    num_runs = len(np.unique(run))
    if num_runs < 2:
        return []
    _, task, count = np.unique(partition * (stage.max() + 1) + stage, return_inverse=True, return_counts=True)
    ended = count[task] == num_runs  # the task ended in every run
    if not ended.any():
        return []
    task, wave, ms = task[ended], wave[ended], ms[ended].clip(min=_SHORTEST_MS)
    (_, run), (_, stage) = (np.unique(ids[ended], return_inverse=True) for ids in (run, stage))
    cell, shape = stage * num_runs + run, (stage.max() + 1, num_runs)
    expected_ms = _means(ms, stage * len(Wave) + wave)
    total_ms = np.bincount(cell, ms).reshape(shape)
    error = np.log(total_ms / np.bincount(cell, expected_ms).reshape(shape))
    error -= error.mean(axis=1, keepdims=True)
    # Error of a task without the mean of the task over the runs, and without the mean of the stage in the run.
    of_task = np.log(ms / expected_ms)
    of_task -= _means(of_task, task)
    of_task -= _means(of_task, cell)
    num_tasks = np.bincount(stage) / num_runs
    unbiased = num_tasks / np.maximum(num_tasks - 1, 1) * num_runs / (num_runs - 1)
    variance, several = of_task**2 * unbiased[stage], num_tasks[stage] > 1
    typical = float(np.average(variance[several], weights=ms[several])) if several.any() else 0.0
    share = ms / total_ms.ravel()[cell]
    noise = np.bincount(stage, share**2 * np.where(several, variance, typical)) / num_runs
    weight = total_ms.sum(axis=1) / total_ms.sum()
    of_run = weight @ error
    job = of_run.var(ddof=1) - weight**2 @ noise
    within = (weight @ (error - of_run) ** 2).sum() / (num_runs - 1) - (weight * (1 - weight)) @ noise
    return [(num_runs - 1, job, within, typical, weight @ weight)]


def _means(values: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return, for each value, the mean of its group."""
    return (np.bincount(group, values) / np.maximum(np.bincount(group), 1))[group]


def _task_count_variance(queries: Sequence[QueryRuns]) -> float:
    """Return the variance of the logarithm of a stage's number of tasks, between runs of one name with the same DAG."""
    by_name: dict[str, list[QueryRuns]] = {}
    for group in queries:
        by_name.setdefault(group.runs[0].name, []).append(group)
    total, free = 0.0, 0
    for groups in by_name.values():
        # Runs in one group have equal numbers of tasks.
        runs = (run for group in groups for run in group.runs)
        same = alike(runs, same_tasks=False) if len(groups) > 1 else groups
        for group in same:
            counts = np.log([[stage.num_tasks for stage in run.stages] for run in group.runs])
            total += float(((counts - counts.mean(axis=0)) ** 2).sum())
            free += (len(counts) - 1) * counts.shape[1]
    return total / free if free else 0.0


def _failures(app: SparkApplication) -> tuple[int, int, int, float]:
    """Return failed and ended task runs of the queries, lost executors, and total time of the executors, ms."""
    last_ms = max((run.ended_ms for run in app.queries), default=np.nan)
    end_ms = app.end_ms if np.isfinite(app.end_ms) else last_ms
    bounds = [
        (
            executor.registered_ms if np.isfinite(executor.registered_ms) else app.start_ms,
            executor.removed_ms if np.isfinite(executor.removed_ms) else end_ms,
        )
        for executor in app.executors
        if executor.slots
    ]
    lived_ms = float(np.nansum([max(end - begin, 0.0) for begin, end in bounds]))
    failed, ended = (sum(getattr(run, name) for run in app.queries) for name in ("num_failures", "num_runs"))
    return failed, ended, app.report.lost_executors, lived_ms
