"""``srpt`` on executors of one class, and rules for uncertain estimates and speedup."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from decima.registry import make_scheduler
from decima.schedulers.queueing import HeSrpt, fractions, index_over_median, speedup_exponent
from decima.schedulers.rule import LEAVE_MIN_DELAYS, PRICES, SOURCE_FACTOR
from decima.schedulers.srpt import Srpt
from decima.schedulers.srpt_weights import CLASS_CONSTANTS, Constants
from simulator import DECIMA_SIM, Cluster, ClusterConfig, Decision, ExecutorClass, Observation, run_episode
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import Knowledge
from tests.cases import cases
from tests.decima.policy.examples import random_sequence
from tests.simulator.cluster.build import chain, inflating, job, jobs, stage
from workloads.arrivals import JobSequence, batch_arrivals, poisson_arrivals
from workloads.job import JobProfile

DELAY_MS = 100.0


def first_decisions(scheduler: HeSrpt, executors: int, sequence: JobSequence) -> list[Decision | None]:
    """Return the decisions at time 0, until no executor is left or the rest is left idle."""
    config = ClusterConfig(executors, moving_delay_ms=DELAY_MS)
    scheduler.reset(config)
    cluster, made = Cluster(config, sequence), []
    while not cluster.done and cluster.clock.now == 0:
        observation = cluster.observe()
        made.append(scheduler.decide(observation) if observation.num_schedulable else None)
        cluster.decide(made[-1])
    return made


@pytest.mark.parametrize(("share", "stays"), [(SOURCE_FACTOR * 1.1, True), (SOURCE_FACTOR * 0.9, False)])
def test_executors_leave_their_job_only_for_a_clearly_shorter_one(share: float, stays: bool) -> None:
    """One executor finishes the first stage of a long job; another job has a fraction of its remaining work."""
    work_ms = 10 * LEAVE_MIN_DELAYS * DELAY_MS
    own, other = chain(stage(1, 50), stage(10, work_ms / 10)), job(stage(10, share * work_ms / 10))
    cluster = Cluster(ClusterConfig(1, moving_delay_ms=DELAY_MS), jobs(own, other))
    cluster.decide(Decision(0, 1))
    while cluster.observe().source < 0:
        cluster.decide(None)
    for scheduler in (HeSrpt(), Srpt()):
        decision = scheduler.decide(cluster.observe())
        assert decision is not None
        assert (decision.stage == 1) == stays


@pytest.mark.parametrize(("left", "leaves"), [(15, False), (16, True)])
def test_an_executor_leaves_its_job_for_eight_moving_delays_of_work(left: int, leaves: bool) -> None:
    """Executor 0 finishes the first stage of a long job; the short job, with executor 1, has some tasks left."""
    long, short = chain(stage(1, 50), stage(10, 10_000)), job(stage(1 + left, DELAY_MS))
    cluster = Cluster(ClusterConfig(2, moving_delay_ms=DELAY_MS), jobs(long, short))
    cluster.decide(Decision(0, 1))
    cluster.decide(Decision(2, 1))
    observation = cluster.observe()
    assert (cluster.acting, observation.source, observation.unclaimed_tasks.tolist()) == ([0], 0, [0, 10, left])
    decision = HeSrpt().decide(observation)
    assert decision is not None
    assert decision.stage == (2 if leaves else 1)


@pytest.mark.parametrize(("left", "executors"), [(8, 1), (15, 1), (16, 2)])
def test_with_a_price_it_does_so_where_most_of_the_work_is_claimed(left: int, executors: int) -> None:
    """A long task of the other job runs, so that its remaining work exceeds its useful parallelism."""
    long, other = chain(stage(1, 50), stage(10, 10_000)), job(stage(1, 100_000), stage(left, DELAY_MS))
    cluster = Cluster(ClusterConfig(4, moving_delay_ms=DELAY_MS), jobs(long, other))
    cluster.decide(Decision(0, 1))
    cluster.decide(Decision(2, 1))
    while cluster.observe().source < 0:
        cluster.decide(None)
    assert cluster.observe().unclaimed_tasks.tolist() == [0, 10, 0, left]
    assert Srpt().ask(cluster.observe()).limits[1] == executors


@pytest.mark.parametrize(("tasks", "executors"), [(5, 1), (6, 2), (8, 2), (9, 3)])
def test_a_free_executor_moves_for_three_moving_delays_of_work(tasks: int, executors: int) -> None:
    made = first_decisions(HeSrpt(), 4, jobs(job(stage(tasks, DELAY_MS))))
    assert made == [Decision(0, executors), None]


DEFAULTS = Constants()


def batch(num_jobs: int) -> JobSequence:
    """Return jobs that are faster with more executors, at a decreasing efficiency."""
    return batch_arrivals((inflating(200, {1: 800.0, 20: 1600.0}),), num_jobs, seed=0)


def asked(config: ClusterConfig, sequence: JobSequence) -> tuple[Cluster, Srpt]:
    scheduler = Srpt()
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
    may_have = DEFAULTS.useful_multiple + DEFAULTS.idle_multiple * ((360 - 2 * max(used_well - 20, 0)) / 400) ** 2
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
        wanted = num_jobs * useful_executors(batch(1).profiles[0], config, DEFAULTS.price_of_demand)
        price = DEFAULTS.price_in_batch * math.sqrt(wanted / 20)
        nearest = int(np.abs(np.log(PRICES) - math.log(price)).argmin())
        assert scheduler.ask(cluster.observe()).price == PRICES[nearest]
    # Forty tasks take 0.4 ms in total: the job may have 0.4 times the executors of a job with 1 ms.
    config = ClusterConfig(80, moving_delay_ms=DELAY_MS)
    profile = job(stage(40, 0.01))
    cluster, scheduler = asked(config, jobs(profile))
    rule = scheduler.ask(cluster.observe())
    used_well = useful_executors(profile, config, rule.price)
    may_have = DEFAULTS.useful_multiple + DEFAULTS.idle_multiple * (max(80 - used_well, 0) / 80) ** 2
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
    assert scheduler.ask(cluster.observe()).price == DEFAULTS.least_price_in_stream
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
    assert 40 / used_well / DEFAULTS.useful_multiple < DEFAULTS.move_min_delays  # else moves are worth it as it is
    at_most = max(80 // 4, used_well) if claimed < used_well else 80
    assert rule.limits[0] == max(1, min(at_most, int(DEFAULTS.useful_multiple * used_well * left / 40)))


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
    may_have = DEFAULTS.useful_multiple + DEFAULTS.idle_multiple * max(unwanted / executors, 0) ** 2
    assert rule.limits[0] == int(max(may_have * used_well * 20 / 40, 20 / DEFAULTS.move_min_delays))


def offer_of_third_job(config: ClusterConfig, *profiles: JobProfile) -> tuple[Observation, Srpt]:
    """Return the first offer of a job's executors after two jobs of one stage got 20 executors and a third job one."""
    cluster, scheduler = asked(config, jobs(*profiles))
    for decision in (Decision(0, 20), Decision(1, 20), Decision(2, 1)):
        cluster.decide(decision)
    while cluster.observe().source < 0:
        cluster.decide(None)
    return cluster.observe(), scheduler


