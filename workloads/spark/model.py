"""Model of the duration of a Spark task, and the fit of its parameters to measured runs.

For a task of a stage's later waves, with bytes in MB and ``n`` executors held by the job::

    scan stage:     scan_overhead_ms + rate * scan_ms_per_mb * input
    shuffle stage:  shuffle_overhead_ms + rate * shuffle_ms_per_mb * shuffle read
                    + connection_ms * (n - 1) + remote_ms_per_mb * (1 - 1/n) * shuffle read

``rate`` is 1 for a typical stage; other stages compute more or less for a byte. The part that grows with ``n`` is the
*work inflation* of Decima (SIGCOMM 2019), section 6.2: a task opens a connection to every executor that holds a part of
its input, and reads the fraction 1 - 1/n of its bytes from other executors. Scans do not inflate: they are independent
of the number of other readers.

The first task of a stage on an executor takes ``first_ms`` longer, as the JVM has yet to load and compile its code, and
the first task in a new JVM takes ``fresh_ms`` longer. Both surpluses are independent of the bytes.

**Shared machines.** Executors that together have more threads than their machine has cores slow each other down. On a
cluster this would not happen, so it is not work inflation. Scans show it, as they do not inflate. The slowdown of scans
at a level, the model's ``contention``, is removed from all stages.

**The fit.** Every parameter is the median over stages, or a fit by absolute errors, so that a few unusual stages do not
matter. An overhead is the intercept at no bytes of the line through the tasks of one stage, duration over bytes. Rates
are the remaining time per byte. Inflation is the difference between tasks of one stage at different numbers of
executors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workloads.job import Wave, WorkloadError
from workloads.spark.query import QueryRuns

__all__ = ["Parameter", "SparkModel", "fit", "stage_means"]

#: Minimum number of later tasks of a stage that is used in the fit.
_ENOUGH_TASKS = 3

#: Minimum number of tasks for a line through the tasks of a stage, and minimum coefficient of variation of their bytes.
_TASKS_OF_A_LINE = 8
_SPREAD_OF_A_LINE = 0.1

#: Minimum input of a task from which a rate is fitted, MB; below it, the overhead dominates.
_MUCH_MB = 0.1

#: Number of iterations of reweighted least squares.
_ITERATIONS = 100
#: Relative errors below this have equal weights.
_SMALL_ERROR = 0.02


class Parameter(NamedTuple):
    """Parameter of a model: name, value, unit and meaning."""

    name: str
    value: float
    unit: str
    meaning: str


def _parameter(default: float, unit: str, meaning: str) -> Any:
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True)
class SparkModel:
    """Model of task durations; the default parameters were fitted to the recordings of the embedded TPC-H set.

    Raises:
        WorkloadError: a parameter is negative or not finite.
    """

    scan_overhead_ms: float = _parameter(30.0, "ms", "a scan task that reads no bytes")
    scan_ms_per_mb: float = _parameter(12.0, "ms/MB", "time of a scan task for its input")
    shuffle_overhead_ms: float = _parameter(22.0, "ms", "a task that reads an empty shuffle")
    shuffle_ms_per_mb: float = _parameter(29.0, "ms/MB", "time of a task for the shuffle that it reads")
    remote_ms_per_mb: float = _parameter(2.0, "ms/MB", "additional time for shuffle files of other executors")
    connection_ms: float = _parameter(1.4, "ms", "additional time per further executor, for shuffle reads")
    first_ms: float = _parameter(110.0, "ms", "additional time of the first task of a stage on an executor")
    fresh_ms: float = _parameter(1300.0, "ms", "additional time of the first task in a new JVM")
    contention: Mapping[int, float] = field(default_factory=dict)
    """Slowdown of a shared machine by level; 1 for missing levels."""

    def __post_init__(self) -> None:
        for parameter in self.parameters():
            if not np.isfinite(parameter.value) or parameter.value < 0:
                raise WorkloadError(
                    f"{parameter.name} must be finite and not negative, got {parameter.value}"
                )
        object.__setattr__(self, "contention", MappingProxyType(dict(self.contention)))

    def parameters(self) -> Iterator[Parameter]:
        """Yield the parameters with their units and meanings."""
        for entry in fields(self):
            if "unit" in entry.metadata:
                yield Parameter(
                    entry.name, getattr(self, entry.name), entry.metadata["unit"], entry.metadata["meaning"]
                )

    def having(self, values: Mapping[str, Any]) -> SparkModel:
        """Return a copy of the model with changed parameters.

        Raises:
            WorkloadError: a parameter is unknown, or a value is negative or not finite.
        """
        names = [parameter.name for parameter in self.parameters()]
        for name in values:
            if name not in names:
                raise WorkloadError(f"no parameter {name!r} of the model, expected {', '.join(names)}")
        return replace(self, **values)

    def rounded(self) -> SparkModel:
        """Return the model with parameters rounded to three significant digits."""
        contention = {level: float(f"{factor:.3g}") for level, factor in self.contention.items()}
        values = {parameter.name: float(f"{parameter.value:.3g}") for parameter in self.parameters()}
        return SparkModel(**values, contention=contention)

    def to_json(self) -> dict[str, Any]:
        """Return the rounded parameters by name, and the contention by level, as JSON."""
        rounded = self.rounded()
        values: dict[str, Any] = {parameter.name: parameter.value for parameter in rounded.parameters()}
        return values | {"contention": {str(level): factor for level, factor in rounded.contention.items()}}

    def task_ms(
        self,
        input_mb: ArrayLike,
        shuffle_mb: ArrayLike,
        reads_shuffle: ArrayLike,
        executors: ArrayLike,
        rate: ArrayLike = 1.0,
    ) -> NDArray[np.float64]:
        """Return the mean duration of a task in a stage's later waves, ms; the arguments are broadcast.

        Args:
            input_mb: MB that the task reads from storage.
            shuffle_mb: MB that the task reads from shuffles.
            reads_shuffle: whether its stage reads shuffles, bool.
            executors: number of executors that the job holds, at least 1.
            rate: time for a byte, relative to a typical stage.
        """
        overhead = np.where(reads_shuffle, self.shuffle_overhead_ms, self.scan_overhead_ms)
        inflation = self.inflation_ms(shuffle_mb, reads_shuffle, executors)
        return np.asarray(overhead + inflation + np.asarray(rate) * self.bytes_ms(input_mb, shuffle_mb))

    def bytes_ms(self, input_mb: ArrayLike, shuffle_mb: ArrayLike) -> NDArray[np.float64]:
        """Return the time for the bytes of a task in a typical stage, ms; for the arguments see `task_ms`."""
        return self.scan_ms_per_mb * np.asarray(input_mb) + self.shuffle_ms_per_mb * np.asarray(shuffle_mb)

    def inflation_ms(
        self, shuffle_mb: ArrayLike, reads_shuffle: ArrayLike, executors: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the additional time of a task with several executors, ms; for the arguments see `task_ms`."""
        held = np.asarray(executors, dtype=float)
        remote = self.remote_ms_per_mb * np.asarray(shuffle_mb) * (1 - 1 / held)
        return np.asarray(remote + np.where(reads_shuffle, self.connection_ms * (held - 1), 0.0))


