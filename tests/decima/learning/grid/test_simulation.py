from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from decima.learning.grid.learner import Learner
from decima.learning.grid.simulation import Simulation
from decima.learning.grid.trainer import DeepRMTrainer
from decima.policy.grid.config import Mask
from decima.settings import TrainingError
from simulator.grid import Grid
from tests.decima.learning.examples import assert_same_run
from tests.decima.learning.grid.examples import small


@pytest.mark.parametrize("algorithm", ["reinforce", "a2c"])
def test_the_number_of_workers_does_not_show(algorithm: str, tmp_path: Path) -> None:
    config = small(iterations=2, update={"algorithm": algorithm}, episodes={"at_once": 3, "lockstep": 1})
    for workers in (1, 2):
        DeepRMTrainer(config, tmp_path / str(workers), workers=workers).run()
    assert_same_run(tmp_path / "1", tmp_path / "2")


def test_several_workers_need_parts_to_share_out(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"episodes\.lockstep: expected a number, such as 5"):
        DeepRMTrainer(small(), tmp_path / "out", workers=2)


@pytest.mark.parametrize("mask", ["all", "startable"])
@pytest.mark.parametrize("lockstep", [1, 2, 5, None])
def test_what_ran_apart_is_joined_as_if_it_had_run_in_one_lockstep(mask: Mask, lockstep: int | None) -> None:
    """Acting so once more leads through the same states to the same rewards."""
    config = small(update={"algorithm": "a2c"}, episodes={"mask": mask, "lockstep": lockstep})
    learner = Learner(config)
    run = Simulation(config).roll_out(learner.networks["actor"], learner.jobs, 0, 0, np.random.default_rng(0))
    grid = Grid(learner.grid_config, learner.jobs[np.repeat(np.arange(3), 3)])
    assert len(run.steps) == len(run.states) == len(run.rewards)
    for number, (step, state) in enumerate(zip(run.steps, run.states, strict=True)):
        np.testing.assert_array_equal(run.clock[number], grid.clock)
        np.testing.assert_array_equal(state.episode, np.flatnonzero(~grid.done))
        np.testing.assert_array_equal(state.pictures, grid.pictures[state.episode])
        np.testing.assert_array_equal(step.pictures, grid.pictures[step.episode])
        if mask == "all":
            assert step.allowed is None
        else:
            assert step.allowed is not None
            np.testing.assert_array_equal(step.allowed, grid.action_mask(now=True)[step.episode])
        actions = np.full(9, grid.config.num_actions - 1)
        actions[step.episode] = step.action
        np.testing.assert_array_equal(run.rewards[number], grid.step(actions))
    assert grid.done.all()
    np.testing.assert_array_equal(run.clock[-1], grid.clock)
    for name in ("start", "machine", "dropped", "num_entered", "clock"):
        np.testing.assert_array_equal(getattr(run.record, name), getattr(grid.record(), name))
    np.testing.assert_array_equal(run.record.jobs.enter, grid.jobs.enter)