def test_idle_executors_are_unwanted_while_a_job_offers_one_of_its_own() -> None:
    """Executors outside jobs were left idle, and one executor has finished a stage of a third job."""
    config = ClusterConfig(400, moving_delay_ms=DELAY_MS)
    profile = job(stage(40, DELAY_MS))
    seen, scheduler = offer_of_third_job(config, profile, profile, chain(stage(1, 50.0), stage(1, 50.0)))
    assert (seen.source, seen.offered, seen.unclaimed_tasks.tolist()) == (2, 1, [20, 20, 0, 1])
    rule = scheduler.ask(seen)
    used_well = useful_executors(profile, config, rule.price)
    unwanted = 400 - 40 - 2 * (used_well - 20)
    may_have = DEFAULTS.useful_multiple + DEFAULTS.idle_multiple * (unwanted / 400) ** 2
    assert rule.limits[:2].tolist() == [int(may_have * used_well * 20 / 40)] * 2
    assert may_have > 2 * DEFAULTS.useful_multiple


def test_jobs_want_executors_while_they_have_unclaimed_work() -> None:
    """After 250 ms, executors of the first job run its last tasks, and an executor leaves the third job."""
    config = ClusterConfig(400, moving_delay_ms=DELAY_MS)
    first, second = job(stage(40, DELAY_MS)), job(stage(60, DELAY_MS))
    seen, scheduler = offer_of_third_job(config, first, second, chain(stage(1, 150.0), stage(1, 50.0)))
    assert (seen.time_ms, seen.unclaimed_tasks.tolist()) == (250, [0, 20, 0, 1])
    rule = scheduler.ask(seen)
    of_first, of_second = (useful_executors(each, config, rule.price) for each in (first, second))
    assert of_first == 40
    may_have = DEFAULTS.useful_multiple + DEFAULTS.idle_multiple * ((360 - (of_second - 20)) / 400) ** 2
    assert rule.limits[1] == int(may_have * of_second * 20 / 60)


