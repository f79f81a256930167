"""Objectives: the rewards of an episode add up to the cost computed from its record."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.schedulers import Fair
from simulator import DECIMA_SIM, PAPER, SPARK, ClusterConfig, ConfigError, Faults, Semantics, make_cluster
from simulator.cluster.costs import cost_ms
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.objectives import AllJobs, Deadline, LiveJobs, Objective, objective_named
from simulator.cluster.record import EpisodeRecord
from tests.cases import cases
from tests.simulator.cluster.build import finish
from tests.workloads.strategies import job_sequences
from workloads import DecimaError, batch_arrivals, poisson_arrivals, synthetic_profiles
from workloads.arrivals import JobSequence
from workloads.attributes import JobAttributes, Tenant
from workloads.carbon import Signal
from workloads.sources.carbon import synthetic_signal

SCALE_MS = 1000.0


def episode(config: ClusterConfig, jobs: JobSequence) -> tuple[list[float], EpisodeRecord]:
    """Return the rewards of an episode of fair sharing, and its record."""
    scheduler = Fair()
    scheduler.reset(config)
    record, rewards = finish(make_cluster(config, jobs), scheduler.decide)
    return rewards, record


def expected_cost_ms(name: str, record: EpisodeRecord) -> float:
    """Return the cost of a complete episode, from its record."""
    jct_ms, weight = record.jct_ms, record.sequence.weight
    metrics = EpisodeMetrics(record)
    tardiness_ms, missed = np.nan_to_num(metrics.tardiness_ms), metrics.missed.sum()
    return float(
        {
            "jct": jct_ms.sum(),
            "mean": jct_ms.sum(),
            "makespan": record.end_ms,
            "weighted": (weight * jct_ms).sum(),
            "power-mean:1": jct_ms.sum(),
            "power-mean:3": SCALE_MS * ((jct_ms / SCALE_MS) ** 3).sum(),
            "deadline": tardiness_ms.sum(),
            "misses": np.minimum(tardiness_ms, 10_000).sum(),
            "misses:0.5": np.minimum(tardiness_ms, 500).sum(),
            "deadline:60": tardiness_ms.sum() + 60_000 * missed,
            "jct+0.5*deadline:60": jct_ms.sum() + 0.5 * (tardiness_ms.sum() + 60_000 * missed),
            "0.25*weighted+2*makespan": 0.25 * (weight * jct_ms).sum() + 2 * record.end_ms,
        }[name]
    )


NAMES = (
    *("jct", "makespan", "weighted", "power-mean:1", "power-mean:3", "deadline", "deadline:60"),
    *("mean", "misses", "misses:0.5", "jct+0.5*deadline:60", "0.25*weighted+2*makespan"),
)


@pytest.mark.parametrize("name", NAMES)
@given(jobs=job_sequences(max_stages=3), executors=st.integers(1, 3), published=st.booleans())
@settings(max_examples=6, deadline=None)
def test_rewards_add_up_to_the_cost_in_both_engines(
    name: str, jobs: JobSequence, executors: int, published: bool
) -> None:
    config = ClusterConfig(executors, moving_delay_ms=50.0, reward=name, reward_scale_ms=SCALE_MS)
    if published:
        config = replace(config, semantics=replace(DECIMA_SIM, reward_short_jobs=True))
    demanding = [
        replace(profile, stages=tuple(replace(each, cpu=1.0, memory=0.0) for each in profile.stages))
        for profile in jobs.profiles
    ]
    jobs = replace(jobs, profiles=tuple(demanding))
    rewards, record = episode(config, jobs)
    if "makespan" not in name or record.end_ms:
        assert -SCALE_MS * sum(rewards) == pytest.approx(expected_cost_ms(name, record), rel=1e-9, abs=1e-3)
    from_zero_ms = jobs.arrival_ms[0] * ("makespan" in name) * (2 if "2*makespan" in name else 1)
    assert cost_ms(record, name) + from_zero_ms == pytest.approx(expected_cost_ms(name, record), rel=1e-9, abs=1e-3)
    again, _ = episode(replace(config, engine="simpy"), jobs)
    assert again == rewards


STEPS = Signal("steps", (0.0, 700.0, 1500.0), (100.0, 900.0, 0.0), 2500.0)
FAULTS = Faults(executor_lifetime_ms=9000.0, executor_return_ms=900.0, task_failures=0.05, speculation=(0.5, 1.2))


@cases(
    "faults, idle_watts, semantics",
    (Faults(), 0.0, PAPER), (FAULTS, 40.0, PAPER), (FAULTS, 0.0, SPARK),
    (Faults(), 40.0, replace(DECIMA_SIM, reward_short_jobs=True)),
)  # fmt: skip
def test_rewards_for_carbon_add_up_to_the_emissions_in_both_engines(
    faults: Faults, idle_watts: float, semantics: Semantics
) -> None:
    config = ClusterConfig(
        6,
        semantics=semantics,
        faults=faults,
        signal=STEPS.shifted(300),
        idle_watts=idle_watts,
        reward="carbon",
        reward_scale_ms=SCALE_MS,
    )
    jobs = poisson_arrivals(synthetic_profiles(6), 6, 4_000, seed=1)
    rewards, record = episode(config, jobs)
    assert -sum(rewards) == pytest.approx(EpisodeMetrics(record).carbon, rel=1e-9)
    assert cost_ms(record, "carbon") == pytest.approx(1000 * EpisodeMetrics(record).carbon, rel=1e-9)
    again, _ = episode(replace(config, engine="simpy"), jobs)
    assert again == pytest.approx(rewards, rel=1e-9, abs=1e-9)


def test_sums_with_carbon_and_emissions_of_forks() -> None:
    jobs = batch_arrivals(synthetic_profiles(3), 4, 0)
    reward = "jct+0.5*carbon:synthetic-solar:600"
    signal = synthetic_signal("synthetic-solar", 600).shifted(70_000)
    rewards, record = episode(ClusterConfig(4, reward=reward, signal=signal), jobs)
    expected = record.jct_ms.sum() + 500 * EpisodeMetrics(record).carbon
    assert -100_000 * sum(rewards) == pytest.approx(expected)
    assert cost_ms(record, reward) == pytest.approx(expected)
    with pytest.raises(ConfigError, match="the cluster has another signal, steps"):
        ClusterConfig(reward=reward, signal=STEPS)
    with pytest.raises(ConfigError, match="the cluster has no signal"):
        cost_ms(episode(ClusterConfig(4), jobs)[1], "carbon")
    config = ClusterConfig(4, signal=STEPS, reward="carbon", reward_scale_ms=SCALE_MS)
    cluster, scheduler = (make_cluster(config, poisson_arrivals(synthetic_profiles(6), 6, 4_000, seed=1)), Fair())
    scheduler.reset(config)
    before = 0.0
    for _ in range(20):
        cluster.decide(scheduler.decide(cluster.observe()))
        before += cluster.reward()
    for each in (cluster.fork(), cluster):
        record, rewards = finish(each, scheduler.decide)
        assert -before - sum(rewards) == pytest.approx(EpisodeMetrics(record).carbon, rel=1e-9)


def test_deadlines_are_penalised_once_and_names_are_one_objective() -> None:
    jobs = LiveJobs((0,), AllJobs.of(batch_arrivals(synthetic_profiles(1), 1, 0), np.array([1000.0])))
    times_ms = ((0.0, 1000.0), (1000.0, 3000.0), (3000.0, 4000.0))
    costs_ms = [Deadline(60).cost_ms(begin_ms, end_ms, jobs, SCALE_MS) for begin_ms, end_ms in times_ms]
    assert costs_ms == [0, 2000 + 60_000, 1000]
    assert objective_named("deadline:60") is objective_named("deadline:60")


@cases(
    "name, message",
    ("worst", "reward 'worst': unknown objective 'worst', expected jct, mean, makespan, weighted, power-mean"),
    ("no_such_module:Cost",
     "reward 'no_such_module:Cost': no_such_module:Cost cannot be used: ModuleNotFoundError: No module"),
    ("decima.schedulers:Fair",
     "reward 'decima.schedulers:Fair': decima.schedulers:Fair cannot be used: TypeError: expected a subclass"),
    ("weightd", "reward 'weightd': unknown objective 'weightd' (did you mean 'weighted'?), expected jct, "),
    ("jct:2", "reward 'jct:2': unknown objective 'jct:2', expected jct, "),
    ("jct+", "reward 'jct+': unknown objective '', expected jct, "),
    ("power-mean:0.5", "reward 'power-mean:0.5': power-mean:0.5: the exponent must be between 1 and 10, got 0.5"),
    ("deadline:-1", "reward 'deadline:-1': expected a number of at least 0, got '-1'"),
    ("deadline:nan", "reward 'deadline:nan': expected a number of at least 0, got 'nan'"),
    ("carbon", "reward 'carbon': the cluster has no signal"),
    ("jct+carbon:steps.csv", "steps.csv: No such file or directory, expected a CSV file"),
    ("carbon:", "reward 'carbon:': unknown objective 'carbon:', expected jct, "),
    ("x*jct", "reward 'x*jct': expected a number of at least 0, got 'x'"),
    (3, "reward: expected a text, got 3"),
)  # fmt: skip
def test_objectives_that_do_not_exist(name: str, message: str) -> None:
    with pytest.raises(DecimaError) as caught:
        ClusterConfig(reward=name)
    assert str(caught.value).startswith(message)


def test_unequal_service_of_tenants_costs_more() -> None:
    """Jain's index of n/weight = (2, 1, 0) is 9 / (3 * 5), and that of (1, 1, 1) is 1."""
    tenants = (Tenant("a"), Tenant("b", weight=2.0), Tenant("c"))
    attributes = tuple(JobAttributes(tenant=name) for name in "aabbc")
    jobs = replace(batch_arrivals(synthetic_profiles(1), 5, 0), attributes=attributes, tenants=tenants)
    known, cost = AllJobs.of(jobs, np.full(5, np.inf)), objective_named("fairness")
    assert cost.cost_ms(100.0, 110.0, LiveJobs((0, 1, 2, 3), known), SCALE_MS) == pytest.approx(4 * 10 * 15 / 9)
    assert cost.cost_ms(100.0, 110.0, LiveJobs((0, 2, 3, 4), known), SCALE_MS) == pytest.approx(4 * 10)
    assert cost.cost_ms(100.0, 110.0, LiveJobs((), known), SCALE_MS) == 0


class Twice(Objective):
    """Objective: twice the time that jobs spend in the system."""

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the cost."""
        return 2 * len(jobs) * (end_ms - begin_ms)


def test_an_objective_of_the_caller_and_a_sum_with_it() -> None:
    jobs = batch_arrivals(synthetic_profiles(3), 4, 0)
    name = f"{__name__}:Twice"
    for reward, factor in ((name, 2), (f"0.5*{name}+mean", 2)):
        rewards, record = episode(ClusterConfig(4, reward=reward), jobs)
        assert -100_000 * sum(rewards) == pytest.approx(factor * record.jct_ms.sum())
