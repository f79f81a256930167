"""Rules for uncertain estimates: results of theory in small cases."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from decima.registry import make_scheduler
from decima.schedulers.base import PRICES
from decima.schedulers.priced_srpt import PricedConstants, PricedSrpt
from decima.schedulers.queueing import HeSrpt, fractions, index_over_median, speedup_exponent
from simulator import Cluster, ClusterConfig, Decision, Observation, run_episode
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import Knowledge
from tests.cases import cases
from tests.simulator.cluster.build import inflating, job, jobs, stage
from workloads.arrivals import batch_arrivals

DEFAULTS = PricedConstants()


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
        return float(size.expect(lambda x: np.minimum(x, quantum), ub=np.inf) / size.cdf(quantum))

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
    assert chosen("priced-srpt", seen, config) == 0


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
    elastic, inelastic = (useful_executors(profile, config, DEFAULTS.measured) for profile in seen.profiles)
    work_exponent = 1 - math.log(6) / (math.log(elastic / inelastic) / (1 - DEFAULTS.work_exponent) + math.log(6))
    assert DEFAULTS.work_exponent < work_exponent < 1
    enough = DEFAULTS.uncertain * (1 - work_exponent) / (1 - DEFAULTS.work_exponent)
    for log_sd, first in ((0.0, 0), (enough - 0.01, 0), (enough + 0.01, 1)):
        seen.stages["log_sd"] = log_sd
        assert PricedSrpt().ask(seen).stage == first
        assert chosen("seh:0", seen, config) == 0  # its order is its own
    seen.stages["log_sd"] = 0.0, 2 * enough + 0.01  # what counts is the mean over the live jobs
    assert PricedSrpt().ask(seen).stage == 1


@cases("log_sd, weight", (DEFAULTS.doubtful, 0.0), (DEFAULTS.doubtful + 0.5, 0.5), (DEFAULTS.doubtful + 2, 1.0))
def test_limits_shrink_towards_equal_shares_as_uncertainty_grows(log_sd: float, weight: float) -> None:
    config = ClusterConfig(60, moving_delay_ms=0.0)
    profile = inflating(400, {1: 1000.0, 20: 1200.0, 60: 1800.0})
    seen = Cluster(config, batch_arrivals((profile,), 4, seed=0)).observe().copy()
    seen.stages["log_sd"] = log_sd
    rule = PricedSrpt().ask(seen)
    useful = useful_executors(profile, config, rule.price)
    assert rule.price in PRICES
    assert rule.limits.tolist() == [max(15, int(useful ** (1 - weight) * (DEFAULTS.shares * 15) ** weight))] * 4


def test_executors_hesitate_and_wrong_estimates_cost_less() -> None:
    # Executor 0 finishes a stage of a long job; a shorter job has enough work to justify a move.
    config = ClusterConfig(1, moving_delay_ms=100.0)
    long = job(stage(1, 50.0), stage(10, 60_000.0), edges=[(0, 1)])
    cluster = Cluster(config, jobs(long, job(stage(10, 3000.0))))
    cluster.decide(Decision(0, 1))
    while cluster.observe().source < 0:
        cluster.decide(None)
    seen = cluster.observe().copy()
    assert PricedSrpt().ask(seen).stage == 2
    seen.stages["log_sd"] = 2.0
    assert PricedSrpt().ask(seen).stage == 1
    assert PricedSrpt(hesitation=0.01).ask(seen).stage == 2
    profiles = tuple(job(stage(tasks, ms)) for tasks in (10, 40, 160) for ms in (200.0, 800.0))
    config = ClusterConfig(8, moving_delay_ms=50.0, knowledge=Knowledge(job_error=2.0))
    exact = replace(config, knowledge=Knowledge())
    sums = {"exact": 0.0, "priced-srpt": 0.0, "seh:0": 0.0}
    for seed in range(6):
        sequence = batch_arrivals(profiles, 8, seed)
        sums["exact"] += run_episode(exact, sequence, make_scheduler("priced-srpt")).mean_jct_ms
        for name in ("priced-srpt", "seh:0"):
            sums[name] += run_episode(config, sequence, make_scheduler(name)).mean_jct_ms
    assert sums["exact"] < sums["priced-srpt"] < sums["seh:0"]
