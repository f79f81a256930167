"""Job profiles from measured runs of a query: as measured, at other parallelism levels, or for other input sizes.

The model (`workloads.spark.model`) describes how the tasks of a stage change, relative to the measured ones:

* **Rate.** Each stage has its own time per byte. A stage that reads too little to determine it is a typical stage.
* **Level.** The factor of a stage at a level is the ratio of measured to modelled duration. It is interpolated between
  measured levels, and constant beyond them. So measured durations are reproduced.
* **Waves.** The surplus of the first task of a stage is the stage's own if measured, else the model's; so is the
  surplus of the first task in a new JVM.
* **Spread.** Tasks of a stage have the same distribution around their mean as the measured tasks.
* **Bytes.** A stage reads ``size ** growth`` times as much of a larger input. Growth is between 0 and 1, and fitted if
  the runs have several sizes; else it is 1, except for scans that read almost nothing (tables that do not grow, such
  as a list of countries).
* **Tasks.** A scan has as many tasks as its table has splits. A stage that reads shuffles has ``shuffle_partitions``,
  unless its measured number of tasks differed from the setting of the run, as in a result stage; then it is kept.

Not modelled: memory (spilling, garbage collection of large heaps), plans that change with the size, more skew than in
the measured run, a shared network or shared disks.

**The driver's time.** Between the stages of a query the driver plans, broadcasts and submits jobs, while the cluster
waits. A profile of the tasks alone lacks this time. `replay_profile` and `with_driver` add it as stages. Tasks of the
driver demand no core, and tasks of executors no memory, so that a cluster of two executor classes keeps them apart: one
class with cores, and one class without, in which each executor is a thread of a driver.

Such a profile begins with a stage of the driver, its planning before the first job. This stage has a task for each of
the `DRIVER_THREADS`, and so gives the job all of them at once. Then come the stages by Spark's numbers, the order in
which Spark serves ready stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.sources.tpch import LEVELS
from workloads.spark.model import SparkModel, stage_means
from workloads.spark.query import BYTES_PER_MB, QueryRuns, SparkQuery, stage_graph

#: A scan in one task that reads less than this, MB, does not grow with the input.
_CONSTANT_TABLE_MB = 0.064

#: Number of durations that represent the spread of a cell.
_NUM_QUANTILES = 8

#: Level at which the mean durations of a scaled profile hold: jobs that share a cluster seldom hold more executors.
_KNOWN_LEVEL = 10

#: Relative scatter of the overhead between stages that read almost nothing.
_SCATTER = 0.25

#: Resolution of the clock of Spark's logs, ms; a task may have taken 0 ms.
_SHORTEST_MS = 1.0
_SMALLEST_FACTOR = 0.01

#: Number of delays that one driver can have at the same time, such as broadcasts.
DRIVER_THREADS = 8

#: Columns of `stage_means` for one stage.
_Rows = dict[str, NDArray[Any]]
_Tables = tuple[dict[int, list[float]], dict[int, list[float]], dict[int, list[float]]]


def to_profile(runs: QueryRuns, *, name: str | None = None) -> JobProfile:
    """Pool runs of one query into a job profile: durations by wave and by the number of executors held.

    The profile has the name of the first run if none is given.

    Raises:
        WorkloadError: no task of some stage ended.
    """
    first, columns = runs.runs[0], ("stage", "wave", "level", "duration_ms")
    stage_of, waves, levels, durations = (runs.tasks[name].to_numpy() for name in columns)
    amounts = runs.amounts_read
    stages = []
    for index, stage in enumerate(first.stages):
        here = stage_of == index
        if not here.any():
            raise WorkloadError(f"{first.name}: no task of stage {stage.stage_id} ended")
        of_waves = (here & (waves == wave) for wave in Wave)
        tables = (
            {int(level): durations[rows & (levels == level)].tolist() for level in np.unique(levels[rows])}
            for rows in of_waves
        )
        durations_of = TaskDurations.from_tables(*tables)
        stages.append(
            StageProfile(
                stage.num_tasks, durations_of, stage.name, **amounts[index], operators=runs.operators[index]
            )
        )
    return JobProfile(first.name if name is None else name, tuple(stages), runs.edges)


def on_warm_executors(profile: JobProfile) -> JobProfile:
    """Return the same job on executors with a warm JVM: no task is in the fresh wave.

    If a level only has fresh durations, these become durations of the first wave.
    """
    return replace(profile, stages=tuple(map(_warm, profile.stages)))


def _warm(stage: StageProfile) -> StageProfile:
    fresh, first, rest = (stage.durations.table(wave) for wave in Wave)
    first = {
        level: durations if durations.size or rest[level].size else fresh[level]
        for level, durations in first.items()
    }
    measured = (
        {level: durations.tolist() for level, durations in table.items() if durations.size}
        for table in (first, rest)
    )
    return replace(stage, durations=TaskDurations.from_tables({}, *measured, mean_ms=stage.durations.mean_ms))


def modelled_profile(
    model: SparkModel, runs: QueryRuns, *, levels: Iterable[int] = LEVELS, name: str | None = None
) -> JobProfile:
    """Build the job profile of runs, and complete it by the model at levels that were not measured.

    Args:
        model: fitted to these runs, or to similar ones.
        runs: runs on the same input, cut into tasks in the same way.
        levels: parallelism levels that the profile has at least.
        name: name of the profile; by default the name of the first run.

    Raises:
        WorkloadError: no task of some stage ended.
    """
    measured = to_profile(runs, name=name)
    stages = []
    for profile, stage in zip(measured.stages, _stages(model, runs), strict=True):
        tables = [
            {
                level: (durations / model.contention.get(level, 1.0)).tolist()
                for level, durations in profile.durations.table(wave).items()
                if durations.size
            }
            for wave in Wave
        ]
        missing = sorted(set(levels) - set(profile.durations.levels.tolist()))
        for table, added in zip(tables, stage.tables(model, stage.load, missing), strict=True):
            table.update(added)
        stages.append(replace(profile, durations=TaskDurations.from_tables(*tables)))
    return replace(measured, stages=tuple(stages))


def scaled_profile(
    model: SparkModel,
    runs: QueryRuns,
    *,
    size_gb: float,
    split_mb: float,
    shuffle_partitions: int,
    levels: Iterable[int] = LEVELS,
    name: str | None = None,
) -> JobProfile:
    """Build the job profile of a query for another input size, cut into tasks in another way.

    The mean duration of a stage, which schedulers see, holds for 10 executors that ran other stages of the job before.

    Args:
        model: fitted to these runs, or to similar ones.
        runs: runs on one input size or several.
        size_gb: size of the input, GB.
        split_mb: largest input of a scan task, MB.
        shuffle_partitions: number of tasks of a stage that reads shuffles.
        levels: parallelism levels of the profile.
        name: name of the profile; by default the name of the first run.

    Raises:
        WorkloadError: no task of some stage ended.
    """
    levels, first = sorted(levels), runs.runs[0]
    stages = []
    measured_stages = zip(first.stages, runs.operators, _stages(model, runs), strict=True)
    for measured, operators, stage in measured_stages:
        load = stage.on(size_gb, split_mb, shuffle_partitions)
        [known_ms] = stage.rest_ms(model, load, [_KNOWN_LEVEL]).tolist()
        known_ms += stage.first_ms * min(_KNOWN_LEVEL, load.num_tasks) / load.num_tasks
        durations = TaskDurations.from_tables(*stage.tables(model, load, levels), mean_ms=round(known_ms, 1))
        stages.append(
            StageProfile(
                load.num_tasks,
                durations,
                measured.name,
                input_bytes=round(load.num_tasks * load.input_mb * BYTES_PER_MB),
                shuffle_bytes=round(load.num_tasks * load.shuffle_mb * BYTES_PER_MB),
                operators=operators,
            )
        )
    return JobProfile(first.name if name is None else name, tuple(stages), runs.edges)


@dataclass(frozen=True)
class _Load:
    num_tasks: int
    input_mb: float
    shuffle_mb: float
    reads_shuffle: bool


@dataclass(frozen=True, eq=False)
class _MeasuredStage:
    """Properties of a measured stage that differ from the model."""

    load: _Load  # load of the stage in ``run``
    run: SparkQuery  # a run on the largest input
    growth: float  # exponent of the bytes read
    rate: float  # time for a byte, relative to a typical stage
    levels: NDArray[np.float64]  # measured levels, float64 [n], ascending
    factors: NDArray[np.float64]  # ratio of measured to modelled mean duration at these levels, float64 [n]
    first_ms: float  # surplus of the first task on an executor, ms
    fresh_ms: float  # surplus of the first task in a JVM, ms
    spread: NDArray[np.float64]  # durations of later tasks over their mean, float64 [at most 8], of mean 1

    def on(self, size_gb: float, split_mb: float, partitions: int) -> _Load:
        """Return the load of the stage for another input size, cut into tasks in another way."""
        load, larger = self.load, (size_gb / self.run.size_gb) ** self.growth
        num_tasks = load.num_tasks
        if not load.reads_shuffle:
            # A task reads less than its split, as unused columns and row groups are skipped. The last split is half
            # full on average.
            several = num_tasks > 1 and math.isfinite(self.run.split_mb)
            table_mb = (num_tasks - 0.5) * self.run.split_mb if several else num_tasks * load.input_mb
            num_tasks = max(1, math.ceil(table_mb * larger / split_mb))
        elif num_tasks == self.run.shuffle_partitions:
            num_tasks = partitions
        share = larger * load.num_tasks / num_tasks
        return _Load(num_tasks, load.input_mb * share, load.shuffle_mb * share, load.reads_shuffle)

    def rest_ms(self, model: SparkModel, load: _Load, levels: Iterable[int]) -> NDArray[np.float64]:
        """Return the mean duration of later tasks at each level, float64 [num_levels], ms."""
        held = np.array(list(levels), dtype=float)
        task_ms = model.task_ms(load.input_mb, load.shuffle_mb, load.reads_shuffle, held, self.rate)
        return np.asarray(task_ms.clip(min=_SHORTEST_MS) * np.interp(held, self.levels, self.factors))

    def tables(self, model: SparkModel, load: _Load, levels: Sequence[int]) -> _Tables:
        """Return durations by level for each wave, in whole ms."""
        means = dict(zip(levels, self.rest_ms(model, load, levels).tolist(), strict=True))
        fresh = {level: [float(round(mean + self.fresh_ms))] for level, mean in means.items()}
        first = {level: [float(round(mean + self.first_ms))] for level, mean in means.items()}
        rest = {level: np.rint(mean * self.spread).tolist() for level, mean in means.items()}
        return fresh, first, rest


def _stages(model: SparkModel, runs: QueryRuns) -> list[_MeasuredStage]:
    """Estimate the properties of each stage that differ from the model."""
    slower = runs.tasks["level"].map(dict(model.contention)).fillna(1.0)
    tasks = runs.tasks.assign(duration_ms=runs.tasks["duration_ms"] / slower)
    measured, spreads = stage_means(tasks), _spreads(tasks)
    table = {str(name): column.to_numpy() for name, column in measured.items()}
    stages = []
    for index in range(len(runs.runs[0].stages)):
        here = table["stage"] == index
        if not here.any():
            raise WorkloadError(f"{runs.runs[0].name}: no task of stage {index} ended")
        rows = {name: column[here] for name, column in table.items()}
        stages.append(_stage(model, rows, runs, spreads.get(index, np.ones(1))))
    return stages


def _stage(model: SparkModel, rows: _Rows, runs: QueryRuns, spread: NDArray[np.float64]) -> _MeasuredStage:
    """Estimate the properties of one stage from its means."""
    task = rows["input_mb"], rows["shuffle_mb"], rows["reads_shuffle"], rows["level"]
    idle, typical = (model.task_ms(*task, rate).clip(min=_SHORTEST_MS) for rate in (0.0, 1.0))
    has_rest = ~np.isnan(rows["rest"])
    of_first = rows["first"] * typical / (typical + model.first_ms)
    of_fresh = rows["fresh"] * typical / (typical + model.fresh_ms)
    rest = np.where(has_rest, rows["rest"], np.where(np.isnan(of_first), of_fresh, of_first))
    sure = has_rest if has_rest.any() else ~np.isnan(rest)
    # Ridge regression: the rate is 1 if reading the bytes takes less time than the scatter between stages.
    of_bytes, scatter = typical - idle, _SCATTER * idle
    above_typical = of_bytes * (rest - typical) / (of_bytes**2 + scatter**2)
    rate = max(0.0, 1.0 + _mean(above_typical[sure], 0.0))
    factor = (rest / model.task_ms(*task, rate).clip(min=_SHORTEST_MS))[sure].clip(min=_SMALLEST_FACTOR)
    levels, level = np.unique(rows["level"][sure], return_inverse=True)
    first_ms = _mean((rows["first"] - rest).clip(min=0.0), model.first_ms)
    largest = rows["size_gb"].argmax()
    return _MeasuredStage(
        load=_Load(
            num_tasks=int(rows["num_tasks"][largest]),
            input_mb=float(rows["input_mb"][largest]),
            shuffle_mb=float(rows["shuffle_mb"][largest]),
            reads_shuffle=bool(rows["reads_shuffle"][largest]),
        ),
        run=runs.runs[rows["run"][largest]],
        growth=_growth(rows),
        rate=rate,
        levels=levels.astype(float),
        factors=np.exp(np.bincount(level, np.log(factor)) / np.bincount(level)),
        first_ms=first_ms,
        fresh_ms=max(_mean((rows["fresh"] - rest).clip(min=0.0), model.fresh_ms), first_ms),
        spread=spread,
    )


def _mean(measured: NDArray[np.float64], default: float) -> float:
    finite = measured[~np.isnan(measured)]
    return float(finite.mean()) if finite.size else default


def _growth(rows: _Rows) -> float:
    """Return the exponent by which the bytes of a stage grow with the size of the input."""
    read_mb = rows["num_tasks"] * (rows["input_mb"] + rows["shuffle_mb"])
    if not (read_mb > 0).all():
        return 0.0
    if rows["size_gb"].min() < rows["size_gb"].max():
        slope = np.polyfit(np.log(rows["size_gb"]), np.log(read_mb), 1)[0]
        return float(np.clip(slope, 0.0, 1.0))
    constant = not rows["reads_shuffle"].any() and read_mb.max() < _CONSTANT_TABLE_MB
    return 0.0 if constant else 1.0


def _spreads(tasks: pd.DataFrame) -> dict[int, NDArray[np.float64]]:
    """Return quantiles of durations relative to their mean, for each stage with later tasks."""
    rest = tasks[tasks["wave"] == Wave.REST]
    mean = rest.groupby(["run", "stage", "level"])["duration_ms"].transform("mean")
    relative = (rest["duration_ms"] / mean.clip(lower=1.0)).to_numpy()
    stage = rest["stage"].to_numpy()
    return {index: _quantiles(relative[stage == index]) for index in np.unique(stage).tolist()}


def _quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quantiles of values, scaled to mean 1."""
    count = min(_NUM_QUANTILES, len(values))
    quantiles = np.quantile(values, (np.arange(count) + 0.5) / count)
    mean = float(quantiles.mean())
    return quantiles / mean if mean > 0 else np.ones(1)


