"""Constants of ``srpt``, the features on which the quantities of ``srpt-tuned`` depend, and names of their weights."""

from __future__ import annotations

import json
from collections import namedtuple
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from decima.schedulers.rule import LEAVE_MIN_DELAYS, MOVE_MIN_DELAYS, SOURCE_FACTOR

__all__ = [
    "CLASSES", "CLASS_CONSTANTS", "ROW", "WEIGHT_PLACES", "Constants", "JobFeatures", "StageFeatures", "StateFeatures",
    "constants_of_orders", "has_effect", "searched_weights",
]  # fmt: skip


class Constants(NamedTuple):
    """Constants of the rule, found by hand; ``decima tune`` tunes them.

    Prices are cost exponents of executors, see ``simulator.cluster.alone.useful_parallelism``. The uncertainty of a job
    is the standard deviation of the logarithm of its remaining work.

    Attributes:
        price_in_batch: price where demand equals the number of executors, in a batch (all live jobs arrived at the same
            time). The price grows with the root of demand over executors.
        price_in_stream: the same in a stream.
        least_price_in_stream: minimum price in a stream, where future jobs will need executors too.
        price_with_classes: price where executor classes matter.
        price_of_demand: price at which demand is measured.
        useful_multiple: a job may get this multiple of its useful parallelism times its share of unclaimed work, even
            if executors find little work there: with short tasks, hardly any move would justify its delay otherwise.
        idle_multiple: added to ``useful_multiple``, times the square of the share of executors that no job needs.
        source_factor: factor on the sort key of the job whose executors are offered; below 1, executors tend to stay.
        leave_min_delays: minimum work that justifies moving another job's executor, in moving delays.
        move_min_delays: minimum work that justifies moving a free executor, in moving delays.
        robust_order_log_sd: mean uncertainty of the live jobs from which the order for uncertain estimates holds; below
            it, the order is a mixture with the order by remaining work.
        robust_work_exponent: exponent of the remaining work in the order for uncertain estimates; the other factor of
            this order is the useful parallelism.
        exact_log_sd: maximum uncertainty of a job whose estimate counts as exact. At ``exact_log_sd + 1`` and above,
            the job's limit is ``uncertain_shares`` equal shares of the cluster.
        uncertain_shares: limit of a job with an uncertain estimate, in equal shares.
        source_per_log_sd: ``source_factor`` is divided by the exponential of this, for each unit of uncertainty above
            ``exact_log_sd``.
        coverage_exponent: exponent of the number of executors that can run a stage, a factor on its sort key where
            executor classes matter.
    """

    price_in_batch: float = 1.25
    price_in_stream: float = 2.0
    least_price_in_stream: float = 3.0
    price_with_classes: float = 5.0
    price_of_demand: float = 2.5
    useful_multiple: float = 2.0
    idle_multiple: float = 4.0
    source_factor: float = SOURCE_FACTOR
    leave_min_delays: float = LEAVE_MIN_DELAYS
    move_min_delays: float = MOVE_MIN_DELAYS
    robust_order_log_sd: float = 0.3
    robust_work_exponent: float = 0.3
    exact_log_sd: float = 0.6
    uncertain_shares: float = 1.5
    source_per_log_sd: float = 3.0
    coverage_exponent: float = 1.5


#: Constants that only matter where executor classes matter, and other constants that matter there.
CLASS_CONSTANTS = ("price_with_classes", "coverage_exponent")
SHARED_CONSTANTS = ("source_factor", "leave_min_delays", "move_min_delays")
#: Begin of the names of weights that hold where executor classes matter; other weights hold elsewhere.
CLASSES = "classes."


def constants_of_orders() -> dict[str, float]:
    """Return the defaults of the constants of an ``OrderedRule``."""
    return {name: value for name, value in Constants()._asdict().items() if name not in CLASS_CONSTANTS}


def has_effect(name: str, has_classes: bool) -> bool:
    """Return whether a constant or weight has an effect on clusters with several executor classes, or with one."""
    if has_classes:
        return name in CLASS_CONSTANTS + SHARED_CONSTANTS or name.startswith(CLASSES)
    return name not in CLASS_CONSTANTS and not name.startswith(CLASSES)


class StateFeatures(NamedTuple):
    """Features of the state; logarithms are natural.

    Attributes:
        one: 1.
        errors: u / (u + ``HALF_ERRORS``), where u is the mean uncertainty of the live jobs.
        demand: log(useful parallelism of all jobs / number of executors).
        moves: log(1 + moving delay / mean task time) - 1.
        stream: 1 in a stream, 0 in a batch.
        free: share of the executors that are free.
        jobs: log(number of live jobs) - 2.5.
        executors: log(number of executors) - 4.
        errors_stream: ``errors`` in a stream, 0 in a batch.
        class_share: log(share of the executors that are at least as large as the offered executors) + 0.6.
        scarcity: log(share of the ready work that needs such executors / their share).
    """

    one: float
    errors: float
    demand: float
    moves: float
    stream: float
    free: float
    jobs: float
    executors: float
    errors_stream: float
    class_share: float
    scarcity: float


