from pathlib import Path

import numpy as np
import pytest

from decima.learning.grid.train import GridTraining
from decima.policy.grid_config import Mask
from simulator.grid import Grid
from tests.decima.learning.grid.examples import run, small, tiny_grid


@pytest.mark.parametrize("mask", ["all", "bookable", "startable"])
def test_episodes_tell_what_was_seen_and_done(mask: Mask) -> None:
    """Repeating the actions gives the same states and rewards."""
    episodes, grid = run(mask=mask), tiny_grid(3, 4, seed=0)
    for number, (choices, actions) in enumerate(zip(episodes.choices, episodes.actions, strict=True)):
        np.testing.assert_array_equal(episodes.clock[number], grid.clock)
        np.testing.assert_array_equal(choices.pictures, grid.pictures[choices.episode])
        void = np.full(12, grid.config.num_actions - 1)
        void[choices.episode] = actions[choices.episode]
        np.testing.assert_array_equal(actions, void)
        np.testing.assert_array_equal(episodes.rewards[number], grid.step(actions))
    assert grid.done.all()
    np.testing.assert_array_equal(episodes.clock[-1], grid.clock)
    np.testing.assert_allclose(episodes.rewards.sum(axis=0), -np.nansum(episodes.record.slowdown(), axis=1), rtol=1e-12)


@pytest.mark.parametrize("mask", ["all", "startable"])
def test_a_pass_has_the_episodes_of_its_sets_with_all_states_for_the_critic(mask: Mask, tmp_path: Path) -> None:
    """Repeating the actions gives the same states and rewards."""
    config = small(update={"algorithm": "a2c"}, episodes={"mask": mask})
    with GridTraining(config, tmp_path / "out").started() as training:
        jobs = training._jobs
        run = training._roll_out(jobs, np.random.default_rng(0))
    grid = Grid(config.grid, jobs[np.repeat(np.arange(3), 3)])
    for number, (choices, states) in enumerate(zip(run.choices, run.states, strict=True)):
        np.testing.assert_array_equal(run.clock[number], grid.clock)
        np.testing.assert_array_equal(states.episode, np.flatnonzero(~grid.done))
        np.testing.assert_array_equal(states.pictures, grid.pictures[~grid.done])
        np.testing.assert_array_equal(choices.pictures, grid.pictures[choices.episode])
        if mask == "all":
            assert choices.allowed is None
        else:
            np.testing.assert_array_equal(choices.allowed, grid.action_mask(now=True)[choices.episode])
        np.testing.assert_array_equal(run.rewards[number], grid.step(run.actions[number]))
    assert grid.done.all()
    np.testing.assert_array_equal(run.clock[-1], grid.clock)
    for name in ("start", "machine", "dropped", "num_entered", "clock"):
        np.testing.assert_array_equal(getattr(run.record, name), getattr(grid.record(), name))
    np.testing.assert_array_equal(run.record.jobs.enter, grid.jobs.enter)
