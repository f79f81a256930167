"""``priced-srpt`` whose constants, order and limits depend on state, jobs and stages, for direct policy search.

Logarithms of the constants, of each job's limit and of the sort key of stages are those of ``priced-srpt`` plus linear
functions of features. The weights were found by simulation, not by hand (docs/studies.md).
"""

from __future__ import annotations

import math

import numpy as np

from decima.schedulers.base import (
    AWAY_BY_RANK,
    FARTHEST_AWAY,
    NO_RULE,
    Rule,
    between_prices,
    bounded,
    check_positive,
    move_cost_ms,
    named_weights,
    weighted_sum,
)
from decima.schedulers.priced_srpt import WORK, PricedSrpt, place_of
from simulator.cluster.observation import Observation, PerJob
from simulator.compiled import compiled, inner

__all__ = ["ADAPTIVE_GROUPS", "ADAPTIVE_WEIGHTS", "AdaptiveSrpt"]

#: Features of the state; logarithms are natural. ``one``: 1; ``errors``: u / (u + ``HALF``), where u is the mean
#: uncertainty of the live jobs; ``demand``: log(useful parallelism of all jobs / number of executors); ``moves``:
#: log(1 + moving delay / mean task time) - 1; ``stream``: 1 in a stream, 0 in a batch; ``free``: share of executors
#: that are free; ``jobs``: log(number of live jobs) - 2.5; ``executors``: log(number of executors) - 4.
STATE = ("one", "errors", "demand", "moves", "stream", "free", "jobs", "executors", "errors_stream")
#: Features of the state for constants that only matter with uncertain estimates, and for the minimum limit.
OF_ERRORS = ("one", "errors", "demand", "stream")
#: Features of the executors that are offered. ``later``: log(1 + their job's work that fits them and cannot start yet,
#: in moving delays for each of them) - 1; ``offered``: log(their number) - 1.
OF_OFFER = ("later", "offered")
#: Features of the state by which features of jobs are multiplied.
FACTORS = ("errors", "demand", "stream")


def _products(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}_{factor}" for name in names for factor in FACTORS)


