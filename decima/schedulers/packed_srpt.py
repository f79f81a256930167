"""Shortest remaining work first on executors of several classes: ``packed-srpt``, and ``adaptive-packed-srpt``.

In the latter, logarithms of the sort key of stages, of limits, of the price, and of the minimum work that justifies a
move are those of ``packed-srpt`` plus linear functions of features of state, jobs and stages.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.adaptive_srpt import AdaptiveSrpt
from decima.schedulers.base import (
    AWAY_BY_RANK,
    FARTHEST_AWAY,
    NO_RULE,
    PRICES,
    STAYING,
    WORTH_LEAVING,
    WORTH_MOVING,
    Rule,
    Scheduler,
    between_prices,
    bounded,
    check_positive,
    move_cost_ms,
    named_weights,
    weighted_sum,
)
from simulator.cluster.alone import useful_executors, useful_parallelism
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled
from workloads.job import JobProfile

__all__ = ["GROUPS", "PACKED_WEIGHTS", "AdaptivePackedSrpt", "PackedConstants", "PackedSrpt"]

#: Index of the price at which demand and width are measured.
MEASURED = PRICES.index(2.5)
#: Features of the state; logarithms are natural. ``one``: 1; ``demand``: log(useful parallelism of all jobs / number of
#: executors); ``jobs``: log(number of live jobs) - 2.5; ``class``: log(share of executors that are at least as large as
#: the offered executors) + 0.6; ``scarcity``: log(share of the ready work that needs such executors / their share);
#: ``free``: share of executors that are free.
STATE = ("one", "demand", "jobs", "class", "scarcity", "free")
#: Features of the executors that are offered. ``later``: log(1 + their job's work that fits them and cannot start yet,
#: in moving delays for each of them) - 1; ``offered``: log(their number) - 1.
OF_OFFER = ("later", "offered")
#: Features of a job. ``size`` and ``width``: logarithms of remaining work and of useful parallelism, minus their means
#: over the live jobs; ``done``: finished share of the work; ``scarce``: log(mean over the work of all executors /
#: executors that are large enough) - 0.7; ``path``: log(minimum time to the job's end / time at useful parallelism);
#: ``ready``, ``fits``: shares of the work that are ready and unclaimed, and that fit the offered executors.
OF_JOB = ("size", "width", "done", "scarce", "path", "ready", "fits")
#: Features of a job that only its order depends on. ``held``: log((busy executors + 1) / (limit + 1)); ``source``: 1 if
#: its executors are offered; ``needing``: log(share of the work that needs executors at least as large as the offered
#: executors, plus 0.05) + 1; products of features.
OF_ORDER = (
    *("held", "source", "needing"),
    *("size_demand", "width_demand", "path_demand", "source_demand", "source_class"),
)
#: Features of a stage. ``covered``: log(share of executors that are large enough); ``exact``: 1 if no smaller executors
#: than the offered ones are large enough; ``height``: minimum time to the job's end over that of the job, minus 1;
#: ``lasts``: log(unclaimed work in moving delays for each offered executor, plus 0.01); ``unready``: 1 if a parent is
#: incomplete; ``smaller``: log(1 + free executors of smaller classes that are large enough / offered executors);
#: ``move``: log(1 + moving delay / task time) - 1.5, 0 for the source; ``last``: share of the job's work that is this
#: stage's unclaimed work; products of features.
OF_STAGE = (
    *("covered", "height", "lasts", "unready", "smaller", "exact", "move", "last"),
    *("covered_demand", "covered_scarcity", "source_lasts"),
)
#: Features of the offered executors and a stage. ``waste``: log(executors that are large enough for the stage /
#: executors at least as large as the offered executors), times 1, ``scarcity`` and ``free``.
WASTE = ("waste", "waste_scarcity", "waste_free")
#: Group of weights -> features. ``order``: of the key by which stages are sorted; ``limit``, ``price``: of the job's
#: limit; ``share``: of the minimum limit; ``leaving``, ``moving``: of the minimum work that justifies a move;
#: ``counting``: of the count of busy executors and of lasting work, see ``AdaptivePackedSrpt``.
GROUPS = {
    "order": OF_JOB + OF_ORDER + OF_STAGE,
    "limit": STATE + OF_JOB + ("covered", "covered_scarcity", "exact"),
    "price": ("one", "demand", "jobs"),
    "share": ("one",),
    "leaving": STATE + OF_OFFER + WASTE,
    "moving": STATE + WASTE,
    "counting": ("other", "later"),
}
#: Weights other than 0 by group, found by direct policy search (docs/studies.md).
# fmt: off
CHOSEN = {
    "order": {
        "size": 0.13, "width": 0.06, "done": 0.1, "path": -0.09, "ready": 0.07, "fits": -0.03, "held": 0.05,
        "source": -0.3, "needing": -0.21, "size_demand": 0.04, "width_demand": 0.21, "path_demand": -0.09,
        "source_demand": -0.17, "source_class": 0.33, "covered": -0.25, "height": -0.41, "lasts": 0.1, "unready": 0.13,
        "smaller": -0.17, "exact": -0.13, "move": 0.16, "last": -0.13, "covered_demand": -0.05,
        "covered_scarcity": 0.25, "source_lasts": -0.07,
    },
    "limit": {
        "one": -0.17, "demand": 0.28, "jobs": 0.3, "class": 0.17, "scarcity": 0.01, "free": -0.06, "size": 0.18,
        "width": 0.04, "done": -0.13, "scarce": -0.11, "path": -0.19, "ready": -0.26, "fits": -0.05, "covered": 0.23,
        "covered_scarcity": 0.04, "exact": 0.15,
    },
    "price": {"one": -0.46, "demand": 0.04, "jobs": -0.01},
    "share": {"one": 0.09},
    "leaving": {
        "one": -0.01, "demand": 0.25, "jobs": 0.03, "class": -0.12, "scarcity": 0.15, "free": -0.24, "later": 0.2,
        "offered": -0.24, "waste": 0.47, "waste_scarcity": -0.28, "waste_free": 0.08,
    },
    "moving": {
        "one": 0.26, "demand": 0.06, "jobs": 0.02, "class": -0.01, "scarcity": -0.22, "free": -0.14, "waste": 0.21,
        "waste_scarcity": 0.1, "waste_free": 0.11,
    },
    "counting": {"other": -0.79, "later": -0.5},
}
# fmt: on
#: Default of each weight, by its name ``group.feature``.
PACKED_WEIGHTS = named_weights(GROUPS, CHOSEN)
#: Rows of the table of weights, in the order of ``GROUPS``.
ORDER, LIMIT, PRICE, SHARE, LEAVING, MOVING, COUNTING = range(len(GROUPS))
#: Default size of a cluster from which on weights have their full effect.
FULL_EFFECT = 50.0
#: Numbers of features: of the state, of a job, of its order only, of a stage.
N_STATE, N_JOB, N_ORDER, N_STAGE = len(STATE), len(OF_JOB), len(OF_ORDER), len(OF_STAGE)
#: Bounds of logarithms: of differences and factors, and of ratios.
MOST_LOG, MOST_RATIO = 3.0, 2.0
#: Added to work before logarithms, ms.
LITTLE_MS = 1000.0
#: Columns of ranks. Stages are sorted by the first five: group of the job (0: below its limit, 1: with lasting work,
#: 2: other), key, 1 if the stage is not ready, executors that can run it, negative time to the job's end. The last
#: column is the job's limit.
RANKS = ("group", "key", "unready", "covered", "height", "limit")
#: Value in ranks of a stage that cannot be chosen, and ranks for a decision alone.
NOT_RANKED, NO_RANKS = 3.0, np.zeros((0, len(RANKS)))
#: Added to numbers of executors before they are rounded down: ``ROUNDING`` because logarithms of whole numbers are not
#: exact, ``NEAREST`` on few executors, where a limit that is lower by one is much lower.
ROUNDING, NEAREST = 1e-9, 0.5


class PackedConstants(NamedTuple):
    """Constants of ``packed-srpt``; ``decima tune`` tunes them.

    Attributes:
        thrift: cost exponent of executors, see ``ProfiledSrpt``.
        waste: exponent of the number of executors that can run a stage.
        staying: factor on the remaining work of the job whose executors are offered.
        worth_leaving: minimum work that justifies moving another job's executor, in moving delays.
        worth_moving: minimum work that justifies moving a free executor, in moving delays.
    """

    thrift: float = 5.0
    waste: float = 1.5
    staying: float = STAYING
    worth_leaving: float = WORTH_LEAVING
    worth_moving: float = WORTH_MOVING


class AdaptivePackedSrpt(Scheduler):
    """``packed-srpt`` whose order, limits and thresholds depend on state, jobs and stages, by weights.

    The sort key of a stage, its job's limit, the minimum limit and the minimum work that justifies a move are
    multiplied by exponentials of weighted sums of features (``GROUPS``). So is the price, which replaces ``thrift``:
    between prices, the logarithm of the limit is interpolated. Executors on stages that smaller classes could run count
    with the factor exp(``counting.other``), at most 1, towards the limit. Work that is not ready counts with the factor
    exp(``counting.later``) as work that justifies a move. While every executor can run all stages of the live jobs, the
    decisions are those of ``adaptive-srpt``.

    The default weights were found for TPC-H jobs on executors of two and four sizes; ``decima tune
    adaptive-packed-srpt`` searches for others.

    Args:
        full_effect: positive size of a cluster from which on weights have their full effect. On a smaller cluster they
            are multiplied by the root of the ratio, and limits and counts of busy executors are rounded to the nearest
            whole number instead of down.
        constants: fields of ``PackedConstants``, and weights by their names in ``PACKED_WEIGHTS``.

    Raises:
        ValueError: ``waste`` is negative, or another constant is not positive.
        TypeError: unknown constant.
    """

    learned = True

    def __init__(self, full_effect: float = FULL_EFFECT, **constants: float) -> None:
        self.weights = PACKED_WEIGHTS | {
            name: constants.pop(name) for name in PACKED_WEIGHTS if name in constants
        }
        self.constants = PackedConstants(**{name: float(value) for name, value in constants.items()})
        if not self.constants.waste >= 0:
            raise ValueError(f"waste must not be negative, got {self.constants.waste:g}")
        check_positive(full_effect=full_effect, **self.constants._replace(waste=1.0)._asdict())
        self.full_effect = float(full_effect)
        self._table = np.zeros((len(GROUPS), max(map(len, GROUPS.values()))))
        for row, (group, features) in enumerate(GROUPS.items()):
            self._table[row, : len(features)] = [self.weights[f"{group}.{each}"] for each in features]
        self._height_ms = PerJob(lambda profile, _: profile.height_ms, np.concatenate)
        self._log_useful = PerJob(_log_useful, np.array)
        self._fit_all = PerJob(_fit_all, all)
        self._if_all_fit: AdaptiveSrpt | None = AdaptiveSrpt()

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the stage with the least key, see the class; stages of jobs below their limits come first."""
        if self._if_all_fit is not None and self._fit_all(observation):
            return self._if_all_fit.decide(observation)
        stage, limit = self._choose(observation, NO_RANKS)
        return Decision(stage, limit) if stage >= 0 else None

    def ask(self, observation: Observation) -> Rule:
        """Return the decision, each job's limit and each stage's distance from the decision.

        A job's limit is that of its first stage in the order, see ``PackedSrpt``.
        """
        if not len(observation.jobs):
            return NO_RULE
        if self._if_all_fit is not None and self._fit_all(observation):
            return self._if_all_fit.ask(observation)
        ranks = np.full((len(observation.stages), len(RANKS)), NOT_RANKED)
        stage, _ = self._choose(observation, ranks)
        order = np.lexsort(ranks[:, len(RANKS) - 2 :: -1].T)
        order = order[ranks[order, 0] < NOT_RANKED]
        limits = observation.job_executors.copy()
        if observation.source >= 0:
            limits[observation.source] -= observation.offered
        backwards = order[::-1]  # the first stage of a job comes last, and overwrites the others
        limits[observation.stage_job[backwards]] = ranks[backwards, -1].astype(np.int64)
        away = np.full(len(ranks), FARTHEST_AWAY)
        away[order] = np.minimum(AWAY_BY_RANK * np.arange(len(order)), FARTHEST_AWAY)
        return Rule(stage, limits, 0.0, away)

    def _choose(self, observation: Observation, ranks: NDArray[np.float64]) -> tuple[int, int]:
        if not len(observation.jobs):
            return -1, 0
        stage, limit = _choose(
            *(observation.jobs, observation.stages, observation.classes, observation.source),
            *(observation.offered, observation.executor_class, observation.num_executors),
            *(self._log_useful(observation), self._height_ms(observation), move_cost_ms(observation)),
            *(observation.last_call, self.constants, self._table),
            *(observation.config.num_executors / self.full_effect, ranks),
        )
        return stage, limit


