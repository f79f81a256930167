from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from decima.learning.returns import (
    DifferentialReturns,
    DiscountedReturns,
    Returns,
    TotalReturns,
    n_step_returns,
    returns_to_go,
)
from tests.decima.learning.grid.examples import run


def episode(
    seed: int, steps: int = 30, instant: float = 0.3
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Random rewards and times; some steps take no time at all."""
    random = np.random.default_rng(seed)
    durations = random.exponential(700.0, steps) * (random.random(steps) >= instant)
    time_ms = 100.0 + np.cumsum(durations) - durations
    return -random.random(steps), time_ms, float(time_ms[-1] + durations[-1])


@pytest.mark.parametrize("seed", range(3))
def test_total_returns_are_sums_of_what_follows(seed: int) -> None:
    reward, time_ms, end_ms = episode(seed)
    expected = [sum(reward[place:]) for place in range(reward.size)]
    np.testing.assert_allclose(TotalReturns()(reward, time_ms, end_ms), expected)


@pytest.mark.parametrize("horizon_ms", [50.0, 900.0, 1e7])
def test_discounted_returns_are_an_integral_over_time(horizon_ms: float) -> None:
    """Rewards flow evenly from a sample to the next; what takes no time counts at once."""
    reward, time_ms, end_ms = episode(4)
    ends = np.append(time_ms[1:], end_ms)
    pieces = 4000
    expected = np.zeros(reward.size)
    for now in range(reward.size):
        for step in range(now, reward.size):
            middles = time_ms[step] + (np.arange(pieces) + 0.5) / pieces * (ends[step] - time_ms[step])
            expected[now] += reward[step] * np.exp(-(middles - time_ms[now]) / horizon_ms).mean()
    np.testing.assert_allclose(DiscountedReturns(horizon_ms)(reward, time_ms, end_ms), expected, rtol=1e-4)


def test_differential_returns_subtract_the_average_per_time() -> None:
    reward, time_ms, end_ms = episode(7)
    durations = np.diff(time_ms, append=end_ms)
    returns = DifferentialReturns(window=10_000)
    returns.observe(reward, time_ms, end_ms)
    rate = reward[durations > 0].sum() / durations.sum()
    expected = [
        sum(reward[later] - rate * durations[later] for later in range(place, reward.size))
        for place in range(reward.size)
    ]
    np.testing.assert_allclose(returns(reward, time_ms, end_ms), expected, atol=1e-12)


def test_the_average_forgets_what_is_outside_its_window() -> None:
    returns = DifferentialReturns(window=5)
    assert returns.rate == 0.0
    returns.observe(np.full(20, -9.0), np.arange(20.0), 20.0)
    returns.observe(np.full(5, -1.0), 2.0 * np.arange(5.0), 10.0)
    assert returns.rate == pytest.approx(-0.5)
    assert len(returns.recent) == 5


@pytest.mark.parametrize(
    ("returns", "factor"),
    [
        (TotalReturns(), lambda delay: 1.0),
        (DifferentialReturns(window=3), lambda delay: 1.0),
        (DiscountedReturns(500.0), lambda delay: np.exp(-delay / 500.0)),
    ],
)
def test_a_bootstrap_value_counts_as_much_as_its_time(returns: Returns, factor: object) -> None:
    reward, time_ms, end_ms = episode(8)
    without = returns(reward, time_ms, end_ms)
    gained = returns(reward, time_ms, end_ms, bootstrap_value=-3.0) - without
    assert callable(factor)
    np.testing.assert_allclose(gained, -3.0 * np.array([factor(end_ms - time) for time in time_ms]))


@pytest.mark.parametrize("returns", [TotalReturns(), DiscountedReturns(5.0), DifferentialReturns(3)])
def test_an_episode_without_samples_has_no_returns(returns: Returns) -> None:
    nothing = np.zeros(0)
    assert returns(nothing, nothing, 5.0).shape == (0,)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 99), st.floats(0, 1), st.integers(1, 300))
def test_a_return_adds_up_what_follows(seed: int, discount: float, steps: int) -> None:
    episodes = run(seed, sets=2, per_set=2)
    rewards, clock = episodes.rewards, episodes.clock
    values = np.random.default_rng(seed).normal(size=clock.shape)
    all_found, found = (
        returns_to_go(rewards, clock, discount),
        n_step_returns(rewards, clock, values, steps, discount),
    )
    for step, episode in np.ndindex(found.shape):
        after = discount ** (clock[step:, episode] - clock[step, episode])
        assert all_found[step, episode] == pytest.approx(after[:-1] @ rewards[step:, episode])
        end = min(step + steps, len(rewards))
        expected = after[: end - step] @ rewards[step:end, episode]
        assert found[step, episode] == pytest.approx(expected + after[end - step] * values[end, episode])