def fit(queries: Sequence[QueryRuns], *, shared_machine: bool = False) -> SparkModel:
    """Fit a model to measured runs; see the description of the module.

    Parameters that the runs do not determine keep their defaults, such as inflation if all jobs held the same number of
    executors.

    Args:
        shared_machine: whether the executors shared the cores of a machine; see the description of the module.

    Raises:
        WorkloadError: there are no queries.
    """
    if not queries:
        raise WorkloadError("a model needs at least one run of a query")
    tables = [runs.tasks.assign(query=index) for index, runs in enumerate(queries)]
    tasks = pd.concat(tables, ignore_index=True)
    stages = stage_means(tasks, ("query",))
    stages = stages[stages["num_rest"] >= _ENOUGH_TASKS].copy()
    contention = _contention(stages) if shared_machine else {}
    for table, columns in ((tasks, ["duration_ms"]), (stages, ["fresh", "first", "rest"])):
        table[columns] = table[columns].div(table["level"].map(contention).fillna(1.0), axis=0)
    model = SparkModel(contention=contention)
    for step in (_fit_inflation, _fit_overheads, _fit_rates, _fit_surpluses):
        fitted = step(model, tasks, stages)
        model = model.having({name: value for name, value in fitted.items() if math.isfinite(value)})
    return model