def _log_useful(profile: JobProfile, config: ClusterConfig) -> NDArray[np.float64]:
    return np.log(np.array(useful_parallelism(profile, config, PRICES), np.float64))


def _fit_all(profile: JobProfile, config: ClusterConfig) -> bool:
    return all(each.fits(stage) for each in config.executor_classes for stage in profile.stages)


@compiled
def _choose(  # type: ignore[no-untyped-def]
    jobs,
    stages,
    classes,
    source,
    offered,
    own_class,
    num_executors,
    useful,
    height_ms,
    delay_ms,
    last_call,
    constants,
    weights,
    ratio,
    ranks,
):
    """Return the stage that runs next, -1 for none, and its job's limit.

    ``useful``: logarithm of the useful parallelism of each job at each price, float64 [J, len(PRICES)]; ``height_ms``:
    minimum time from the start of each stage to the job's end, float64 [S]; ``weights``: a row for each group;
    ``ratio``: size of the cluster over ``full_effect``; ``ranks``: output, see ``RANKS``, float64 [S, len(RANKS)];
    without rows, no output.
    """
    num_jobs, own, each_offered = len(jobs), classes[own_class], max(offered, 1)
    most, rounding = max(num_executors, 1), ROUNDING  # all may have left
    covered, smaller, own_covered = np.zeros(len(stages)), np.zeros(len(stages)), 0
    for each in classes:
        own_covered += each.executors * (each.cpu >= own.cpu and each.memory >= own.memory)
        for index in range(len(stages)):
            if each.cpu >= stages[index].cpu and each.memory >= stages[index].memory:
                covered[index] += each.executors
                smaller[index] += each.free * (each.memory < own.memory)
    if ratio < 1.0:
        weights, rounding = weights * math.sqrt(ratio), NEAREST
    covered, own_covered = np.maximum(covered, 1.0), max(own_covered, 1)
    # Sums over the stages of each job: work, ms, and numbers of executors.
    sums = np.zeros((10, num_jobs))
    work, done, scaled, unclaimed, ready = sums[0], sums[1], sums[2], sums[3], sums[4]
    fits, lasting_ms, needing, busy, others = sums[5], sums[6], sums[7], sums[8], sums[9]
    path_ms, ready_needing, later_ms = np.ones(num_jobs), 0.0, 0.0
    for index in range(len(stages)):
        stage, needs_own = stages[index], covered[index] <= own_covered
        job, is_ready = stage.job, stage.ready_rank >= 0
        left = stage.remaining_tasks * stage.mean_task_ms
        wanted = stage.unclaimed_tasks * stage.mean_task_ms
        active = stage.running_executors + stage.remaining_tasks - stage.unclaimed_tasks
        work[job] += left
        done[job] += stage.finished_ms
        scaled[job] += left * most / covered[index]
        unclaimed[job] += wanted
        busy[job] += active
        needing[job] += left * needs_own
        others[job] += active * (not needs_own)
        ready[job] += wanted * is_ready
        ready_needing += wanted * (is_ready and needs_own)
        if left > 0 or stage.running_executors > 0:
            path_ms[job] = max(path_ms[job], height_ms[index])
        if stage.cpu <= own.cpu and stage.memory <= own.memory:
            fits[job] += wanted
            lasting_ms[job] += wanted * (1.0 if is_ready else math.exp(weights[COUNTING, 1]))
            later_ms += wanted * (job == source and stage.schedulable == 0)

    size, width, parallelism = 0.0, 0.0, 0.0  # means of logarithms; sum
    for job in range(num_jobs):
        size += math.log(max(work[job], 1.0)) / num_jobs
        width += useful[job, MEASURED] / num_jobs
        parallelism += math.exp(useful[job, MEASURED]) * (unclaimed[job] > 0)
    own_share = own_covered / most
    little = LITTLE_MS * own_share
    state = np.empty(N_STATE)
    state[0] = 1.0
    state[1] = demand = bounded(math.log(max(parallelism, 1.0) / most), MOST_LOG)
    state[2] = math.log(num_jobs) - 2.5
    state[3] = of_class = math.log(own_share) + 0.6
    state[4] = scarcity = bounded(
        math.log((ready_needing + little) / (ready.sum() * own_share + little)), MOST_RATIO
    )
    state[5] = free = classes["free"].sum() / most

    place, between = between_prices(math.log(constants.thrift) + weighted_sum(weights[PRICE], state))
    least = max(1.0, (most // num_jobs) * math.exp(weights[SHARE, 0]))
    if source >= 0:
        worth_ms, waste_weights = constants.worth_leaving * delay_ms, weights[LEAVING, N_STATE + 2 :]
        total = weighted_sum(weights[LEAVING], state)
        total += weights[LEAVING, N_STATE] * (math.log1p(later_ms / max(delay_ms, 1.0) / each_offered) - 1.0)
        total += weights[LEAVING, N_STATE + 1] * (math.log(each_offered) - 1.0)
    else:
        worth_ms, waste_weights = constants.worth_moving * delay_ms, weights[MOVING, N_STATE:]
        total = weighted_sum(weights[MOVING], state)
    worth_ms *= math.exp(bounded(total, MOST_LOG))

    log_limit, key = np.zeros(num_jobs), np.zeros(num_jobs)
    held, counted = jobs["executors"].copy(), np.zeros(num_jobs, np.int64)
    features = np.empty(N_JOB)
    for job in range(num_jobs):
        some_work, is_source = max(work[job], 1.0), job == source
        features[0] = bounded(math.log(some_work) - size, MOST_LOG)
        features[1] = bounded(useful[job, MEASURED] - width, MOST_LOG)
        features[2] = done[job] / max(done[job] + work[job], 1.0)
        features[3] = math.log(max(scaled[job], 1.0) / some_work) - 0.7
        features[4] = path = bounded(math.log(path_ms[job] / some_work) + useful[job, MEASURED], MOST_RATIO)
        features[5], features[6] = ready[job] / some_work, fits[job] / some_work
        log_limit[job] = useful[job, place] * (1 - between) + useful[job, place + 1] * between
        total = weighted_sum(weights[LIMIT], state) + weighted_sum(weights[LIMIT], features, N_STATE)
        log_limit[job] += bounded(total, MOST_LOG)
        if is_source:
            held[job] -= offered
        active = min(busy[job], held[job])
        counted[job] = int(
            active - (1 - math.exp(min(weights[COUNTING, 0], 0.0))) * min(others[job], active) + rounding
        )
        limit = int(min(max(math.exp(log_limit[job]) + rounding, least), most))
        order = weights[ORDER, N_JOB:]
        key[job] = math.log(max(work[job], ROUNDING)) + weighted_sum(weights[ORDER], features)
        key[job] += order[0] * bounded(math.log((1.0 + max(active, 0)) / (1.0 + limit)), MOST_LOG)
        key[job] += order[2] * (math.log(needing[job] / some_work + 0.05) + 1.0)
        key[job] += (order[3] * features[0] + order[4] * features[1] + order[5] * path) * demand
        if is_source:
            key[job] += math.log(constants.staying) + order[1] + order[6] * demand + order[7] * of_class

    best, best_kind, best_bound, least_rank = -1, 2, 0, (0.0, 0.0, 0.0, 0.0, 0.0)
    features = np.empty(N_STAGE)
    for index in range(len(stages)):
        stage = stages[index]
        job, is_source, is_ready = stage.job, stage.job == source, stage.ready_rank >= 0
        if not stage.schedulable or not (is_ready or is_source or last_call):
            continue
        cover, is_exact = math.log(covered[index] / most), covered[index] == own_covered
        waste = math.log(covered[index] / own_covered)
        addend = weights[LIMIT, N_STATE + N_JOB :]
        total = (addend[0] + addend[1] * scarcity) * cover + addend[2] * is_exact
        limit = int(min(max(math.exp(log_limit[job] + bounded(total, MOST_LOG)) + rounding, least), most))
        lasting = float(most)
        if delay_ms > 0 and not is_source:
            total = (waste_weights[0] + waste_weights[1] * scarcity + waste_weights[2] * free) * waste
            lasting = max(lasting_ms[job] / (worth_ms * math.exp(bounded(total, MOST_LOG))), 1.0)
        bound, kind = int(min(limit, lasting)), 0
        if counted[job] >= bound:
            bound, kind = int(min(most, lasting)), 1
        if counted[job] >= bound:
            kind = 2
        if (kind > best_kind or kind == 2) and len(ranks) == 0:
            continue
        wanted = stage.unclaimed_tasks * stage.mean_task_ms
        lasts = bounded(math.log(wanted / max(delay_ms, 1.0) / each_offered + 0.01), MOST_LOG)
        features[0], features[1], features[2] = cover, height_ms[index] / path_ms[job] - 1.0, lasts
        features[3], features[4] = not is_ready, math.log1p(smaller[index] / each_offered)
        features[5] = is_exact
        features[6] = 0.0 if is_source else math.log1p(delay_ms / max(stage.mean_task_ms, 1.0)) - 1.5
        features[7] = wanted / max(work[job], 1.0)
        features[8], features[9], features[10] = cover * demand, cover * scarcity, is_source * lasts
        value = (
            key[job]
            + constants.waste * math.log(covered[index])
            + weighted_sum(weights[ORDER], features, N_JOB + N_ORDER)
        )
        rank = (float(kind), value, 0.0 if is_ready else 1.0, covered[index], -height_ms[index])
        if len(ranks):
            for place in range(len(rank)):
                ranks[index, place] = rank[place]
            ranks[index, len(rank)] = held[job] + max(bound - counted[job], 0)
        if kind < 2 and (best < 0 or rank < least_rank):
            best, best_bound, best_kind, least_rank = index, bound, kind, rank
    if best < 0:
        return -1, 0
    job = stages[best].job
    return best, held[job] + best_bound - counted[job]


class PackedSrpt(AdaptivePackedSrpt):
    """Shortest remaining work first, limits as in profiled-srpt, with large executors for stages that need them.

    The key of a stage is its job's remaining work times ``covered ** waste``, where ``covered`` is the number of
    executors that are large enough for the stage. So stages that few executors can run come first. Only busy and moving
    executors count towards a job's limit, as idle executors may be too small for its remaining stages. A job that has
    reached its own limit gets another limit: the number of executors that find lasting work there. No executor moves to
    another job to wait there. On a tie, ready stages come first, then stages that few executors can run, then stages
    farthest from the job's end.

    Args:
        constants: fields of ``PackedConstants``.

    Raises:
        ValueError: ``waste`` is negative, or another constant is not positive.
        TypeError: unknown constant.
    """

    learned = False

    def __init__(self, **constants: float) -> None:
        super().__init__(**constants, **dict.fromkeys(PACKED_WEIGHTS, 0.0))
        self._if_all_fit = None
        # The price is constant, so its useful parallelism stands for all prices of the table.
        thrift = self.constants.thrift
        self._log_useful = PerJob(
            lambda profile, config: np.full(len(PRICES), np.log(useful_executors(profile, config, thrift))),
            np.array,
        )
