"""``srpt`` whose constants, order and limits depend on state, jobs and stages."""

import math

import numpy as np
import pytest

from decima.registry import make_scheduler
from decima.schedulers.srpt import Srpt, TunedSrpt
from decima.schedulers.srpt_steps import HALF_ERRORS, MOST_RATIO
from decima.schedulers.srpt_weights import WEIGHT_PLACES, StateFeatures, searched_weights
from simulator import Cluster, ClusterConfig, Decision, Observation, run_episode
from simulator.cluster.config import Knowledge
from tests.cases import cases
from tests.decima.policy.examples import random_sequence
from tests.simulator.cluster.build import chain, inflating, job, jobs, stage
from workloads.arrivals import JobSequence, batch_arrivals

NO_WEIGHTS = dict.fromkeys(searched_weights(), 0.0)
WRONG = ClusterConfig(12, moving_delay_ms=50.0, knowledge=Knowledge(job_error=1.0, stage_error=0.5))
#: Constants with which the price is always the least one, so that nothing is interpolated.
LEAST_PRICE = {"price_in_batch": 1e-3, "price_in_stream": 1e-3, "least_price_in_stream": 1.0}


def rule(full_effect_executors: float = 1.0, **weights: float) -> TunedSrpt:
    """Return the rule with these weights alone, which have their full effect on any number of executors."""
    return TunedSrpt(full_effect_executors=full_effect_executors, **NO_WEIGHTS | weights)


def observed(sequence: JobSequence, config: ClusterConfig) -> Observation:
    return Cluster(config, sequence).observe().copy()


def decided(scheduler: TunedSrpt, observation: Observation) -> Decision:
    decision = scheduler.decide(observation)
    assert decision is not None
    return decision


@pytest.mark.parametrize("seed", range(4))
def test_without_weights_at_a_price_of_the_table_it_is_srpt(seed: int) -> None:
    sequence = random_sequence(np.random.default_rng(seed), max_jobs=9)
    mine = rule(**LEAST_PRICE, **{"stage.next": -1e6})
    runs = [run_episode(WRONG, sequence, each) for each in (mine, Srpt(**LEAST_PRICE))]
    assert runs[0].completion_ms.tolist() == runs[1].completion_ms.tolist()


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_price_follows_the_features_of_the_state(is_stream: bool) -> None:
    sequence = random_sequence(np.random.default_rng(3), max_jobs=9)
    seen = observed(JobSequence(sequence.profiles, np.zeros(len(sequence)), seed=3), WRONG)
    seen.jobs["arrival_ms"][0] -= float(is_stream)
    num_jobs, width = (len(seen.jobs), Srpt()._profiles(seen)[:, 6])  # PRICES[6] is the default of `price_of_demand`
    left = seen.remaining_tasks * seen.mean_task_ms
    work, variance = (np.bincount(seen.stage_job, each) for each in (left, left * seen.log_sd**2))
    errors = np.minimum(np.sqrt(variance / work), 2.0).mean()
    assert errors > 0.5
    errors /= errors + HALF_ERRORS
    features = {
        "one": 1.0,
        "errors": errors,
        "demand": math.log(width.sum() / 12),
        "moves": math.log(1 + 50 / (work.sum() / seen.remaining_tasks.sum())) - 1,
        "stream": float(is_stream),
        "free": 1.0,
        "jobs": math.log(num_jobs) - 2.5,
        "executors": math.log(12) - 4,
        "errors_stream": errors * is_stream,
        "class_share": 0.0,
        "scarcity": 0.0,
    }
    assert tuple(features) == StateFeatures._fields
    plain = rule().ask(seen).price
    assert plain == pytest.approx(
        max(2 * math.sqrt(width.sum() / 12), 3) if is_stream else 1.25 * math.sqrt(width.sum() / 12)
    )
    for name, value in features.items():
        assert rule(**{f"price.{name}": 0.3}).ask(seen).price == pytest.approx(plain * math.exp(0.3 * value)), name
    assert rule(**{"price.one": -90.0}).ask(seen).price == pytest.approx(plain * math.exp(-MOST_RATIO))


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("order.size=0", 0),  # the shorter job comes first
        ("order.size=-3", 1),
        ("order.size_demand=-9", 1),
        ("stage.lasts=-5", 1),
        ("stage.last=9", 1),
        ("stage.height=9", 0),
        ("stage.move=-9", 1),  # its tasks are shorter
        ("stage.tasks=-9", 1),
    ],
)
def test_the_order_follows_features_of_jobs_and_stages(weight: str, expected: int) -> None:
    """The second job has more work and more, but shorter, tasks in its first stage; the first job has one stage."""
    short, long = job(stage(8, 200.0)), chain(stage(24, 80.0), stage(16, 80.0))
    seen = observed(jobs(short, long), ClusterConfig(8, moving_delay_ms=100.0))
    name, _, value = weight.partition("=")
    assert seen.stage_job[decided(rule(**{name: float(value)}), seen).stage] == expected