# Profiles with the driver's time


def replay_profile(run: SparkQuery, planning_ms: float | None = None) -> JobProfile:
    """Build a profile that replays one run: each task has its own duration, and tasks keep their order.

    A profile draws durations at random if there are several. So every task is a stage with one duration, and a stage of
    the driver lies between the tasks of a Spark stage and those of its parents.

    Args:
        planning_ms: planning before the first job, ms; by default the time from the run's start to its first job.
    """
    built = _Builder()
    planning = built.planning(run.submitted_ms - run.start_ms if planning_ms is None else planning_ms)
    tasks = {stage: rows["duration_ms"].tolist() for stage, rows in run.tasks.groupby("stage")}
    stages_of: dict[int, list[int]] = {}
    for index in _submission_order(run, run.edges):
        parents = run.edges[run.edges[:, 1] == index, 0].tolist()
        before = [stage for parent in parents for stage in stages_of[parent]]
        opened = built.driver_stage([run.submission_lag_ms[index]], before or [planning])
        stages = (StageProfile(1, TaskDurations.constant(ms), run.stages[index].name) for ms in tasks[index])
        stages_of[index] = [built.stage(stage, [opened]) for stage in stages]
    return built.profile(run.name)


def with_driver(
    profile: JobProfile,
    runs: Sequence[SparkQuery],
    planning_ms: ArrayLike | None = None,
    *,
    driver: bool = True,
) -> JobProfile:
    """Add the driver's delays to a profile, drawn from the delays of the runs.

    Args:
        profile: made from the runs by `workloads.spark.profiles.to_profile`.
        runs: at least one run, with matched stages.
        planning_ms: planning before the first job, float [n], ms, of which one is drawn; by default the times from the
            runs' starts to their first jobs.
        driver: whether to add the delays; else only demands and order of the stages change.
    """
    built = _Builder()
    planned_ms = [run.submitted_ms - run.start_ms for run in runs] if planning_ms is None else planning_ms
    first = [built.planning(planned_ms)] if driver else []
    lags = np.array([run.submission_lag_ms for run in runs]) * driver
    stage_of: dict[int, int] = {}
    for index in _submission_order(runs[0], profile.edges):
        parents = [stage_of[parent] for parent in profile.parents[index]] or first
        if lags[:, index].any():
            parents = [built.driver_stage(lags[:, index], parents)]
        stage_of[index] = built.stage(profile.stages[index], parents)
    return built.profile(profile.name)