def stage_means(tasks: pd.DataFrame, by: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return means over the tasks of each stage.

    Args:
        tasks: table as in `QueryRuns.tasks`.
        by: columns that distinguish queries, if there are several.

    Returns:
        Table with a row per query, run, stage and level, with ``size_gb``, ``num_tasks``, ``reads_shuffle``, and:

        ====================== ======== ============================================================
        fresh, first, rest     float64  mean duration of the wave's tasks, ms; NaN without such tasks
        num_rest               int64    number of tasks in the rest wave
        input_mb, shuffle_mb   float64  MB read by a task of the stage in the run, over all levels
        ====================== ======== ============================================================
    """
    keys = [*by, "run", "stage", "level"]
    waves = {int(wave): wave.name.lower() for wave in Wave}
    table = tasks.pivot_table(index=keys, columns="wave", values="duration_ms")
    table = table.reindex(columns=list(waves)).rename(columns=waves)
    table["num_rest"] = (tasks["wave"] == Wave.REST).groupby([tasks[key] for key in keys]).sum()
    stages = tasks.groupby(keys[:-1])
    same = stages[["size_gb", "num_tasks", "reads_shuffle"]].first()
    return table.join(same.join(stages[["input_mb", "shuffle_mb"]].mean())).reset_index()


def _contention(stages: pd.DataFrame) -> dict[int, float]:
    """Return the median slowdown of scan stages at each level, relative to the lowest level."""
    scans = stages[~stages["reads_shuffle"]].assign(log=np.log(stages["rest"].clip(lower=1.0)))
    by_level = scans.pivot_table(index=["query", "size_gb", "stage"], columns="level", values="log")
    lowest = stages["level"].min()
    if lowest not in by_level:
        return {}
    ratios = np.exp(by_level.sub(by_level[lowest], axis=0).median())
    return {int(level): float(ratio) for level, ratio in ratios.items() if np.isfinite(ratio)}


def _fit_inflation(model: SparkModel, tasks: pd.DataFrame, stages: pd.DataFrame) -> dict[str, float]:
    """Fit the inflation to differences between a stage's durations at a level and at its lowest measured level."""
    shuffles = stages[stages["reads_shuffle"]]
    stage = ["query", "size_gb", "stage"]
    cells = shuffles.groupby([*stage, "level"], as_index=False)[["rest", "shuffle_mb"]].mean()
    lowest = cells.groupby(stage)[["level", "rest"]].transform("first")
    pairs = cells["level"] > lowest["level"]
    held, low, read_mb = (
        column[pairs].to_numpy(dtype=float)
        for column in (cells["level"], lowest["level"], cells["shuffle_mb"])
    )
    terms = {"connection_ms": held - low, "remote_ms_per_mb": read_mb * (1 / low - 1 / held)}
    scale = lowest["rest"][pairs].clip(lower=1.0).to_numpy()
    return _fit_terms(terms, (cells["rest"] - lowest["rest"])[pairs].to_numpy(), scale)


def _fit_terms(
    terms: dict[str, NDArray[np.float64]], measured: NDArray[np.float64], scale: NDArray[np.float64]
) -> dict[str, float]:
    """Fit non-negative coefficients so that a sum of terms approximates measurements; {} if these are too few.

    Minimises the sum of absolute errors relative to ``scale``, by iteratively reweighted least squares.

    Args:
        terms: values of each coefficient's term, float64 [n].
        measured: measurements, float64 [n].
        scale: scale of each error, float64 [n], positive.
    """
    if not terms or len(measured) < 2 * len(terms):
        return {}
    columns, names = np.column_stack(list(terms.values())), list(terms)
    coefficients = np.zeros(len(names))
    for _ in range(_ITERATIONS):
        error = np.abs(measured - columns @ coefficients) / scale
        weights = 1 / (scale * np.sqrt(error.clip(min=_SMALL_ERROR)))
        coefficients, *_ = np.linalg.lstsq(columns * weights[:, None], measured * weights, rcond=None)
    if (coefficients < 0).any():
        wrong = names[int(np.argmin(coefficients * columns.mean(axis=0)))]
        right = {name: term for name, term in terms.items() if name != wrong}
        return {wrong: 0.0} | _fit_terms(right, measured, scale)
    return dict(zip(names, coefficients.tolist(), strict=True))


def _fit_overheads(model: SparkModel, tasks: pd.DataFrame, stages: pd.DataFrame) -> dict[str, float]:
    """Return the median intercept of lines through the tasks of a stage, duration over bytes."""
    rest = tasks[tasks["wave"] == Wave.REST]
    inflation = model.inflation_ms(rest["shuffle_mb"], rest["reads_shuffle"], rest["level"])
    rest = rest.assign(
        read_mb=rest["input_mb"] + rest["shuffle_mb"], alone_ms=rest["duration_ms"] - inflation
    )
    intercepts: dict[bool, list[float]] = {False: [], True: []}
    for _, rows in rest.groupby(["query", "stage", "level"]):
        read_mb, alone_ms = rows["read_mb"].to_numpy(), rows["alone_ms"].to_numpy()
        if len(rows) >= _TASKS_OF_A_LINE and read_mb.std() > _SPREAD_OF_A_LINE * read_mb.mean():
            offset = read_mb - read_mb.mean()
            slope = float(offset @ alone_ms / (offset @ offset))
            intercept = float(alone_ms.mean()) - slope * float(read_mb.mean())
            intercepts[bool(rows["reads_shuffle"].iloc[0])].append(max(intercept, 0.0))
    names = {"scan_overhead_ms": intercepts[False], "shuffle_overhead_ms": intercepts[True]}
    return {name: float(np.median(intercepts)) for name, intercepts in names.items() if intercepts}


def _fit_rates(model: SparkModel, tasks: pd.DataFrame, stages: pd.DataFrame) -> dict[str, float]:
    """Return the median time per MB of stages, without the overhead."""
    rates = {}
    for name, reads, other in (
        ("scan_ms_per_mb", "input_mb", "shuffle_mb"),
        ("shuffle_ms_per_mb", "shuffle_mb", "input_mb"),
    ):
        rows = stages[(stages[reads] > _MUCH_MB) & (stages[other] == 0)]
        per_byte = rows["rest"] - model.task_ms(0.0, 0.0, rows["reads_shuffle"], rows["level"])
        per_byte -= model.remote_ms_per_mb * rows["shuffle_mb"] * (1 - 1 / rows["level"])
        rates[name] = float((per_byte / rows[reads]).clip(lower=0.0).median())
    return rates


def _fit_surpluses(model: SparkModel, tasks: pd.DataFrame, stages: pd.DataFrame) -> dict[str, float]:
    """Return the median, over stages, of the difference between first and later tasks."""
    return {
        f"{wave}_ms": float((stages[wave] - stages["rest"]).clip(lower=0.0).median())
        for wave in ("first", "fresh")
    }
