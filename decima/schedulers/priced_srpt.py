"""Shortest remaining work first, with parallelism limits that fall as the jobs want more executors."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import (
    AWAY_BY_RANK,
    FARTHEST_AWAY,
    STAYING,
    WORTH_LEAVING,
    WORTH_MOVING,
    Rule,
    Scheduler,
    all_offered,
    check_positive,
)
from simulator.cluster.alone import useful_parallelism
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled, inner
from workloads.arrivals import RandomStream, random_stream
from workloads.job import JobProfile

__all__ = ["PRICES", "PricedConstants", "PricedSrpt", "place_of"]

#: Prices: cost exponents of executors, see ``useful_parallelism``.
PRICES = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
#: The column with a job's total work, ms, after those with its useful parallelism at each price.
WORK = len(PRICES)
#: Distance of a job's other stages from its next stage.
AWAY_IN_JOB = 1.5
NO_FACTORS, BY_WORK = np.zeros((0, 0)), np.zeros(0)


class PricedConstants(NamedTuple):
    """Constants of ``priced-srpt``; ``decima tune`` finds others.

    Attributes:
        steepness: the price is this times the root of demand over supply; in a batch, where all live jobs arrived at
            the same time.
        stream_steepness: the same in a stream.
        stream_price: lowest price in a stream, where future jobs want executors, too.
        measured: price at which demand is measured.
        used_well: a job may hold this multiple of its useful parallelism times its share of unclaimed work, even if
            executors find little work there: with short tasks, hardly any move would be worth its delay otherwise.
        unwanted: added to ``used_well``, times the square of the share of executors that no job wants.
        staying: factor on the order of the job whose executors are offered.
        worth_leaving: least remaining work that is worth a move of another job's executor, in moving delays.
        worth_moving: the same of a free executor.
        uncertain: mean uncertainty of the live jobs from which the order for uncertain estimates holds; below, it is
            mixed with that of the remaining work.
        work_exponent: that order is by the remaining work to this power times the useful parallelism.
        doubtful: standard deviation of the logarithm of a job's remaining work up to which its estimate counts as
            exact; 1 above this, its limit is ``shares`` times an equal share of the cluster.
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


#: A row of ``PricedConstants``, which compiled code takes faster than a tuple. See ``simulator.cluster.observation`` on
#: np.record.
_CONSTANTS = np.dtype((np.record, [(name, np.float64) for name in PricedConstants._fields]))


class PricedSrpt(Scheduler):
    """Shortest remaining work first; each job is limited to its useful parallelism at the price of executors.

    As ``ProfiledSrpt``, but the cost exponent of executors, the price, is not constant. It rises with the root of the
    executors that the live jobs want over those of the cluster: a single job gets all executors that make it much
    faster; each of many jobs gets few, at high efficiency. A new job gets them even if each finds little work; up to
    twice as many after the other jobs, and up to six times as many where most executors are unwanted.

    With uncertain estimates, the order depends less on remaining work and more on useful parallelism, as in
    ``inelastic-first``, since errors change it less; limits are nearer to an equal share; and executors leave their job
    more rarely. With exact estimates this has no effect.

    Args:
        jitter: standard deviation of noise that is added to the logarithms of order and limits at each decision. A
            policy that clones the choices sees which of them matter little.
        constants: fields of ``PricedConstants``, positive.

    Raises:
        ValueError: the jitter is negative, or a constant is not positive.
        TypeError: there is no such constant.
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
        """Choose the shortest job below its limit, else the shortest job with enough work for a move."""
        rule = self._ask(observation, self.jitter)
        if rule.stage >= 0:
            return Decision(rule.stage, int(rule.limits[observation.stage_job[rule.stage]]))
        # The last offer before a standstill: executors of a class too small for their job count in its limit.
        return (
            all_offered(observation, int(observation.schedulable.argmax())) if observation.last_call else None
        )

    def ask(self, observation: Observation) -> Rule:
        """Return the decision without jitter, each job's limit and the order of stages.

        A job's limit is that of the price, or, for a job that holds as many executors, the number that find lasting
        work there. The order is: jobs below their limits, jobs with lasting work, other jobs that could run a task;
        among these the shortest first, and within a job its next stage first.
        """
        return self._ask(observation, 0.0)

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each live job, float64 [J], least first; empty for the order by remaining work."""
        return BY_WORK

    def _factors(self, observation: Observation, jitter: float) -> NDArray[np.float64]:
        """Return factors on the order and the limit of each live job, float64 [2, J]; empty for none."""
        if not jitter:
            return NO_FACTORS
        return np.exp(jitter * self._random.standard_normal((2, len(observation.jobs))))

    def _ask(self, observation: Observation, jitter: float) -> Rule:
        delay_ms = observation.config.moving_delay_ms
        # Idle executors must be offered again later, which the published simulator does not do.
        if not observation.config.semantics.offer_idle_executors:
            delay_ms = 0.0
        stage, limits, price, away = _choose(
            observation.jobs,
            observation.stages,
            observation.classes,
            observation.source,
            observation.offered,
            observation.executor_class,
            observation.num_executors,
            self._known(observation),
            delay_ms,
            self._factors(observation, jitter),
            np.ascontiguousarray(self.order(observation), np.float64),
            self._rows,
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
    constant_rows,
):
    """Return the attributes of ``Rule``; the price as its place in ``PRICES``."""
    constants = constant_rows[0]
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
        if source >= 0 or number != executor_class:  # else these are offered, but for those committed already
            unwanted += classes[number].free
    for job in range(num_jobs):
        if unclaimed[job] > 0:
            unwanted -= max(useful[job, price] - jobs[job].executors, 0.0)
    may_have = constants.used_well + constants.unwanted * (max(unwanted, 0.0) / most) ** 2

    limits = np.empty(num_jobs, np.int64)
    worth_ms = (constants.worth_leaving if source >= 0 else constants.worth_moving) * delay_ms
    # Jobs below their limits, jobs that find work for more, jobs that could run something, and others.
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
        for job in members[np.argsort(orders[members], kind="mergesort")]:  # the earlier one of equals first
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
    """Return the price as its place in ``PRICES``; ``useful``: useful parallelism of each job at ``measured``."""
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
    """Return the place of the nearest price in ``PRICES``."""
    place = 0
    while place + 1 < len(PRICES) and PRICES[place] * PRICES[place + 1] < price**2:
        place += 1
    return place
