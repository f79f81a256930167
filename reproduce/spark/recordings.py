"""Recorded runs of TPC-H queries on Spark (``workloads.spark.recorder``), and their simulation.

A run is simulated with its own task durations, or with those of other runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from decima.schedulers.spark import SparkStandalone
from simulator.cluster.config import ClusterConfig, ExecutorClass, Semantics
from simulator.cluster.episode import run_episode
from workloads.arrivals import JobSequence
from workloads.errors import LONGEST_MS, check_number
from workloads.job import JobProfile, TaskDurations, Wave, WorkloadError
from workloads.reading import read_document
from workloads.spark.eventlog import SparkApplication, read_event_log
from workloads.spark.profiles import replay_profile, to_profile, with_driver
from workloads.spark.query import SparkQuery, matched
from workloads.texts import number_in

__all__ = [
    "Effects",
    "QueryKey",
    "RecordedMixture",
    "Recordings",
    "Run",
    "Source",
    "load_recordings",
    "predict_mixture",
    "predict_run",
    "replay",
    "replay_mixture",
]  # fmt: skip


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
class RecordedMixture:
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
    mixtures: tuple[RecordedMixture, ...] = ()

    def by_query(self) -> dict[QueryKey, list[Run]]:
        """Return the runs of each query, queries ascending."""
        groups: dict[QueryKey, list[Run]] = {}
        for run in sorted(self.runs, key=lambda run: (run.key, run.name)):
            groups.setdefault(run.key, []).append(run)
        return groups

    def by_mixture(self) -> list[list[RecordedMixture]]:
        """Group recordings of the same mixture, which have the same name and applications."""
        groups: dict[tuple[object, ...], list[RecordedMixture]] = {}
        for mixture in self.mixtures:
            groups.setdefault((mixture.name, mixture.slots, mixture.keys), []).append(mixture)
        return list(groups.values())


def load_recordings(folders: Iterable[str | Path]) -> Recordings:
    """Read folders of the recorder, or of event logs of single runs.

    Raises:
        WorkloadError: an invalid log or manifest, a log that is not a recording, or a folder given twice.
    """
    runs: list[Run] = []
    mixtures: list[RecordedMixture] = []
    seen_folders: set[Path] = set()
    for folder in map(Path, folders):
        if folder.resolve() in seen_folders:
            raise WorkloadError(f"{folder}: given twice; a run cannot predict itself")
        seen_folders.add(folder.resolve())
        logs = folder / "eventlogs"
        applications = read_event_log(logs if logs.is_dir() else folder)
        runs_by_name = {application.name: _run(application, folder) for application in applications}
        mixed = _mixtures(folder / "manifest.json", runs_by_name)
        members = {run.name for mixture in mixed for run in mixture.runs}
        mixtures += mixed
        runs += [run for name, run in runs_by_name.items() if name not in members]
    return Recordings(tuple(sorted(runs, key=lambda run: run.name)), tuple(mixtures))


def _run(application: SparkApplication, folder: Path) -> Run:
    if len(application.queries) != 1:
        count = f"{len(application.queries)} queries"
        raise WorkloadError(f"{folder}: {application.name}: expected one query, found {count}")
    noted = application.recording
    try:
        noted = noted if "query" in noted else {**noted, **noted["runs"][0]}
        key = _key(noted)
        opened_ms = 1000 * _number(noted, "opened", math.nan)
        busy_cores = _number(noted, "busy_cpu_s", math.nan) / _number(noted, "wall", math.nan)
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


def _number(noted: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return a number of a recorder's notes, which may be a text; ``default`` if it is missing."""
    if default is not None and name not in noted:
        return default
    value = noted[name]
    return check_number(
        number_in(value) if isinstance(value, str) else value, name, WorkloadError, (0, LONGEST_MS)
    )


def _key(noted: Mapping[str, Any]) -> QueryKey:
    layout = noted["layout"]
    return QueryKey(
        int(_number(noted, "query")),
        _number(noted, "sf"),
        layout if isinstance(layout, str) else "/".join(map(str, layout)),
    )


