"""Effects of actions: the compiled rules compared with plain ones, and computed by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, strategies as st

from simulator.grid import Grid, GridConfig
from simulator.grid.grid import BOOKED, EMPTY, NO_ROOM, OVER, VOID as PASSED
from tests.simulator.grid.build import VOID, act, drawn, small
from tests.simulator.grid.naive import Naive
from tests.simulator.grid.strategies import MANY, grids, job_sets, random_actions
from workloads.grid_jobs import JobSets

OUTCOMES = {BOOKED: "booked", NO_ROOM: "no room", EMPTY: "empty", PASSED: "void", OVER: "over"}


def seen(grid: Grid, episode: int) -> dict[str, Any]:
    """Return all visible values of an episode."""
    record, num_jobs = grid.record(), int(grid.jobs.num_jobs[episode])
    return {
        "clock": grid.clock[episode], "done": grid.done[episode], "slots": grid.slots[episode].tolist(),
        "durations": grid.slot_duration[episode].tolist(), "demands": grid.slot_demand[episode].tolist(),
        "backlog": grid.num_backlog[episode], "running": grid.num_running[episode],
        "free": grid.free_units[episode].tolist(), "start": record.start[episode, :num_jobs].tolist(),
        "machine": record.machine[episode, :num_jobs].tolist(),
        "dropped": record.dropped[episode, :num_jobs].tolist(), "left": record.num_entered[episode],
        "passed": record.clock[episode],
    }  # fmt: skip


def expected(naive: Naive) -> dict[str, Any]:
    config, jobs = naive.config, naive.jobs
    nothing = (0,) * config.num_resources
    return {
        "clock": naive.clock,
        "done": naive.done,
        "slots": [job.number if job else -1 for job in naive.slots],
        "durations": [job.duration if job else 0 for job in naive.slots],
        "demands": [list(job.demand if job else nothing) for job in naive.slots],
        "backlog": len(naive.backlog),
        "running": len(naive.running),
        "free": [
            [
                [naive.free(machine, naive.clock + row, resource) for resource in range(config.num_resources)]
                for row in range(config.horizon)
            ]
            for machine in range(config.machines)
        ],
        "start": [job.start for job in jobs],
        "machine": [job.machine for job in jobs],
        "dropped": [job.dropped for job in jobs],
        "left": len(jobs) - len(naive.to_come),
        "passed": naive.clock,
    }


def check_pictures(grid: Grid, naives: list[Naive]) -> None:
    pictures = np.array([naive.picture() for naive in naives])
    assert pictures.shape[1:] == grid.config.picture_shape
    plain = grid.config.picture == "binary"
    assert grid.pictures.dtype == (np.uint8 if plain else np.float32)
    np.testing.assert_array_equal(grid.pictures, pictures.astype(grid.pictures.dtype))


@MANY
@given(st.data(), grids(), st.integers(1, 12), st.integers(0, 2**32))
def test_whatever_is_done_everything_is_as_in_the_plain_rules(
    data: st.DataObject, config: GridConfig, steps: int, seed: int
) -> None:
    sets = data.draw(job_sets(config, steps))
    grid = Grid(config, JobSets.of(sets, steps))
    naives = [Naive(config, jobs, steps) for jobs in sets]
    choose = random_actions(seed, void=data.draw(st.sampled_from((0.0, 0.2, 0.6))))
    for _ in range(60):
        check_pictures(grid, naives)
        for episode, naive in enumerate(naives):
            assert seen(grid, episode) == expected(naive)
        if grid.done.all():
            event("all the way")
            return
        actions = choose(grid)
        rewards = grid.step(actions)
        results = [naive.step(action) for naive, action in zip(naives, actions.tolist(), strict=True)]
        assert [OUTCOMES[outcome] for outcome in grid.outcomes.tolist()] == [outcome for outcome, _ in results]
        assert rewards.tolist() == pytest.approx([reward for _, reward in results], rel=1e-12, abs=1e-12)


def test_no_jobs_end_at_once() -> None:
    jobs = JobSets(np.empty((2, 0), int), np.empty((2, 0), int), np.empty((2, 0, 2), int), np.zeros(2, int), 5)
    grid = Grid(GridConfig(), jobs)
    assert not grid.startable().any()
    assert grid.slot_duration.shape == (2, 10)
    assert grid.step([0, 10]).tolist() == [0, 0]
    assert grid.done.all()
    assert grid.record().makespan.tolist() == [0, 0]


def test_pictures_by_hand_and_their_shades() -> None:
    # Two machines, two resources; each has the machines' units, then two slots; then the backlog.
    jobs = [(0, 2, (2, 1)), (0, 3, (1, 2)), (0, 1, (2, 0)), (0, 2, (1, 1)), (0, 1, (1, 1)), (0, 1, (1, 1))]
    grid = small(*jobs, num_resources=2, machines=2, visible_jobs=2, slot_width=2, horizon=3, backlog=4)
    assert drawn(grid) == "\n".join(
        ["... ... ## #.  ... ... #. ##  ##", "... ... ## #.  ... ... #. ##  ##", "... ... .. #.  ... ... .. ##  .."]
    ).replace(" ", "")
    act(grid, 0, 3, 0)
    assert drawn(grid) == "\n".join(
        ["##. #.. #. #.  #.. ##. #. #.  #.", "##. #.. .. #.  #.. ##. .. #.  ..", "##. #.. .. ..  ... ##. .. ..  .."]
    ).replace(" ", "")
    grid = small((0, 2, (1,)), (0, 1, (1,)), (0, 3, (1,)), (0, 2, (2,)), picture="coloured", visible_jobs=4)
    act(grid, 0, 1, 2, 3)
    assert [row[:3] for row in drawn(grid).splitlines()] == ["123", "13.", "344", "44."]
    act(grid, VOID)
    assert [row[:3] for row in drawn(grid).splitlines()] == ["13.", "344", "44.", "..."]
    jobs = [(0, 3, (1,))] * 40 + [(0, 1, (1,)), (2, 1, (1,))]
    grid = small(*jobs, units=50, visible_jobs=42, slot_width=1, picture="coloured")
    naive = Naive(grid.config, jobs, 10)
    for action in (*range(41), 42, 42, 0):
        act(grid, action)
        naive.step(action)
        check_pictures(grid, [naive])
    assert naive.jobs[41].colour == 39
