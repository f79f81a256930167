"""Import event logs of any Spark cluster as a workload: a job profile for each query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import JobSequence, trace_arrivals
from workloads.errors import check_paths
from workloads.job import JobProfile, WorkloadError
from workloads.sources.tpch_published import LEVELS
from workloads.sources.workload_file import Workload
from workloads.spark.eventlog import SparkApplication, read_event_log
from workloads.spark.model import SparkModel, fit
from workloads.spark.query import QueryRuns, SparkQuery, add_run
from workloads.spark.scaling import modelled_profile
from workloads.spark.variation import measure_imperfections

__all__ = ["MUCH_SLOWER", "SparkImport", "import_event_logs", "median_startup_ms"]

#: Executors of one host that slow scans by this factor compete for its cores.
MUCH_SLOWER = 1.2


@dataclass(frozen=True, eq=False)
class SparkImport:
    """Result of an import of event logs.

    Args:
        workload: a profile for each query; ``about`` holds their source.
        model: fitted to the queries, with the parameters that were set by hand.
        applications: each application once.
        queries: the runs of each query by its name, in the order of the workload's profiles. They are the queries of
            the applications, with their stages matched.
        measured_ms: time of each job of the workload from its start to its end, float64 [jobs], NaN if it did not end;
            empty without arrivals.
        notes: counts and problems for the user, a line each.
        variation: differences between runs, and failures, for the user, a line each.
    """

    workload: Workload
    model: SparkModel
    applications: tuple[SparkApplication, ...]
    queries: Mapping[str, QueryRuns]
    measured_ms: NDArray[np.float64]
    notes: tuple[str, ...]
    variation: tuple[str, ...]


def import_event_logs(
    paths: Iterable[str | Path],
    *,
    partial: bool = False,
    arrivals: bool = False,
    warm_ups: bool = True,
    shared_machine: bool | None = None,
    levels: Iterable[int] = LEVELS,
    parameters: Mapping[str, float] | None = None,
    name: str = "",
) -> SparkImport:
    """Read event logs, pool the runs of each query, and complete their measurements by a model.

    Runs belong to one query if they have its name and the same DAG with the same numbers of tasks. Other runs of that
    name become queries of their own, with a number behind the name.

    Args:
        paths: logs and folders of logs; see `workloads.spark.eventlog.read_event_log`.
        partial: keep what can be read of damaged logs, and queries as far as they ran.
        arrivals: keep the arrival time of each query, so that the workload can be replayed. A query that waited for the
            end of another one keeps its arrival time.
        warm_ups: keep the warm-up jobs of an application: those that ran one by one before the first two that ran at
            the same time, as preparation, or to have code loaded and compiled. If they are more than half of an
            application's jobs, its jobs hardly ever met, and all are kept.
        shared_machine: the executors shared the cores of one machine, see `workloads.spark.model`. By default this is
            so if all executors of each application were on one host and scans took ``MUCH_SLOWER`` times as long as
            on the smallest number of executors.
        levels: parallelism levels that every profile has at least.
        parameters: parameters of the model that replace the fitted ones.
        name: the workload's.

    Raises:
        WorkloadError: one line: an unusable log, no queries, an unknown parameter.
    """
    places = check_paths(paths, "paths", WorkloadError)
    applications, notes = _once([app for path in places for app in read_event_log(path, partial=partial)])
    if not warm_ups:
        applications, left_out = _without_warm_ups(applications)
        notes += left_out
    applications, queries = _matched(applications)
    if not queries:
        raise WorkloadError("the logs hold no query of which a task ended")
    ended = [group for group in queries.values() if group.runs[0].complete]
    model, contention_note = _fitted(ended or list(queries.values()), applications, shared_machine)
    model = model.having(parameters or {})
    profiles = [modelled_profile(model, group, levels=levels, name=name) for name, group in queries.items()]
    sequence, measured_ms = _arrivals(queries, profiles) if arrivals else (None, np.zeros(0))
    imperfections, variation = measure_imperfections(list(queries.values()), applications)
    workload = Workload(tuple(profiles), sequence, name, _about(applications, model, queries), imperfections)
    notes = [*_notes(applications), *notes, *contention_note]
    return SparkImport(workload, model, applications, queries, measured_ms, tuple(notes), tuple(variation))


def _once(applications: Sequence[SparkApplication]) -> tuple[tuple[SparkApplication, ...], list[str]]:
    """Return each application once, from the log with most of its queries, and notes about the other logs."""
    found: dict[tuple[str, str, float], SparkApplication] = {}
    notes = []
    for app in applications:
        key = (app.application_id, app.name, app.start_ms)
        if key in found:
            notes.append(
                f"{app.name}: {app.application_id or 'the same application'} is given twice, counted once"
            )
        if key not in found or len(app.queries) > len(found[key].queries):
            found[key] = app
    return tuple(found.values()), notes


def _without_warm_ups(
    applications: Sequence[SparkApplication],
) -> tuple[tuple[SparkApplication, ...], list[str]]:
    """Return the applications without their warm-up jobs, and notes about these."""
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
    """Return how many of the first queries are warm-up jobs; queries are in order of their start."""
    until_ms = -np.inf
    for count, query in enumerate(queries):
        if query.start_ms < until_ms:
            alone = count - 1  # the query before runs together with this one
            return alone if 2 * alone <= len(queries) else 0
        until_ms = query.ended_ms
    return 0


def _fitted(
    queries: Sequence[QueryRuns], applications: Sequence[SparkApplication], shared: bool | None
) -> tuple[SparkModel, list[str]]:
    """Return the model, and a note if the logs show that the executors shared a machine."""
    if shared is not None or not all(_on_one_host(app) for app in applications):
        return fit(queries, shared_machine=bool(shared)), []
    model = fit(queries, shared_machine=True)
    slowest = max(model.contention, key=lambda level: model.contention[level], default=1)
    factor = model.contention.get(slowest, 1.0)
    if factor < MUCH_SLOWER:
        return fit(queries), []
    note = (
        f"all executors were on one machine, where scans took {factor:.2g} times as long on {slowest} executors as on "
        "the fewest: taken out of all durations"
    )
    return model, [note]


def _on_one_host(app: SparkApplication) -> bool:
    hosts = {executor.host for executor in app.executors}
    return len(hosts) == 1 and "" not in hosts


def _arrivals(
    queries: Mapping[str, QueryRuns], profiles: Sequence[JobProfile]
) -> tuple[JobSequence, NDArray[np.float64]]:
    """Return a job for each run of a query, which arrives when the query started, and the times of the jobs, ms."""
    runs = [
        (query.start_ms, query.wall_ms, profile)
        for group, profile in zip(queries.values(), profiles, strict=True)
        for query in group.runs
    ]
    runs.sort(key=lambda run: run[0])
    start_ms, wall_ms, jobs = zip(*runs, strict=True)
    return trace_arrivals(jobs, np.subtract(start_ms, start_ms[0])), np.array(wall_ms)


def median_startup_ms(applications: Iterable[SparkApplication]) -> float:
    """Return the median start-up time of an executor, ms; NaN if the logs do not hold any."""
    startup_ms = [executor.startup_ms for app in applications for executor in app.executors]
    known = [each for each in startup_ms if np.isfinite(each)]
    return float(np.median(known)) if known else float("nan")


def _matched(
    applications: Sequence[SparkApplication],
) -> tuple[tuple[SparkApplication, ...], dict[str, QueryRuns]]:
    """Match the stages of all runs of a query; return the applications with these runs, and the runs by query."""
    by_name: dict[str, list[list[SparkQuery]]] = {}
    kept = []
    for app in applications:
        names = (query.name if query.complete else f"{query.name} (incomplete)" for query in app.queries)
        queries = [
            add_run(by_name.setdefault(name, []), query)
            for name, query in zip(names, app.queries, strict=True)
        ]
        kept.append(replace(app, queries=tuple(queries)))
    found: dict[str, QueryRuns] = {}
    for name, groups in by_name.items():
        for number, group in enumerate(groups, start=1):
            unused = name if number == 1 else f"{name} ({number})"
            while unused in found:
                unused += "'"
            found[unused] = QueryRuns(tuple(group))
    return tuple(kept), found


def _about(
    applications: Sequence[SparkApplication], model: SparkModel, queries: Mapping[str, QueryRuns]
) -> dict[str, Any]:
    days = sorted(
        datetime.fromtimestamp(app.start_ms / 1000, UTC).date().isoformat()
        for app in applications
        if np.isfinite(app.start_ms)
    )
    measured = sorted(
        {level for group in queries.values() for level in group.tasks["level"].unique().tolist()}
    )
    startup_ms = median_startup_ms(applications)
    plans = {name: list(group.runs[0].plan) for name, group in queries.items() if group.runs[0].plan}
    return {
        "source": "Spark event logs",
        "spark": sorted({app.spark_version for app in applications}),
        "recorded": sorted({*days[:1], *days[-1:]}),
        "applications": len(applications),
        "queries": sum(len(app.queries) for app in applications),
        "executor_startup_ms": round(startup_ms) if np.isfinite(startup_ms) else None,
        "measured_levels": measured,
        "model": model.to_json(),
        # A service recognises a query by its plan.
        **({"plans": plans} if plans else {}),
    }


def _notes(applications: Sequence[SparkApplication]) -> Iterable[str]:
    for app in applications:
        for line in app.report.lines():
            yield f"{app.name}: {line}"
    startup_ms = median_startup_ms(applications)
    if np.isfinite(startup_ms):
        yield f"an executor took {startup_ms / 1000:.1f} s to start (median): the cluster's moving delay"
