"""Energy and carbon of an episode, and offers when the signal changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from decima.schedulers import Fair
from simulator import ClusterConfig, ConfigError, Decision, Faults, Observation, SchedulingError, run_episode
from simulator.cluster.costs import busy_intervals
from simulator.cluster.metrics import EpisodeMetrics
from tests.simulator.cluster.build import finish
from tests.simulator.cluster.driver import Both, Driver, run
from tests.simulator.cluster.strategies import MANY, clusters, idleness, seeds
from tests.workloads.strategies import job_sequences
from workloads import JobSequence, Signal, poisson_arrivals, synthetic_profiles, synthetic_signal

CONSTANT = Signal("constant", (0.0,), (300.0,), 60_000.0)
STEPS = Signal("steps", (0.0, 700.0, 1500.0), (100.0, 900.0, 0.0), 2500.0)
JOBS = poisson_arrivals(synthetic_profiles(6), 8, 5_000, seed=2)


@MANY
@given(clusters(), job_sequences(), seeds, idleness, st.integers(0, 2499))
def test_both_engines_agree_with_a_signal(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float, offset: int
) -> None:
    config = replace(config, signal=STEPS.shifted(offset), faults=Faults(task_failures=0.1 * (seed % 2)))
    driver = Driver(config, sequence, seed, idle, make=Both)
    run(driver)
    driver.cluster.record()


def test_constant_signals_change_nothing_and_carbon_is_energy() -> None:
    config = ClusterConfig(8, signal=CONSTANT, executor_watts=250.0)
    record = run_episode(config, JOBS, Fair())
    metrics = EpisodeMetrics(record)
    assert metrics.energy_kwh == pytest.approx(0.25 * metrics.executor_hours)
    assert metrics.carbon == pytest.approx(300 * metrics.energy_kwh)
    assert record.metrics()["carbon"] == metrics.carbon
    assert record.jobs()["carbon"].sum() == pytest.approx(metrics.carbon)
    idle = EpisodeMetrics(run_episode(replace(config, idle_watts=50.0), JOBS, Fair()))
    hours = idle.capacity_ms / 3_600_000
    assert idle.energy_kwh == pytest.approx(0.25 * idle.executor_hours + 0.05 * (hours - idle.executor_hours))
    assert idle.carbon == pytest.approx(300 * idle.energy_kwh)
    plain = run_episode(ClusterConfig(8), JOBS, Fair())
    with_signal = run_episode(ClusterConfig(8, signal=CONSTANT), JOBS, Fair())
    assert plain.task_start_ms.tolist() == with_signal.task_start_ms.tolist()
    assert np.isnan(EpisodeMetrics(plain).carbon)
    assert "carbon" not in plain.metrics()
    with pytest.raises(ConfigError, match="signal: expected a value of the type Signal, got 3"):
        ClusterConfig(signal=3)  # type: ignore[arg-type]
    for watts in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="executor_watts: expected a "):
            ClusterConfig(executor_watts=watts)
        with pytest.raises(ConfigError, match="idle_watts: expected a "):
            ClusterConfig(idle_watts=watts)


def test_carbon_is_an_integral_and_forks_have_the_same_future() -> None:
    faults = Faults(executor_lifetime_ms=30_000.0, executor_return_ms=3_000.0, task_failures=0.05)
    for config in (ClusterConfig(8), ClusterConfig(8, faults=faults)):
        config = replace(config, signal=STEPS, executor_watts=100.0)
        record = run_episode(config, JOBS, Fair())
        _, begin_ms, end_ms = busy_intervals(record)
        times = np.unique(np.concatenate([begin_ms, end_ms, np.arange(0, record.end_ms, 100.0)]))
        busy = [((begin_ms <= now) & (now < end_ms)).sum() for now in times[:-1]]
        intensity = [STEPS.at(float(now) + 1e-6) for now in times[:-1]]
        expected = (np.array(busy) * intensity * np.diff(times)).sum() * 0.1 / 3_600_000
        assert EpisodeMetrics(record).carbon == pytest.approx(expected, rel=1e-6)
        assert max(busy) <= 8
        assert EpisodeMetrics(record).energy_kwh == pytest.approx((end_ms - begin_ms).sum() * 0.1 / 3_600_000)
    from simulator import make_cluster

    config = ClusterConfig(4, signal=synthetic_signal("synthetic-solar", 600))
    cluster, rule = make_cluster(config, JOBS), Fair()
    rule.reset(config)
    for _ in range(10):
        seen = cluster.observe()
        cluster.decide(rule.decide(seen) if seen.num_schedulable else None)
    fork = cluster.fork()
    original, forked = (EpisodeMetrics(finish(each, rule.decide)[0]) for each in (cluster, fork))
    assert forked.carbon == original.carbon


class Waits(Fair):
    """Scheduler that leaves all executors idle until the value is low, or for ever."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    def decide(self, observation: Observation) -> Decision | None:
        assert observation.config.signal
        low = observation.config.signal.at(observation.time_ms) <= self.most
        return super().decide(observation) if low else None


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_rule_that_leaves_all_idle_is_asked_when_the_signal_changes(engine: str) -> None:
    config = ClusterConfig(8, engine=engine, signal=STEPS, moving_delay_ms=0.0)  # type: ignore[arg-type]
    record = run_episode(config, JOBS, Waits(0.0))
    assert not np.isnan(record.completion_ms).any()
    begun = record.task_start_ms[record.task_start_ms < 2500].min()
    assert begun == 1500.0
    with pytest.raises(SchedulingError, match="all executors are idle and nothing is pending"):
        run_episode(config, JOBS, Waits(-1.0))
