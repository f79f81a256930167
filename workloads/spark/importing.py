"""Event logs of any Spark cluster as a workload: a job profile for each query in them."""

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
from workloads.spark.application import SparkApplication, SparkQuery
from workloads.spark.eventlog import read_event_log
from workloads.spark.measurements import Sample
from workloads.spark.model import SparkModel, fit
from workloads.spark.profile import same_dag
from workloads.spark.scaling import modelled_profile

__all__ = ["MUCH_SLOWER", "SparkImport", "import_event_logs", "median_startup_ms", "runs_by_query"]

#: Executors of one host that slow scans by so much compete for its cores.
MUCH_SLOWER = 1.2


@dataclass(frozen=True, eq=False)
class SparkImport:
    """What came out of event logs.

    Args:
        workload: a profile for each query; ``about`` says where they come from.
        model: fitted to the queries, with the parameters that were set by hand.
        applications: what was read, each application once.
        measured_ms: how long each job of the workload took, from its start to its end, float64 [jobs], NaN where it did
            not end; empty without arrivals.
        notes: what was counted and what was wrong, for people, a line each.
    """

    workload: Workload
    model: SparkModel
    applications: tuple[SparkApplication, ...]
    measured_ms: NDArray[np.float64]
    notes: tuple[str, ...]


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
    """Read event logs, pool the runs of each query, and complete what was measured by a model.

    Runs belong to one query if they have its name and the same DAG with the same numbers of tasks. Others of
    that name become queries of their own, with a number behind the name.

    Args:
        paths: logs and folders of logs; see `workloads.spark.eventlog.read_event_log`.
        partial: keep what can be read of damaged logs, and queries as far as they ran.
        arrivals: keep when each query came, so that the workload can run again as it was. A query that waited for
            the end of another one comes when it came.
        warm_ups: keep the jobs that warmed an application up. These are the jobs that ran one by one before the first
            two that ran at the same time: preparation, and queries that only have code loaded and compiled. Where they
            are more than half of an application's jobs, its jobs hardly ever met, and all are kept.
        shared_machine: the executors shared the cores of one machine, see `workloads.spark.model`; by default where
            all of an application's were on one host and scans took ``MUCH_SLOWER`` times as long as on the
            smallest number of them.
        levels: parallelism levels that every profile shall have.
        parameters: of the model, to be used instead of the fitted ones.
        name: the workload's.

    Raises:
        WorkloadError: one line: a log that cannot be used, no queries, an unknown parameter.
    """
    places = check_paths(paths, "paths", WorkloadError)
    applications, twice = _once([app for path in places for app in read_event_log(path, partial=partial)])
    left_out: list[str] = []
    if not warm_ups:
        applications, left_out = _without_warm_ups(applications)
    groups = runs_by_query(applications)
    if not groups:
        raise WorkloadError("the logs hold no query of which a task ended")
    samples = [[Sample(run) for run in group] for group in groups.values()]
    ended = [group for group in samples if group[0].run.complete]
    model, contention_note = _fitted(ended or samples, applications, shared_machine)
    model = model.having(parameters or {})
    profiles = [
        modelled_profile(model, group, levels=levels, name=name)
        for name, group in zip(groups, samples, strict=True)
    ]
    sequence, measured_ms = _as_they_came(groups, profiles) if arrivals else (None, np.zeros(0))
    plans = {name: list(group[0].plan) for name, group in groups.items() if group[0].plan}
    workload = Workload(tuple(profiles), sequence, name, _about(applications, model, plans))
    notes = (*_notes(applications), *twice, *left_out, *contention_note)
    return SparkImport(workload, model, applications, measured_ms, notes)


def _once(applications: Sequence[SparkApplication]) -> tuple[tuple[SparkApplication, ...], list[str]]:
    """Each application once, from the log that holds most of it; and what is to be said of the others."""
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
    """The applications without the jobs that warmed them up, and what is to be said of that."""
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
    """How many of the first queries warmed the application up; queries are in order of their start."""
    until_ms = -np.inf
    for count, query in enumerate(queries):
        if query.start_ms < until_ms:
            alone = count - 1  # the query before runs together with this one
            return alone if 2 * alone <= len(queries) else 0
        until_ms = query.ended_ms
    return 0


