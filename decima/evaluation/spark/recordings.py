"""Runs of TPC-H queries on Spark, recorded by ``workloads.spark.recorder``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.job import WorkloadError
from workloads.reading import read_bytes
from workloads.spark.eventlog import SparkApplication, read_event_log
from workloads.spark.query import SparkQuery

__all__ = ["Mixture", "QueryKey", "Recordings", "Run", "load_recordings"]


class QueryKey(NamedTuple):
    """Identity of a query: number, scale factor, and layout into tasks."""

    query: int
    scale_factor: float
    layout: str

    def __str__(self) -> str:
        return f"q{self.query:02d} at SF {self.scale_factor:g}, {self.layout}"


@dataclass(frozen=True, eq=False)
class Run:
    """An application that ran one query.

    Args:
        executors: largest number of executors that it held.
        startup_ms: time from the request of the first executor to the registration of the last, ms; NaN if unknown.
        opened_ms: time at which the driver began to register with the cluster, ms since the epoch; NaN if unknown.
        requested_ms: time at which the first executor was granted, ms since the epoch; NaN if unknown.
        busy_cores: mean number of busy cores of the machine during the query; NaN if unknown.
    """

    name: str
    key: QueryKey
    executors: int
    query: SparkQuery
    startup_ms: float
    opened_ms: float
    requested_ms: float
    busy_cores: float

    @property
    def preparation_ms(self) -> float:
        """Time of the driver from the registration of the last executor to the first job, ms."""
        return self.query.submitted_ms - self.requested_ms - self.startup_ms

    @property
    def registration_ms(self) -> float:
        """Time until the cluster knows the application and grants it a free executor, ms."""
        return self.requested_ms - self.opened_ms


@dataclass(frozen=True, eq=False)
class Mixture:
    """Applications that shared the cluster, in order of submission.

    Args:
        slots: number of executors of the cluster.
        executors_max: maximum number of executors that an application could hold.
        submit_ms: time of each submission, float64 [num_applications], ms since the first.
        done_ms: time of each result, float64 [num_applications], ms since the first submission.
    """

    name: str
    slots: int
    executors_max: int
    runs: tuple[Run, ...]
    submit_ms: NDArray[np.float64]
    done_ms: NDArray[np.float64]

    @property
    def keys(self) -> tuple[QueryKey, ...]:
        """The query of each application."""
        return tuple(run.key for run in self.runs)

    @property
    def sharing(self) -> str:
        """Mode in which the standalone master shares the cluster among such applications: FIFO or FAIR."""
        return "FIFO" if self.executors_max >= self.slots else "FAIR"

    @property
    def jct_ms(self) -> NDArray[np.float64]:
        """Job completion times, float64 [num_applications], ms."""
        return self.done_ms - self.submit_ms


@dataclass(frozen=True, eq=False)
class Recordings:
    """Single runs, in order of their names, and mixtures."""

    runs: tuple[Run, ...]
    mixtures: tuple[Mixture, ...] = ()

    def by_query(self) -> dict[QueryKey, list[Run]]:
        """Return the runs of each query, queries ascending."""
        groups: dict[QueryKey, list[Run]] = {}
        for run in sorted(self.runs, key=lambda run: (run.key, run.name)):
            groups.setdefault(run.key, []).append(run)
        return groups

    def by_mixture(self) -> list[list[Mixture]]:
        """Group recordings of the same mixture, which have the same name and applications."""
        groups: dict[tuple[object, ...], list[Mixture]] = {}
        for mixture in self.mixtures:
            groups.setdefault((mixture.name, mixture.slots, mixture.keys), []).append(mixture)
        return list(groups.values())


def load_recordings(folders: Iterable[str | Path]) -> Recordings:
    """Read folders of the recorder, or of event logs of single runs.

    Raises:
        WorkloadError: an invalid log or manifest, a log that is not a recording, or a folder given twice.
    """
    runs: list[Run] = []
    mixtures: list[Mixture] = []
    known: set[Path] = set()
    for folder in map(Path, folders):
        if folder.resolve() in known:
            raise WorkloadError(f"{folder}: given twice; a run cannot predict itself")
        known.add(folder.resolve())
        logs = folder / "eventlogs"
        applications = read_event_log(logs if logs.is_dir() else folder)
        found = {application.name: _run(application, folder) for application in applications}
        mixed = _mixtures(folder / "manifest.json", found)
        members = {run.name for mixture in mixed for run in mixture.runs}
        mixtures += mixed
        runs += [run for name, run in found.items() if name not in members]
    return Recordings(tuple(sorted(runs, key=lambda run: run.name)), tuple(mixtures))


def _run(application: SparkApplication, folder: Path) -> Run:
    if len(application.queries) != 1:
        found = f"{len(application.queries)} queries"
        raise WorkloadError(f"{folder}: {application.name}: expected one query, found {found}")
    noted = application.recording
    try:
        noted = noted if "query" in noted else {**noted, **noted["runs"][0]}
        key = _key(noted)
        opened_ms = 1000 * float(noted.get("opened", "nan"))
        busy_cores = float(noted.get("busy_cpu_s", "nan")) / float(noted.get("wall", "nan"))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        raise WorkloadError(
            f"{folder}: {application.name} was not recorded by workloads.spark.recorder: its log does not say "
            "which query ran on how much data"
        ) from None
    requested_ms = min(executor.requested_ms for executor in application.executors)
    registered_ms = max(executor.registered_ms for executor in application.executors)
    return Run(
        name=application.name,
        key=key,
        executors=len(application.executors),
        query=application.queries[0],
        startup_ms=registered_ms - requested_ms,
        opened_ms=opened_ms,
        requested_ms=requested_ms,
        busy_cores=busy_cores,
    )


def _key(noted: Mapping[str, Any]) -> QueryKey:
    layout = noted["layout"]
    return QueryKey(
        int(noted["query"]),
        float(noted["sf"]),
        layout if isinstance(layout, str) else "/".join(map(str, layout)),
    )


def _mixtures(manifest: Path, runs: Mapping[str, Run]) -> list[Mixture]:
    """Read the mixtures of a manifest, see `workloads.spark.recorder.record.Manifest`; empty without a file."""
    if not manifest.exists():
        return []
    try:
        noted = json.loads(read_bytes(manifest))["mixtures"]
        return [_mixture(name, noted[name], runs) for name in sorted(noted)]
    except WorkloadError as error:
        raise WorkloadError(f"{manifest}: {error}") from None
    except OSError as error:
        raise WorkloadError(f"{manifest}: {error.strerror}, expected a manifest of recordings") from None
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        raise WorkloadError(f"{manifest}: not a usable manifest of recordings: {error!r}") from None


def _mixture(name: str, noted: Mapping[str, Any], runs: Mapping[str, Run]) -> Mixture:
    applications: Sequence[Mapping[str, Any]] = noted["applications"]
    names = [str(application["name"]) for application in applications]
    if lost := [application for application in names if application not in runs]:
        raise WorkloadError(f"{name}: there is no event log of {lost[0]}")
    first_s = float(applications[0]["submit_s"])
    return Mixture(
        name=name,
        slots=int(noted["executors"]),
        executors_max=int(applications[0]["n"]),
        runs=tuple(runs[application] for application in names),
        submit_ms=np.array(
            [1000 * (float(application["submit_s"]) - first_s) for application in applications]
        ),
        done_ms=np.array([1000 * (float(application["done_s"]) - first_s) for application in applications]),
    )
