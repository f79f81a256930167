"""Compiled: input features of the network, of a stage, of its job and of the cluster.

A feature is a function in this module. Its name, docstring, unit and default scale are those of the feature. Its
arguments determine its level: whether it is the same for all stages of a job, or of the cluster. To add a feature,
write a function. ``docs/reference/features.md`` has the table of all features.

The functions take these arguments:

- ``offer``: ``Offer``, the offered executors and constants of the cluster.
- ``jobs``, ``classes``: all job rows and executor class rows of the observation.
- ``offered_class``: row of the class of the offered executors.
- ``job``, ``stage``: row of the job, row of the stage.
- ``work``: ``graphs.WORK`` record of the job, sums over its stages.
- ``job_index``, ``stage_index``: index of the job, index of the stage in the observation.
- ``useful``: float64 [J, 2], useful parallelism of each job alone, at each of ``scheduler.COST_EXPONENTS``.
- ``typical_ms``: float64, geometric mean of the remaining work of the live jobs, at least 1 ms.
- ``path_ms``: float64, longest path of the job's unfinished stages, in mean task durations.
- ``height_ms``: float64 [S], mean task durations on the longest path from each stage to the end of its job.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.layers import copy_row
from simulator.compiled import inner, record

if TYPE_CHECKING:
    from decima.policy.config import Feature

__all__ = ["CUSTOM", "FEATURES", "Columns", "FeatureEntry", "Offer", "covers", "describe", "make_columns"]


class Offer(NamedTuple):
    """The offered executors, and constants of the cluster and of the guard."""

    offered: int
    executor_class: int
    source: int
    num_executors: int
    configured: int
    """Number of executors in the configuration; ``num_executors`` changes as executors join or leave."""
    can_wait: bool
    """Whether leaving the executors idle is a choice, unless the guard masks it."""
    can_guard: bool
    """Whether the guard may mask choices."""
    guard_wait_ms: float
    """Guard threshold: longest wait for a stage that is not ready, ms."""
    guard_work_ms: float
    """Guard threshold: work per executor that makes a move worthwhile, ms; 0 without moving delay."""
    moving_delay_ms: float
    time_ms: float
    lasting_ms: float
    """Work per executor in the feature ``lasting_executors``, ms."""


#: Shortest time in ratios, ms, and largest absolute logarithm of a ratio.
SHORTEST_MS, LARGEST_LOG = 1e-3, 12.0
#: Level of a feature -> arguments that determine this level.
_ARGUMENTS = {
    "cluster": ("offer", "jobs", "classes", "offered_class", "typical_ms"),
    "job": ("job", "job_index", "work", "useful", "path_ms"),
    "stage": ("stage", "stage_index", "height_ms"),
}


class FeatureEntry(NamedTuple):
    """A built-in feature.

    Attributes:
        name: name in presets and policy files.
        meaning: description in one or two sentences.
        unit: unit before scaling.
        scale: default divisor, see ``Feature.scale``.
        log: whether the feature is compressed by default, see ``Feature.log``.
        signed: whether the feature can be negative; then it has no logarithm.
        level: ``stage``, ``job`` or ``cluster``.
        arguments: names of the function's arguments.
        function: name of the function.
    """

    name: str
    meaning: str
    unit: str
    scale: float
    log: bool
    signed: bool
    level: str
    arguments: tuple[str, ...]
    function: str


#: Built-in features by name; the order gives their numbers in compiled code.
FEATURES: dict[str, FeatureEntry] = {}


def feature(
    unit: str, scale: float = 1.0, *, log: bool = False, signed: bool = False, name: str = ""
) -> Callable[[Callable[..., Any]], Any]:
    """Register the decorated function as a built-in feature; its docstring is the feature's description."""

    def add(function: Callable[..., Any]) -> Any:
        arguments = tuple(inspect.signature(function).parameters)
        levels = [level for level, names in _ARGUMENTS.items() if {*names} & {*arguments}]
        meaning = " ".join((function.__doc__ or "").split())
        own_name = name or function.__name__
        FEATURES[own_name] = FeatureEntry(
            own_name, meaning, unit, scale, log, signed, levels[-1], arguments, function.__name__
        )
        return inner(function, inline="always")

    return add


