"""A network as a scheduler: where it is evaluated, its mask, and its samples."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from decima.policy.grid import CLONING, COMPARED, VALIDATED, Actor, Mask, log_probabilities
from decima.policy.parts import NotFiniteError
from tests.cases import cases
from tests.decima.learning.grid.examples import Fixed, grid_of
from tests.simulator.grid.naive import Written

#: All units for two steps; all units for one step, which may be booked behind it.
BUSY: Sequence[Written] = [(0, 2, (3, 3)), (0, 1, (3, 3))]


def test_networks_are_asked_where_there_is_a_choice() -> None:
    assert len({COMPARED, VALIDATED, CLONING}) == 3
    assert 10**8 < min(COMPARED, VALIDATED, CLONING) <= max(COMPARED, VALIDATED, CLONING) < 2**32
    grid = grid_of(BUSY, BUSY[:1])
    grid.step([0, 2])
    for mask, asked in (("all", [0, 1]), ("bookable", [0, 1]), ("startable", [1])):
        actions, seen = Actor(Fixed(9.0, 8.0, 0.0), mask=mask).decide(grid)
        assert (seen.episode.tolist(), seen.action.tolist()) == (asked, actions[asked].tolist())
        assert torch.equal(seen.pictures, torch.from_numpy(grid.pictures[asked]))
    assert actions.tolist() == [2, 0]


@cases("mask, allowed", ("all", None), ("bookable", [[0, 1, 1]]), ("startable", np.zeros((0, 3))))
def test_a_mask_says_what_is_possible(mask: Mask, allowed: object) -> None:
    """The first job runs, the second waits in slot 1, slot 0 is empty."""
    grid = grid_of(BUSY)
    grid.step([0])
    found = Actor(Fixed(0.0, 0.0, 0.0), mask=mask).decide(grid)[1].allowed
    if allowed is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, allowed)


def test_actors_choose_the_likeliest_of_live_episodes() -> None:
    grid = grid_of(BUSY[1:], BUSY)
    for actions in ([0, 0], [2, 2]):
        grid.step(actions)
    assert grid.done.tolist() == [True, False]
    assert Actor(Fixed(1.0, 0.0, 0.0), mask="all").decide(grid)[1].episode.tolist() == [1]
    grid = grid_of(BUSY, BUSY[:1])
    assert Actor(Fixed(-1.0, 5.0, 1.0), mask="all")(grid).tolist() == [1, 1]
    assert Actor(Fixed(-1.0, 5.0, 1.0))(grid).tolist() == [1, 2]
    with pytest.raises(NotFiniteError, match="probability"):
        Actor(Fixed(np.nan, 0.0, 0.0))(grid_of(BUSY))


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
    """Episodes have a job in slot 0 only."""
    number, scores = 4000, np.array([0.5, -0.3, 1.1])
    grid = grid_of(*[BUSY[:1]] * number)
    actions = Actor(Fixed(*scores), np.random.default_rng(1), mask=mask)(grid)
    expected = np.zeros(3)
    expected[likely] = np.exp(scores[likely]) / np.exp(scores[likely]).sum()
    found = np.bincount(actions, minlength=3) / number
    assert (np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / number)).all()