#: Features of a job. ``size`` and ``width``: logarithms of remaining work and of useful parallelism, minus their means
#: over the live jobs; ``done``: finished share of the work; ``error``: uncertainty; ``path``: log(minimum time to the
#: job's end / time at useful parallelism); ``ready``: share of the work that is ready and unclaimed; ``source``: 1 if
#: its executors are offered.
OF_LIMIT = (
    *("size", "width", "done", "error", "path", "ready", "source"),
    *_products("size", "width", "done", "path"),
)
#: ``held``: log((busy executors + 1) / (limit + 1)).
OF_ORDER = (
    *("size", "width", "done", "error", "path", "ready", "held", "source"),
    *_products("size", "width", "done", "path", "held", "source"),
)
#: Features of a stage. ``next``: 1 for the job's next stage; ``height``: minimum time to the job's end over that of the
#: job, minus 1; ``lasts``: log(unclaimed work in moving delays for each offered executor, plus 0.01); ``unready``: 1 if
#: a parent is incomplete; ``move``: log(1 + moving delay / task time) - 1.5, 0 for the source; ``last``: unclaimed work
#: as a share of the job's work; ``stage_error``: uncertainty of the stage; ``tasks``: log(unclaimed tasks / offered
#: executors, plus 0.01).
OF_STAGE = (
    *("next", "height", "lasts", "unready", "move", "last", "stage_error", "tasks"),
    *_products("height"),
    *("lasts_source", "lasts_errors", "last_demand", "next_errors", "stage_error_stream"),
)
#: Group of weights -> features. ``price`` and constants of ``PricedConstants``: their logarithms; ``share``: logarithm
#: of the minimum limit; ``order`` and ``stage``: of the key by which stages are sorted; ``limit``: of the job's limit;
#: ``counting``: logarithm of the factor with which work that is not ready counts as work that justifies a move.
ADAPTIVE_GROUPS: dict[str, tuple[str, ...]] = {
    "price": STATE,
    "used_well": STATE,
    "unwanted": STATE,
    "staying": STATE,
    "worth_leaving": STATE + OF_OFFER,
    "worth_moving": STATE,
    "uncertain": OF_ERRORS,
    "work_exponent": OF_ERRORS,
    "doubtful": OF_ERRORS,
    "shares": OF_ERRORS,
    "hesitation": OF_ERRORS,
    "share": OF_ERRORS,
    "order": OF_ORDER,
    "limit": OF_LIMIT,
    "stage": OF_STAGE,
    "counting": ("later",),
}
#: Rows of the table of weights, in the order of ``ADAPTIVE_GROUPS``.
# fmt: off
(
    PRICE, USED_WELL, UNWANTED, STAYING, WORTH_LEAVING, WORTH_MOVING, UNCERTAIN, WORK_EXPONENT, DOUBTFUL, SHARES,
    HESITATION, SHARE, ORDER, LIMIT, STAGE, COUNTING,
) = range(len(ADAPTIVE_GROUPS))
# fmt: on
#: Weights other than 0 by group, found by direct policy search (docs/studies.md).
# fmt: off
CHOSEN: dict[str, dict[str, float]] = {
    "price": {
        "one": 0.09, "errors": 0.03, "demand": 0.1, "moves": -0.03, "stream": 0.02, "free": -0.11, "jobs": -0.15,
        "executors": 0.08, "errors_stream": -0.1,
    },
    "used_well": {
        "one": 0.04, "errors": -0.42, "demand": -0.04, "moves": 0.04, "stream": 0.66, "free": 0.18, "jobs": 0.04,
        "executors": 0.15, "errors_stream": 0.33,
    },
    "unwanted": {
        "one": 0.16, "errors": -0.21, "demand": -0.09, "stream": 0.15, "free": 0.14, "jobs": 0.04,
        "executors": -0.14, "errors_stream": -0.04,
    },
    "staying": {
        "one": -0.36, "errors": -1.29, "demand": -0.08, "moves": -0.13, "stream": -0.48, "free": -0.2, "jobs": -0.65,
        "errors_stream": -0.09,
    },
    "worth_leaving": {
        "one": 0.13, "errors": 0.12, "demand": 0.18, "moves": 0.18, "stream": 0.44, "free": 0.21, "executors": -0.06,
        "errors_stream": 0.31, "later": 0.79, "offered": 0.53,
    },
    "worth_moving": {
        "one": 0.06, "errors": -0.04, "demand": -0.15, "moves": -0.34, "stream": 0.12, "free": -0.13, "jobs": -0.14,
        "executors": -0.07, "errors_stream": 0.22,
    },
    "uncertain": {
        "one": -0.02, "errors": -0.03, "demand": 0.14, "stream": -0.07,
    },
    "work_exponent": {
        "one": -0.18, "errors": -0.34, "demand": 0.39, "stream": -0.12,
    },
    "doubtful": {
        "one": -0.01, "demand": 0.29, "stream": 0.19,
    },
    "shares": {
        "one": 0.08, "errors": -0.26, "demand": 0.12, "stream": -0.22,
    },
    "hesitation": {
        "one": -0.11, "errors": -0.21, "demand": 0.24, "stream": 0.1,
    },
    "share": {
        "one": -0.01, "errors": 0.18, "demand": 0.04, "stream": -0.08,
    },
    "order": {
        "size": 0.17, "width": 0.05, "done": -0.16, "error": -0.09, "path": -0.03, "ready": 0.15, "held": 0.08,
        "source": -0.12, "size_errors": -0.03, "size_demand": 0.06, "size_stream": 0.12, "width_errors": 0.15,
        "width_demand": -0.05, "width_stream": -0.1, "done_errors": -0.25, "done_demand": -0.01, "done_stream": 0.01,
        "path_errors": -0.04, "path_demand": -0.12, "path_stream": 0.03, "held_demand": -0.18, "held_stream": 0.13,
        "source_errors": -0.01, "source_demand": 0.04, "source_stream": -0.05,
    },
    "limit": {
        "size": 0.02, "width": -0.28, "done": -0.25, "error": -0.08, "path": -0.12, "ready": 0.17, "source": 0.46,
        "size_errors": -0.07, "size_demand": 0.01, "size_stream": 0.12, "width_errors": 0.03, "width_demand": -0.17,
        "width_stream": 0.12, "done_errors": -0.1, "done_demand": -0.21, "done_stream": 0.05, "path_errors": -0.08,
        "path_demand": 0.08, "path_stream": -0.11,
    },
    "stage": {
        "next": -0.19, "height": -0.33, "lasts": 0.01, "unready": 0.01, "move": 0.44, "last": -0.08, "tasks": 0.11,
        "height_errors": -0.41, "height_demand": -0.16, "height_stream": -0.06, "lasts_source": -0.01,
        "lasts_errors": 0.02, "last_demand": 0.05, "next_errors": -0.15, "stage_error_stream": -0.01,
    },
    "counting": {
        "later": -0.56,
    },
}
# fmt: on
#: Default of each weight, by its name ``group.feature``.
ADAPTIVE_WEIGHTS = named_weights(ADAPTIVE_GROUPS, CHOSEN)
#: Mean uncertainty at which the feature ``errors`` is 0.5.
HALF = 0.2
#: Default number of executors from which on weights have their full effect. With full weights, mean JCTs on 8 executors
#: are up to 5 % longer than without weights, with a third of them shorter.
FULL_EFFECT = 50.0
#: Most live jobs of a batch for which weights have their full effect; none of the batches of the search had more. With
#: full weights, mean JCTs of exactly known batches of 100 and 200 jobs are 2 and 4 % longer than without weights.
MOST_IN_BATCH = 40
#: Bounds: of an uncertainty; of the absolute values of logarithms of ratios, and of sums of weights.
MOST_ERRORS, MOST_LOG, MOST_RATIO = 2.0, 3.0, 2.0
#: Smallest moving delay by which times are divided, ms.
LEAST_DELAY_MS = 100.0
#: Added to limits before they are rounded down, because logarithms of whole numbers are not exact.
ROUNDING = 1e-9
#: Kinds of jobs: below the limit, with lasting work for more executors, and others.
BELOW, LASTING, OTHER = range(3)


