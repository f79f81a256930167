"""Useful parallelism of a job: known results, and simulated episodes of the job alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from simulator import DECIMA_SIM, ClusterConfig, ExecutorClass
from simulator.cluster.alone import PARALLELISM, alone_ms, useful_executors
from tests.cases import cases
from tests.simulator.cluster.build import chain, inflating, job, stage
from tests.simulator.cluster.strategies import clusters
from tests.simulator.cluster.test_solo import alone
from tests.workloads.strategies import job_profiles
from workloads import JobProfile, StageProfile, TaskDurations, embedded_tpch, synthetic_profiles

MOVE_MS = 2000.0
CLUSTER = ClusterConfig(50, moving_delay_ms=MOVE_MS)
LIMITS = np.array([limit for limit in PARALLELISM if limit <= 50])


def episodes_ms(profile: JobProfile, config: ClusterConfig, num_seeds: int = 1) -> NDArray[np.float64]:
    """Return the mean simulated time of the job with each limit over the seeds, ms."""
    limits = [limit for limit in PARALLELISM if limit <= config.num_executors]
    records = [[alone(profile, config, limit, seed) for seed in range(num_seeds)] for limit in limits]
    return np.array([np.mean([record.mean_jct_ms for record in of_limit]) for of_limit in records])


def place_of_best(times: NDArray[np.float64], thrift: float) -> int:
    """Return the index of the useful parallelism among the limits."""
    cost = np.log(np.maximum(times, 1)) * (1 + thrift) + np.log(PARALLELISM[: times.size]) * thrift
    return int(np.argmin(cost))


@pytest.mark.parametrize("moving_ms", [0.0, MOVE_MS])
def test_equal_tasks_run_in_waves(moving_ms: float) -> None:
    config = replace(CLUSTER, moving_delay_ms=moving_ms)
    times = alone_ms(job(stage(40, 100)), config)
    np.testing.assert_allclose(times, moving_ms + 100 * np.ceil(40 / LIMITS))


def test_times_and_values_of_executors() -> None:
    times = alone_ms(job(stage(100, 10, fresh_ms=500)), CLUSTER)
    np.testing.assert_allclose(times, MOVE_MS + 500 + 10 * (np.ceil(100 / LIMITS) - 1))
    profile = chain(*[stage(1, 300)] * 4)
    np.testing.assert_allclose(alone_ms(profile, CLUSTER), MOVE_MS + 1200)
    assert [useful_executors(profile, CLUSTER, thrift) for thrift in (0, 1, 10)] == [1, 1, 1]
    profile = chain(stage(30, 0), stage(5, 0))
    assert alone_ms(profile, CLUSTER).tolist() == [MOVE_MS] * len(LIMITS)
    assert useful_executors(profile, replace(CLUSTER, moving_delay_ms=0), 1.0) == 1
    assert alone_ms(job(stage(10_000, 100)), ClusterConfig(1000)).size == len(PARALLELISM)
    # Two stages run at once, then a common child, then the child of the shorter one.
    profile = job(stage(6, 100), stage(3, 500), stage(4, 200), stage(2, 50), edges=[(0, 2), (1, 2), (0, 3)])
    np.testing.assert_allclose(alone_ms(profile, CLUSTER)[:8], episodes_ms(profile, CLUSTER)[:8])
    classes = (ExecutorClass(4, cpu=1), ExecutorClass(2, cpu=4))
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=0)
    times = alone_ms(job(stage(12, 100, cpu=2)), config)
    np.testing.assert_allclose(times, [1200, 600, 600, 600, 600, 600])
    # Without work inflation more executors are better, at any cost exponent.
    config = replace(CLUSTER, moving_delay_ms=0)
    assert [useful_executors(job(stage(600, 7)), config, thrift) for thrift in (0, 1, 10)] == [50, 50, 50]
    moves_ms = (0.0, 10.0, 100.0, 1000.0, 10_000.0)
    limits = [
        useful_executors(job(stage(600, 10)), replace(CLUSTER, moving_delay_ms=move_ms), 2.5) for move_ms in moves_ms
    ]
    assert limits == sorted(limits, reverse=True)
    assert (limits[0], limits[-1]) == (50, 1)


@pytest.mark.parametrize("keeps", [True, False])
def test_an_executor_that_waited_may_be_cold(keeps: bool) -> None:
    """Two executors end at different times; the next stage opens when the slower one does."""
    semantics = replace(DECIMA_SIM, waiting_keeps_jvm=keeps)
    config = replace(CLUSTER, num_executors=2, executor_classes=(), semantics=semantics)
    first, slower = stage(1, 100, fresh_ms=100), stage(1, 900, fresh_ms=900)
    profile = job(first, slower, stage(2, 10, first_ms=20, fresh_ms=700), edges=[(0, 2), (1, 2)])
    np.testing.assert_allclose(alone_ms(profile, config), [MOVE_MS + 1030, MOVE_MS + (920 if keeps else 1600)])


def test_tasks_are_as_slow_as_parallelism_and_executors_make_them() -> None:
    profile = inflating(400, {5: 1000.0, 10: 1200.0, 20: 2000.0, 40: 3900.0})
    config = ClusterConfig(40, moving_delay_ms=0)
    times = dict(zip(PARALLELISM, alone_ms(profile, config), strict=False))
    # Executors that arrive early have a lower parallelism than later ones.
    waves = {5: 80 * 1000, 10: 40 * 1200, 15: 26.7 * 1600, 20: 20 * 2000, 30: 13.3 * 2950, 40: 10 * 3900}
    assert {k: times[k] for k in waves} == pytest.approx(waves, rel=0.05)
    limits = [useful_executors(profile, config, thrift) for thrift in (0.0, 1.0, 10.0)]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > limits[-1] >= 1
    # One wave of ten tasks; then six waves, whose executors get out of step.
    durations = TaskDurations.sampled(np.linspace(500, 1500, 101))
    for tasks in (10, 60, 63):
        profile = job(StageProfile(tasks, durations))
        place = PARALLELISM.index(10)
        real = episodes_ms(profile, ClusterConfig(10), num_seeds=40)[place]
        assert alone_ms(profile, ClusterConfig(10))[place] == pytest.approx(real, rel=0.05)
    profile = chain(stage(9, 100), stage(3, 10))
    other = replace(CLUSTER, max_time_ms=1.0, reward="makespan", reward_scale_ms=7.0)
    assert alone_ms(profile, CLUSTER) is alone_ms(profile, other)
    assert alone_ms(profile, CLUSTER) is not alone_ms(profile, replace(CLUSTER, warmup_delay_ms=0.0))


@cases(
    "library, same, near",
    (embedded_tpch()[::11], 0.6, 0.95),
    (synthetic_profiles(24, seed=5), 0.35, 0.8),
    ids=["embedded", "synthetic"],
)
def test_the_limit_is_that_of_episodes(library: tuple[JobProfile, ...], same: float, near: float) -> None:
    """Estimates find the best limit about as often as episodes with different noise agree; times differ by a few %."""
    real = [episodes_ms(profile, CLUSTER) for profile in library]
    estimates = [alone_ms(profile, CLUSTER) for profile in library]
    apart = np.array(
        [
            place_of_best(ours, thrift) - place_of_best(theirs, thrift)
            for ours, theirs in zip(estimates, real, strict=True)
            for thrift in (2.5, 0.75)
        ]
    )
    assert (apart == 0).mean() >= same
    assert (abs(apart) <= 1).mean() >= near
    logs = np.log(np.concatenate(estimates)), np.log(np.concatenate(real))
    assert np.corrcoef(*logs)[0, 1] > 0.995
    assert abs((logs[0] - logs[1]).mean()) < 0.03


@given(job_profiles(), clusters(), st.lists(st.floats(0, 20), min_size=2, max_size=6))
def test_more_thrift_is_never_more_executors(profile: JobProfile, config: ClusterConfig, thrifts: list[float]) -> None:
    limits = [useful_executors(profile, config, thrift) for thrift in sorted(thrifts)]
    assert limits == sorted(limits, reverse=True)
    assert all(limit in PARALLELISM and 1 <= limit <= config.num_executors for limit in limits)


@given(job_profiles(), clusters())
def test_times_are_between_the_critical_path_and_all_work(profile: JobProfile, config: ClusterConfig) -> None:
    times = alone_ms(profile, config)
    longest = sum(stage.num_tasks * stage.durations.spread[1] for stage in profile.stages)
    cold_ms = config.warmup_delay_ms * profile.num_tasks
    assert np.isfinite(times).all()
    assert times.min() >= config.moving_delay_ms
    assert times[0] <= config.moving_delay_ms + (longest + cold_ms) * (1 + 1e-9)
