from __future__ import annotations

import math

import numpy as np
import pytest

from decima.learning.cluster.critic import NUM_SUMS, LinearCritic, load_of
from decima.learning.returns import DiscountedReturns, Returns, TotalReturns
from simulator import Cluster, ClusterConfig
from tests.simulator.cluster.build import job, jobs, stage

UNIT_MS = 100_000.0


def test_the_load_is_sums_over_the_live_jobs() -> None:
    work = np.array([100_000.0, 400_000.0, 900_000.0])
    sequence = jobs(*(job(stage(10, each / 10), name=str(each)) for each in (work[2], work[0], work[1])))
    load = load_of(Cluster(ClusterConfig(num_executors=5), sequence).observe())
    w = work / UNIT_MS
    waits = (3 * w[0] + 2 * w[1] + w[2]) / 5
    roots = np.sqrt(w)
    expected = [1, 3, w.sum(), waits, roots.sum(), roots.sum() ** 2 / 5, 3 * 1 + 2 * 2 + 3]
    np.testing.assert_allclose(load, expected)


def critic_of(weights: np.ndarray, gae_horizon_ms: float) -> tuple[LinearCritic, np.random.Generator]:
    """A critic that has seen returns which are linear in the load."""
    random = np.random.default_rng(0)
    load = np.column_stack([np.ones(500), random.random((500, NUM_SUMS - 1))])
    critic = LinearCritic(gae_horizon_ms)
    critic.observe(load, load @ weights)
    return critic, random


def test_linear_returns_are_expected_exactly() -> None:
    weights = np.linspace(-3, 2, NUM_SUMS)
    critic, random = critic_of(weights, 1000.0)
    load = random.random((9, NUM_SUMS))
    np.testing.assert_allclose(critic.expect(load), load @ weights, rtol=1e-3, atol=1e-3)
    assert LinearCritic(1000.0).expect(np.ones(NUM_SUMS)) == pytest.approx(0.0), "before it has seen anything"


def test_old_iterations_fade() -> None:
    load = np.eye(NUM_SUMS)
    critic = LinearCritic(1000.0, decay=0.5)
    critic.observe(load, np.full(NUM_SUMS, 4.0))
    critic.observe(load, np.full(NUM_SUMS, 1.0))
    np.testing.assert_allclose(critic.expect(load), (0.5 * 4 + 1) / 1.5, rtol=1e-4)


def test_an_infinite_horizon_makes_advantages_returns_less_the_expected() -> None:
    critic, random = critic_of(np.linspace(-3, 2, NUM_SUMS), math.inf)
    load, reward = random.random((6, NUM_SUMS)), -random.random(6)
    time_ms = np.cumsum(random.random(6) * 100)
    for returns in (TotalReturns(), DiscountedReturns(150.0)):
        expected = returns(reward, time_ms, 700.0, bootstrap_value=-2.0) - critic.expect(load)
        found = critic.advantages(returns, load, reward, time_ms, 700.0, bootstrap_value=-2.0)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_with_a_short_horizon_advantages_are_td_errors() -> None:
    critic, random = critic_of(np.linspace(-3, 2, NUM_SUMS), 1e-3)
    load, reward = random.random((6, NUM_SUMS)), -random.random(6)
    expected = np.append(critic.expect(load), -2.0)
    found = critic.advantages(TotalReturns(), load, reward, np.arange(6) * 100.0, 600.0, bootstrap_value=-2.0)
    np.testing.assert_allclose(found, reward + expected[1:] - expected[:-1], atol=1e-9)


@pytest.mark.parametrize("returns", [TotalReturns(), DiscountedReturns(250.0)])
def test_a_td_error_counts_by_a_factor_of_e_less_a_horizon_later(returns: Returns) -> None:
    """Nothing is expected, and all there is to earn comes between the last sample, at 300 ms, and the end."""
    time_ms, reward = np.array([0.0, 100.0, 250.0, 300.0]), np.array([0.0, 0.0, 0.0, -2.0])
    earned = returns(reward, time_ms, 400.0)
    found = LinearCritic(100.0).advantages(returns, np.ones((4, NUM_SUMS)), reward, time_ms, 400.0)
    np.testing.assert_allclose(found / earned, np.exp([-3.0, -2.0, -0.5, 0.0]))
