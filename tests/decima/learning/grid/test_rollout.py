from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from decima.learning.cluster.rollout import NotFiniteError
from decima.learning.grid.rollout import (
    Actor,
    Episodes,
    Mask,
    action_baseline,
    allowed_actions,
    log_probabilities,
    multi_step_returns,
    returns_to_go,
    roll_out,
    time_baseline,
)
from decima.policy.grid.networks import build_network
from simulator.grid import Grid
from tests.decima.learning.grid.examples import Fixed, grid_of, tiny_grid
from tests.simulator.grid.naive import Written


def run(seed: int = 0, sets: int = 3, per_set: int = 4, mask: Mask = "startable", **changes: Any) -> Episodes:
    """Episodes of a network that knows nothing."""
    grid = tiny_grid(sets, per_set, seed=seed, **changes)
    network = build_network(grid.config, grid.config.num_actions)
    return roll_out(grid, Actor(network, np.random.default_rng(seed), mask=mask))


#: All units for two steps; all units for one step, which may be booked behind it.
BUSY: Sequence[Written] = [(0, 2, (3, 3)), (0, 1, (3, 3))]


def busy_grid() -> Grid:
    """The first job runs, the second waits in slot 1, slot 0 is empty."""
    grid = grid_of(BUSY)
    grid.step([0])
    return grid


@pytest.mark.parametrize(
    ("mask", "allowed"), [("all", None), ("bookable", [[0, 1, 1]]), ("startable", [[0, 0, 1]])]
)
def test_a_mask_says_what_is_possible(mask: Mask, allowed: list[list[int]] | None) -> None:
    found = allowed_actions(busy_grid(), mask)
    assert (found if found is None else found.astype(int).tolist()) == allowed


def test_the_network_is_asked_only_where_there_is_a_choice() -> None:
    grid = grid_of(BUSY, BUSY[:1])
    grid.step([0, 2])
    for mask, asked in (("all", [0, 1]), ("bookable", [0, 1]), ("startable", [1])):
        actions, seen = Actor(Fixed(9.0, 8.0, 0.0), mask=mask).decide(grid)
        assert seen.episode.tolist() == asked
        assert seen.action.tolist() == actions[asked].tolist()
        assert torch.equal(seen.pictures, torch.from_numpy(grid.pictures[asked]))
    assert actions.tolist() == [2, 0]


def test_nobody_is_asked_when_an_episode_is_over() -> None:
    grid = grid_of(BUSY[1:], BUSY)
    for actions in ([0, 0], [2, 2]):
        grid.step(actions)
    assert grid.done.tolist() == [True, False]
    assert Actor(Fixed(1.0, 0.0, 0.0), mask="all").decide(grid)[1].episode.tolist() == [1]