@cases("weight, expected", ("stage.height=0", 0), ("stage.height=2", 0), ("stage.height=-2", 1), ("stage.next=9", 0))
def test_another_stage_than_the_next_one_can_be_chosen(weight: str, expected: int) -> None:
    """Two stages of one job are ready; the second one leads to a longer path, and is the next one."""
    fork = job(stage(4, 100.0), stage(4, 100.0), stage(4, 900.0), edges=((1, 2),))
    seen = observed(jobs(fork), ClusterConfig(2, moving_delay_ms=0.0))
    assert seen.next_stage[0] == 1
    name, _, value = weight.partition("=")
    assert decided(rule(**{name: float(value)}), seen).stage == expected


@pytest.mark.parametrize(("num_executors", "effect"), [(15, 0.5), (60, 1.0), (90, 1.0)])
def test_weights_have_less_effect_on_few_executors(num_executors: int, effect: float) -> None:
    seen = observed(random_sequence(np.random.default_rng(3), max_jobs=9), ClusterConfig(num_executors))
    halved = rule(60.0, **{"price.one": 0.4, "least_limit.one": 1.0}).ask(seen)
    full = rule(**{"price.one": 0.4 * effect, "least_limit.one": effect}).ask(seen)
    assert (halved.price, halved.limits.tolist()) == (pytest.approx(full.price), full.limits.tolist())


def test_limits_follow_the_price_and_features() -> None:
    sequence = batch_arrivals((inflating(200, {1: 800.0, 20: 1600.0}),), 4, seed=0)
    seen = observed(sequence, ClusterConfig(20, moving_delay_ms=0.0))

    def limit(**weights: float) -> int:
        return decided(rule(**weights), seen).limit

    few = {"least_limit.one": -9.0}
    plain = limit(**few)
    assert plain > 2
    assert limit(**few, **{"limit.ready": math.log(0.51)}) == plain // 2
    assert limit(**few, **{"price.one": 0.7}) < plain
    assert limit(**{"limit.ready": -9.0, "least_limit.one": math.log(1.25)}) == 6  # 1.25 times an equal share


def test_thresholds_follow_the_state_and_unready_work() -> None:
    """Free executors come only if each finds work that justifies its move; half of the job's work is not ready."""
    seen = observed(jobs(chain(stage(8, 25.0), stage(8, 25.0))), ClusterConfig(8, moving_delay_ms=20.0))
    few = {"useful_multiple.one": -9.0, "idle_multiple.one": -9.0, "useful_multiple": 1e-9, "idle_multiple": 1e-9}
    assert decided(rule(**few, move_min_delays=4.0), seen).limit == 5
    assert decided(rule(**few, move_min_delays=4.0, **{"unready_work.one": -50.0}), seen).limit == 2
    assert decided(rule(**few, move_min_delays=4.0, **{"move_min_delays.one": math.log(2.5)}), seen).limit == 2


