from __future__ import annotations

import numpy as np
import pytest

from decima.policy.grid.config import Mask
from tests.decima.learning.grid.examples import run, tiny_grid


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