def test_executors_of_a_job_that_uses_few_of_them_well_are_not_unwanted() -> None:
    config = ClusterConfig(400, moving_delay_ms=DELAY_MS)
    profile, inelastic = job(stage(40, DELAY_MS)), inflating(200, {1: 800.0, 20: 16_000.0})
    cluster, scheduler = asked(config, jobs(profile, inelastic))
    cluster.decide(Decision(0, 20))
    cluster.decide(Decision(1, 100))
    seen = cluster.observe()
    assert (seen.offered, seen.unclaimed_tasks.tolist()) == (280, [20, 100])
    rule = scheduler.ask(seen)
    used_well, of_inelastic = (useful_executors(each, config, rule.price) for each in (profile, inelastic))
    assert of_inelastic < 50
    for unwanted in (DEFAULTS.idle_multiple, 8.0):
        rule = Srpt(idle_multiple=unwanted).ask(seen)
        may_have = DEFAULTS.useful_multiple + unwanted * ((280 - (used_well - 20)) / 400) ** 2
        assert rule.limits[0] == int(may_have * used_well * 20 / 40)


def test_every_constant_matters() -> None:
    """In other tests, the constants ``idle_multiple`` and ``source_per_log_sd`` matter, too."""
    knowledge = Knowledge(job_error=1.0, stage_error=0.5)
    config = ClusterConfig(30, moving_delay_ms=DELAY_MS, knowledge=knowledge)
    chains = (chain(stage(10, 50.0), stage(60, 300.0)), chain(stage(1, 50.0), stage(30, 900.0)))
    profiles = (*batch(1).profiles, job(stage(40, DELAY_MS)), *chains)
    sequences = (
        batch_arrivals(profiles, 12, seed=1),
        poisson_arrivals(profiles, 30, 1500.0, seed=2),
        poisson_arrivals((job(stage(20, 60.0)), job(stage(200, 10.0))), 20, 400.0, seed=3),
    )

    def jct_ms(**constants: float) -> list[list[float]]:
        rule = Srpt(**constants)
        return [run_episode(config, each, rule).jct_ms.tolist() for each in sequences]

    plain = jct_ms()
    for name, value in DEFAULTS._asdict().items():
        if name not in ("idle_multiple", "source_per_log_sd", *CLASS_CONSTANTS):
            assert [jct_ms(**{name: value / 4}), jct_ms(**{name: 4 * value})] != [plain, plain], name


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_executors_go_to_a_job_below_its_limit_or_rest(seed: int) -> None:
    sequence = random_sequence(np.random.default_rng(seed), max_jobs=12)
    cluster, scheduler = asked(ClusterConfig(8, moving_delay_ms=DELAY_MS), sequence)
    num_resting = 0
    while not cluster.done:
        seen = cluster.observe()
        if seen.num_schedulable:
            rule = scheduler.ask(seen)
            held = np.array([seen.held(job) for job in range(len(seen.jobs))])
            has_room = (seen.next_stage >= 0) & (rule.limits > held)
            if rule.stage >= 0:
                job = seen.stage_job[rule.stage]
                assert has_room[job]
                assert rule.stage == seen.next_stage[job]
            else:
                assert not has_room.any()
                num_resting += 1
        cluster.decide(scheduler.decide(seen) if seen.num_schedulable else None)
    assert num_resting


def test_jitter_varies_choices_and_not_answers() -> None:
    config, sequence = ClusterConfig(10, moving_delay_ms=DELAY_MS), batch(8)
    plain, one, again = (run_episode(config, sequence, Srpt(jitter)).mean_jct_ms for jitter in (0.0, 0.3, 0.3))
    assert one == again != plain
    cluster, _ = asked(ClusterConfig(10, moving_delay_ms=DELAY_MS), batch(8))
    plain, varied = (Srpt(jitter).ask(cluster.observe()) for jitter in (0.0, 0.3))
    assert plain.stage == varied.stage
    np.testing.assert_array_equal(plain.limits, varied.limits)
    with pytest.raises(ValueError, match="jitter must not be negative"):
        Srpt(-1.0)