def test_executors_stay_as_long_as_the_weights_say() -> None:
    """The executors of the long job are offered again; another job is shorter."""
    sequence = jobs(job(stage(30, 10.0), stage(30, 10.0)), job(stage(20, 10.0)))
    for weight, expected in ((0.0, 1), (-2.0, 0)):
        cluster = Cluster(ClusterConfig(4, moving_delay_ms=0.0), sequence)
        while cluster.observe().source != 0:
            seen = cluster.observe()
            cluster.decide(Decision(0, seen.held(0) + 1) if seen.schedulable[0] else None)
        scheduler = rule(source_factor=0.9, **{"source_factor.one": weight})
        seen = cluster.observe()
        assert seen.stage_job[decided(scheduler, seen).stage] == expected


def test_executors_hesitate_to_leave_a_job_with_an_uncertain_estimate() -> None:
    """All four executors of the long job are offered; the other job is shorter."""
    seen = observed(jobs(job(stage(30, 10.0)), job(stage(4, 10.0))), ClusterConfig(4, moving_delay_ms=0.0))
    seen.source, seen.jobs["executors"][0] = 0, 4
    for log_sd, hesitation, expected in ((0.0, 3.0, 1), (2.0, 3.0, 0), (2.0, 1e-9, 1)):
        seen.stages["log_sd"] = log_sd
        # The order by remaining work holds at any uncertainty.
        scheduler = rule(source_per_log_sd=hesitation, robust_order_log_sd=1e9)
        assert seen.stage_job[decided(scheduler, seen).stage] == expected


@pytest.mark.parametrize(
    ("num_jobs", "is_stream", "effect"), [(20, False, 1.0), (40, False, 1.0), (80, False, 0.25), (80, True, 1.0)]
)
def test_weights_have_less_effect_in_batches_of_many_jobs(num_jobs: int, is_stream: bool, effect: float) -> None:
    seen = observed(jobs(*[job(stage(4, 10.0))] * num_jobs), ClusterConfig(4, moving_delay_ms=0.0))
    seen.jobs["arrival_ms"][0] -= float(is_stream)
    prices = [rule(**{"price.one": weight}).ask(seen).price for weight in (0.0, 0.8)]
    assert prices[1] == pytest.approx(prices[0] * math.exp(0.8 * effect))


def test_a_stage_that_is_not_ready_has_its_own_weight() -> None:
    seen = observed(jobs(job(stage(4, 100.0), stage(4, 100.0))), ClusterConfig(2, moving_delay_ms=0.0))
    seen.source, seen.stages["ready_rank"][1] = 0, -1
    for weight, expected in ((0.0, 0), (-1.0, 1)):
        assert decided(rule(**{"stage.unready": weight}), seen).stage == expected


@pytest.mark.parametrize("size", [-100.0, 100.0])
def test_extreme_weights_complete_all_jobs(size: float) -> None:
    sequence = random_sequence(np.random.default_rng(1), max_jobs=9)
    record = run_episode(WRONG, sequence, TunedSrpt(**dict.fromkeys(searched_weights(), size)))
    assert not np.isnan(record.completion_ms).any()


def test_more_executors_may_be_offered_than_their_job_holds() -> None:
    """An observation that is filled by hand, or comes from a real cluster, need not add up."""
    seen = observed(jobs(job(stage(8, 25.0)), job(stage(8, 25.0))), ClusterConfig(8, moving_delay_ms=20.0))
    seen.source, seen.jobs["executors"] = 0, 3
    assert TunedSrpt().decide(seen) is not None


def test_weights_have_names_and_a_file() -> None:
    assert len(WEIGHT_PLACES) == len(set(WEIGHT_PLACES.values()))
    made = make_scheduler("srpt-tuned:price_in_batch=2,order.done=-0.5,order.done_errors=0.25")
    assert isinstance(made, TunedSrpt)
    assert made.constants.price_in_batch == 2.0
    assert made.weights == searched_weights() | {"order.done": -0.5, "order.done_errors": 0.25}
    with pytest.raises(ValueError, match="price_in_batch must be positive"):
        TunedSrpt(price_in_batch=-1.0)
    with pytest.raises(ValueError, match="coverage_exponent must not be negative"):
        TunedSrpt(coverage_exponent=-1.0)
    with pytest.raises(ValueError, match="full_effect"):
        TunedSrpt(full_effect_executors=0.0)
    with pytest.raises(TypeError, match="nope"):
        TunedSrpt(nope=1.0)
