"""Steps of ``srpt`` and ``srpt-tuned`` as compiled functions; docs/guides/srpt.md describes them under the same names.

``choose`` calls the steps. They get its arguments as one tuple of arrays and numbers, ``SrptInput``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.rule import (
    PRICES,
    between_prices,
    bounded,
    weighted_sum,
)
from decima.schedulers.srpt_weights import ROW, Constants, JobFeatures, StageFeatures, StateFeatures
from simulator.compiled import ANY_ORDER, compiled, inner, record

__all__ = ["GIVEN_KEY", "KEY_FACTOR", "LIMIT_FACTOR", "RULE", "WORK", "choose", "nearest_price"]

#: Constants and weights of a rule, and what depends on the configuration of the cluster. Compiled code receives one row
#: faster than single arguments.
RULE = record(
    *((name, np.float64) for name in Constants._fields),
    ("has_weights", np.bool_),
    ("weights", np.float64, (len(ROW), len(StateFeatures._fields))),
    ("full_effect_executors", np.float64),
    ("config_executors", np.float64),  # without faults
    ("moving_delay_ms", np.float64),
    ("move_cost_ms", np.float64),  # delay that a move must justify
)
#: Columns of a profile's data: useful parallelism at each price, its logarithm, and total work, ms.
LOG_USEFUL, WORK = len(PRICES), 2 * len(PRICES)
#: Rows of changes of jobs: sort key of another rule, negative for none; factors on the sort key and on the limit.
GIVEN_KEY, KEY_FACTOR, LIMIT_FACTOR = range(3)
#: Sums over the stages of a job, its limit and its sort key.
PLAN = record(
    ("work", np.float64),  # remaining work, ms
    ("done", np.float64),  # finished work, ms
    ("unclaimed", np.float64),  # unclaimed work, ms
    ("ready", np.float64),  # of this, in stages that are ready
    ("fits", np.float64),  # unclaimed work that fits the offered executors, ms
    ("fits_unready", np.float64),  # of this, in stages that are not ready
    ("variance", np.float64),  # squared uncertainty of stages times remaining work
    ("scaled", np.float64),  # remaining work times all executors over those that are large enough, ms
    ("needing", np.float64),  # remaining work that needs executors at least as large as the offered ones, ms
    ("path_ms", np.float64),  # minimum time to the job's end
    ("busy", np.int64),  # executors that run a stage, or move or are committed to it
    ("others", np.int64),  # of these, on stages that smaller executors could run
    ("held", np.int64),  # executors of the job, without offered ones
    ("counted", np.int64),  # of these, those that count towards the limit
    ("log_sd", np.float64),  # uncertainty
    ("log_limit", np.float64),
    ("limit", np.float64),
    ("lasting_ms", np.float64),  # work that justifies moves
    ("lasting", np.float64),  # executors that find lasting work
    ("key", np.float64),  # logarithm of the sort key
)
#: Executors that are large enough for a stage, and free ones of these that are smaller than the offered ones.
COVER = record(("executors", np.float64), ("smaller", np.float64))
#: Columns of ranks. The order of stages is that of the columns before ``LIMIT``: group and logarithm of the key; and
#: where classes matter, 1 if the stage is not ready, logarithm of the number of executors that can run it, and negative
#: time to the job's end, ms. ``LIMIT``: limit of the job.
GROUP, KEY, UNREADY, COVERED, HEIGHT, LIMIT = range(6)
#: Groups: jobs below their limits, jobs with lasting work, other jobs; stages not to choose.
BELOW, LASTING, OTHER, NONE = range(4)
#: Mean uncertainty at which the feature ``errors`` is 0.5.
HALF_ERRORS = 0.2
#: Most live jobs of a batch for which weights have their full effect; none of the batches of the search had more. With
#: full weights, mean JCTs of exactly known batches of 100 and 200 jobs are 2 and 4 % longer than without weights.
MOST_IN_BATCH = 40
#: Bounds: of an uncertainty; of the absolute values of logarithms of ratios, and of sums of weights.
MOST_ERRORS, MOST_LOG, MOST_RATIO = 2.0, 3.0, 2.0
#: Smallest moving delay by which times are divided, ms, and work that is added before logarithms, ms.
LEAST_DELAY_MS, LITTLE_MS = 100.0, 1000.0
#: Added to limits before they are rounded down, because logarithms of whole numbers are not exact; ``NEAREST`` where
#: classes matter on few executors, where a limit that is lower by one is much lower.
ROUNDING, NEAREST = 1e-9, 0.5
#: Ranks that differ by less are equal, so that rounding errors do not decide.
TIE = 1e-12


class SrptInput(NamedTuple):
    """Arguments of ``choose``; for the offered executors see ``Observation``.

    Attributes:
        most: number of executors, at least 1.
        classes_matter: whether executor classes matter.
    """

    jobs: NDArray[np.void]
    stages: NDArray[np.void]
    classes: NDArray[np.void]
    profiles: NDArray[np.float64]
    height_ms: NDArray[np.float64]
    changes: NDArray[np.float64]
    source: int
    offered: int
    executor_class: int
    most: int
    last_call: int
    classes_matter: int


class Totals(NamedTuple):
    """Sums over jobs and stages.

    Attributes:
        tasks: remaining tasks.
        work_ms: remaining work.
        later_ms: work of the source job that fits the offered executors and cannot start yet.
        needing_ms: ready work that needs executors at least as large as the offered ones.
        parallelism: useful parallelism of jobs with unclaimed work, at ``Constants.price_of_demand``.
        wanting: number of jobs with unclaimed work.
        own_covered: executors that are at least as large as the offered ones.
        mean_log_sd: mean uncertainty of the live jobs.
        mean_log_work: mean logarithm of remaining work; 0 without weights.
        mean_log_width: mean logarithm of useful parallelism; 0 without weights.
    """

    tasks: int
    work_ms: float
    later_ms: float
    needing_ms: float
    parallelism: float
    wanting: int
    own_covered: float
    mean_log_sd: float
    mean_log_work: float
    mean_log_width: float


class Terms(NamedTuple):
    """Numbers that all jobs share: results of the first steps, and constants with their effects.

    Attributes:
        price: index of the price, or of the largest price of ``PRICES`` that is not above the price.
        between: place of the price between this one and the next one, from 0 to 1.
        width: index of the price at which demand and width are measured.
        well: multiple of the useful parallelism up to which executors may come even if they find little work.
        worth_ms: work that justifies a move.
        robust: share of the order for uncertain estimates in the order.
    """

    price: int
    between: float
    width: int
    well: float
    worth_ms: float
    least_limit: float
    rounding: float
    unready_work: float
    robust: float
    work_exponent: float
    exact_log_sd: float
    log_uncertain_limit: float
    source_per_log_sd: float
    log_source_factor: float
    log_most: float
    log_own_covered: float


@compiled
def choose(jobs, stages, classes, offer, profiles, height_ms, changes, rules, limits):  # type: ignore[no-untyped-def]
    """Return the stage that runs next, -1 for none, its job's limit, and the price of executors.

    Args:
        offer: source, number and class of the offered executors, number of executors, whether it is the last call, and
            whether executor classes matter, as integers.
        profiles: float64 [J, WORK + 1], data of profiles.
        height_ms: float64 [S], minimum time from the start of each stage to the job's end.
        changes: float64 [3, J] or empty, rows ``GIVEN_KEY`` to ``LIMIT_FACTOR``.
        rules: a row of ``RULE``.
        limits: output, int64 [J], see ``Rule``; or empty, for the decision alone.
    """
    source, offered, executor_class, num_executors, last_call, classes_matter = offer
    most = max(num_executors, 1)  # all may have left
    arrays = jobs, stages, classes, profiles, height_ms, changes
    seen = SrptInput(*arrays, source, offered, executor_class, most, last_call, classes_matter)
    rule, plans = rules[0], np.zeros(len(jobs), PLAN)
    cover = np.zeros(len(stages) if classes_matter else 0, COVER)
    totals = sum_stages(seen, rule, cover_stages(seen, cover), cover, plans)
    effects = np.zeros(len(ROW))
    if rule.has_weights:
        weigh(seen, rule, describe_state(seen, rule, totals, plans), effects)
    log_price = price_of_executors(seen, rule, totals, effects)
    terms = terms_of(seen, rule, totals, effects, plans, log_price)
    for job in range(len(jobs)):
        plan_job(job, seen, rule, totals, terms, effects, plans[job])
    ranks, wants_all = np.empty((len(stages), LIMIT + 1)), len(limits) > 0
    stage = first_stage(seen, rule, terms, effects, cover, plans, wants_all, ranks)
    if wants_all:
        set_limits(seen, plans, ranks, limits)
    price = math.exp(log_price) if rule.has_weights else PRICES[terms.price]
    return stage, int(ranks[stage, LIMIT]) if stage >= 0 else 0, price


# Sums and features.


@inner
def cover_stages(seen, cover):  # type: ignore[no-untyped-def]
    """Fill in ``cover``; return the number of executors that are at least as large as the offered ones."""
    if not seen.classes_matter:
        return float(seen.most)
    offered_class, own_covered = seen.classes[seen.executor_class], 0
    for executor_class in seen.classes:
        own_covered += executor_class.executors * (
            executor_class.cpu >= offered_class.cpu and executor_class.memory >= offered_class.memory
        )
        for index in range(len(seen.stages)):
            stage = seen.stages[index]
            if executor_class.cpu >= stage.cpu and executor_class.memory >= stage.memory:
                cover[index].executors += executor_class.executors
                cover[index].smaller += executor_class.free * (executor_class.memory < offered_class.memory)
    for index in range(len(cover)):
        cover[index].executors = max(cover[index].executors, 1.0)
    return max(float(own_covered), 1.0)


@inner
def sum_stages(seen, rule, own_covered, cover, plans):  # type: ignore[no-untyped-def]
    """Fill in the sums of each job; return ``Totals``. Without weights, no step needs some of the sums."""
    offered_class, tasks, later_ms, needing_ms = seen.classes[seen.executor_class], 0, 0.0, 0.0
    for job in range(len(plans)):
        plans[job].path_ms = 1.0
    for index in range(len(seen.stages)):
        stage = seen.stages[index]
        plan, is_ready = plans[stage.job], stage.ready_rank >= 0
        left = stage.remaining_tasks * stage.mean_task_ms
        wanted = stage.unclaimed_tasks * stage.mean_task_ms
        plan.work += left
        plan.unclaimed += wanted
        plan.variance += left * stage.log_sd**2
        busy = 0
        if rule.has_weights or seen.classes_matter:
            busy = stage.running_executors + stage.remaining_tasks - stage.unclaimed_tasks
            plan.busy += busy
        if rule.has_weights:
            tasks += stage.remaining_tasks
            plan.done += stage.finished_ms
            plan.ready += wanted * is_ready
            if left > 0 or stage.running_executors > 0:
                plan.path_ms = max(plan.path_ms, seen.height_ms[index])
        if seen.classes_matter:
            needs_own = cover[index].executors <= own_covered
            plan.scaled += left * seen.most / cover[index].executors
            plan.needing += left * needs_own
            plan.others += busy * (not needs_own)
            needing_ms += wanted * (is_ready and needs_own)
        if stage.cpu <= offered_class.cpu and stage.memory <= offered_class.memory:
            plan.fits += wanted
            if rule.has_weights:
                plan.fits_unready += wanted * (not is_ready)
                later_ms += wanted * (stage.job == seen.source and stage.schedulable == 0)
    return sum_jobs(seen, rule, tasks, later_ms, needing_ms, own_covered, plans)


@inner
def sum_jobs(seen, rule, tasks, later_ms, needing_ms, own_covered, plans):  # type: ignore[no-untyped-def]
    """Fill in the uncertainty of each job; return ``Totals``."""
    width, num_jobs = nearest_price(rule.price_of_demand), len(plans)
    work_ms, parallelism, wanting, log_sd, log_work, log_width = 0.0, 0.0, 0, 0.0, 0.0, 0.0
    for job in range(num_jobs):
        plan = plans[job]
        plan.log_sd = math.sqrt(plan.variance / max(plan.work, 1e-9))
        work_ms += plan.work
        if rule.has_weights:
            plan.log_sd = min(plan.log_sd, MOST_ERRORS)
            log_work += math.log(max(plan.work, 1.0))
            log_width += seen.profiles[job, LOG_USEFUL + width]
        log_sd += plan.log_sd
        if plan.unclaimed > 0:
            parallelism += seen.profiles[job, width]
            wanting += 1
    means = log_sd / num_jobs, log_work / num_jobs, log_width / num_jobs
    return Totals(tasks, work_ms, later_ms, needing_ms, parallelism, wanting, own_covered, *means)


@inner
def describe_state(seen, rule, totals, plans):  # type: ignore[no-untyped-def]
    """Return the features of the state."""
    num_jobs, free, class_share, scarcity = len(plans), 0, 0.0, 0.0
    for executor_class in seen.classes:
        free += executor_class.free
    if seen.classes_matter:
        ready_ms = 0.0
        for job in range(num_jobs):
            ready_ms += plans[job].ready
        share = totals.own_covered / seen.most
        class_share = math.log(share) + 0.6
        little_ms = LITTLE_MS * share
        ratio = (totals.needing_ms + little_ms) / (ready_ms * share + little_ms)
        scarcity = bounded(math.log(ratio), MOST_RATIO)
    errors = totals.mean_log_sd / (totals.mean_log_sd + HALF_ERRORS)  # saturates: existence matters most
    task_ms = max(totals.work_ms, 1.0) / max(totals.tasks, 1)
    stream = 1.0 * is_stream(seen)
    return StateFeatures(
        one=1.0,
        errors=errors,
        demand=bounded(math.log(max(totals.parallelism, 1.0) / seen.most), MOST_LOG),
        moves=bounded(math.log(1 + rule.moving_delay_ms / task_ms) - 1, MOST_LOG),
        stream=stream,
        free=free / seen.most,
        jobs=math.log(num_jobs) - 2.5,
        executors=math.log(seen.most) - 4.0,
        errors_stream=errors * stream,
        class_share=class_share,
        scarcity=scarcity,
    )


@inner
def is_stream(seen):  # type: ignore[no-untyped-def]
    """Return whether the live jobs arrived at different times."""
    # Arrivals of several drivers are not in order, as the drivers' clocks differ.
    for job in range(1, len(seen.jobs)):  # noqa: SIM110  # compiled code has no generators
        if seen.jobs[job].arrival_ms != seen.jobs[0].arrival_ms:
            return True
    return False


@inner(fastmath=ANY_ORDER)
def weigh(seen, rule, state, effects):  # type: ignore[no-untyped-def]
    """Fill in ``effects`` in this state: less on few executors, and in batches of many jobs."""
    most = rule.config_executors if seen.classes_matter else seen.most
    scale = math.sqrt(min(most / rule.full_effect_executors, 1.0))
    if len(seen.jobs) > MOST_IN_BATCH and not is_stream(seen) and not seen.classes_matter:
        scale *= (MOST_IN_BATCH / len(seen.jobs)) ** 2
    for row in range(len(effects)):
        total = 0.0
        for column in range(len(state)):
            total += rule.weights[row, column] * state[column]
        effects[row] = scale * total


# Steps of the rule that all jobs share.


@inner
def changed(constant, effect):  # type: ignore[no-untyped-def]
    """Return a constant times the exponential of its effect."""
    return constant * math.exp(bounded(effect, MOST_RATIO))


@inner
def price_of_executors(seen, rule, totals, effects):  # type: ignore[no-untyped-def]
    """Return the logarithm of the price, which rises with the root of demand over supply."""
    root = math.sqrt(max(totals.parallelism, 1e-9) / seen.most)
    price = rule.price_in_batch * root
    if seen.classes_matter:
        price = rule.price_with_classes
    elif is_stream(seen):
        price = max(rule.price_in_stream * root, rule.least_price_in_stream)
    return math.log(price) + bounded(effects[ROW.price_one], MOST_RATIO)


@compiled
def nearest_price(price):  # type: ignore[no-untyped-def]
    """Return the index of the nearest price in ``PRICES``, by ratio."""
    index = 0
    while index + 1 < len(PRICES) and PRICES[index] * PRICES[index + 1] < price**2:
        index += 1
    return index


@inner
def useful_executors(profile, price, between):  # type: ignore[no-untyped-def]
    """Return a job's useful parallelism at the price; between prices its logarithm is interpolated."""
    if between == 0:
        return profile[price]
    return math.exp(log_useful_executors(profile, price, between))


