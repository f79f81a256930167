"""Features: the numbers that the network sees of a stage, of its job and of the cluster.

A feature is one entry: a small function below. Its name, docstring, unit and usual scale are the feature's; its
arguments say what it follows from, and so whether it is the same for all stages of a job or of the cluster. To add a
feature, write a function. ``docs/guides/own-parts.md`` has the table of all features.

Arguments of entries:
    offer: the executors that are offered and constants of the cluster, :class:`Offer`.
    jobs, classes: all rows of the observation.
    own: the row of the executor class that is offered.
    job, stage: the rows of the job and of the stage.
    work: sums over the stages of the job, a record of the type ``WORK``.
    number, place: places of the job and of the stage in the observation.
    useful: float64 [J, 2], executors that each job uses well alone, at each of ``scheduler.COST_EXPONENTS``.
    rule_price: float64, the cost exponent of executors by the rule; 0 where no feature asks for it.
    rule_limits: int64 [J], the limit of each job by the rule; empty where no feature asks for it.
    rule_away: float64 [S], how far each stage is from the one that the rule runs next; likewise.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simulator.compiled import inner

__all__ = ["FEATURES", "WORK", "FeatureEntry", "Offer", "covers", "describe", "sum_work"]

#: Sums over the stages of a live job, and the executors that it holds without those offered.
WORK = np.dtype(
    (
        np.record,
        [
            ("remaining_ms", np.float64),  # work of tasks that have not started
            ("unclaimed_ms", np.float64),  # of these, work of tasks that no executor is committed to
            ("fitting_ms", np.float64),  # of these, work that fits the executors offered
            ("attained_ms", np.float64),  # executor time of tasks that have finished
            ("busy", np.int64),  # executors at work, and those committed to a task
            ("held", np.int64),
        ],
    )
)


class Offer(NamedTuple):
    """The offered executors, and constants of the cluster."""

    offered: int
    executor_class: int
    source: int
    num_executors: int
    configured: int
    """Executors of the configuration; others may have joined, or left."""
    can_wait: bool
    """Whether leaving the executors idle is a choice where no guard acts."""
    can_guard: bool
    """Whether the guard may act."""
    guard_wait_ms: float
    """Guard threshold: time that executors may wait for a stage that is not ready."""
    guard_work_ms: float
    """Guard threshold: work for each executor that makes a move worthwhile; 0 if moves take no time."""
    moving_delay_ms: float
    lasting_ms: float
    """Work for an executor that counts as lasting, see the feature ``lasting_executors``."""
    rule_stage: int
    """The stage that the rule runs next, a place; -1 if it runs none or is not asked."""


#: Arguments of the functions that fill in the features of each level.
_ARGUMENTS = {
    "cluster": ("offer", "jobs", "classes", "own", "rule_price"),
    "job": ("job", "number", "work", "useful", "rule_limits"),
    "stage": ("stage", "place", "rule_away"),
}


class FeatureEntry(NamedTuple):
    """One feature.

    Attributes:
        name: as presets and policy files have it.
        meaning: one or two sentences.
        unit: of the value before scaling.
        scale: usual divisor, see ``Feature.scale``.
        log: whether it is usually compressed, see ``Feature.log``.
        signed: whether it can be negative, so that it has no logarithm.
        level: ``stage``, ``job`` or ``cluster``: the smallest thing that it describes.
        arguments: names of what it follows from.
        function: the function that computes it.
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

    @property
    def asks_rule(self) -> bool:
        """Whether the feature follows from what the rule says."""
        return any(name.startswith("rule_") for name in self.arguments)


#: Name -> feature. The order is that of the numbers in compiled code.
FEATURES: dict[str, FeatureEntry] = {}


def feature(
    unit: str, scale: float = 1.0, *, log: bool = False, signed: bool = False, name: str = ""
) -> Callable[[Callable[..., Any]], Any]:
    """Make a feature of a function; its docstring says what the feature means."""

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


# Of stages.


@feature("tasks", 5, log=True)
def unclaimed_tasks(stage):
    """Tasks of the stage that no executor is committed to."""
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
    """Executors at work on the stage."""
    return stage.running_executors


@feature("1 or -1", signed=True)
def ready(stage):
    """1 if the parents of the stage are complete, so that no executor has to wait there, else -1."""
    return 1.0 if stage.ready_rank >= 0 else -1.0