def test_what_is_not_allowed_has_a_probability_of_zero_and_no_gradient() -> None:
    network = Fixed(3.0, 1.0, 2.0)
    network.scores.requires_grad_()
    logarithms = log_probabilities(network, torch.zeros(1, 1), torch.tensor([[False, True, True]]))
    expected = np.exp([0.0, 1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    np.testing.assert_allclose(logarithms.exp().detach()[0, 1:], expected[1:], rtol=1e-6)
    assert logarithms.exp()[0, 0] == 0
    entropy = -(logarithms.exp() * logarithms).sum()
    assert float(entropy.detach()) == pytest.approx(-(expected[1:] * np.log(expected[1:])).sum())
    entropy.backward()
    assert network.scores.grad is not None
    assert network.scores.grad[0] == 0
    assert network.scores.grad[1:].isfinite().all()


@pytest.mark.parametrize(("mask", "likely"), [("all", [0, 1, 2]), ("startable", [0, 2])])
def test_actions_are_drawn_as_often_as_they_are_likely(mask: Mask, likely: list[int]) -> None:
    """In so many episodes with a job in slot 0 only."""
    number, scores = 4000, np.array([0.5, -0.3, 1.1])
    grid = grid_of(*[BUSY[:1]] * number)
    actions = Actor(Fixed(*scores), np.random.default_rng(1), mask=mask)(grid)
    expected = np.zeros(3)
    expected[likely] = np.exp(scores[likely]) / np.exp(scores[likely]).sum()
    found = np.bincount(actions, minlength=3) / number
    assert (np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / number)).all()


def test_without_chance_the_likeliest_action_is_taken() -> None:
    grid = grid_of(BUSY, BUSY[:1])
    assert Actor(Fixed(-1.0, 5.0, 1.0), mask="all")(grid).tolist() == [1, 1]
    assert Actor(Fixed(-1.0, 5.0, 1.0))(grid).tolist() == [1, 2]


def test_the_same_random_numbers_give_the_same_episodes() -> None:
    one, other, another = run(3), run(3), run(4)
    np.testing.assert_array_equal(one.record.start, other.record.start)
    assert one.rewards.shape != another.rewards.shape or (one.rewards != another.rewards).any()


@pytest.mark.parametrize("mask", ["all", "bookable", "startable"])
def test_episodes_tell_what_was_seen_and_done(mask: Mask) -> None:
    """Acting so once more leads through the same states to the same rewards."""
    episodes, grid = run(mask=mask), tiny_grid(3, 4, seed=0)
    assert episodes.rewards.shape == (len(episodes.steps), 12)
    for number, step in enumerate(episodes.steps):
        np.testing.assert_array_equal(episodes.clock[number], grid.clock)
        np.testing.assert_array_equal(step.pictures, grid.pictures[step.episode])
        actions = np.full(12, grid.config.num_actions - 1)
        actions[step.episode] = step.action
        np.testing.assert_array_equal(episodes.rewards[number], grid.step(actions))
    assert grid.done.all()
    np.testing.assert_array_equal(episodes.clock[-1], grid.clock)
    np.testing.assert_allclose(
        episodes.rewards.sum(axis=0), -np.nansum(episodes.record.slowdown(), axis=1), rtol=1e-12
    )


def test_scores_that_are_no_numbers_are_noticed() -> None:
    with pytest.raises(NotFiniteError, match="probability"):
        roll_out(tiny_grid(1), Actor(Fixed(np.nan, 0.0, 0.0)))


# Returns.

#: Rewards of two episodes, and when their actions happened: booking takes no time.
REWARDS = np.array([[-1.0, -2.0], [0.0, -3.0], [-4.0, 0.0]])
CLOCK = np.array([[0, 0], [1, 1], [1, 2], [2, 2]])


def test_returns_discount_what_is_later_not_what_takes_more_actions() -> None:
    np.testing.assert_array_equal(returns_to_go(REWARDS, CLOCK), [[-5, -5], [-4, -3], [-4, 0]])
    np.testing.assert_array_equal(returns_to_go(REWARDS, CLOCK, 0.5), [[-3, -3.5], [-4, -3], [-4, 0]])


def test_a_value_stands_for_what_comes_after_a_few_actions() -> None:
    values = np.array([[5.0, 5.0], [8.0, 4.0], [2.0, 6.0], [0.0, 0.0]])
    one = multi_step_returns(REWARDS, CLOCK, values, 1, 0.5)
    np.testing.assert_array_equal(one, [[-1 + 4, -2 + 2], [2, -3 + 3], [-4, 0]])
    two = multi_step_returns(REWARDS, CLOCK, values, 2, 0.5)
    np.testing.assert_array_equal(two, [[-1 + 1, -2 - 1.5 + 1.5], [-4, -3], [-4, 0]])


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 99), st.floats(0, 1), st.integers(1, 300))
def test_a_return_adds_up_what_follows(seed: int, discount: float, steps: int) -> None:
    episodes = run(seed, sets=2, per_set=2)
    rewards, clock = episodes.rewards, episodes.clock
    values = np.random.default_rng(seed).normal(size=clock.shape)
    all_found, found = (
        returns_to_go(rewards, clock, discount),
        multi_step_returns(rewards, clock, values, steps, discount),
    )
    for step, episode in np.ndindex(found.shape):
        after = discount ** (clock[step:, episode] - clock[step, episode])
        assert all_found[step, episode] == pytest.approx(after[:-1] @ rewards[step:, episode])
        end = min(step + steps, len(rewards))
        expected = after[: end - step] @ rewards[step:end, episode]
        assert found[step, episode] == pytest.approx(expected + after[end - step] * values[end, episode])