def _mixtures(manifest: Path, runs: Mapping[str, Run]) -> list[RecordedMixture]:
    """Read the mixtures of a manifest, see `workloads.spark.recorder.record.Manifest`; empty without a file."""
    if not manifest.exists():
        return []
    try:
        noted: Any = read_document(manifest, "a manifest of recordings")
        noted = noted["mixtures"]
        return [_mixture(name, noted[name], runs) for name in sorted(noted)]
    except WorkloadError as error:
        message = str(error)
        raise WorkloadError(
            message if message.startswith(f"{manifest}: ") else f"{manifest}: {message}"
        ) from None
    except (LookupError, TypeError, ValueError) as error:
        raise WorkloadError(f"{manifest}: not a usable manifest of recordings: {error!r}") from None


def _mixture(name: str, noted: Mapping[str, Any], runs: Mapping[str, Run]) -> RecordedMixture:
    applications: Sequence[Mapping[str, Any]] = noted["applications"]
    names = [str(application["name"]) for application in applications]
    if lost := [application for application in names if application not in runs]:
        raise WorkloadError(f"{name}: there is no event log of {lost[0]}")
    first_s = _number(applications[0], "submit_s")
    times_s = [
        (_number(application, "submit_s"), _number(application, "done_s")) for application in applications
    ]
    submit_ms, done_ms = 1000 * (np.array(times_s) - first_s).T
    return RecordedMixture(
        name=name,
        slots=int(_number(noted, "executors")),
        executors_max=int(_number(applications[0], "n")),
        runs=tuple(runs[application] for application in names),
        submit_ms=submit_ms,
        done_ms=done_ms,
    )


@dataclass(frozen=True)
class Effects:
    """Effects that a prediction models.

    Args:
        waves: whether an executor's first tasks, in the job and in each stage, have other durations.
        parallelism: whether task durations depend on the number of executors; otherwise, all runs are pooled.
        moving: whether executors take a moving delay to an application.
        driver: whether the cluster waits for the driver between stages, which the paper's simulator does not model.
    """

    waves: bool = True
    parallelism: bool = True
    moving: bool = True
    driver: bool = True


class Source(NamedTuple):
    """Runs of one query that a prediction uses: at least one with the number of executors to predict, and others.

    Durations that do not depend on the number of executors are taken from both.
    """

    same: Sequence[Run]
    others: Sequence[Run]


def replay(run: Run) -> float:
    """Simulate a query with the run's own task durations in order, and return its time, ms.

    The result is deterministic, and comparable with ``query.wall_ms`` of the run.
    """
    setting = _Setting(run.executors, run.executors)
    return float(setting.completion_ms([replay_profile(run.query)])[0])


def replay_mixture(mixture: RecordedMixture) -> NDArray[np.float64]:
    """Return simulated JCTs from the applications' own durations, float64 [num_applications], ms.

    The recording supplies submission times, the mean start-up time of executors, and each application's task
    durations and driver delays. The simulator decides which application gets executors at which time.
    """
    profiles = [replay_profile(run.query, max(0.0, run.preparation_ms)) for run in mixture.runs]
    moving_ms = float(np.mean(_known(run.startup_ms for run in mixture.runs) or 0.0))
    setting = _Setting(mixture.slots, mixture.executors_max, moving_ms=moving_ms)
    return (
        setting.completion_ms(profiles, mixture.submit_ms + _registration_ms(mixture.runs))
        - mixture.submit_ms
    )


def predict_run(source: Source, executors: int, effects: Effects, num_seeds: int) -> float:
    """Predict the time of a query whose executors are all present at its start, ms.

    The prediction averages ``num_seeds`` simulations.
    """
    setting = _Setting(executors, executors, warmup_ms=_warmup_ms(source.same))
    profile = _profile(source, effects)
    return float(np.mean([setting.completion_ms([profile], seed=seed) for seed in range(num_seeds)]))


def predict_mixture(
    mixture: RecordedMixture, sources: Sequence[Source], effects: Effects, num_seeds: int, *, alone: bool
) -> NDArray[np.float64]:
    """Predict the JCTs of a mixture's applications from other runs of their queries, float64 [num_applications], ms.

    An application arrives when it has registered with the master, and its executors take the moving delay; meanwhile
    its driver prepares the first job. Both delays are those of the other runs. Of the mixture, only submission times
    are used. ``alone``: the other runs were alone on the cluster and started with executors, or were parts of
    mixtures.
    """
    used = list(dict.fromkeys(run for source in sources for run in source.same))
    moving_ms = float(np.mean(_known(run.startup_ms for run in used) or 0.0)) if effects.moving else 0.0
    profiles = []
    for source in sources:
        driver_ms = [run.preparation_ms + (0.0 if alone else run.startup_ms) for run in source.same]
        planning_ms = [max(0.0, driver - moving_ms) for driver in _known(driver_ms)] or [0.0]
        profiles.append(_profile(source, effects, planning_ms))
    setting = _Setting(mixture.slots, mixture.executors_max, moving_ms=moving_ms, warmup_ms=_warmup_ms(used))
    arrival_ms = mixture.submit_ms + _registration_ms(used)
    draws = [setting.completion_ms(profiles, arrival_ms, seed) for seed in range(num_seeds)]
    predicted: NDArray[np.float64] = np.mean(draws, axis=0) - mixture.submit_ms
    return predicted