class _Builder:
    """Collects stages of a profile; parents must be added before their children."""

    def __init__(self) -> None:
        self._stages: list[StageProfile] = []
        self._edges: list[tuple[int, int]] = []

    def stage(self, stage: StageProfile, parents: Iterable[int]) -> int:
        """Add a stage of executors; return its number."""
        return self._add(replace(stage, cpu=1.0, memory=0.0), parents)

    def driver_stage(self, delay_ms: ArrayLike, parents: Iterable[int], num_tasks: int = 1) -> int:
        durations = TaskDurations.sampled(delay_ms)
        return self._add(StageProfile(num_tasks, durations, "driver", cpu=0.0, memory=1.0), parents)

    def planning(self, delay_ms: ArrayLike) -> int:
        return self.driver_stage(delay_ms, (), DRIVER_THREADS)

    def _add(self, stage: StageProfile, parents: Iterable[int]) -> int:
        self._stages.append(stage)
        self._edges.extend((parent, len(self._stages) - 1) for parent in parents)
        return len(self._stages) - 1

    def profile(self, name: str) -> JobProfile:
        return JobProfile(name, tuple(self._stages), np.array(self._edges, dtype=np.int64).reshape(-1, 2))


def _submission_order(run: SparkQuery, edges: NDArray[np.int64]) -> list[int]:
    """Return the indices of stages by Spark's numbers, parents first."""
    graph = stage_graph(run, edges)
    return list(nx.lexicographical_topological_sort(graph, key=lambda index: run.stages[index].stage_id))