def test_the_baseline_after_as_many_actions_is_the_mean_of_a_set() -> None:
    returns = np.array([[1.0, 3.0, 10.0, 20.0], [0.0, 2.0, 8.0, 0.0]])
    np.testing.assert_array_equal(action_baseline(returns, 2), [[2, 2, 15, 15], [1, 1, 4, 4]])
    np.testing.assert_array_equal(action_baseline(returns, 4), [[8.5] * 4, [2.5] * 4])


def test_the_baseline_at_the_same_time_is_the_first_return_then() -> None:
    """Episode 0 books before a step passes, episode 1 ends after one step: nothing follows there."""
    clock = np.array([[0, 0], [0, 1], [1, 1], [2, 1], [3, 1]])
    returns = np.array([[-7.0, -3.0], [-8.0, 0.0], [-4.0, 0.0], [-1.0, 0.0]])
    expected = [[-3, -7], [-3, -4], [0, -4], [0, -4]]
    np.testing.assert_array_equal(time_baseline(returns, clock, 2), expected)


def by_hand(returns: NDArray[np.float64], clock: NDArray[np.int32], per_set: int) -> NDArray[np.float64]:
    """The mean over the others of a set of the return of the first action at that time, 0 if there is none."""
    expected = np.zeros_like(returns)
    for step, episode in np.ndindex(returns.shape):
        first = episode // per_set * per_set
        for other in set(range(first, first + per_set)) - {episode}:
            then = np.flatnonzero(clock[: len(returns), other] == clock[step, episode])
            if then.size:
                expected[step, episode] += returns[then[0], other] / (per_set - 1)
    return expected


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 99), st.sampled_from([2, 3, 5]))
def test_the_baseline_at_the_same_time_is_of_the_others(seed: int, per_set: int) -> None:
    episodes = run(seed, sets=2, per_set=per_set)
    returns = returns_to_go(episodes.rewards, episodes.clock)
    baseline = time_baseline(returns, episodes.clock, per_set)
    np.testing.assert_allclose(baseline, by_hand(returns, episodes.clock, per_set))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 99), st.integers(0, 5))
def test_an_episode_does_not_change_its_own_baseline(seed: int, own: int) -> None:
    """Else what is learned from it would be biased."""
    episodes = run(seed, sets=2, per_set=3)
    returns = returns_to_go(episodes.rewards, episodes.clock)
    changed = returns.copy()
    changed[:, own] -= np.random.default_rng(seed).random(len(returns))
    before, after = (time_baseline(each, episodes.clock, 3) for each in (returns, changed))
    np.testing.assert_allclose(before[:, own], after[:, own], atol=1e-12)
    neighbours = [other for other in range(6) if other // 3 == own // 3 and other != own]
    assert (before[0, neighbours] != after[0, neighbours]).all()


def test_episodes_that_go_the_same_way_leave_nothing_to_learn() -> None:
    grid = tiny_grid(3, 4)
    episodes = roll_out(grid, Actor(Fixed(2.0, 1.0, 0.0)))
    returns = returns_to_go(episodes.rewards, episodes.clock)
    first = np.diff(episodes.clock[:-1], axis=0, prepend=-1) > 0  # the first action at its time
    advantages = returns - time_baseline(returns, episodes.clock, 4)
    np.testing.assert_allclose(advantages[first], 0, atol=1e-12)
    np.testing.assert_allclose(returns - action_baseline(returns, 4), 0, atol=1e-12)