class AdaptiveSrpt(PricedSrpt):
    """``priced-srpt`` whose constants, order and limits depend on state, jobs and stages, by weights.

    Constants, minimum limit, limits and the sort key of stages are multiplied by exponentials of weighted sums of
    features (``ADAPTIVE_GROUPS``). Between prices, the logarithm of the useful parallelism is interpolated. The stage
    with the least key of all jobs is chosen, which need not be its job's next stage. ``decima tune adaptive-srpt``
    searches for constants and weights. In batches of n > 40 live jobs, weights are multiplied by (40 / n) ** 2.

    Args:
        jitter: see ``PricedSrpt``.
        full_effect: positive number of executors from which on weights have their full effect; on fewer executors they
            are multiplied by the square root of the ratio.
        constants: fields of ``PricedConstants``, positive, and weights by their names in ``ADAPTIVE_WEIGHTS``.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: unknown constant.
    """

    learned = True

    def __init__(self, jitter: float = 0.0, full_effect: float = FULL_EFFECT, **constants: float) -> None:
        weights = {name: constants.pop(name) for name in ADAPTIVE_WEIGHTS if name in constants}
        super().__init__(jitter, **constants)
        check_positive(full_effect=full_effect)
        self.full_effect = float(full_effect)
        self.weights = ADAPTIVE_WEIGHTS | weights
        self._table = np.zeros((len(ADAPTIVE_GROUPS), max(map(len, ADAPTIVE_GROUPS.values()))))
        for row, (group, features) in enumerate(ADAPTIVE_GROUPS.items()):
            self._table[row, : len(features)] = [self.weights[f"{group}.{each}"] for each in features]
        self._height_ms = PerJob(lambda profile, _: profile.height_ms, np.concatenate)

    def _ask(self, observation: Observation, jitter: float) -> Rule:
        if not len(observation.jobs):
            return NO_RULE
        stage, limits, price, away = _choose_stage(
            *(observation.jobs, observation.stages, observation.classes, observation.source),
            *(observation.offered, observation.executor_class, observation.num_executors),
            *(self._known(observation), self._height_ms(observation), move_cost_ms(observation)),
            *(float(observation.config.moving_delay_ms), self._factors(observation, jitter)),
            *(self._rows, self._table, self.full_effect),
        )
        return Rule(stage, limits, price, away)