def three_jobs(executors: int = 6) -> tuple[Observation, ClusterConfig]:
    """Return an observation of fifty, forty and sixty tasks of a second with exact estimates, for tests to change."""
    config = ClusterConfig(executors, moving_delay_ms=0.0)
    cluster = Cluster(config, jobs(*(job(stage(tasks, 1000.0)) for tasks in (50, 40, 60))))
    return cluster.observe().copy(), config


def chosen(name: str, seen: Observation, config: ClusterConfig) -> int:
    scheduler = make_scheduler(name)
    scheduler.reset(config)
    decision = scheduler.decide(seen)
    assert decision is not None
    return int(seen.stage_job[decision.stage])


@cases(
    "name, first_work_ms, attained_ms, expected",
    ("sjf-estimate", (9.0, 8.0, 7.0), (8.9, 0.0, 0.0), 2),
    ("las", (1.0, 2.0, 3.0), (5.0, 4.0, 6.0), 1),
    # max(z - a, min(a, z)): 10, 6, 5; SRPT would prefer job 0, whose estimate is used up
    ("srpt-bounce", (10.0, 10.0, 10.0), (99.0, 4.0, 5.0), 2),
    ("srpt-bounce", (10.0, 10.0, 10.0), (99.0, 9.0, 2.0), 2),
    ("seh", (10.0, 7.0, 8.0), (99.0, 0.0, 3.5), 2),  # 5, 7, 4.5
    ("seh", (10.0, 7.0, 12.0), (99.0, 0.0, 99.0), 0),  # frozen at 5, 7, 6
    ("seh:0", (10.0, 7.0, 12.0), (9.0, 0.0, 11.5), 2),
    ("seh:1", (10.0, 7.0, 12.0), (9.0, 0.0, 11.5), 1),
)
def test_orders_follow_estimate_and_attained_service(
    name: str, first_work_ms: tuple[float, ...], attained_ms: tuple[float, ...], expected: int
) -> None:
    seen, config = three_jobs()
    seen.jobs["first_work_ms"], seen.stages["finished_ms"] = first_work_ms, attained_ms
    assert chosen(name, seen, config) == expected


@pytest.mark.parametrize("sd", [0.3, 1.0, 2.0])
def test_the_gittins_index_is_that_of_the_log_normal_distribution(sd: float) -> None:
    size = stats.lognorm(sd)

    def cost(log_quantum: float) -> float:
        quantum = np.exp(log_quantum)
        return float(quad(size.sf, 0, quantum)[0] / size.cdf(quantum))  # mean time served over chance to complete

    best = minimize_scalar(cost, bounds=(-3 * sd, 4 * sd), method="bounded").fun
    assert index_over_median(sd) == pytest.approx(best, rel=1e-3)


def test_uncertain_and_inelastic_jobs_go_first() -> None:
    assert index_over_median(0.0) == 1.0
    assert index_over_median(2.0) < np.exp(2.0**2 / 2)
    seen, config = three_jobs()
    seen.jobs["log_sd"] = 2.0, 2.0, 0.0
    expected = 2 if 40 * index_over_median(2.0) > 60 else 1
    assert chosen("gittins", seen, config) == expected
    # The job of two long tasks cannot use more than two executors; it has the most work.
    config = ClusterConfig(4, moving_delay_ms=0.0)
    seen = Cluster(config, jobs(job(stage(40, 100.0)), job(stage(2, 90_000.0)))).observe()
    assert chosen("inelastic-first", seen, config) == 1
    assert chosen("srpt", seen, config) == 0


def test_hesrpt_shares_by_an_exponent_fitted_to_times() -> None:
    # For three jobs and p = 1/2, the fractions are 1/9, 3/9 and 5/9; the smallest job has the largest fraction.
    np.testing.assert_allclose(fractions(3, 0.5), [1 / 9, 3 / 9, 5 / 9])
    np.testing.assert_allclose(fractions(4, 0.0), 0.25)
    seen, config = three_jobs(9)
    scheduler = HeSrpt()
    scheduler.reset(config)
    scheduler._exponent = lambda _: 0.5  # type: ignore[assignment]
    assert scheduler.limits(seen, np.array([50.0, 40.0, 60.0])).tolist() == [3, 5, 1]
    config = ClusterConfig(20, moving_delay_ms=0.0)
    assert speedup_exponent(job(stage(1000, 1000.0)), config) > 0.9
    assert speedup_exponent(job(stage(1, 1000.0)), config) == pytest.approx(0.0, abs=1e-9)
    assert 0.2 < speedup_exponent(inflating(200, {1: 100.0, 20: 500.0}), config) < 0.8