@feature("1 or -1", signed=True, name="next")
def is_next(job, place):
    """1 for the stage of the job that heuristics would run next (``Observation.next_stage``), else -1."""
    return 1.0 if job.next_stage == place else -1.0


@feature("tasks", log=True)
def delay_tasks(stage, offer):
    """Moving delay over the mean duration of the stage's tasks."""
    return offer.moving_delay_ms / max(stage.mean_task_ms, 1.0)


@feature("share", signed=True)
def unused_cpu(stage, own, classes):
    """Cpu that a task of the stage leaves unused of an offered executor, as a share of the largest class.

    Negative where the task does not fit.
    """
    largest = 0.0
    for kind in classes:
        largest = max(largest, kind.cpu)
    return (own.cpu - stage.cpu) / (largest if largest > 0 else 1.0)


@feature("share", signed=True)
def unused_memory(stage, own, classes):
    """The same for memory."""
    largest = 0.0
    for kind in classes:
        largest = max(largest, kind.memory)
    return (own.memory - stage.memory) / (largest if largest > 0 else 1.0)


@feature("share")
def covering_share(stage, offer, classes):
    """Share of the cluster's executors that the stage fits."""
    return _share_covering(stage, offer, classes)


@feature("executors", 4)
def free_covering_executors(stage, offer, classes):
    """Free executors of other classes than the offered one that the stage fits."""
    free = 0.0
    for number in range(len(classes)):
        if number != offer.executor_class and covers(classes[number], stage):
            free += classes[number].free
    return free


@feature("1 to -3", signed=True, name="rule")
def by_rule(place, rule_away):
    """1 for the stage that the rule would run next, and less for stages that it would run later."""
    return 1.0 - rule_away[place] if len(rule_away) else 0.0


@feature("logarithm")
def task_log_sd(stage):
    """Uncertainty: standard deviation of the logarithm of the stage's estimated task time; 0 where it is exact."""
    return stage.log_sd


# Of jobs.


@feature("logarithm")
def job_log_sd(job):
    """Uncertainty: standard deviation of the logarithm of the job's estimated factor; 0 where it is exact."""
    return job.log_sd


@feature("ms", 10_000, log=True)
def attained_ms(work):
    """Attained service of the job: executor time of its tasks that have finished."""
    return work.attained_ms


@feature("executors", 4)
def job_executors(job):
    """Executors that the job holds."""
    return job.executors


@feature("1 or -1", signed=True)
def local(number, offer):
    """1 if the offered executors belong to the job, else -1."""
    return 1.0 if number == offer.source else -1.0


@feature("ms", 10_000, log=True)
def job_work_ms(work):
    """Remaining work of all stages of the job."""
    return work.remaining_ms


@feature("executors", 4)
def lasting_executors(work, offer):
    """Executors that would find work for 8 moving delays each in the job's unclaimed tasks that fit; at most all."""
    most = max(float(offer.num_executors), 1.0)
    return min(work.fitting_ms / offer.lasting_ms, most) if offer.lasting_ms > 0 else most


@feature("executors", 4)
def busy_executors(work):
    """Executors of the job that are at work or committed to a task, without those offered."""
    return min(work.busy, work.held)


@feature("share")
def fitting_share(work):
    """Share of the job's unclaimed work that fits the offered executors."""
    return work.fitting_ms / work.unclaimed_ms if work.unclaimed_ms > 0 else 0.0


@feature("executors", 4)
def rule_executors(number, work, offer, rule_limits):
    """Executors that the rule would let the job hold, as far as the offered executors decide that."""
    limit = rule_limits[number] if len(rule_limits) else work.held
    return min(max(limit, work.held), work.held + offer.offered)


@feature("executors", 4)
def thrifty_executors(number, useful):
    """Executors that the job uses well alone, with a high cost exponent of executors."""
    return useful[number, 0]


@feature("executors", 4)
def fast_executors(number, useful):
    """Executors that the job uses well alone, with a low cost exponent of executors."""
    return useful[number, 1]


# Of the cluster.


@feature("executors", 4)
def offered_executors(offer):
    """Executors that are offered."""
    return offer.offered


@feature("executors", 4)
def share_executors(offer, jobs):
    """Executors of the cluster over the live jobs."""
    return offer.num_executors / max(len(jobs), 1)


@feature("share")
def present_share(offer):
    """Executors that are in the cluster now, as a share of those of its configuration; 1 without faults."""
    return offer.num_executors / max(offer.configured, 1)