class JobFeatures(NamedTuple):
    """Features of a job on which its sort key and its limit depend.

    Attributes:
        size: log(remaining work), minus the mean over the live jobs.
        width: log(useful parallelism), minus the mean over the live jobs.
        done: finished share of the work.
        error: uncertainty.
        path: log(minimum time to the job's end / time at useful parallelism).
        ready: share of the work that is ready and unclaimed.
        source: 1 if its executors are offered.
        fits: share of the work that is unclaimed and fits the offered executors.
        scarce: log(mean over the work of all executors / executors that are large enough) - 0.7.
    """

    size: float
    width: float
    done: float
    error: float
    path: float
    ready: float
    source: float
    fits: float
    scarce: float


class StageFeatures(NamedTuple):
    """Features of a stage on which its sort key depends.

    Attributes:
        next: 1 for the job's next stage.
        height: minimum time to the job's end over that of the job, minus 1.
        lasts: log(unclaimed work in moving delays for each offered executor, plus 0.01).
        unready: 1 if a parent is incomplete.
        move: log(1 + moving delay / task time) - 1.5; 0 if the job's executors are offered.
        last: share of the job's work that is this stage's unclaimed work.
        stage_error: standard deviation of the logarithm of the task time.
        tasks: log(unclaimed tasks / offered executors, plus 0.01).
        lasts_source: ``lasts`` if the job's executors are offered, else 0.
    """

    next: float
    height: float
    lasts: float
    unready: float
    move: float
    last: float
    stage_error: float
    tasks: float
    lasts_source: float


#: Quantity -> its features. The logarithm of the quantity changes by the sum of its features times their effects, and
#: an effect is the sum of the state's features times weights. Features that are not in the classes above:
#:
#: - ``one``: 1.
#: - ``later``: log(1 + work of the source job that fits the offered executors and cannot start yet, in moving delays
#:   for each of them) - 1.
#: - ``offered``: log(number of offered executors) - 1.
#: - ``waste``: log(executors that are large enough for the stage / executors at least as large as the offered ones).
#: - ``held``: log((busy executors + 1) / (limit + 1)).
#: - ``needing``: log(share of the job's work that needs executors at least as large as the offered ones, plus 0.05)
#:   + 1.
#: - ``covered``: log(share of the executors that are large enough for the stage).
#: - ``exact``: 1 if no smaller executors than the offered ones are large enough for the stage.
#: - ``smaller``: log(1 + free executors of smaller classes that are large enough / offered executors).
QUANTITIES: dict[str, tuple[str, ...]] = {
    "price": ("one",),
    "useful_multiple": ("one",),
    "idle_multiple": ("one",),
    "source_factor": ("one",),
    "leave_min_delays": ("one", "later", "offered", "waste"),
    "move_min_delays": ("one", "waste"),
    "robust_order_log_sd": ("one",),
    "robust_work_exponent": ("one",),
    "exact_log_sd": ("one",),
    "uncertain_shares": ("one",),
    "source_per_log_sd": ("one",),
    "least_limit": ("one",),
    "unready_work": ("one",),
    "other_executors": ("one",),
    "order": (*JobFeatures._fields, "held", "needing"),
    "limit": ("one", "covered", "exact", *JobFeatures._fields),
    "stage": (*StageFeatures._fields, "covered", "exact", "smaller"),
}
_ROWS = [(quantity, feature) for quantity, features in QUANTITIES.items() for feature in features]
#: Row of the effect of each quantity's feature, by the name ``quantity_feature``, in compiled code.
ROW: Any = namedtuple("ROW", [f"{quantity}_{feature}" for quantity, feature in _ROWS])(*range(len(_ROWS)))
#: Weight -> its row (effect) and column (feature of the state). The weight of a feature has the name
#: ``quantity.feature``; the change of this weight with the state has the name ``quantity.feature_state``. For the
#: feature ``one`` the names are ``quantity.state``.
WEIGHT_PLACES = {
    f"{quantity}.{state}"
    if feature == "one"
    else f"{quantity}.{feature}" + (f"_{state}" if column else ""): (row, column)
    for row, (quantity, feature) in enumerate(_ROWS)
    for column, state in enumerate(StateFeatures._fields)
}


@cache
def searched_weights() -> dict[str, float]:
    """Return the default weights of ``srpt-tuned`` by name, in the order of the file ``srpt_tuned.json``.

    The file has the format of ``decima tune --json``.
    """
    content = json.loads(Path(__file__).with_name("srpt_tuned.json").read_text(encoding="utf-8"))
    weights: dict[str, float] = content["parameters"]
    return weights
