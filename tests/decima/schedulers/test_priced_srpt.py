"""Shortest remaining work first with a cost of executors: limits, and when a move is worthwhile."""

import math

import numpy as np
import pytest

from decima.schedulers.base import AWAY_BY_RANK, FARTHEST_AWAY, PRICES
from decima.schedulers.priced_srpt import AWAY_IN_JOB, PricedConstants, PricedSrpt
from simulator import DECIMA_SIM, Cluster, ClusterConfig, Decision, ExecutorClass, run_episode
from simulator.cluster.alone import useful_executors
from tests.decima.policy.examples import random_sequence
from tests.simulator.cluster.build import inflating, job, jobs, stage
from workloads.arrivals import JobSequence, batch_arrivals

DELAY_MS = 100.0
DEFAULTS = PricedConstants()


def batch(num_jobs: int) -> JobSequence:
    """Return jobs that are faster with more executors, at a decreasing efficiency."""
    return batch_arrivals((inflating(200, {1: 800.0, 20: 1600.0}),), num_jobs, seed=0)


def asked(config: ClusterConfig, sequence: JobSequence) -> tuple[Cluster, PricedSrpt]:
    scheduler = PricedSrpt()
    scheduler.reset(config)
    return Cluster(config, sequence), scheduler


def test_prices_count_unwanted_executors() -> None:
    # Five of 45 executors are offered; 355 executors of another class are also free.
    classes = (ExecutorClass(45), ExecutorClass(355, cpu=2.0))
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=DELAY_MS)
    profile = job(stage(40, DELAY_MS))
    cluster, scheduler = asked(config, jobs(profile, profile))
    cluster.decide(Decision(0, 20))
    cluster.decide(Decision(1, 20))
    seen = cluster.observe()
    assert (seen.source, seen.offered, seen.executor_class) == (-1, 5, 0)
    rule = scheduler.ask(seen)
    used_well = useful_executors(profile, config, rule.price)
    may_have = DEFAULTS.used_well + DEFAULTS.unwanted * ((360 - 2 * max(used_well - 20, 0)) / 400) ** 2
    assert rule.limits[0] == int(may_have * used_well * 20 / 40)
    config = ClusterConfig(20, moving_delay_ms=DELAY_MS)
    prices, limits = [], []
    for num_jobs in (1, 4, 12, 40):
        cluster, scheduler = asked(config, batch(num_jobs))
        rule = scheduler.ask(cluster.observe())
        prices.append(rule.price)
        limits.append(int(rule.limits[0]))
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > limits[-1]
    profile = batch(1).profiles[0]
    for price, limit in zip(prices[:2], limits[:2], strict=True):
        assert limit == min(20, useful_executors(profile, config, price))


def test_prices_follow_demand_and_the_shortest_jobs_come_first() -> None:
    config = ClusterConfig(20, moving_delay_ms=DELAY_MS)
    for num_jobs in (1, 2, 4, 8):
        cluster, scheduler = asked(config, batch(num_jobs))
        wanted = num_jobs * useful_executors(batch(1).profiles[0], config, DEFAULTS.measured)
        price = DEFAULTS.steepness * math.sqrt(wanted / 20)
        nearest = int(np.abs(np.log(PRICES) - math.log(price)).argmin())
        assert scheduler.ask(cluster.observe()).price == PRICES[nearest]
    # Forty tasks take 0.4 ms in total: the job may have 0.4 times the executors of a job with 1 ms.
    config = ClusterConfig(80, moving_delay_ms=DELAY_MS)
    profile = job(stage(40, 0.01))
    cluster, scheduler = asked(config, jobs(profile))
    rule = scheduler.ask(cluster.observe())
    used_well = useful_executors(profile, config, rule.price)
    may_have = DEFAULTS.used_well + DEFAULTS.unwanted * (max(80 - used_well, 0) / 80) ** 2
    assert rule.limits[0] == int(max(may_have * used_well * 0.4, 1))
    config = ClusterConfig(8, moving_delay_ms=0)
    cluster, scheduler = asked(config, jobs(job(stage(50, 1000)), job(stage(40, 1000)), job(stage(45, 1000))))
    made: list[Decision] = []
    while cluster.clock.now == 0:
        decision = scheduler.decide(cluster.observe())
        assert decision is not None
        made.append(decision)
        cluster.decide(decision)
    stages = [decision.stage for decision in made]
    assert stages == [1, 2, 0][: len(stages)]
    assert sum(cluster.observe().job_executors) == 8


def test_executors_are_dear_while_jobs_come_and_none_idles_for_ever() -> None:
    config = ClusterConfig(20, moving_delay_ms=DELAY_MS)
    both = batch(2).profiles
    cluster, scheduler = asked(config, JobSequence(both, np.array([0.0, 50.0])))
    assert scheduler.ask(cluster.observe()).price == PRICES[0]
    while len(cluster.observe().jobs) < 2:
        cluster.decide(None)
    assert scheduler.ask(cluster.observe()).price == DEFAULTS.stream_price
    # The published simulator never offers idle executors again.
    config = ClusterConfig(12, moving_delay_ms=DELAY_MS, semantics=DECIMA_SIM)
    cluster, scheduler = asked(config, jobs(job(stage(7, 0.01))))
    assert scheduler.decide(cluster.observe()) == Decision(0, 12)