@compiled
def _choose_stage(  # type: ignore[no-untyped-def]
    jobs,
    stages,
    classes,
    source,
    offered,
    executor_class,
    num_executors,
    known,
    height_ms,
    delay_ms,
    real_delay_ms,
    factors,
    rows,
    weights,
    full_effect,
):
    """Return the attributes of ``Rule``.

    ``known``: float64 [J, WORK + 1], as in ``priced_srpt``; ``height_ms``: minimum time from the start of each stage to
    the job's end, float64 [S]; ``delay_ms``: delay that a move must justify; ``real_delay_ms``: moving delay;
    ``factors``: on order and limit, float64 [2, J] or empty; ``rows``: a row of constants; ``weights``: a row for each
    group; ``full_effect``: see ``AdaptiveSrpt``.
    """
    constants, measured = rows[0], place_of(rows[0].measured)
    num_jobs, most, own = len(jobs), max(num_executors, 1), classes[executor_class]  # all may have left
    each_offered, per_delay = max(offered, 1), max(real_delay_ms, LEAST_DELAY_MS)
    is_stream = 1.0 if jobs[num_jobs - 1].arrival_ms > jobs[0].arrival_ms else 0.0
    if most < full_effect:
        weights = weights * math.sqrt(most / full_effect)
    if num_jobs > MOST_IN_BATCH and not is_stream:
        weights = weights * (MOST_IN_BATCH / num_jobs) ** 2
    # Sums over the stages of each job: work, ms, and numbers of executors.
    sums = np.zeros((7, num_jobs))
    work, done, variance, unclaimed = sums[0], sums[1], sums[2], sums[3]
    fitting, ready, busy = sums[4], sums[5], sums[6]
    path_ms, tasks, later_ms, not_ready = np.ones(num_jobs), 0, 0.0, math.exp(weights[COUNTING, 0])
    for index in range(len(stages)):
        stage = stages[index]
        job, is_ready = stage.job, stage.ready_rank >= 0
        left = stage.remaining_tasks * stage.mean_task_ms
        wanted = stage.unclaimed_tasks * stage.mean_task_ms
        tasks += stage.remaining_tasks
        work[job] += left
        done[job] += stage.finished_ms
        variance[job] += left * stage.log_sd**2
        unclaimed[job] += wanted
        ready[job] += wanted * is_ready
        busy[job] += stage.running_executors + stage.remaining_tasks - stage.unclaimed_tasks
        if stage.cpu <= own.cpu and stage.memory <= own.memory:
            fitting[job] += wanted * (1.0 if is_ready else not_ready)
            later_ms += wanted * (job == source and stage.schedulable == 0)
        if left > 0 or stage.running_executors > 0:
            path_ms[job] = max(path_ms[job], height_ms[index])

    # Features of the state.
    uncertainty = np.minimum(np.sqrt(variance / np.maximum(work, 1e-9)), MOST_ERRORS)
    log_work, log_width = np.log(np.maximum(work, 1.0)), np.log(known[:, measured])
    mean_uncertainty, size, width = uncertainty.mean(), log_work.mean(), log_width.mean()
    parallelism, free = 0.0, 0.0
    for job in range(num_jobs):
        parallelism += known[job, measured] * (unclaimed[job] > 0)
    for each in classes:
        free += each.free / most
    errors = mean_uncertainty / (mean_uncertainty + HALF)  # saturates: existence matters more than size
    demand = bounded(math.log(max(parallelism, 1.0) / most), MOST_LOG)
    moves = math.log(1 + real_delay_ms * max(tasks, 1) / max(np.sum(work), 1.0)) - 1
    state = np.array(
        (
            *(1.0, errors, demand, bounded(moves, MOST_LOG), is_stream, free, math.log(num_jobs) - 2.5),
            *(math.log(most) - 4.0, errors * is_stream),
        )
    )
    of_errors = np.array((1.0, errors, demand, is_stream))
    by = state[1], state[2], state[4]

    # Constants in this state.
    root = math.sqrt(max(parallelism, 1e-9) / most)
    price = constants.steepness * root
    if is_stream:
        price = max(constants.stream_steepness * root, constants.stream_price)
    log_price = math.log(price) + bounded(weighted_sum(weights[PRICE], state), MOST_RATIO)
    place, between = between_prices(log_price)
    used_well = constants.used_well * _factor(weights[USED_WELL], state, MOST_RATIO)
    per_unwanted = constants.unwanted * _factor(weights[UNWANTED], state, MOST_RATIO)
    log_staying = math.log(constants.staying) + bounded(weighted_sum(weights[STAYING], state), MOST_LOG)
    if source >= 0:
        total = weighted_sum(weights[WORTH_LEAVING], state)
        later = math.log1p(later_ms / max(delay_ms, 1.0) / each_offered) - 1.0
        total += weights[WORTH_LEAVING, len(state)] * later
        total += weights[WORTH_LEAVING, len(state) + 1] * (math.log(each_offered) - 1.0)
        worth_ms = constants.worth_leaving * delay_ms * math.exp(bounded(total, MOST_LOG))
    else:
        worth_ms = constants.worth_moving * delay_ms * _factor(weights[WORTH_MOVING], state, MOST_LOG)
    uncertain = constants.uncertain * _factor(weights[UNCERTAIN], of_errors, MOST_RATIO)
    exponent = constants.work_exponent * _factor(weights[WORK_EXPONENT], of_errors, MOST_RATIO)
    doubtful = constants.doubtful * _factor(weights[DOUBTFUL], of_errors, MOST_RATIO)
    shares = constants.shares * _factor(weights[SHARES], of_errors, MOST_RATIO)
    hesitation = constants.hesitation * _factor(weights[HESITATION], of_errors, MOST_RATIO)
    least = max(1.0, (most // num_jobs) * math.exp(weighted_sum(weights[SHARE], of_errors)))

    log_useful = np.log(known[:, place]) * (1 - between) + np.log(known[:, place + 1]) * between
    useful, unwanted = np.exp(log_useful), float(offered)
    for number in range(len(classes)):
        if source >= 0 or number != executor_class:  # else these executors are offered or already committed
            unwanted += classes[number].free
    for job in range(num_jobs):
        if unclaimed[job] > 0:
            unwanted -= max(useful[job] - jobs[job].executors, 0.0)
    may_have = used_well + per_unwanted * (max(unwanted, 0.0) / most) ** 2
    log_share = math.log(shares * most / max(np.sum(unclaimed > 0), 1))
    mixed = min(mean_uncertainty / uncertain, 1.0)

    # Sort key, limit and kind of each job.
    keys, limits, kinds = np.zeros(num_jobs), np.zeros(num_jobs, np.int64), np.zeros(num_jobs, np.int64)
    for job in range(num_jobs):
        is_source, some_work, held = job == source, max(work[job], 1.0), jobs[job].executors
        if is_source:
            held -= offered
        features = (
            bounded(log_work[job] - size, MOST_LOG),
            bounded(log_width[job] - width, MOST_LOG),
            done[job] / max(done[job] + work[job], 1.0),
            uncertainty[job],
            bounded(math.log(path_ms[job] / some_work) + log_width[job], MOST_RATIO),
            ready[job] / some_work,
        )
        mixing = (features[0], features[1], features[2], features[4])
        total = _with_products(weights[LIMIT], (*features, 1.0 * is_source), mixing, by)
        log_limit = log_useful[job] + bounded(total, MOST_RATIO)
        doubt = max(uncertainty[job] - doubtful, 0.0)
        log_limit += min(doubt, 1.0) * (log_share - log_limit)
        if len(factors):
            log_limit += math.log(factors[1, job])
        limit = min(max(math.exp(log_limit) + ROUNDING, least), float(most))
        lasting = float(most)
        key = math.log(max(work[job], ROUNDING))
        key += mixed * (log_width[job] - (1 - exponent) * key)
        if is_source:
            key += log_staying - hesitation * doubt
        elif delay_ms > 0:
            well = may_have * useful[job] * fitting[job] / max(known[job, WORK], 1.0)
            lasting = max(fitting[job] / worth_ms, well, 1.0)
        in_use = bounded(math.log((1.0 + max(min(busy[job], held), 0)) / (1.0 + limit)), MOST_RATIO)
        key += _with_products(
            weights[ORDER], (*features, in_use, 1.0 * is_source), (*mixing, in_use, 1.0 * is_source), by
        )
        if len(factors):
            key += math.log(factors[0, job])
        bound, kind = int(min(limit, lasting)), BELOW
        if held >= bound:
            bound, kind = int(min(float(most), lasting)), LASTING
        keys[job], limits[job], kinds[job] = key, bound, OTHER if held >= bound else kind

    # Sort key of each stage.
    stage_kinds, values = np.full(len(stages), OTHER + 1), np.zeros(len(stages))
    for index in range(len(stages)):
        stage = stages[index]
        job, is_ready = stage.job, stage.ready_rank >= 0
        following = jobs[job].next_stage
        if not stage.schedulable or following < 0:
            continue
        if not is_ready and job != source and stages[following].ready_rank >= 0:
            continue
        is_next, is_source = 1.0 * (index == following), 1.0 * (job == source)
        wanted = stage.unclaimed_tasks * stage.mean_task_ms
        height = height_ms[index] / path_ms[job] - 1.0
        lasts = bounded(math.log(wanted / per_delay / each_offered + 0.01), MOST_LOG)
        last, error = wanted / max(work[job], 1.0), min(stage.log_sd, MOST_ERRORS)
        move = 0.0 if is_source else math.log1p(delay_ms / max(stage.mean_task_ms, 1.0)) - 1.5
        count = bounded(math.log(stage.unclaimed_tasks / each_offered + 0.01), MOST_LOG)
        of_stage = (
            *(is_next, height, lasts, 1.0 * (not is_ready), move, last, error, count),
            *(height * errors, height * demand, height * is_stream),
            *(lasts * is_source, lasts * errors, last * demand, is_next * errors, error * is_stream),
        )
        stage_kinds[index], values[index] = kinds[job], keys[job] + weighted_sum(weights[STAGE], of_stage)
    away, chosen = np.full(len(stages), FARTHEST_AWAY), -1
    rank = 0
    for kind in range(OTHER + 1):
        [members] = np.nonzero(stage_kinds == kind)
        for index in members[np.argsort(values[members], kind="mergesort")]:
            away[index] = min(AWAY_BY_RANK * rank, FARTHEST_AWAY)
            if rank == 0 and kind < OTHER:
                chosen = index
            rank += 1
    return chosen, limits, math.exp(log_price), away


@inner
def _factor(weights, features, most):  # type: ignore[no-untyped-def]
    return math.exp(bounded(weighted_sum(weights, features), most))


@inner
def _with_products(weights, features, mixing, factors):  # type: ignore[no-untyped-def]
    """Return the weighted sum of features, and of products of the features ``mixing`` and the factors."""
    total, place = weighted_sum(weights, features), len(features)
    for feature in mixing:
        for factor in factors:
            total += weights[place] * feature * factor
            place += 1
    return total