# Stage features.


@feature("tasks", 5, log=True)
def unclaimed_tasks(stage):
    """Tasks of the stage to which no executor is committed."""
    return stage.unclaimed_tasks


@feature("tasks", 200)
def remaining_tasks(stage):
    """Tasks of the stage that have not started."""
    return stage.remaining_tasks


@feature("ms", 1000, log=True)
def mean_task_ms(stage):
    """Mean duration of the stage's tasks."""
    return stage.mean_task_ms


@feature("ms", 10_000, log=True)
def unclaimed_work_ms(stage):
    """Unclaimed tasks times their mean duration."""
    return stage.unclaimed_tasks * stage.mean_task_ms


@feature("ms", 100_000)
def remaining_work_ms(stage):
    """Remaining tasks times their mean duration."""
    return stage.remaining_tasks * stage.mean_task_ms


@feature("executors", 4)
def running_executors(stage):
    """Executors that run tasks of the stage."""
    return stage.running_executors


@feature("1 or -1", signed=True)
def ready(stage):
    """1 if all parents of the stage are complete, so that executors need not wait for it, else -1."""
    return 1.0 if stage.ready_rank >= 0 else -1.0


@feature("1 or -1", signed=True, name="next")
def is_next(job, stage_index):
    """1 for the job's stage that heuristics would run next (``Observation.next_stage``), else -1."""
    return 1.0 if job.next_stage == stage_index else -1.0


@feature("tasks", log=True)
def delay_tasks(stage, offer):
    """Moving delay over the mean duration of the stage's tasks."""
    return offer.moving_delay_ms / max(stage.mean_task_ms, 1.0)


@feature("share", signed=True)
def unused_cpu(stage, offered_class, classes):
    """CPU of an offered executor that a task of the stage leaves unused, as a share of the largest class.

    Negative if the task does not fit.
    """
    largest = 0.0
    for kind in classes:
        largest = max(largest, kind.cpu)
    return (offered_class.cpu - stage.cpu) / (largest if largest > 0 else 1.0)


@feature("share", signed=True)
def unused_memory(stage, offered_class, classes):
    """Memory of an offered executor that a task of the stage leaves unused, as a share of the largest class."""
    largest = 0.0
    for kind in classes:
        largest = max(largest, kind.memory)
    return (offered_class.memory - stage.memory) / (largest if largest > 0 else 1.0)


@feature("share")
def covering_share(stage, offer, classes):
    """Share of the cluster's executors on which the stage fits."""
    return _share_covering(stage, offer, classes)


@feature("executors", 4)
def free_covering_executors(stage, offer, classes):
    """Free executors of other classes on which the stage fits."""
    free = 0.0
    for index in range(len(classes)):
        if index != offer.executor_class and covers(classes[index], stage):
            free += classes[index].free
    return free


@feature("logarithm")
def task_log_sd(stage):
    """Uncertainty: standard deviation of the logarithm of the stage's estimated mean task time; 0 if it is exact."""
    return stage.log_sd


@feature("logarithm", signed=True)
def task_size(stage, offer, typical_ms):
    """Logarithm of the mean duration of the stage's tasks over the time of a typical live job on the whole cluster."""
    return _log_ratio(stage.mean_task_ms, typical_ms / max(offer.num_executors, 1))


@feature("logarithm", signed=True)
def path_size(stage_index, offer, typical_ms, height_ms):
    """Logarithm of the longest path from the stage, in mean task durations, over the time of a typical live job."""
    return _log_ratio(height_ms[stage_index], typical_ms / max(offer.num_executors, 1))


@feature("share")
def job_share(stage, work):
    """Share of the job's remaining work that is unclaimed work of the stage."""
    return stage.unclaimed_tasks * stage.mean_task_ms / max(work.remaining_ms, SHORTEST_MS)