@feature("share")
def larger_share(offer, own, classes):
    """Share of the cluster's executors that are at least as large as the offered ones."""
    return _share_covering(own, offer, classes)


@feature("1 or -1", signed=True)
def stream(jobs):
    """1 if the live jobs arrived at different times, else -1."""
    is_stream = -1.0
    for job in jobs:
        if job.arrival_ms != jobs[0].arrival_ms:
            is_stream = 1.0
    return is_stream


@feature("exponent", 4)
def price(rule_price):
    """Cost exponent of executors by the rule."""
    return rule_price


@inner
def covers(kind, need):
    """Whether executors of a class are at least as large as a stage, or another class, demands."""
    return need.cpu <= kind.cpu and need.memory <= kind.memory


@inner
def _share_covering(need, offer, classes):
    """Share of the cluster's executors whose class covers the demand of a stage, or of another class."""
    share = 0.0
    for kind in classes:
        if covers(kind, need):
            share += kind.executors / max(float(offer.num_executors), 1.0)
    return share


def _fill(level: str) -> Any:
    """Compile the function that computes all features of a level, one line for each."""
    arguments = [name for names in _ARGUMENTS.values() for name in names]
    lines = [
        f"    values[{number}] = {entry.function}({', '.join(entry.arguments)})"
        for number, entry in enumerate(FEATURES.values())
        if entry.level == level
    ]
    known = arguments[: arguments.index(_ARGUMENTS[level][-1]) + 1]
    source = f"def fill_{level}(values, {', '.join(known)}):\n" + "\n".join(lines)
    # Named after this file, so that what is compiled is kept and forgotten with it.
    exec(compile(source, __file__, "exec"), globals())
    return inner(globals()[f"fill_{level}"], inline="always")  # a call with so many arrays would take longer


_fill_cluster, _fill_job, _fill_stage = map(_fill, _ARGUMENTS)
#: The number of features of the user's own, which are 0 until Python fills them in.
CUSTOM = len(FEATURES)


@inner(arrays=True)
def sum_work(jobs, stages, own, offer):
    """Sum up the stages of each live job; records [J] of the type ``WORK``."""
    work = np.zeros(len(jobs), WORK)
    for number in range(len(jobs)):
        executors = jobs[number].executors
        work[number].held = max(executors - offer.offered if number == offer.source else executors, 0)
    for stage in stages:
        sums = work[stage.job]
        unclaimed_ms = stage.unclaimed_tasks * stage.mean_task_ms
        sums.remaining_ms += stage.remaining_tasks * stage.mean_task_ms
        sums.unclaimed_ms += unclaimed_ms
        sums.attained_ms += stage.finished_ms
        if covers(own, stage):
            sums.fitting_ms += unclaimed_ms
        sums.busy += stage.running_executors + stage.remaining_tasks - stage.unclaimed_tasks
    return work


@inner(arrays=True)
def describe(jobs, stages, classes, offer, work, useful, rule_price, rule_limits, rule_away, spec, place):
    """Compute the features of the stages at some places, float32 [S, F], and of all jobs, float32 [J, F_job]."""
    num = spec.num_stage_features
    features = np.empty((place.size, num), np.float32)
    job_features = np.empty((len(jobs), spec.columns.size - num), np.float32)
    own = classes[offer.executor_class]
    values = np.zeros(CUSTOM + 1)
    last, scaled = np.full(num, np.nan), np.empty(num)
    _fill_cluster(values, offer, jobs, classes, own, rule_price)
    row = 0
    for number in range(len(jobs)):
        job, sums = jobs[number], work[number]
        _fill_job(values, offer, jobs, classes, own, rule_price, job, number, sums, useful, rule_limits)
        for k in range(num, spec.columns.size):
            job_features[number, k - num] = _scaled(values[spec.columns[k]], spec.scales[k], spec.logs[k])
        while row < place.size and stages[place[row]].job == number:
            stage = stages[place[row]]
            _fill_stage(
                values, offer, jobs, classes, own, rule_price, job, number, sums, useful, rule_limits,
                stage, place[row], rule_away,
            )  # fmt: skip
            for k in range(num):
                value = values[spec.columns[k]]
                if value != last[k]:  # most are of the job or of the cluster, and logarithms take long
                    last[k] = value
                    scaled[k] = _scaled(value, spec.scales[k], spec.logs[k])
                features[row, k] = scaled[k]
            row += 1
    return features, job_features


@inner(arrays=True)
def _scaled(value, scale, log):
    return math.log1p(value / scale) if log else value / scale
