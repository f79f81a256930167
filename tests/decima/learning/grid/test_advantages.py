import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.learning.grid.rollout import action_baseline, n_step_returns, no_baseline, returns_to_go, time_baseline
from tests.decima.learning.grid.examples import mean_of_others, run


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


def test_the_baseline_after_as_many_actions_is_the_mean_of_a_set() -> None:
    returns = np.array([[1.0, 3.0, 10.0, 20.0], [0.0, 2.0, 8.0, 0.0]])
    clock = np.zeros((3, 4), np.int32)
    np.testing.assert_array_equal(action_baseline(returns, clock, 2), [[2, 2, 15, 15], [1, 1, 4, 4]])
    np.testing.assert_array_equal(action_baseline(returns, clock, 4), [[8.5] * 4, [2.5] * 4])
    np.testing.assert_array_equal(no_baseline(returns, clock, 4), 0 * returns)


def test_the_baseline_at_the_same_time_is_the_first_return_then() -> None:
    """Episode 0 books before the first step, episode 1 ends after one step, so its later returns are 0."""
    clock = np.array([[0, 0], [0, 1], [1, 1], [2, 1], [3, 1]])
    returns = np.array([[-7.0, -3.0], [-8.0, 0.0], [-4.0, 0.0], [-1.0, 0.0]])
    expected = [[-3, -7], [-3, -4], [0, -4], [0, -4]]
    np.testing.assert_array_equal(time_baseline(returns, clock, 2), expected)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 99), st.sampled_from([2, 3, 5]))
def test_the_baseline_at_the_same_time_is_of_the_others(seed: int, per_set: int) -> None:
    episodes = run(seed, sets=2, per_set=per_set)
    returns = returns_to_go(episodes.rewards, episodes.clock)
    baseline = time_baseline(returns, episodes.clock, per_set)
    np.testing.assert_allclose(baseline, mean_of_others(returns, episodes.clock, per_set))