@feature("share")
def path_share(stage_index, path_ms, height_ms):
    """Longest path from the stage over that of its job, in mean task durations."""
    return height_ms[stage_index] / max(path_ms, SHORTEST_MS)


# Job features.


@feature("logarithm", signed=True)
def job_size(work, typical_ms):
    """Logarithm of the job's remaining work over that of a typical live job (their geometric mean)."""
    return _log_ratio(work.remaining_ms, typical_ms)


@feature("logarithm", signed=True)
def job_width(work, path_ms):
    """Logarithm of the job's remaining work over its longest remaining path: its mean parallelism."""
    return _log_ratio(work.remaining_ms, path_ms)


@feature("share")
def unclaimed_share(work):
    """Share of the job's remaining work to which no executor is committed."""
    return work.unclaimed_ms / max(work.remaining_ms, SHORTEST_MS)


@feature("share")
def done_share(work):
    """Share of the job's work that is done."""
    return work.attained_ms / max(work.attained_ms + work.remaining_ms, SHORTEST_MS)


@feature("logarithm")
def job_log_sd(job):
    """Uncertainty: standard deviation of the logarithm of the job's estimated size; 0 if it is exact."""
    return job.log_sd


@feature("ms", 10_000, log=True)
def attained_ms(work):
    """Attained service of the job: executor time of its finished tasks."""
    return work.attained_ms


@feature("weight", log=True)
def job_weight(job):
    """Weight of the job; 1 if it has none."""
    return job.weight


@feature("ms", 10_000, log=True)
def deadline_left_ms(job, offer):
    """Time until the job's deadline: 0 after the deadline, at most 1e7; 1e7 without a deadline."""
    return min(max(job.deadline_ms - offer.time_ms, 0.0), 1e7)


@feature("executors", 4)
def job_executors(job):
    """Executors that the job holds."""
    return job.executors


@feature("1 or -1", signed=True)
def local(job_index, offer):
    """1 if the offered executors belong to the job, else -1."""
    return 1.0 if job_index == offer.source else -1.0


@feature("ms", 10_000, log=True)
def job_work_ms(work):
    """Remaining work of the job."""
    return work.remaining_ms


@feature("executors", 4)
def lasting_executors(work, offer):
    """Executors for which the job's unclaimed fitting work lasts 8 moving delays each; at most all executors."""
    most = max(float(offer.num_executors), 1.0)
    return min(work.fitting_ms / offer.lasting_ms, most) if offer.lasting_ms > 0 else most


@feature("executors", 4)
def busy_executors(work):
    """Executors of the job that run a task or are committed to a task, without the offered executors."""
    return min(work.busy, work.held)


@feature("share")
def fitting_share(work):
    """Share of the job's unclaimed work that fits on the offered executors."""
    return work.fitting_ms / work.unclaimed_ms if work.unclaimed_ms > 0 else 0.0


@feature("executors", 4)
def thrifty_executors(job_index, useful):
    """Useful parallelism of the job alone, at a high cost exponent of executors."""
    return useful[job_index, 0]


@feature("executors", 4)
def fast_executors(job_index, useful):
    """Useful parallelism of the job alone, at a low cost exponent of executors."""
    return useful[job_index, 1]


# Cluster features.


@feature("ratio", log=True)
def delay_size(offer, typical_ms):
    """Moving delay over the time of a typical live job on the whole cluster."""
    return offer.moving_delay_ms * max(offer.num_executors, 1) / typical_ms


@feature("jobs", log=True)
def live_jobs(jobs):
    """Number of live jobs."""
    return len(jobs)


@feature("executors", 4)
def offered_executors(offer):
    """Offered executors."""
    return offer.offered


@feature("executors", 4)
def share_executors(offer, jobs):
    """Executors of the cluster divided by the number of live jobs."""
    return offer.num_executors / max(len(jobs), 1)


