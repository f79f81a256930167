"""Shortest remaining work first with parallelism limits: fixed, or falling as the demand for executors rises.

The rules move no executors for a few tasks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import (
    AWAY_BY_RANK,
    FARTHEST_AWAY,
    PRICES,
    STAYING,
    WORTH_LEAVING,
    WORTH_MOVING,
    Rule,
    Scheduler,
    check_positive,
    last_resort,
    move_cost_ms,
)
from simulator.cluster.alone import useful_executors, useful_parallelism
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled, inner, record
from workloads.arrivals import RandomStream, random_stream
from workloads.job import JobProfile

__all__ = [
    "STAYING", "WORK", "WORTH_LEAVING", "WORTH_MOVING", "CappedSrpt", "LimitedSrpt", "PricedConstants",
    "PricedSrpt", "ProfiledSrpt", "at_least_share", "check_positive", "lasting_executors", "place_of",
]  # fmt: skip

#: Unit of work of ``CappedSrpt``, ms.
UNIT_MS = 100_000.0
#: Minimum limit of ``CappedSrpt``, executors.
FEWEST = 4


class LimitedSrpt(Scheduler):
    """Base class: shortest remaining work (tasks times mean duration) first, with a parallelism limit for each job.

    When all jobs have reached their limits, the remaining executors go to the shortest job. An executor moves only to
    a job with enough work, or to a job without executors; otherwise it stays idle.
    """

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the shortest job below its limit, else the shortest job."""
        jobs, most = observation.job_executors.size, observation.num_executors
        work = observation.work_ms(observation.remaining_tasks)
        limit = np.minimum(self.limits(observation, work), most).astype(np.int64)
        held, order = observation.job_executors.copy(), work.copy()
        if observation.source >= 0:
            held[observation.source] -= observation.offered
            order[observation.source] *= STAYING
        lasting, ready = lasting_executors(observation), observation.next_stage >= 0
        for bound in (limit, np.full(jobs, most)):
            bound = np.minimum(bound, lasting).astype(np.int64)
            chosen = np.flatnonzero(ready & (held < bound))
            if chosen.size:
                job = chosen[np.argmin(order[chosen])]
                return Decision(int(observation.next_stage[job]), int(bound[job]))
        return last_resort(observation)

    @abstractmethod
    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the parallelism limits of live jobs, [J], at least 1; ``work``: remaining work, float64 [J], ms."""


def at_least_share(observation: Observation, limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return limits raised to at least an equal share of the cluster, and at least 1."""
    return np.maximum(limits, max(1, observation.num_executors // limits.size))


def lasting_executors(
    observation: Observation, worth_leaving: float = WORTH_LEAVING, worth_moving: float = WORTH_MOVING
) -> NDArray[np.float64]:
    """Return the number of offered executors whose move to each live job is justified, at least 1, float64 [J].

    Args:
        observation: state of the cluster.
        worth_leaving: minimum work that justifies moving another job's executor, in moving delays.
        worth_moving: minimum work that justifies moving a free executor, in moving delays.
    """
    lasting = np.full(observation.job_executors.size, float(observation.num_executors))
    delay_ms = move_cost_ms(observation)
    if not delay_ms:
        return lasting
    from_job = observation.source >= 0
    worth_ms = (worth_leaving if from_job else worth_moving) * delay_ms
    offered = observation.classes[observation.executor_class]
    fits = (observation.stages["cpu"] <= offered["cpu"]) & (observation.stages["memory"] <= offered["memory"])
    found = observation.work_ms(observation.unclaimed_tasks * fits) / worth_ms
    if from_job:
        found[observation.source] = lasting[observation.source]  # executors that stay do not move
    return np.maximum(found, 1.0)


class CappedSrpt(LimitedSrpt):
    """Shortest remaining work first, with limits that grow with the root of the remaining work.

    Tasks take longer if their job holds more executors. While other jobs need executors, a job's limit is
    ``coefficient`` times the root of its remaining work in units of 100 s, at least 4 and at least an equal share.

    Args:
        coefficient: limit of a job with 100 s of remaining work.

    Raises:
        ValueError: the coefficient is negative.
    """

    def __init__(self, coefficient: float = 5.0) -> None:
        if not coefficient >= 0:
            raise ValueError(f"the coefficient must not be negative, got {coefficient:g}")
        self.coefficient = coefficient

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return limits in proportion to the root of the remaining work."""
        return at_least_share(observation, np.maximum(self.coefficient * np.sqrt(work / UNIT_MS), FEWEST))


class ProfiledSrpt(LimitedSrpt):
    """Shortest remaining work first; each job is limited to its useful parallelism, or to an equal share if larger.

    ``simulator.cluster.alone`` estimates the useful parallelism when a job arrives. So this scheduler uses more
    knowledge than others: task durations at each parallelism level.

    Args:
        thrift: cost exponent of executors, see ``simulator.cluster.alone.useful_executors``.

    Raises:
        ValueError: ``thrift`` is not positive.
    """

    def __init__(self, thrift: float = 2.5) -> None:
        check_positive(thrift=thrift)
        self.thrift = thrift
        self._used_well: PerJob[NDArray[np.float64]] = PerJob(
            lambda profile, config: float(useful_executors(profile, config, thrift)), np.array
        )

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the useful parallelism of each live job, at least an equal share."""
        return at_least_share(observation, self._used_well(observation))


#: Column of a job's total work, ms, after the columns of its useful parallelism at each price.
WORK = len(PRICES)
#: Distance of a job's other stages from its next stage.
AWAY_IN_JOB = 1.5
NO_FACTORS, BY_WORK = np.zeros((0, 0)), np.zeros(0)


class PricedConstants(NamedTuple):
    """Constants of ``priced-srpt``; ``decima tune`` tunes them.

    Uncertainty of a job: standard deviation of the logarithm of its remaining work.

    Attributes:
        steepness: ratio of the price and the root of demand over supply, in a batch (all live jobs arrived at the same
            time).
        stream_steepness: ratio of the price and the root of demand over supply, in a stream.
        stream_price: minimum price in a stream, where future jobs will need executors too.
        measured: price at which demand is measured.
        used_well: a job may hold this multiple of its useful parallelism times its share of unclaimed work, even if
            executors find little work there: with short tasks, hardly any move would justify its delay otherwise.
        unwanted: added to ``used_well``, times the square of the share of executors that no job needs.
        staying: factor on the order of the job whose executors are offered.
        worth_leaving: minimum work that justifies moving another job's executor, in moving delays.
        worth_moving: minimum work that justifies moving a free executor, in moving delays.
        uncertain: mean uncertainty of the live jobs from which the order for uncertain estimates holds; below it, the
            order is a mixture with the order by remaining work.
        work_exponent: exponent of the remaining work in the order for uncertain estimates; the other factor of this
            order is the useful parallelism.
        doubtful: maximum uncertainty of a job whose estimate counts as exact. At an uncertainty of ``doubtful + 1``
            and above, the job's limit is ``shares`` times an equal share of the cluster.
        shares: see ``doubtful``.
        hesitation: ``staying`` is divided by the exponential of this times the uncertainty above ``doubtful``.
    """

    steepness: float = 1.25
    stream_steepness: float = 2.0
    stream_price: float = 3.0
    measured: float = 2.5
    used_well: float = 2.0
    unwanted: float = 4.0
    staying: float = STAYING
    worth_leaving: float = WORTH_LEAVING
    worth_moving: float = WORTH_MOVING
    uncertain: float = 0.3
    work_exponent: float = 0.3
    doubtful: float = 0.6
    shares: float = 1.5
    hesitation: float = 3.0


#: Row of ``PricedConstants``; compiled code receives it faster than a tuple.
_CONSTANTS = record(*((name, np.float64) for name in PricedConstants._fields))


class PricedSrpt(Scheduler):
    """Shortest remaining work first; each job is limited to its useful parallelism at the price of executors.

    The rule differs from ``ProfiledSrpt`` in the cost exponent of executors, the price, which is not constant. The
    price rises with the root of demand over supply: a single job gets all executors that make it much faster; each of
    many jobs gets few executors, at high efficiency. A new job gets executors even if each finds little work. After the
    other jobs it gets up to twice as many, and up to six times as many if no job needs most executors.

    With uncertain estimates, the order depends less on remaining work and more on useful parallelism, which errors
    change less, as in ``inelastic-first``. Limits are closer to an equal share, and executors leave their job more
    rarely. With exact estimates this has no effect.

    Args:
        jitter: standard deviation of the noise on the logarithms of order and limits at each decision. From noisy
            decisions, a policy that clones the rule learns which choices matter little.
        constants: fields of ``PricedConstants``, positive.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: unknown constant.
    """

    def __init__(self, jitter: float = 0.0, **constants: float) -> None:
        if not jitter >= 0:
            raise ValueError(f"the jitter must not be negative, got {jitter:g}")
        check_positive(**constants)
        self.jitter = jitter
        self.constants = PricedConstants(**constants)
        self._rows = np.array([self.constants], _CONSTANTS)
        self._random = random_stream(0, RandomStream.POLICY)
        self._known = PerJob(_known, lambda jobs: np.array(jobs).reshape(-1, WORK + 1))

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the shortest job below its limit, else the shortest job with enough work to justify a move."""
        rule = self._ask(observation, self.jitter)
        if rule.stage >= 0:
            return Decision(rule.stage, int(rule.limits[observation.stage_job[rule.stage]]))
        return last_resort(observation)

    def ask(self, observation: Observation) -> Rule:
        """Return the decision without jitter, each job's limit and each stage's distance from the decision.

        A job's limit follows from the price. A job that has reached this limit gets another one: the number of
        executors that find lasting work there. The order is: jobs below their limits, jobs with lasting work, other
        jobs that could run a task; within each group the shortest job first, and within a job its next stage first.
        """
        return self._ask(observation, 0.0)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the sort key of each live job, float64 [J], least first; empty for the order by remaining work."""
        return BY_WORK

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        """Return factors on the sort key and the limit of each live job, float64 [2, J]; empty without factors."""
        if not jitter:
            return NO_FACTORS
        return np.exp(jitter * self._random.standard_normal((2, len(observation.jobs))))

    def _ask(self, observation: Observation, jitter: float) -> Rule:
        factors = self._factors(observation, jitter)
        stage, limits, price, away = _choose(
            *(observation.jobs, observation.stages, observation.classes, observation.source),
            *(observation.offered, observation.executor_class, observation.num_executors),
            *(self._known(observation), move_cost_ms(observation), factors),
            *(np.ascontiguousarray(self.order(observation), np.float64), self._rows),
        )
        return Rule(stage, limits, PRICES[price], away)


def _known(profile: JobProfile, config: ClusterConfig) -> NDArray[np.float64]:
    return np.array([*useful_parallelism(profile, config, PRICES), profile.work_ms])


@compiled
def _choose(  # type: ignore[no-untyped-def]
    jobs,
    stages,
    classes,
    source,
    offered,
    executor_class,
    num_executors,
    useful,
    delay_ms,
    factors,
    ranks,
    rows,
):
    """Return the attributes of ``Rule``, with the price as its index in ``PRICES``; ``rows``: a row of constants."""
    constants = rows[0]
    num_jobs, most, own = len(jobs), max(num_executors, 1), classes[executor_class]  # all may have left
    work, fitting, unclaimed = np.zeros(num_jobs), np.zeros(num_jobs), np.zeros(num_jobs)
    variance = np.zeros(num_jobs)
    for stage in stages:
        left = stage.remaining_tasks * stage.mean_task_ms
        work[stage.job] += left
        variance[stage.job] += left * stage.log_sd**2
        wanted = stage.unclaimed_tasks * stage.mean_task_ms
        unclaimed[stage.job] += wanted
        if stage.cpu <= own.cpu and stage.memory <= own.memory:
            fitting[stage.job] += wanted
    is_stream = False
    for job in jobs:
        is_stream |= job.arrival_ms != jobs[0].arrival_ms
    measured = place_of(constants.measured)
    price = _price(useful[:, measured], unclaimed, most, is_stream, constants)

    share = most / max(np.sum(unclaimed > 0), 1)
    unwanted = float(offered)
    for number in range(len(classes)):
        if (
            source >= 0 or number != executor_class
        ):  # otherwise these executors are offered or already committed
            unwanted += classes[number].free
    for job in range(num_jobs):
        if unclaimed[job] > 0:
            unwanted -= max(useful[job, price] - jobs[job].executors, 0.0)
    may_have = constants.used_well + constants.unwanted * (max(unwanted, 0.0) / most) ** 2

    limits = np.empty(num_jobs, np.int64)
    worth_ms = (constants.worth_leaving if source >= 0 else constants.worth_moving) * delay_ms
    # Groups: jobs below their limits, jobs with work for more executors, other jobs with a next stage, and the rest.
    kinds, orders = np.full(num_jobs, 3), (ranks if len(ranks) else work).copy()
    uncertainty = np.sqrt(variance / np.maximum(work, 1e-9))
    mixed = min(np.sum(uncertainty) / max(num_jobs, 1) / constants.uncertain, 1.0)
    for job in range(num_jobs):
        held, order, limit = jobs[job].executors, orders[job], useful[job, price]
        if mixed > 0 and len(ranks) == 0:
            order = order ** (1 - mixed * (1 - constants.work_exponent)) * useful[job, measured] ** mixed
        doubt = max(uncertainty[job] - constants.doubtful, 0.0)
        if doubt > 0:
            weight = min(doubt, 1.0)
            limit = limit ** (1 - weight) * (constants.shares * share) ** weight
        lasting = float(most)
        if job == source:
            held -= offered
            order *= constants.staying * math.exp(-constants.hesitation * doubt)
        elif delay_ms > 0:
            used_well = may_have * useful[job, price] * fitting[job] / max(useful[job, WORK], 1.0)
            lasting = max(fitting[job] / worth_ms, used_well, 1.0)
        if len(factors):
            order *= factors[0, job]
            limit *= factors[1, job]
        limit = min(max(limit, max(1, most // num_jobs)), most)
        bound = int(min(limit, lasting))
        is_below = held < bound
        if not is_below:
            bound = int(min(float(most), lasting))
        limits[job], orders[job] = bound, order
        if jobs[job].next_stage >= 0:
            kinds[job] = 2 if held >= bound else 0 if is_below else 1
    away, chosen = np.full(len(stages), FARTHEST_AWAY), -1
    rank = 0
    for kind in range(4):
        [members] = np.nonzero(kinds == kind)
        for job in members[np.argsort(orders[members], kind="mergesort")]:  # on a tie the earlier job first
            end = jobs[job + 1].first_stage if job + 1 < num_jobs else len(stages)
            away[jobs[job].first_stage : end] = min(AWAY_BY_RANK * rank + AWAY_IN_JOB, FARTHEST_AWAY)
            if jobs[job].next_stage >= 0:
                away[jobs[job].next_stage] = min(AWAY_BY_RANK * rank, FARTHEST_AWAY)
            if rank == 0 and kind < 2:
                chosen = jobs[job].next_stage
            rank += 1
    return chosen, limits, price, away


@inner(arrays=True)
def _price(useful, unclaimed, most, is_stream, constants):  # type: ignore[no-untyped-def]
    """Return the price as its index in ``PRICES``; ``useful``: useful parallelism of each job at ``measured``."""
    wanted = 0.0
    for job in range(len(unclaimed)):
        if unclaimed[job] > 0:
            wanted += useful[job]
    root = math.sqrt(wanted / most)
    if is_stream:
        return place_of(max(constants.stream_steepness * root, constants.stream_price))
    return place_of(constants.steepness * root)


@compiled
def place_of(price):  # type: ignore[no-untyped-def]
    """Return the index of the nearest price in ``PRICES``, by ratio."""
    place = 0
    while place + 1 < len(PRICES) and PRICES[place] * PRICES[place + 1] < price**2:
        place += 1
    return place