def _fitted(
    samples: Sequence[Sequence[Sample]], applications: Sequence[SparkApplication], shared: bool | None
) -> tuple[SparkModel, list[str]]:
    """The model, and what is to be said where it was seen that the executors shared a machine."""
    if shared is not None or not all(_on_one_host(app) for app in applications):
        return fit(samples, shared_machine=bool(shared)), []
    model = fit(samples, shared_machine=True)
    slowest = max(model.contention, key=lambda level: model.contention[level], default=1)
    factor = model.contention.get(slowest, 1.0)
    if factor < MUCH_SLOWER:
        return fit(samples), []
    note = (
        f"all executors were on one machine, where scans took {factor:.2g} times as long on {slowest} executors as on "
        "the fewest: taken out of all durations"
    )
    return model, [note]


def _on_one_host(app: SparkApplication) -> bool:
    hosts = {executor.host for executor in app.executors}
    return len(hosts) == 1 and "" not in hosts


def _as_they_came(
    groups: Mapping[str, Sequence[SparkQuery]], profiles: Sequence[JobProfile]
) -> tuple[JobSequence, NDArray[np.float64]]:
    """A job for each run of a query, which arrives when the query started; and how long each took, ms."""
    runs = [
        (query.start_ms, query.wall_ms, profile)
        for group, profile in zip(groups.values(), profiles, strict=True)
        for query in group
    ]
    runs.sort(key=lambda run: run[0])
    start_ms, wall_ms, jobs = zip(*runs, strict=True)
    return trace_arrivals(jobs, np.subtract(start_ms, start_ms[0])), np.array(wall_ms)


def median_startup_ms(applications: Iterable[SparkApplication]) -> float:
    """What it took to start an executor: the median, ms; NaN if no log tells."""
    known = [
        executor.startup_ms
        for app in applications
        for executor in app.executors
        if np.isfinite(executor.startup_ms)
    ]
    return float(np.median(known)) if known else float("nan")


def runs_by_query(applications: Iterable[SparkApplication]) -> dict[str, list[SparkQuery]]:
    """Runs of the same query, under names that differ."""
    by_name: dict[str, list[list[SparkQuery]]] = {}
    for query in (query for app in applications for query in app.queries):
        alike = by_name.setdefault(query.name if query.complete else f"{query.name} (incomplete)", [])
        for group in alike:
            if same_dag(group[0], query):
                group.append(query)
                break
        else:
            alike.append([query])
    groups: dict[str, list[SparkQuery]] = {}
    for name, alike in by_name.items():
        for number, group in enumerate(alike, start=1):
            groups[_unused(name if number == 1 else f"{name} ({number})", groups)] = group
    return groups


def _unused(name: str, taken: Mapping[str, object]) -> str:
    while name in taken:
        name += "'"
    return name


def _about(
    applications: Sequence[SparkApplication], model: SparkModel, plans: Mapping[str, list[str]]
) -> dict[str, Any]:
    days = sorted(
        datetime.fromtimestamp(app.start_ms / 1000, UTC).date().isoformat()
        for app in applications
        if np.isfinite(app.start_ms)
    )
    queries = [query for app in applications for query in app.queries]
    measured = sorted({level for query in queries for level in query.tasks["level"].unique().tolist()})
    startup_ms = median_startup_ms(applications)
    return {
        "source": "Spark event logs",
        "spark": sorted({app.spark_version for app in applications}),
        "recorded": sorted({*days[:1], *days[-1:]}),
        "applications": len(applications),
        "queries": len(queries),
        "executor_startup_ms": round(startup_ms) if np.isfinite(startup_ms) else None,
        "measured_levels": measured,
        "model": model.to_json(),
        # By these a service recognises a query that runs again.
        **({"plans": plans} if plans else {}),
    }


def _notes(applications: Sequence[SparkApplication]) -> Iterable[str]:
    for app in applications:
        for line in app.report.lines():
            yield f"{app.name}: {line}"
    startup_ms = median_startup_ms(applications)
    if np.isfinite(startup_ms):
        yield f"an executor took {startup_ms / 1000:.1f} s to start (median): the cluster's moving delay"