@feature("share")
def present_share(offer):
    """Executors in the cluster now as a share of its configuration; 1 without faults."""
    return offer.num_executors / max(offer.configured, 1)


@feature("share")
def larger_share(offer, offered_class, classes):
    """Share of the cluster's executors that are at least as large as the offered ones."""
    return _share_covering(offered_class, offer, classes)


@feature("1 or -1", signed=True)
def stream(jobs):
    """1 if live jobs have different arrival times, else -1."""
    is_stream = -1.0
    for job in jobs:
        if job.arrival_ms != jobs[0].arrival_ms:
            is_stream = 1.0
    return is_stream


@inner
def _log_ratio(value, unit):
    """Return the logarithm of a ratio of times, within bounds."""
    ratio = max(value, SHORTEST_MS) / max(unit, SHORTEST_MS)
    return min(max(math.log(ratio), -LARGEST_LOG), LARGEST_LOG)


@inner
def covers(kind, need):
    """Return whether executors of a class are at least as large as the demand of a stage or of another class."""
    return need.cpu <= kind.cpu and need.memory <= kind.memory


@inner
def _share_covering(need, offer, classes):
    """Return the share of the cluster's executors whose class covers a demand."""
    share = 0.0
    for kind in classes:
        if covers(kind, need):
            share += kind.executors / max(float(offer.num_executors), 1.0)
    return share


def _make_fill(level: str) -> Any:
    """Compile a function that computes the features of one level; those of stages, which are many, only if used."""
    arguments = [name for names in _ARGUMENTS.values() for name in names]
    lines = [
        f"    {f'if uses[{index}]: ' * (level == 'stage')}"
        f"values[{index}] = {entry.function}({', '.join(entry.arguments)})"
        for index, entry in enumerate(FEATURES.values())
        if entry.level == level
    ]
    parameters = arguments[: arguments.index(_ARGUMENTS[level][-1]) + 1]
    source = f"def fill_{level}(values, uses, {', '.join(parameters)}):\n" + "\n".join(lines)
    # With this file name, Numba caches the compiled code beside this file.
    exec(compile(source, __file__, "exec"), globals())
    return inner(globals()[f"fill_{level}"], inline="always")  # since a call with many arrays is slow


_fill_cluster, _fill_job, _fill_stage = map(_make_fill, _ARGUMENTS)
#: Number of all custom features; their columns are 0 until ``decima.policy.features.fill_columns``.
CUSTOM = len(FEATURES)
#: A column of the network's input.
COLUMN = record(
    # Indices are unsigned: signed ones are compiled to code that checks whether they count from the end.
    ("column", np.uint64),
    ("feature", np.uint64),  # number of the feature; ``CUSTOM`` for custom features
    ("log", np.int64),  # 1 if the feature is compressed, see ``Feature.log``
    ("scale", np.float64),
)
#: A logarithm that was computed before.
LOGARITHM = record(("x", np.float64), ("log", np.float64))  # log(1 + x)
#: Number of logarithms to keep, and a random factor that spreads numbers over them.
NUM_LOGARITHMS = 1 << 12
HASH_FACTOR, HASH_SHIFT = np.uint64(0x9E3779B1), np.uint64(64 - 12)
HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


class Columns(NamedTuple):
    """Columns of the network's input, for compiled code."""

    rows: NDArray[np.void]
    """``COLUMN`` [F + F_job]: columns of stages, by the feature's level from cluster to stage; then those of jobs."""
    ends: NDArray[np.int64]
    """[6], ends in ``rows`` of each level of stages, and of each level of jobs."""
    uses: NDArray[np.bool_]
    """[CUSTOM], whether each built-in feature is in a column."""
    logarithms: NDArray[np.void]
    """``LOGARITHM`` [NUM_LOGARITHMS], a cache that ``describe`` fills: most values of stages repeat."""