@inner
def log_useful_executors(profile, price, between):  # type: ignore[no-untyped-def]
    """Return the logarithm of ``useful_executors``."""
    log_useful = profile[LOG_USEFUL + price]
    if between > 0:
        log_useful += between * (profile[LOG_USEFUL + price + 1] - log_useful)
    return log_useful


@inner
def well_used_multiple(seen, rule, effects, plans, price, between):  # type: ignore[no-untyped-def]
    """Return the multiple of useful parallelism up to which executors may come even if they find little work."""
    if seen.classes_matter or rule.move_cost_ms == 0:
        return 0.0
    idle = float(seen.offered)
    for index in range(len(seen.classes)):
        if seen.source >= 0 or index != seen.executor_class:  # else offered, or already committed
            idle += seen.classes[index].free
    for job in range(len(plans)):
        if plans[job].unclaimed > 0:
            useful = useful_executors(seen.profiles[job], price, between)
            idle -= max(useful - seen.jobs[job].executors, 0.0)
    share = max(idle, 0.0) / seen.most
    multiple = changed(rule.useful_multiple, effects[ROW.useful_multiple_one])
    return multiple + changed(rule.idle_multiple, effects[ROW.idle_multiple_one]) * share**2


@inner
def worth_of_move(seen, rule, totals, effects):  # type: ignore[no-untyped-def]
    """Return the minimum work that justifies the move of an executor, ms."""
    if seen.source < 0:
        effect = effects[ROW.move_min_delays_one]
        return rule.move_min_delays * rule.move_cost_ms * math.exp(bounded(effect, MOST_LOG))
    effect, offered = effects[ROW.leave_min_delays_one], max(seen.offered, 1)
    if rule.has_weights:
        later = math.log1p(totals.later_ms / max(rule.move_cost_ms, 1.0) / offered) - 1.0
        effect += effects[ROW.leave_min_delays_later] * later
        effect += effects[ROW.leave_min_delays_offered] * (math.log(offered) - 1.0)
    return rule.leave_min_delays * rule.move_cost_ms * math.exp(bounded(effect, MOST_LOG))


