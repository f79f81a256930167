"""From measured runs of a query to its job profile at other parallelism levels and on other sizes of input.

The model (`workloads.spark.model`) tells how the tasks of a stage change; where they start from is measured:

* **Rate.** What a byte takes in a stage is its own. A stage that reads too little to tell is a typical one.
* **Level.** The measured duration divided by the model's is the stage's factor at that level. Between
  measured levels it is interpolated, beyond them it stays what it is at the nearest. So what was measured
  comes out as measured.
* **Waves.** The surplus of the first task of a stage is the stage's own, where it was measured, else the
  model's; that of a new JVM likewise.
* **Spread.** Tasks of a stage scatter around their mean as its measured ones do.
* **Bytes.** A stage reads ``size ** growth`` times as much of a larger input. Growth is between 0 and 1 and
  comes from the samples, if they are of several sizes; else it is 1, except for scans that read almost
  nothing (tables that do not grow, such as a list of countries).
* **Tasks.** A scan has as many as its table has splits. A stage that reads shuffles has
  ``shuffle_partitions``, unless its measured number of tasks was another than that of the run's setting, as
  in a result stage; then that stays.

What is not modelled: memory (spilling, garbage collection of large heaps), plans that change with the size,
skew beyond that of the sample, a network or disks that are shared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.sources.tpch_published import LEVELS
from workloads.spark.measurements import Sample, matched_tasks, stage_measurements
from workloads.spark.model import SparkModel
from workloads.spark.profile import common_edges, match_stages, to_profile

__all__ = ["modelled_profile", "scaled_profile"]

#: A scan in one task that reads less does not grow with the input, MB.
_CONSTANT_TABLE_MB = 0.064

#: Durations that stand for the spread of a cell.
_NUM_QUANTILES = 8

#: The level at which a scaled profile's mean durations hold: jobs that share a cluster seldom hold many more.
_KNOWN_LEVEL = 10

#: Stages that read next to nothing differ by about this share of the overhead.
_SCATTER = 0.25

#: The clock of Spark's logs has steps of 1 ms, so a task may have taken none.
_SHORTEST_MS = 1.0
_SMALLEST_FACTOR = 0.01

#: Columns of ``stage_measurements``, for one stage.
_Rows = dict[str, NDArray[Any]]
_Tables = tuple[dict[int, list[float]], dict[int, list[float]], dict[int, list[float]]]


def modelled_profile(
    model: SparkModel, samples: Sequence[Sample], *, levels: Iterable[int] = LEVELS, name: str | None = None
) -> JobProfile:
    """A job profile as measured, completed by the model at those ``levels`` that were not measured.

    The mean duration of a stage, which is what schedulers may know, is that of its measured tasks.

    Args:
        model: fitted to these samples, or to others like them.
        samples: of one query, all on the same input and cut alike.
        levels: parallelism levels that the profile shall have at least.
        name: name of the profile; that of the first run if omitted.

    Raises:
        WorkloadError: no samples, or samples whose stages do not match.
    """
    measured = to_profile([sample.run for sample in samples], name=name)
    stages = []
    for profile, stage in zip(measured.stages, _stages(model, samples), strict=True):
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
        durations = TaskDurations.from_tables(*tables)
        stages.append(StageProfile(profile.num_tasks, durations, profile.name))
    return JobProfile(measured.name, tuple(stages), measured.edges)


def scaled_profile(
    model: SparkModel,
    samples: Sequence[Sample],
    *,
    size_gb: float,
    split_mb: float,
    shuffle_partitions: int,
    levels: Iterable[int] = LEVELS,
    name: str | None = None,
) -> JobProfile:
    """The job profile of a query on another size of input, cut into tasks in another way.

    The mean duration of a stage, which is what schedulers may know, is that of its tasks on 10 executors that
    have run other stages of the job before.

    Args:
        model: fitted to these samples, or to others like them.
        samples: of one query, on one size of input or several.
        size_gb: size of the input, in the unit of the samples'.
        split_mb: most that a task of a scan reads, MB.
        shuffle_partitions: tasks of a stage that reads shuffles.
        levels: parallelism levels of the profile.
        name: name of the profile; that of the first run if omitted.

    Raises:
        WorkloadError: no samples, or samples whose stages do not match.
    """
    levels, runs = sorted(levels), [sample.run for sample in samples]
    stages = []
    for number, stage in enumerate(_stages(model, samples)):
        load = stage.on(size_gb, split_mb, shuffle_partitions)
        [known_ms] = stage.rest_ms(model, load, [_KNOWN_LEVEL]).tolist()
        known_ms += stage.first_ms * min(_KNOWN_LEVEL, load.num_tasks) / load.num_tasks
        durations = TaskDurations.from_tables(*stage.tables(model, load, levels), mean_ms=round(known_ms, 1))
        stages.append(StageProfile(load.num_tasks, durations, runs[0].stages[number].name))
    edges = common_edges(runs, [match_stages(runs[0], run, same_tasks=False) for run in runs])
    return JobProfile(runs[0].name if name is None else name, tuple(stages), edges)


@dataclass(frozen=True)
class _Load:
    """What a stage has to do: tasks, and what each reads, MB."""

    num_tasks: int
    input_mb: float
    shuffle_mb: float
    reads_shuffle: bool


@dataclass(frozen=True, eq=False)
class _Stage:
    """A measured stage, as far as it differs from the model.

    Args:
        load: in a sample on the largest input.
        size_gb: of that input.
        split_mb: largest split of a scan there, NaN if not known.
        partitions: tasks of a stage that reads shuffles there, 0 if not known.
        growth: exponent of the bytes read.
        rate: how much more a byte takes than in a typical stage.
        levels: measured ones, float64 [n], ascending.
        factors: measured mean duration over the model's at these levels, float64 [n].
        first_ms: surplus of the first task on an executor.
        fresh_ms: surplus of the first task in a JVM.
        spread: durations of later tasks over their mean, float64 [at most 8], of mean 1.
    """

    load: _Load
    size_gb: float
    split_mb: float
    partitions: int
    growth: float
    rate: float
    levels: NDArray[np.float64]
    factors: NDArray[np.float64]
    first_ms: float
    fresh_ms: float
    spread: NDArray[np.float64]

    def on(self, size_gb: float, split_mb: float, partitions: int) -> _Load:
        """What the stage has to do on another size of input, cut otherwise."""
        load, larger = self.load, (size_gb / self.size_gb) ** self.growth
        num_tasks = load.num_tasks
        if not load.reads_shuffle:
            # What a task reads is less than its split: unused columns and row groups are skipped.
            # The last split is half full on average.
            several = num_tasks > 1 and math.isfinite(self.split_mb)
            table_mb = (num_tasks - 0.5) * self.split_mb if several else num_tasks * load.input_mb
            num_tasks = max(1, math.ceil(table_mb * larger / split_mb))
        elif num_tasks == self.partitions:
            num_tasks = partitions
        share = larger * load.num_tasks / num_tasks
        return _Load(num_tasks, load.input_mb * share, load.shuffle_mb * share, load.reads_shuffle)

    def rest_ms(self, model: SparkModel, load: _Load, levels: Iterable[int]) -> NDArray[np.float64]:
        """Mean duration of later tasks at each level, float64 [num_levels], ms."""
        held = np.array(list(levels), dtype=float)
        task_ms = model.task_ms(load.input_mb, load.shuffle_mb, load.reads_shuffle, held, self.rate)
        return np.asarray(task_ms.clip(min=_SHORTEST_MS) * np.interp(held, self.levels, self.factors))

    def tables(self, model: SparkModel, load: _Load, levels: Sequence[int]) -> _Tables:
        """Durations by level for each wave, whole ms."""
        means = dict(zip(levels, self.rest_ms(model, load, levels).tolist(), strict=True))
        fresh = {level: [float(round(mean + self.fresh_ms))] for level, mean in means.items()}
        first = {level: [float(round(mean + self.first_ms))] for level, mean in means.items()}
        rest = {level: np.rint(mean * self.spread).tolist() for level, mean in means.items()}
        return fresh, first, rest


def _stages(model: SparkModel, samples: Sequence[Sample]) -> list[_Stage]:
    """What the samples tell of each stage."""
    tasks = matched_tasks(samples)
    tasks["duration_ms"] /= tasks["level"].map(dict(model.contention)).fillna(1.0)
    measured, spreads = stage_measurements(tasks), _spreads(tasks)
    table = {str(name): column.to_numpy() for name, column in measured.items()}
    found = []
    for place in range(len(samples[0].run.stages)):
        here = table["stage"] == place
        if not here.any():
            raise WorkloadError(f"{samples[0].run.name}: no task of stage {place} ended")
        rows = {name: column[here] for name, column in table.items()}
        found.append(_stage(model, rows, samples, spreads.get(place, np.ones(1))))
    return found


def _stage(model: SparkModel, rows: _Rows, samples: Sequence[Sample], spread: NDArray[np.float64]) -> _Stage:
    """One stage, from its measurements."""
    task = rows["input_mb"], rows["shuffle_mb"], rows["reads_shuffle"], rows["level"]
    idle, typical = (model.task_ms(*task, rate).clip(min=_SHORTEST_MS) for rate in (0.0, 1.0))
    known = ~np.isnan(rows["rest"])
    of_first = rows["first"] * typical / (typical + model.first_ms)
    of_fresh = rows["fresh"] * typical / (typical + model.fresh_ms)
    rest = np.where(known, rows["rest"], np.where(np.isnan(of_first), of_fresh, of_first))
    sure = known if known.any() else ~np.isnan(rest)
    # A ridge: the rate is 1 where the bytes take no longer than stages differ anyway.
    of_bytes, scatter = typical - idle, _SCATTER * idle
    above_typical = of_bytes * (rest - typical) / (of_bytes**2 + scatter**2)
    rate = max(0.0, 1.0 + _mean(above_typical[sure], 0.0))
    factor = (rest / model.task_ms(*task, rate).clip(min=_SHORTEST_MS))[sure].clip(min=_SMALLEST_FACTOR)
    levels, level = np.unique(rows["level"][sure], return_inverse=True)
    first_ms = _mean((rows["first"] - rest).clip(min=0.0), model.first_ms)
    largest = rows["size_gb"].argmax()
    sample = samples[rows["sample"][largest]]
    return _Stage(
        load=_Load(
            num_tasks=int(rows["num_tasks"][largest]),
            input_mb=float(rows["input_mb"][largest]),
            shuffle_mb=float(rows["shuffle_mb"][largest]),
            reads_shuffle=bool(rows["reads_shuffle"][largest]),
        ),
        size_gb=sample.size_gb,
        split_mb=sample.split_mb,
        partitions=sample.shuffle_partitions,
        growth=_growth(rows),
        rate=rate,
        levels=levels.astype(float),
        factors=np.exp(np.bincount(level, np.log(factor)) / np.bincount(level)),
        first_ms=first_ms,
        fresh_ms=max(_mean((rows["fresh"] - rest).clip(min=0.0), model.fresh_ms), first_ms),
        spread=spread,
    )


def _mean(measured: NDArray[np.float64], default: float) -> float:
    known = measured[~np.isnan(measured)]
    return float(known.mean()) if known.size else default


def _growth(rows: _Rows) -> float:
    """The exponent with which a stage's bytes grow with the size of the input."""
    read_mb = rows["num_tasks"] * (rows["input_mb"] + rows["shuffle_mb"])
    if not (read_mb > 0).all():
        return 0.0
    if rows["size_gb"].min() < rows["size_gb"].max():
        slope = np.polyfit(np.log(rows["size_gb"]), np.log(read_mb), 1)[0]
        return float(np.clip(slope, 0.0, 1.0))
    constant = not rows["reads_shuffle"].any() and read_mb.max() < _CONSTANT_TABLE_MB
    return 0.0 if constant else 1.0


def _spreads(tasks: pd.DataFrame) -> dict[int, NDArray[np.float64]]:
    """Of each stage with later tasks the quantiles of their durations over the mean."""
    rest = tasks[tasks["wave"] == Wave.REST]
    mean = rest.groupby(["sample", "stage", "level"])["duration_ms"].transform("mean")
    relative = (rest["duration_ms"] / mean.clip(lower=1.0)).to_numpy()
    stage = rest["stage"].to_numpy()
    return {place: _quantiles(relative[stage == place]) for place in np.unique(stage).tolist()}


def _quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A few values of mean 1 that are spread as these are."""
    count = min(_NUM_QUANTILES, len(values))
    quantiles = np.quantile(values, (np.arange(count) + 0.5) / count)
    mean = float(quantiles.mean())
    return quantiles / mean if mean > 0 else np.ones(1)