def test_the_more_uncertain_the_more_inelastic_jobs_go_first() -> None:
    """The job of two long tasks has six times the work of the other, and half its useful parallelism of four."""
    config = ClusterConfig(4, moving_delay_ms=0.0)
    seen = Cluster(config, jobs(job(stage(40, 100.0)), job(stage(2, 12_000.0)))).observe().copy()
    elastic, inelastic = (useful_executors(profile, config, DEFAULTS.price_of_demand) for profile in seen.profiles)
    work_exponent = 1 - math.log(6) / (
        math.log(elastic / inelastic) / (1 - DEFAULTS.robust_work_exponent) + math.log(6)
    )
    assert DEFAULTS.robust_work_exponent < work_exponent < 1
    enough = DEFAULTS.robust_order_log_sd * (1 - work_exponent) / (1 - DEFAULTS.robust_work_exponent)
    for log_sd, first in ((0.0, 0), (enough - 0.01, 0), (enough + 0.01, 1)):
        seen.stages["log_sd"] = log_sd
        assert Srpt().ask(seen).stage == first
        assert chosen("seh:0", seen, config) == 0  # its order is its own
    seen.stages["log_sd"] = 0.0, 2 * enough + 0.01  # what counts is the mean over the live jobs
    assert Srpt().ask(seen).stage == 1


@cases(
    "log_sd, weight", (DEFAULTS.exact_log_sd, 0.0), (DEFAULTS.exact_log_sd + 0.5, 0.5), (DEFAULTS.exact_log_sd + 2, 1.0)
)
def test_limits_shrink_towards_equal_shares_as_uncertainty_grows(log_sd: float, weight: float) -> None:
    config = ClusterConfig(60, moving_delay_ms=0.0)
    profile = inflating(400, {1: 1000.0, 20: 1200.0, 60: 1800.0})
    seen = Cluster(config, batch_arrivals((profile,), 4, seed=0)).observe().copy()
    seen.stages["log_sd"] = log_sd
    rule = Srpt().ask(seen)
    useful = useful_executors(profile, config, rule.price)
    assert rule.price in PRICES
    assert (
        rule.limits.tolist() == [max(15, int(useful ** (1 - weight) * (DEFAULTS.uncertain_shares * 15) ** weight))] * 4
    )


def test_executors_hesitate_and_wrong_estimates_cost_less() -> None:
    # Executor 0 finishes a stage of a long job; a shorter job has enough work to justify a move.
    config = ClusterConfig(1, moving_delay_ms=100.0)
    long = job(stage(1, 50.0), stage(10, 60_000.0), edges=[(0, 1)])
    cluster = Cluster(config, jobs(long, job(stage(10, 3000.0))))
    cluster.decide(Decision(0, 1))
    while cluster.observe().source < 0:
        cluster.decide(None)
    seen = cluster.observe().copy()
    assert Srpt().ask(seen).stage == 2
    seen.stages["log_sd"] = 2.0
    assert Srpt().ask(seen).stage == 1
    assert Srpt(source_per_log_sd=0.01).ask(seen).stage == 2
    profiles = tuple(job(stage(tasks, ms)) for tasks in (10, 40, 160) for ms in (200.0, 800.0))
    config = ClusterConfig(8, moving_delay_ms=50.0, knowledge=Knowledge(job_error=2.0))
    exact = replace(config, knowledge=Knowledge())
    sums = {"exact": 0.0, "srpt": 0.0, "seh:0": 0.0}
    for seed in range(6):
        sequence = batch_arrivals(profiles, 8, seed)
        sums["exact"] += run_episode(exact, sequence, make_scheduler("srpt")).mean_jct_ms
        for name in ("srpt", "seh:0"):
            sums[name] += run_episode(config, sequence, make_scheduler(name)).mean_jct_ms
    assert sums["exact"] < sums["srpt"] < sums["seh:0"]