@inner
def terms_of(seen, rule, totals, effects, plans, log_price):  # type: ignore[no-untyped-def]
    """Return ``Terms``."""
    price, between = between_prices(log_price)
    if not rule.has_weights:
        price, between = price + (between > 0.5), 0.0
    is_small = seen.classes_matter and rule.config_executors < rule.full_effect_executors
    robust_log_sd = changed(rule.robust_order_log_sd, effects[ROW.robust_order_log_sd_one])
    shares = changed(rule.uncertain_shares, effects[ROW.uncertain_shares_one])
    log_source_factor = math.log(rule.source_factor) + bounded(effects[ROW.source_factor_one], MOST_LOG)
    rounding = NEAREST if is_small else ROUNDING
    robust = 0.0 if seen.classes_matter else min(totals.mean_log_sd / robust_log_sd, 1.0)
    return Terms(
        price=price,
        between=between,
        width=nearest_price(rule.price_of_demand),
        well=well_used_multiple(seen, rule, effects, plans, price, between),
        worth_ms=worth_of_move(seen, rule, totals, effects),
        least_limit=max(1.0, (seen.most // len(plans)) * math.exp(effects[ROW.least_limit_one])),
        rounding=rounding,
        unready_work=math.exp(effects[ROW.unready_work_one]),
        robust=robust,
        work_exponent=changed(rule.robust_work_exponent, effects[ROW.robust_work_exponent_one]),
        exact_log_sd=changed(rule.exact_log_sd, effects[ROW.exact_log_sd_one]),
        log_uncertain_limit=math.log(shares * seen.most / max(totals.wanting, 1)),
        source_per_log_sd=changed(rule.source_per_log_sd, effects[ROW.source_per_log_sd_one]),
        log_source_factor=log_source_factor,
        log_most=math.log(seen.most),
        log_own_covered=math.log(totals.own_covered),
    )


# Steps for each job.


@inner
def plan_job(job, seen, rule, totals, terms, effects, plan):  # type: ignore[no-untyped-def]
    """Fill in the limit and the sort key of a job."""
    features = describe_job(job, seen, rule, totals, terms, plan)
    plan.held = seen.jobs[job].executors - seen.offered * (job == seen.source)
    doubt = 0.0 if seen.classes_matter else max(plan.log_sd - terms.exact_log_sd, 0.0)
    plan.log_limit = limit_of_job(job, seen, rule, terms, effects, features, doubt)
    plan.limit = rounded_limit(plan.log_limit, seen, terms)
    plan.counted = plan.held
    if seen.classes_matter:
        plan.limit = math.floor(plan.limit)
        active = min(plan.busy, plan.held)
        less = 1 - math.exp(min(effects[ROW.other_executors_one], 0.0))
        plan.counted = int(active - less * min(plan.others, active) + terms.rounding)
    plan.lasting_ms = plan.fits - (1 - terms.unready_work) * plan.fits_unready
    plan.lasting = lasting_executors(job, seen, rule, terms, plan)
    plan.key = key_of_job(job, seen, rule, terms, effects, features, doubt, plan)


@inner
def describe_job(job, seen, rule, totals, terms, plan):  # type: ignore[no-untyped-def]
    """Return the features of a job; all are 0 without weights."""
    if not rule.has_weights:
        return JobFeatures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    work, log_width, scarce = max(plan.work, 1.0), seen.profiles[job, LOG_USEFUL + terms.width], 0.0
    if seen.classes_matter:
        scarce = math.log(max(plan.scaled, 1.0) / work) - 0.7
    return JobFeatures(
        size=bounded(math.log(work) - totals.mean_log_work, MOST_LOG),
        width=bounded(log_width - totals.mean_log_width, MOST_LOG),
        done=plan.done / max(plan.done + plan.work, 1.0),
        error=plan.log_sd,
        path=bounded(math.log(plan.path_ms / work) + log_width, MOST_RATIO),
        ready=plan.ready / work,
        source=1.0 * (job == seen.source),
        fits=plan.fits / work,
        scarce=scarce,
    )


@inner
def limit_of_job(job, seen, rule, terms, effects, features, doubt):  # type: ignore[no-untyped-def]
    """Return the logarithm of a job's limit: its useful parallelism, or an equal share if estimates are uncertain."""
    log_limit = log_useful_executors(seen.profiles[job], terms.price, terms.between)
    if rule.has_weights:
        change = effects[ROW.limit_one] + weighted_sum(effects, features, ROW.limit_size)
        log_limit += bounded(change, MOST_LOG if seen.classes_matter else MOST_RATIO)
    log_limit += min(doubt, 1.0) * (terms.log_uncertain_limit - log_limit)
    if len(seen.changes):
        log_limit += math.log(seen.changes[LIMIT_FACTOR, job])
    return log_limit


@inner
def rounded_limit(log_limit, seen, terms):  # type: ignore[no-untyped-def]
    """Return a limit within its bounds, to be rounded down."""
    return min(max(math.exp(log_limit) + terms.rounding, terms.least_limit), float(seen.most))


@inner
def lasting_executors(job, seen, rule, terms, plan):  # type: ignore[no-untyped-def]
    """Return how many executors find work in a job that justifies their move, or are used well."""
    if job == seen.source or rule.move_cost_ms == 0:
        return float(seen.most)
    well = 0.0
    if terms.well > 0:
        useful = useful_executors(seen.profiles[job], terms.price, terms.between)
        well = terms.well * useful * plan.lasting_ms / max(seen.profiles[job, WORK], 1.0)
    return max(plan.lasting_ms / terms.worth_ms, well, 1.0)


@inner
def key_of_job(job, seen, rule, terms, effects, features, doubt, plan):  # type: ignore[no-untyped-def]
    """Return the logarithm of a job's sort key."""
    given_key = seen.changes[GIVEN_KEY, job] if len(seen.changes) else -1.0
    value = given_key if given_key >= 0 else plan.work
    key = math.log(value) if value > 0 else -math.inf
    if given_key < 0 and value > 0 and terms.robust > 0:
        log_width = seen.profiles[job, LOG_USEFUL + terms.width]
        key += terms.robust * (log_width - (1 - terms.work_exponent) * key)
    if job == seen.source:
        key += terms.log_source_factor - terms.source_per_log_sd * doubt
    if rule.has_weights:
        ratio = (1.0 + max(min(plan.busy, plan.held), 0)) / (1.0 + plan.limit)
        held = bounded(math.log(ratio), MOST_LOG if seen.classes_matter else MOST_RATIO)
        key += weighted_sum(effects, features, ROW.order_size) + effects[ROW.order_held] * held
        if seen.classes_matter:
            needing = math.log(plan.needing / max(plan.work, 1.0) + 0.05) + 1.0
            key += effects[ROW.order_needing] * needing
    if len(seen.changes):
        key += math.log(seen.changes[KEY_FACTOR, job])
    return key


# Steps for each stage.


@inner
def first_stage(seen, rule, terms, effects, cover, plans, wants_all, ranks):  # type: ignore[no-untyped-def]
    """Return the first stage of a job that may get executors, -1 for none.

    Fill in ``ranks``: of all stages that could be chosen if ``wants_all``, else of those that could come first.
    """
    best, last_group = -1, NONE if wants_all else LASTING
    by_job = not (rule.has_weights or seen.classes_matter)
    for row in range(len(seen.jobs) if by_job else len(seen.stages)):
        index = seen.jobs[row].next_stage if by_job else row
        if index < 0:
            continue
        ranks[index, GROUP] = NONE
        if not can_be_chosen(index, seen):
            continue
        stage = seen.stages[index]
        plan = plans[stage.job]
        limit, lasting, log_cover = plan.limit, plan.lasting, 0.0
        ranks[index, UNREADY] = ranks[index, COVERED] = ranks[index, HEIGHT] = 0.0
        if seen.classes_matter:
            log_cover = math.log(cover[index].executors)
            limit, lasting = limit_of_stage(index, seen, rule, terms, effects, log_cover, plan)
            ranks[index, UNREADY] = stage.ready_rank < 0
            ranks[index, COVERED], ranks[index, HEIGHT] = log_cover, -seen.height_ms[index]
        bound, group = bound_of(limit, lasting, seen, plan)
        if group > last_group:
            continue
        ranks[index, GROUP] = group
        ranks[index, KEY] = key_of_stage(index, seen, rule, terms, effects, cover, log_cover, plan)
        ranks[index, LIMIT] = plan.held + max(bound - plan.counted, 0)
        if group < OTHER and (best < 0 or precedes(ranks, index, best)):
            best, last_group = index, last_group if wants_all else group
    return best


@inner
def can_be_chosen(index, seen):  # type: ignore[no-untyped-def]
    """Return whether a stage is a candidate."""
    stage = seen.stages[index]
    is_ready, is_source = stage.ready_rank >= 0, stage.job == seen.source
    if not stage.schedulable:
        return False
    if seen.classes_matter:
        return is_ready or is_source or seen.last_call > 0
    following = seen.jobs[stage.job].next_stage
    return following >= 0 and (is_ready or is_source or seen.stages[following].ready_rank < 0)


@inner
def limit_of_stage(index, seen, rule, terms, effects, log_cover, plan):  # type: ignore[no-untyped-def]
    """Return a job's limit and its executors that find lasting work for a stage, where classes matter."""
    change = effects[ROW.limit_covered] * (log_cover - terms.log_most)
    change += effects[ROW.limit_exact] * (log_cover == terms.log_own_covered)
    limit = rounded_limit(plan.log_limit + bounded(change, MOST_LOG), seen, terms)
    if seen.stages[index].job == seen.source or rule.move_cost_ms == 0:
        return limit, plan.lasting
    effect = effects[ROW.leave_min_delays_waste] if seen.source >= 0 else effects[ROW.move_min_delays_waste]
    waste = bounded(effect * (log_cover - terms.log_own_covered), MOST_LOG)
    return limit, max(plan.lasting_ms / (terms.worth_ms * math.exp(waste)), 1.0)


@inner
def bound_of(limit, lasting, seen, plan):  # type: ignore[no-untyped-def]
    """Return how many executors a job may have, and its group: below its limit, with lasting work, or other."""
    bound, group = int(min(limit, lasting)), BELOW
    if plan.counted >= bound:
        bound, group = int(min(float(seen.most), lasting)), LASTING
    return bound, OTHER if plan.counted >= bound else group


@inner
def key_of_stage(index, seen, rule, terms, effects, cover, log_cover, plan):  # type: ignore[no-untyped-def]
    """Return the logarithm of a stage's sort key."""
    key = plan.key
    if rule.has_weights:
        features = describe_stage(index, seen, rule, plan)
        key += weighted_sum(effects, features, ROW.stage_next)
    if seen.classes_matter:
        key += rule.coverage_exponent * log_cover
        if rule.has_weights:
            key += effects[ROW.stage_covered] * (log_cover - terms.log_most)
            key += effects[ROW.stage_exact] * (log_cover == terms.log_own_covered)
            key += effects[ROW.stage_smaller] * math.log1p(cover[index].smaller / max(seen.offered, 1))
    return key


@inner
def describe_stage(index, seen, rule, plan):  # type: ignore[no-untyped-def]
    """Return the features of a stage that do not depend on executor classes."""
    stage, offered = seen.stages[index], max(seen.offered, 1)
    is_source, wanted = stage.job == seen.source, stage.unclaimed_tasks * stage.mean_task_ms
    delay_ms = (
        max(rule.move_cost_ms, 1.0) if seen.classes_matter else max(rule.moving_delay_ms, LEAST_DELAY_MS)
    )
    lasts = bounded(math.log(wanted / delay_ms / offered + 0.01), MOST_LOG)
    move = 0.0 if is_source else math.log1p(rule.move_cost_ms / max(stage.mean_task_ms, 1.0)) - 1.5
    return StageFeatures(
        next=1.0 * (index == seen.jobs[stage.job].next_stage),
        height=seen.height_ms[index] / plan.path_ms - 1.0,
        lasts=lasts,
        unready=1.0 * (stage.ready_rank < 0),
        move=move,
        last=wanted / max(plan.work, 1.0),
        stage_error=min(stage.log_sd, MOST_ERRORS),
        tasks=bounded(math.log(stage.unclaimed_tasks / offered + 0.01), MOST_LOG),
        lasts_source=lasts * is_source,
    )


@inner
def precedes(ranks, first, second):  # type: ignore[no-untyped-def]
    """Return whether a row of ranks comes before another one."""
    for column in range(LIMIT):
        difference = ranks[first, column] - ranks[second, column]
        if abs(difference) > TIE:
            return difference < 0
    return False


# Limits of all jobs.


@inner
def set_limits(seen, plans, ranks, limits):  # type: ignore[no-untyped-def]
    """Fill in each job's limit: where classes matter, that of its first stage in the order."""
    for job in range(len(plans)):
        limits[job] = plans[job].held
        if not seen.classes_matter:
            limits[job] = bound_of(plans[job].limit, plans[job].lasting, seen, plans[job])[0]
    if seen.classes_matter:
        first = 0
        for index in range(len(ranks)):
            job = seen.stages[index].job
            if index == seen.jobs[job].first_stage or precedes(ranks, index, first):
                first = index
            if ranks[first, GROUP] < NONE:
                limits[job] = int(ranks[first, LIMIT])