@pytest.mark.parametrize("claimed", [10, 20, 30, 35, 38])
def test_executors_go_where_a_job_uses_them_well_even_if_each_finds_little_there(claimed: int) -> None:
    """Tasks are as long as a moving delay, so three of them would justify a move."""
    profile, long = job(stage(40, DELAY_MS)), job(stage(1000, 100 * DELAY_MS))
    config = ClusterConfig(80, moving_delay_ms=DELAY_MS)
    cluster, scheduler = asked(config, jobs(profile, *[long] * 3))
    cluster.decide(Decision(0, claimed))
    seen = cluster.observe()
    rule, left = scheduler.ask(seen), 40 - claimed
    used_well = useful_executors(seen.profiles[0], config, rule.price)
    assert 40 / used_well / DEFAULTS.used_well < DEFAULTS.worth_moving  # else moves are worth it as it is
    at_most = max(80 // 4, used_well) if claimed < used_well else 80
    assert rule.limits[0] == max(1, min(at_most, int(DEFAULTS.used_well * used_well * left / 40)))


@pytest.mark.parametrize("executors", [45, 60, 100, 400])
def test_the_more_unwanted_executors_the_more_of_them_a_job_may_have(executors: int) -> None:
    """Two jobs have twenty executors and twenty tasks each, which barely justify a move."""
    config = ClusterConfig(executors, moving_delay_ms=DELAY_MS)
    profile = job(stage(40, DELAY_MS))
    cluster, scheduler = asked(config, jobs(profile, profile))
    cluster.decide(Decision(0, 20))
    cluster.decide(Decision(1, 20))
    seen = cluster.observe()
    assert (seen.offered, seen.unclaimed_tasks.tolist()) == (executors - 40, [20, 20])
    rule = scheduler.ask(seen)
    used_well = useful_executors(profile, config, rule.price)
    unwanted = executors - 40 - 2 * max(used_well - 20, 0)
    may_have = DEFAULTS.used_well + DEFAULTS.unwanted * max(unwanted / executors, 0) ** 2
    assert rule.limits[0] == int(max(may_have * used_well * 20 / 40, 20 / DEFAULTS.worth_moving))


@pytest.mark.parametrize("seed", range(4))
def test_jobs_below_their_limits_come_before_others_and_each_kind_by_the_work_left(seed: int) -> None:
    sequence = random_sequence(np.random.default_rng(seed), max_jobs=12)
    cluster, scheduler = asked(ClusterConfig(8, moving_delay_ms=DELAY_MS), sequence)
    seen_resting = False
    while not cluster.done:
        seen = cluster.observe()
        rule = scheduler.ask(seen)
        work = seen.work_ms(seen.remaining_tasks)
        at_once = seen.next_stage >= 0
        ranks = rule.away[seen.next_stage[at_once]] / AWAY_BY_RANK
        shown = sorted(ranks[ranks < FARTHEST_AWAY / AWAY_BY_RANK])
        assert shown == list(range(len(shown)))
        by_rank = np.flatnonzero(at_once)[np.argsort(ranks, kind="stable")][: len(shown)]
        for job_place in by_rank:
            others = np.delete(
                rule.away[seen.stages_of(job_place)], seen.next_stage[job_place] - seen.job_first_stage[job_place]
            )
            assert (others == min(rule.away[seen.next_stage[job_place]] + AWAY_IN_JOB, FARTHEST_AWAY)).all()
        kinds = []
        for each in by_rank:
            room, could = rule.limits[each] > seen.held(each), seen.next_stage[each] >= 0
            kinds.append(0 if room and could else 1 if could else 2)
        assert kinds == sorted(kinds)
        others = [each for each in by_rank if each != seen.source]  # whose executors are offered is a little nearer
        could = [work[each] for each, kind in zip(by_rank, kinds, strict=True) if kind == 1 and each in others]
        assert could == sorted(could)
        seen_resting |= len(could) > 1
        if seen.num_schedulable:
            assert rule.stage == (seen.next_stage[by_rank[0]] if kinds[0] == 0 else -1)
        cluster.decide(scheduler.decide(seen) if seen.num_schedulable else None)
    assert seen_resting


def test_jitter_varies_choices_and_not_answers() -> None:
    config, sequence = ClusterConfig(10, moving_delay_ms=DELAY_MS), batch(8)
    plain, one, again = (run_episode(config, sequence, PricedSrpt(jitter)).mean_jct_ms for jitter in (0.0, 0.3, 0.3))
    assert one == again != plain
    cluster, _ = asked(ClusterConfig(10, moving_delay_ms=DELAY_MS), batch(8))
    plain, varied = (PricedSrpt(jitter).ask(cluster.observe()) for jitter in (0.0, 0.3))
    assert plain.stage == varied.stage
    np.testing.assert_array_equal(plain.limits, varied.limits)
    with pytest.raises(ValueError, match="jitter must not be negative"):
        PricedSrpt(-1.0)
