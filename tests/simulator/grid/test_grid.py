"""Many episodes at once: masks, independence, reset, and invalid arguments."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from simulator import ConfigError
from simulator.grid import DEEPRM, Grid, GridConfig
from simulator.grid.grid import BOOKED
from tests.cases import cases
from tests.simulator.grid.build import SMALL, VOID, act, small
from tests.simulator.grid.naive import Written
from tests.simulator.grid.strategies import MANY, Choose, grids, job_sets, jobs_for, random_actions
from workloads import JobSets, WorkloadError


def trace(grid: Grid, actions: list[NDArray[np.int64]]) -> list[NDArray[Any]]:
    """Return all visible values, [step, episode, ..]."""
    steps = []
    for chosen in actions:
        rewards = grid.step(chosen)
        shown = (rewards, grid.outcomes, grid.pictures.copy(), grid.slots, grid.clock, grid.done)
        steps.append((*shown, grid.free_units, grid.action_mask(), grid.num_running, grid.num_backlog))
    record = grid.record()
    happened = [np.array(column) for column in zip(*steps, strict=True)]
    return [*happened, *(np.array([values]) for values in (record.start, record.machine, record.dropped))]


def played(grid: Grid, choose: Choose, most: int = 60) -> list[NDArray[np.int64]]:
    """Return the chosen actions until all episodes have ended, at most this number."""
    actions: list[NDArray[np.int64]] = []
    while not grid.done.all() and len(actions) < most:
        actions.append(choose(grid))
        grid.step(actions[-1])
    return actions


@MANY
@given(st.data(), grids(), st.integers(1, 12), st.integers(0, 12), st.integers(0, 2**32))
def test_masks_say_which_actions_book_a_job_and_which_of_them_at_once(
    data: st.DataObject, config: GridConfig, steps: int, num_actions: int, seed: int
) -> None:
    """All actions are tried, each in its own episode with the same state."""
    grid = Grid(config, JobSets.of([data.draw(jobs_for(config, steps, min_size=3))] * config.num_actions, steps))
    choose = random_actions(seed)
    for _ in range(num_actions):
        grid.step(np.full(len(grid), choose(grid)[0]))
    mask, startable, before, slots = grid.action_mask(), grid.startable(), grid.clock, grid.slots
    grid.step(np.arange(len(grid)))
    books = grid.outcomes == BOOKED
    assert mask.tolist() == [[*books[:-1].tolist(), True]] * len(grid)
    job = np.tile(slots[0], config.machines)
    starts = books[:-1] & (grid.record().start[np.arange(len(job)), job] == before[0])
    assert startable.reshape(len(grid), -1).tolist() == [starts.tolist()] * len(grid)


@MANY
@given(st.data(), grids(), st.integers(1, 12), st.integers(0, 2**32))
def test_an_episode_is_the_same_alone_and_among_others_and_when_it_begins_anew(
    data: st.DataObject, config: GridConfig, steps: int, seed: int
) -> None:
    jobs = JobSets.of(data.draw(job_sets(config, steps)), steps)
    grid = Grid(config, jobs)
    actions = played(grid, random_actions(seed))
    grid.reset()
    assert grid.outcomes.tolist() == Grid(config, jobs).outcomes.tolist()
    np.testing.assert_array_equal(grid.pictures, Grid(config, jobs).pictures)
    together = trace(grid, actions)
    for episode in range(len(jobs)):
        own = [chosen[episode : episode + 1] for chosen in actions]
        alone = trace(Grid(config, jobs[episode : episode + 1]), own)
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_array_equal(one[:, episode], other[:, 0])


def test_sizes_of_the_paper_and_copies_that_are_handed_out() -> None:
    with pytest.raises(WorkloadError, match="the jobs need 2 resources, the grid has 1"):
        small((0, 1, (1, 1)))
    grid = small((0, 1, (1,)), max_steps=10**30)
    act(grid, 0, VOID)
    assert grid.done.all()
    config = GridConfig()
    assert (config.picture_shape, config.num_actions) == ((20, 223), 11)
    assert replace(config, arrival_column=True).picture_shape == (20, 224)
    assert replace(config, visible_jobs=5, arrival_column=True).picture_shape == (20, 124)
    assert replace(config, machines=3).num_actions == 31
    grid = small((0, 1, (1,)), (0, 2, (1,)))
    arrays = [grid.slots, grid.free_units, grid.clock, grid.done, grid.num_backlog, grid.outcomes]
    record = grid.record()
    arrays += [record.start, record.machine, record.num_entered, record.clock]
    arrays += [grid.num_running, grid.step([0])]
    before = copy.deepcopy(arrays)
    act(grid, VOID, 1, VOID, VOID)
    assert grid.done.all()
    for array, same in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, same)


@cases(
    "job, changes, message",
    ((0, 5, (1,)), {}, "lasts 5 steps, longer than the horizon lets it be booked: 4"),
    ((0, 4, (1,)), {"semantics": DEEPRM}, "lasts 4 steps, longer than the horizon lets it be booked: 3"),
    ((0, 1, (4,)), {}, "needs 4 units of a resource, a machine has 3"),
    ((0, 1, (3,)), {"slot_width": 2}, "needs 3 units of a resource, its picture has slot_width = 2 columns"),
)
def test_a_job_that_there_is_no_room_for(job: Written, changes: dict[str, Any], message: str) -> None:
    config = GridConfig(**SMALL | changes)
    with pytest.raises(WorkloadError, match=f"^job 1 of set 1 {message}$"):
        Grid(config, JobSets.of([[(0, 3, (1,))], [(0, 1, (1,)), job]], 2))


SIZES = ("num_resources", "units", "visible_jobs", "slot_width", "horizon", "machines")


@cases(
    "changes, message",
    *[({name: 0}, f"{name}: expected a number of at least 1, got 0") for name in SIZES],
    ({"backlog": -1}, "backlog: expected a number of at least 0, got -1"),
    ({"horizon": 10_001}, "horizon: expected a number of at most 10,000, got 10001"),
    ({"max_steps": 0}, "max_steps: expected a number of at least 1, got 0"),
    *[
        ({name: value}, f"{name}: expected a whole number, got {value!r}")
        for name, value in (("units", 2.5), ("machines", True), ("max_steps", True), ("max_steps", "9"))
    ],
    ({"semantics": "papr"}, r"semantics: expected 'paper' or 'deeprm', got 'papr' \(did you mean 'paper'\?\)"),
    ({"drain": 1}, "drain: expected true or false, got 1"),
    ({"slot_width": 11}, "slot_width must be at most the 10 units of a machine, got 11"),
    ({"horizon": 10_000, "machines": 1_000}, "a picture of 10000 x 20201 has more than 100000000 cells"),
    ({"objective": "fun"}, "objective: expected 'slowdown' or 'completion', got 'fun'"),
    ({"picture": "grey"}, "picture: expected 'binary' or 'coloured', got 'grey'"),
    ({"machines": 2, "machine_weights": (1.0,)}, "machine_weights must be 2 numbers, got 1"),
    ({"machine_weights": (math.nan,)}, r"machine_weights\[0\]: expected a number of at least 0, got nan"),
    ({"queue_weight": math.inf}, "queue_weight: expected a finite number, got inf"),
    ({"backlog_weight": -1.0}, "backlog_weight: expected a number of at least 0, got -1.0"),
)
def test_impossible_grids(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        replace(GridConfig(), **changes)


@cases(
    "actions, message",
    ([0], r"expected 2 actions, whole numbers, got int64 \(1,\)"),
    (0, r"expected 2 actions, whole numbers, got int64 \(\)"),
    ([[0, 0]], r"expected 2 actions, whole numbers, got int64 \(1, 2\)"),
    ([0.0, 1.0], r"expected 2 actions, whole numbers, got float64 \(2,\)"),
    ([True, False], r"expected 2 actions, whole numbers, got bool \(2,\)"),
    (["a", "b"], r"expected 2 actions, whole numbers, got <U1 \(2,\)"),
    ([0, 11], "actions must be 0 .. 10"),
    ([-1, 0], "actions must be 0 .. 10"),
)
def test_impossible_actions_change_nothing(actions: Any, message: str) -> None:
    grid = Grid(GridConfig(), JobSets.of([[(0, 1, (1, 1))]] * 2, 1))
    with pytest.raises(ValueError, match=f"^{message}$"):
        grid.step(actions)
    assert (grid.slots[:, 0].tolist(), grid.clock.tolist()) == ([0, 0], [0, 0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint64])
def test_actions_may_be_whole_numbers_of_any_type(dtype: Any) -> None:
    grid = small((0, 1, (1,)))
    grid.step(np.array([0], dtype=dtype))
    assert grid.outcomes.tolist() == [BOOKED]
