"""Rules that shift work to times of low carbon intensity."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.registry import make_scheduler, split_names
from decima.schedulers.carbon_aware import Cap, GreenestFirst, Pcaps, quota, threshold, thresholds
from decima.schedulers.carbon_price import CarbonPrice
from decima.schedulers.entries import WITH_BASE
from decima.schedulers.fair import Fair
from decima.schedulers.srpt import Srpt
from simulator import ClusterConfig, EpisodeRecord, run_episode
from simulator.cluster.costs import busy_intervals
from simulator.cluster.metrics import EpisodeMetrics
from tests.simulator.cluster.build import chain, jobs, stage
from tests.workloads.strategies import job_sequences
from workloads import JobAttributes, JobSequence, Signal, poisson_arrivals, synthetic_profiles, synthetic_signal

SOLAR = synthetic_signal("synthetic-solar", 600)  # an hour is 6 s
CONSTANT = Signal("constant", (0.0,), (300.0,), 60_000.0)
STEPS = Signal("steps", (0.0, 10_000.0, 20_000.0), (900.0, 500.0, 100.0), 30_000.0)
JOBS = poisson_arrivals(synthetic_profiles(6), 10, 4_000, seed=3)
CONFIG = ClusterConfig(10, signal=SOLAR)
RULES = (
    *WITH_BASE, "cap:0.05", "pcaps:1", "greenest-first:40", "carbon-price:100", "carbon-slack:seconds=100,base=fair",
    "cap:minimum=0.1,base=fair",
)  # fmt: skip


def episode(rule: str, config: ClusterConfig = CONFIG, sequence: JobSequence = JOBS) -> EpisodeRecord:
    return run_episode(config, sequence, make_scheduler(rule))


def busy_at(record: EpisodeRecord, times_ms: list[float]) -> list[int]:
    _, begin_ms, end_ms = busy_intervals(record)
    return [int(((begin_ms <= now) & (now < end_ms)).sum()) for now in times_ms]


@pytest.mark.parametrize("rule", RULES)
def test_no_job_starves_and_both_engines_agree(rule: str) -> None:
    config = replace(CONFIG, signal=SOLAR.shifted(100_000.0))
    few = poisson_arrivals(synthetic_profiles(6), 6, 4_000, seed=3)
    compiled, reference = episode(rule, config, few), episode(rule, replace(config, engine="simpy"), few)
    assert not np.isnan(compiled.completion_ms).any()
    assert compiled.completion_ms.tolist() == reference.completion_ms.tolist()
    assert EpisodeMetrics(compiled).carbon == pytest.approx(EpisodeMetrics(reference).carbon, rel=1e-12)
    assert EpisodeMetrics(compiled).carbon == EpisodeMetrics(episode(rule, config, few)).carbon


@settings(deadline=None, max_examples=15, derandomize=True)
@given(job_sequences(), st.sampled_from([0.0, 20.0, 2000.0]), st.integers(0, 29_999))
def test_every_job_ends_at_any_place_of_the_signal(sequence: JobSequence, delay_ms: float, offset: int) -> None:
    config = ClusterConfig(6, moving_delay_ms=delay_ms, signal=STEPS.shifted(offset))
    plain = [
        replace(profile, stages=tuple(replace(each, cpu=1.0, memory=0.0) for each in profile.stages))
        for profile in sequence.profiles
    ]
    for rule in WITH_BASE:
        record = run_episode(config, replace(sequence, profiles=tuple(plain)), make_scheduler(rule))
        assert not np.isnan(record.completion_ms).any(), rule


@pytest.mark.parametrize("rule", WITH_BASE)
def test_without_a_signal_they_are_the_other_scheduler(rule: str) -> None:
    config = ClusterConfig(10)
    for other in ("srpt", "fair"):
        ours = episode(f"{rule}:base={other}", config)
        assert ours.completion_ms.tolist() == episode(other, config).completion_ms.tolist()


def test_settings_without_effect_and_little_time() -> None:
    plain = episode("srpt").completion_ms.tolist()
    for rule in ("cap:1", "pcaps:0", "greenest-first:0", "carbon-price:0"):
        assert episode(rule).completion_ms.tolist() == plain
    config = ClusterConfig(20, signal=CONSTANT, executor_watts=1000.0)
    limits = []
    for slack in (1.2, 2.0, 50.0):
        one = replace(jobs(chain(stage(200, 1000.0))), attributes=(JobAttributes(slack=slack),))
        limits.append(int(run_episode(config, one, make_scheduler("carbon-slack")).task_parallelism.max()))
    assert limits == [20, 10, 4]


@pytest.mark.parametrize("rule", ["cap:0.1", "pcaps:1", "greenest-first:40", "carbon-price:100", "carbon-slack"])
def test_they_save_carbon(rule: str) -> None:
    config = replace(CONFIG, executor_watts=2000.0)
    sequences = [poisson_arrivals(synthetic_profiles(6), 8, 60_000, seed=seed) for seed in (3, 4)]
    ours, plain = (
        sum(EpisodeMetrics(run_episode(config, seldom, make_scheduler(each))).carbon for seldom in sequences)
        for each in (rule, "srpt")
    )
    assert ours < 0.9 * plain


@given(st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 1), st.integers(1, 60), st.integers(1, 60))
def test_the_quota_is_within_its_bounds_and_falls_with_the_intensity(
    one: float, other: float, share: float, executors: int, least: int
) -> None:
    low, high = sorted((one, other))
    least = min(least, executors)
    intensities = sorted((low, low + share * (high - low), high))
    found = [quota(each, low, high, executors, least) for each in intensities]
    assert found == sorted(found, reverse=True)
    assert all(least <= each <= executors for each in found)
    assert found[0] == executors
    if high > 1.01 * low:
        assert found[-1] == least


def test_thresholds_of_cap_and_pcaps() -> None:
    for low, high, count in ((100.0, 400.0, 80), (293.0, 567.0, 10), (12.0, 179.0, 1)):
        found = np.array(thresholds(low, high, count))
        alpha = high / found[0]
        growth = 1 + 1 / (count * alpha)
        assert growth**count == pytest.approx((high - low) / (high * (1 - 1 / alpha)), rel=1e-6)
        assert (np.diff(found) < 0).all()
        assert low < found[-1] <= found[0] < high
    assert threshold(1.0, 0.5, 100, 400) == 400
    assert threshold(0.0, 1.0, 100, 400) == 100
    assert threshold(0.0, 0.5, 100, 400) == 250
    values = [threshold(each, 0.8, 100, 400) for each in np.linspace(0, 1, 11)]
    assert values == sorted(values)
    assert threshold(0.3, 0.0, 100, 400) == 400


def test_cap_keeps_its_quota_and_pcaps_lets_the_longer_job_wait() -> None:
    config = ClusterConfig(10, signal=STEPS, moving_delay_ms=0.0)
    record = run_episode(config, jobs(*[chain(stage(20, 500.0))] * 4), Cap(0.3))
    assert max(busy_at(record, [100.0 * number for number in range(100)])) == 3
    assert max(busy_at(record, [20_000 + 100.0 * number for number in range(1, 100)])) <= 10
    config = ClusterConfig(10, signal=STEPS, moving_delay_ms=0.0)
    both = jobs(chain(stage(10, 500.0)), chain(stage(400, 500.0)))
    record = run_episode(config, both, Pcaps(1.0))
    _, begin_ms, _ = busy_intervals(record)
    job = busy_intervals(record)[0]
    assert begin_ms[job == 0].min() == 0
    assert begin_ms[job == 1].min() > 0


@pytest.mark.parametrize(("patience", "begin_ms"), [(0.0, 0.0), (1.0, 10_000.0), (2.0, 20_000.0)])
def test_greenest_first_begins_in_the_greenest_hour_before_the_latest_end(patience: float, begin_ms: float) -> None:
    config = ClusterConfig(10, signal=STEPS, moving_delay_ms=0.0)
    record = run_episode(config, jobs(chain(stage(10, 500.0))), GreenestFirst(patience))
    assert record.task_start_ms.min() == begin_ms


@pytest.mark.parametrize(("slack", "begins_ms"), [(1000.0, 20_000.0), (1.5, 0.0), (0.01, 0.0)])
def test_with_carbon_slack_a_job_waits_for_a_greener_hour_if_its_deadline_allows(
    slack: float, begins_ms: float
) -> None:
    """The intensity falls at 10 and at 20 s; the job takes about a second."""
    config = ClusterConfig(4, signal=STEPS, moving_delay_ms=0.0, warmup_delay_ms=0.0, executor_watts=1e5)
    one = replace(jobs(chain(stage(4, 1000.0))), attributes=(JobAttributes(slack=slack),))
    record = run_episode(config, one, make_scheduler("carbon-slack:seconds=1"))
    assert record.task_start_ms.min() == begins_ms
    assert bool(EpisodeMetrics(record).missed[0]) == (slack < 1)


def test_jobs_wait_for_green_power_under_rules_by_name() -> None:
    config = ClusterConfig(10, signal=STEPS, moving_delay_ms=0.0, executor_watts=1e6)
    one = jobs(chain(stage(10, 1000.0)))
    grams = EpisodeMetrics(run_episode(config, one, Srpt())).carbon
    begun = {}
    for seconds in (0.0, 0.015, 0.05, 5.0):
        record = run_episode(config, one, CarbonPrice(seconds))
        begun[seconds] = record.task_start_ms.min()
        assert begun[seconds] <= 1000 * seconds * grams
    assert list(begun.values()) == sorted(begun.values())
    assert (begun[0.0], begun[5.0]) == (0, 20_000)
    assert split_names("cap:minimum=0.1,base=fair, fair") == ["cap:minimum=0.1,base=fair", "fair"]
    rule = make_scheduler("cap:minimum=0.1,base=fair")
    assert isinstance(rule, Cap)
    assert isinstance(rule.base, Fair)
    assert rule.minimum == 0.1
    nested = make_scheduler("pcaps:base=srpt:least_price_in_stream=3")
    assert isinstance(nested, Pcaps)
    assert isinstance(nested.base, Srpt)
    assert nested.base.constants.least_price_in_stream == 3
