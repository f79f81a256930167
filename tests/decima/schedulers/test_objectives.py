"""Rules for weights, deadlines, tails and tenants, against known theory on one executor, and Spark's rules."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.registry import make_scheduler
from simulator import SPARK, Cluster, ClusterConfig, EpisodeRecord, Observation, run_episode
from simulator.cluster.metrics import EpisodeMetrics
from tests.cases import cases
from tests.simulator.cluster.build import job, stage
from workloads import batch_arrivals, poisson_arrivals, synthetic_profiles
from workloads.arrivals import JobSequence
from workloads.attributes import JobAttributes, Tenant
from workloads.drawn_attributes import AttributeDistribution

#: One executor that is offered after each task, without delays: preemption at the ends of tasks.
ONE = ClusterConfig(num_executors=1, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=SPARK)
UNIT_MS = 100.0


def sequence(
    tasks: list[int], arrivals: list[int], attributes: list[JobAttributes], tenants: tuple[Tenant, ...] = ()
) -> JobSequence:
    """Return jobs of one stage with tasks of unit length, in order of arrival; arrivals are in units."""
    profiles = {count: job(stage(count, UNIT_MS)) for count in set(tasks)}
    return JobSequence(
        tuple(profiles[count] for count in tasks),
        UNIT_MS * np.array(arrivals, dtype=float),
        attributes=tuple(attributes),
        tenants=tenants,
    )


def is_feasible(tasks: list[int], arrivals: list[int], deadlines: list[int]) -> bool:
    """Return whether some schedule on one executor meets all deadlines, so that no interval has more work than time."""
    jobs = list(zip(tasks, arrivals, deadlines, strict=True))
    return all(
        sum(work for work, arrival, deadline in jobs if arrival >= begin and deadline <= end) <= end - begin
        for begin, end in itertools.product(arrivals, deadlines)
        if begin < end
    )


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 8), st.integers(1, 12)),
        min_size=1,
        max_size=5,
        unique_by=lambda each: (
            each[1] or each
        ),  # at other times than 0, the first of several arrivals is served at once
    )
)
@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("name", ["edf", "least-slack"])
def test_on_one_executor_all_deadlines_are_met_if_they_can_be(name: str, drawn: list[tuple[int, int, int]]) -> None:
    """The theorems are by Liu and Layland (1973) and Mok (1983), for tasks of unit length."""
    drawn = sorted(drawn, key=lambda each: each[1])
    tasks, arrivals, spans = (list(each) for each in zip(*drawn, strict=True))
    deadlines = [arrival + max(span, work) for work, arrival, span in zip(tasks, arrivals, spans, strict=True)]
    attributes = [JobAttributes(deadline_ms=UNIT_MS * each + 1e-6) for each in deadlines]
    record = run_episode(ONE, sequence(tasks, arrivals, attributes), make_scheduler(name))
    assert (not EpisodeMetrics(record).missed.any()) == is_feasible(tasks, arrivals, deadlines)


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from((0.5, 1.0, 4.0, 16.0))), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_smiths_ratio_has_the_least_weighted_mean(drawn: list[tuple[int, float]]) -> None:
    """Smith (1956): it is the best of all orders of jobs that arrive together, on one executor."""
    tasks, weights = [work for work, _ in drawn], [weight for _, weight in drawn]
    attributes = [JobAttributes(weight=weight) for weight in weights]
    jobs = sequence(tasks, [0] * len(tasks), attributes)
    record = run_episode(ONE, jobs, make_scheduler("weighted-srpt"))
    costs = []
    for order in itertools.permutations(range(len(tasks))):
        ends = np.cumsum([tasks[place] for place in order])
        costs.append(sum(weights[place] * end for place, end in zip(order, ends, strict=True)) / sum(weights))
    assert EpisodeMetrics(record).weighted_mean_jct_ms == pytest.approx(UNIT_MS * min(costs))


@pytest.mark.parametrize("name", ["weighted-srpt", "atc"])
def test_without_attributes_smiths_ratio_and_atc_are_srpt(name: str) -> None:
    jobs = poisson_arrivals(synthetic_profiles(6), 12, 2000.0, seed=3)
    other, plain = (run_episode(ClusterConfig(8), jobs, make_scheduler(each)) for each in (name, "srpt"))
    assert other.completion_ms.tolist() == plain.completion_ms.tolist()


def test_deadlines_weights_and_slack_order_jobs() -> None:
    attributes = [JobAttributes(deadline_ms=UNIT_MS * each) for each in (3, 12.5)]
    jobs = sequence([5, 8], [0, 0], attributes)
    assert EpisodeMetrics(run_episode(ONE, jobs, make_scheduler("edf"))).missed.tolist() == [True, True]
    assert EpisodeMetrics(run_episode(ONE, jobs, make_scheduler("atc"))).missed.tolist() == [True, False]
    attributes = [JobAttributes(deadline_ms=UNIT_MS * each) for each in (40, 10)]
    jobs = sequence([6, 9], [0, 0], attributes)
    assert EpisodeMetrics(run_episode(ONE, jobs, make_scheduler("srpt"))).missed.tolist() == [False, True]
    assert not EpisodeMetrics(run_episode(ONE, jobs, make_scheduler("atc"))).missed.any()
    profile = job(stage(200, UNIT_MS))
    for attributes in ((JobAttributes(16), JobAttributes(1)), (JobAttributes(slack=1.5), JobAttributes(slack=9))):
        jobs = JobSequence((profile, profile), np.zeros(2), attributes=attributes)
        cluster = Cluster(ClusterConfig(20), jobs)
        limits = make_scheduler("atc").ask(cluster.observe()).limits  # type: ignore[attr-defined]
        assert limits[0] > limits[1]
    attributes = [JobAttributes(), JobAttributes(), JobAttributes(deadline_ms=10_000), JobAttributes(deadline_ms=9_000)]
    jobs = sequence([3, 2, 4, 5], [0, 0, 0, 0], attributes)
    for name in ("edf", "least-slack"):
        record = run_episode(ONE, jobs, make_scheduler(name))
        assert np.argsort(record.completion_ms).tolist() == [3, 2, 1, 0]


def test_the_least_slack_counts_the_time_that_the_rest_takes() -> None:
    """The second job has a later deadline and more work: the slacks are 300 and 200 ms."""
    attributes = [JobAttributes(deadline_ms=500), JobAttributes(deadline_ms=1_000)]
    jobs = sequence([2, 8], [0, 0], attributes)
    first = {name: run_episode(ONE, jobs, make_scheduler(name)).task_job[:1] for name in ("edf", "least-slack")}
    starts = {
        name: run_episode(ONE, jobs, make_scheduler(name)).tasks().groupby("job")["start_ms"].min().tolist()
        for name in first
    }
    assert (starts["edf"], starts["least-slack"][1]) == ([0, 200], 0)


def completions(load: float) -> list[int]:
    """Return the order of completion of a long job and ten short jobs that arrive one by one while it waits."""
    jobs = sequence([1, 12, *[3] * 10], [0, 0, *range(1, 11)], [JobAttributes()] * 12)
    record = run_episode(ONE, jobs, make_scheduler(f"gamma-boost:{load}"))
    return np.argsort(record.completion_ms, kind="stable").tolist()


def test_gamma_boost_and_pools() -> None:
    assert completions(0.999)[-1] == 1  # the long job is the last
    place = [completions(load).index(1) for load in (0.0, 0.7, 0.9, 0.999)]
    assert place == sorted(place)
    assert place[0] < place[-1]
    config = ClusterConfig(num_executors=4, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=SPARK)
    jobs = sequence([8, 8], [0, 0], [JobAttributes(), JobAttributes()])
    record = run_episode(config, jobs, make_scheduler("fair-pools"))
    assert record.completion_ms.tolist() == [200, 400]


def test_boosts_are_those_of_the_paper() -> None:
    # Of two waiting jobs the job with the earlier boosted arrival is first, in either order of arrival.
    scheduler = make_scheduler("gamma-boost:0.5")
    jobs = sequence([4, 9, 2], [0, 0, 3], [JobAttributes()] * 3)
    cluster = Cluster(ONE, jobs)
    while cluster.observe().time_ms < 3 * UNIT_MS:
        cluster.decide(scheduler.decide(cluster.observe()))
    seen: Observation = cluster.observe()
    gamma = 0.5 / seen.job_first_work_ms.mean()  # there is no prior
    boosted = [
        arrival - math.log(1 / (1 - math.exp(-gamma * work))) / gamma
        for arrival, work in zip(seen.job_arrival_ms, seen.job_first_work_ms, strict=True)
    ]
    assert scheduler.order(seen).tolist() == (1 + np.argsort(np.argsort(boosted))).tolist()  # type: ignore[attr-defined]
    # A factor of 100 at 99 % load gives the same decay as no load.
    jobs = sequence([1, 12, *[3] * 10], [0, 0, *range(1, 11)], [JobAttributes()] * 12)
    ends = {
        name: run_episode(ONE, jobs, make_scheduler(f"gamma-boost:{name}")).completion_ms.tolist()
        for name in ("0.99", "0", "load=0.99,decay=100")
    }
    assert ends["load=0.99,decay=100"] == ends["0"] != ends["0.99"]
    assert make_scheduler("gamma-boost:least_price_in_stream=4").constants.least_price_in_stream == 4  # type: ignore[attr-defined]


def running(record: EpisodeRecord, time_ms: float) -> list[int]:
    """Return the number of running tasks of each tenant at a time."""
    runs = (record.task_start_ms <= time_ms) & (time_ms < record.task_finish_ms)
    tenants = record.sequence.tenant[record.task_job[runs]]
    return np.bincount(tenants, minlength=len(record.sequence.tenants)).tolist()


@cases(
    "tenants, shares",
    ((Tenant("a"), Tenant("b")), [6, 6]),
    ((Tenant("a", weight=3), Tenant("b")), [9, 3]),
    ((Tenant("a", weight=3), Tenant("b", min_share=5)), [7, 5]),
    ((Tenant("a", min_share=20), Tenant("b")), [12, 0]),
    ((Tenant("a", min_share=20), Tenant("b", min_share=10)), [8, 4]),
)
def test_pools_share_as_in_spark(tenants: tuple[Tenant, ...], shares: list[int]) -> None:
    """Both pools have more tasks than the twelve executors can run."""
    config = ClusterConfig(num_executors=12, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=SPARK)
    named = [JobAttributes(tenant="a"), JobAttributes(tenant="b"), JobAttributes(tenant="a")]
    jobs = sequence([60, 60, 60], [0, 0, 0], named, tenants)
    record = run_episode(config, jobs, make_scheduler("fair-pools"))
    assert running(record, 50.0) == shares
    assert running(record, 250.0) == shares


@given(
    st.integers(0, 10**6), st.sampled_from(("edf", "least-slack", "weighted-srpt", "gamma-boost", "atc", "fair-pools"))
)
@settings(max_examples=25, deadline=None)
def test_all_jobs_complete_whatever_they_ask_for(seed: int, name: str) -> None:
    jobs = AttributeDistribution((0.5, 4), 3, (1, 4, 16)).draw(batch_arrivals(synthetic_profiles(4), 4, seed))
    records = [
        run_episode(ClusterConfig(5, engine=engine), jobs, make_scheduler(name)) for engine in ("compiled", "simpy")
    ]
    assert not np.isnan(records[0].completion_ms).any()
    assert records[0].completion_ms.tolist() == records[1].completion_ms.tolist()