def make_columns(stage_features: Sequence[Feature], job_features: Sequence[Feature]) -> Columns:
    """Return the ``Columns`` of a policy's features of stages and of jobs."""
    indices, levels = {name: index for index, name in enumerate(FEATURES)}, [*_ARGUMENTS]
    uses, rows, ends = np.zeros(CUSTOM, np.bool_), [], []
    for features in (stage_features, job_features):
        for level in levels:
            for column, feature in enumerate(features):
                # Custom features are written later, so that their level does not matter.
                feature_level = FEATURES[feature.name].level if feature.name in FEATURES else levels[0]
                if feature_level == level:
                    index = indices.get(feature.name, CUSTOM)
                    uses[index : index + 1] = True
                    rows.append((column, index, feature.log, feature.scale))
            ends.append(len(rows))
    logarithms = np.zeros(NUM_LOGARITHMS, LOGARITHM)
    return Columns(np.array(rows, COLUMN), np.array(ends), uses, logarithms)


@inner(arrays=True)
def describe(jobs, stages, classes, offer, work, useful, typical_ms, height_ms, columns, stage_index):
    """Compute scaled features of the stages with these indices, float32 [S, F], and of all jobs, float32 [J, F_job]."""
    num_columns = columns.ends[2]
    features = np.empty((stage_index.size, num_columns), np.float32)
    job_features = np.empty((len(jobs), columns.ends[5] - num_columns), np.float32)
    values, of_job = np.zeros(CUSTOM + 1), np.empty((1, num_columns), np.float32)
    float_cell = np.empty(1)
    scratch = values, of_job, float_cell, float_cell.view(np.uint64)
    _fill(
        jobs, stages, classes, offer, work, useful, typical_ms, height_ms, columns, stage_index, features, job_features,
        scratch,
    )  # fmt: skip
    return features, job_features


@inner
def _fill(
    jobs, stages, classes, offer, work, useful, typical_ms, height_ms, columns, stage_index, features, job_features,
    scratch,
):  # fmt: skip
    ends, uses, offered_class, values, of_job = (
        columns.ends,
        columns.uses,
        classes[offer.executor_class],
        scratch[0],
        scratch[1],
    )
    num_columns = ends[2]
    _fill_cluster(values, uses, offer, jobs, classes, offered_class, typical_ms)
    _scale(columns, 0, ends[0], scratch, of_job, 0)
    row = 0
    for index in range(len(jobs)):
        job, sums = jobs[index], work[index]
        _fill_job(
            values, uses, offer, jobs, classes, offered_class, typical_ms, job, index, sums, useful, sums.path_ms,
        )  # fmt: skip
        _scale(columns, ends[0], ends[1], scratch, of_job, 0)
        _scale(columns, num_columns, ends[5], scratch, job_features, index)
        while row < stage_index.size and stages[stage_index[row]].job == index:
            stage = stages[stage_index[row]]
            _fill_stage(
                values, uses, offer, jobs, classes, offered_class, typical_ms, job, index, sums, useful, sums.path_ms,
                stage, stage_index[row], height_ms,
            )  # fmt: skip
            copy_row(of_job, 0, num_columns, features, row, 0)
            _scale(columns, ends[1], num_columns, scratch, features, row)
            row += 1


@inner
def _scale(columns, begin, end, scratch, target, row):
    """Write the scaled values of the columns ``begin`` to ``end`` to a row of ``target``."""
    values, _, float_cell, bits = scratch
    row = np.uint64(row)
    for k in range(np.uint64(begin), np.uint64(end)):
        column = columns.rows[k]
        scaled = values[column.feature] / column.scale
        if column.log:
            float_cell[0] = scaled
            # Multiplicative hashing: the product's first bits depend on all bits of the number.
            folded = (bits[0] ^ bits[0] >> HALF) & LOW
            cached = columns.logarithms[folded * HASH_FACTOR >> HASH_SHIFT]
            if cached.x != scaled:  # log(1 + 0) = 0, so that an empty cache is correct
                cached.x, cached.log = scaled, math.log1p(scaled)
            scaled = cached.log
        target[row, column.column] = scaled