@dataclass(frozen=True)
class _Setting:
    """A cluster of one-core executors, and the largest number that an application may hold."""

    executors: int
    executors_max: int
    moving_ms: float = 0.0
    warmup_ms: float = 0.0

    def completion_ms(
        self, profiles: Sequence[JobProfile], arrival_ms: ArrayLike | None = None, seed: int = 0
    ) -> NDArray[np.float64]:
        arrival = np.zeros(len(profiles)) if arrival_ms is None else np.asarray(arrival_ms, dtype=np.float64)
        sequence = JobSequence(tuple(profiles), arrival, seed)
        cluster = ClusterConfig(
            executor_classes=self._executor_classes(profiles),
            moving_delay_ms=self.moving_ms,
            warmup_delay_ms=self.warmup_ms,
            semantics=Semantics(release_misfits=False, longest_path_first=False),
        )
        return run_episode(cluster, sequence, SparkStandalone(self.executors_max)).completion_ms

    def _executor_classes(self, profiles: Sequence[JobProfile]) -> tuple[ExecutorClass, ...]:
        """Return executors with cores, and one per thread of the drivers; the latter are offered first."""
        with_cores = ExecutorClass(self.executors, cpu=1.0, memory=0.0)
        drivers = [stage for profile in profiles for stage in profile.stages if stage.cpu == 0]
        threads = sum(stage.num_tasks for stage in drivers)
        return (ExecutorClass(threads, cpu=0.0, memory=1.0), with_cores) if threads else (with_cores,)


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _registration_ms(runs: Iterable[Run]) -> float:
    """Return the shortest time of registration; longer ones include waiting for free executors."""
    return min(_known(run.registration_ms for run in runs), default=0.0)


def _profile(source: Source, effects: Effects, planning_ms: Sequence[float] | None = None) -> JobProfile:
    """Build the profile of a query from runs, with their driver's planning time unless it is given."""
    measured, other = 1, 1 if not effects.parallelism else 2
    runs = matched(
        [
            *(_on_level(run.query, measured) for run in source.same),
            # These runs show which barriers between Spark jobs are accidental.
            *(_on_level(run.query, other) for run in source.others),
        ]
    )
    profile = _at_level(to_profile(runs), measured)
    if not effects.waves:
        profile = _with_durations(profile, lambda durations: TaskDurations.sampled(durations.values))
    return with_driver(profile, runs.runs[: len(source.same)], planning_ms, driver=effects.driver)


def _on_level(query: SparkQuery, level: int) -> SparkQuery:
    """Return the query as if all tasks had been measured with this number of executors."""
    return replace(query, tasks=query.tasks.assign(level=level))


def _at_level(profile: JobProfile, level: int) -> JobProfile:
    """Keep only the durations of one parallelism level, in stages that have any."""

    def only_those(durations: TaskDurations) -> TaskDurations:
        if level not in durations.levels:
            return durations
        tables = (durations.table(wave)[level].tolist() for wave in Wave)
        return TaskDurations.from_tables(*({level: values} if values else {} for values in tables))

    return _with_durations(profile, only_those)


def _with_durations(profile: JobProfile, change: Callable[[TaskDurations], TaskDurations]) -> JobProfile:
    stages = tuple(replace(stage, durations=change(stage.durations)) for stage in profile.stages)
    return replace(profile, stages=stages)


def _warmup_ms(runs: Iterable[Run]) -> float:
    """Return the mean extra time of an executor's first task over its first tasks of later stages, ms."""
    tasks = pd.concat([run.query.tasks for run in runs])
    mean = tasks.groupby("wave")["duration_ms"].mean()
    if Wave.FRESH not in mean or Wave.FIRST not in mean:
        return 0.0
    return max(float(mean[Wave.FRESH] - mean[Wave.FIRST]), 0.0)
