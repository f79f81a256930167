"""Effects of actions: the compiled rules compared with plain ones, and computed by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, strategies as st

from simulator.grid import DEEPRM, PAPER, Grid, GridConfig, GridSemantics
from simulator.grid.grid import BOOKED, EMPTY, NO_ROOM, OVER, VOID as PASSED
from tests.cases import cases
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


def test_jobs_are_booked_and_linger_in_the_public_code() -> None:
    # The second job fits beside the first only once that is finished; the gap of one step before is too short.
    grid = small((0, 2, (2,)), (0, 2, (2,)), (0, 1, (1,)))
    assert act(grid, 0, 1, 2) == [0, 0, 0]
    assert grid.outcomes.tolist() == [BOOKED]
    assert grid.record().start.tolist() == [[0, 2, 0]]
    assert (grid.clock.tolist(), grid.free_units[0, 0, :, 0].tolist()) == ([0], [0, 1, 1, 1])
    grid = small(*[(0, 2, (3,))] * 3, machines=2)
    assert grid.config.num_actions == 7
    act(grid, 4, 0, 5)
    assert grid.record().machine.tolist() == [[0, 1, 1]]
    assert grid.record().start.tolist() == [[0, 0, 2]]
    jobs = [(1, 1, (1,)), (1, 1, (1,)), (1, 2, (1,)), (1, 2, (1,))]
    running = {}
    for semantics in (DEEPRM, PAPER):
        grid = small(*jobs, visible_jobs=4, units=4, semantics=semantics)
        act(grid, VOID, 0, 1, 2, 3)
        running[semantics] = []
        for _ in range(4):
            act(grid, VOID)
            running[semantics].append(int(grid.num_running[0]))
    assert running == {DEEPRM: [3, 1, 0, 0], PAPER: [2, 0, 0, 0]}


@pytest.mark.parametrize(("last_row", "starts"), [(True, [0, 3]), (False, [0, -1])])
def test_the_last_row_of_the_horizon_can_be_booked_or_not(last_row: bool, starts: list[int]) -> None:
    grid = small((0, 3, (3,)), (0, 1, (1,)), semantics=GridSemantics(last_row=last_row))
    act(grid, 0, 1)
    assert grid.record().start.tolist() == [starts]


@pytest.mark.parametrize(("action", "outcome"), [(VOID, PASSED), (2, EMPTY), (1, NO_ROOM)])
def test_time_passes_by_void_an_empty_slot_and_a_job_without_room(action: int, outcome: int) -> None:
    grid = small((0, 4, (3,)), (0, 1, (1,)))
    act(grid, 0)
    assert grid.clock.tolist() == [0]
    assert act(grid, action) == [-1.25]
    assert (grid.outcomes.tolist(), grid.clock.tolist()) == ([outcome], [1])


def test_jobs_enter_slots_then_the_backlog_and_no_jobs_end_at_once() -> None:
    grid = small(*[(0, 1, (1,))] * 3, *[(1, 1, (1,))] * 4, backlog=2)
    act(grid, 1)
    assert grid.slots.tolist() == [[0, -1, 2]]
    act(grid, VOID)
    assert (grid.slots.tolist(), grid.num_backlog.tolist()) == ([[0, 3, 2]], [2])
    assert grid.record().dropped.tolist() == [[False] * 6 + [True]]
    jobs = JobSets(np.empty((2, 0), int), np.empty((2, 0), int), np.empty((2, 0, 2), int), np.zeros(2, int), 5)
    grid = Grid(GridConfig(), jobs)
    assert not grid.startable().any()
    assert grid.slot_duration.shape == (2, 10)
    assert grid.step([0, 10]).tolist() == [0, 0]
    assert grid.done.all()
    assert grid.record().makespan.tolist() == [0, 0]


@pytest.mark.parametrize("picture", ["binary", "coloured"])
def test_steps_since_an_arrival_are_counted_up_to_ten_in_ones_or_in_tenths(picture: Any) -> None:
    grid = small((0, 1, (1,)), (12, 1, (1,)), steps=13, horizon=12, arrival_column=True, picture=picture)
    for count in (*range(1, 11), 10, 0):
        act(grid, VOID)
        column = [1] * count + [0] * (12 - count) if picture == "binary" else [count / 10] * 12
        assert grid.pictures[0, :, -1].tolist() == pytest.approx(column)


REWARDS = {"slowdown": -(4 + 3 / 2 + 0.75), "completion": -(4 + 3 + 0.75), "makespan": -1.0, "utilisation": 2 / 6}


@pytest.mark.parametrize(("objective", "reward"), REWARDS.items())
def test_jobs_are_weighted_by_where_they_are_while_the_step_passes(objective: Any, reward: float) -> None:
    """The first two jobs run, on machines of weights 4 and 3, the third is in the slot, the fourth in the backlog."""
    weights = {"machine_weights": (4, 3), "queue_weight": 0.5, "backlog_weight": 0.25}
    jobs = [(0, 1, (1,)), (0, 2, (1,)), (0, 1, (1,)), (0, 1, (1,))]
    grid = small(*jobs, machines=2, visible_jobs=1, objective=objective, **weights)
    assert act(grid, 0, 1, VOID) == pytest.approx([0, 0, reward])


@cases("reward_passed_step, rewards", (True, [0, 0, -1.5, -0.5, 0, 0, 0, -2]), (False, [0, 0, -0.5, 0, -2, 0, 0, -1]))
def test_a_step_costs_what_was_there_while_it_passed_or_what_is_there_afterwards(
    reward_passed_step: bool, rewards: list[float]
) -> None:
    jobs = [(0, 2, (1,)), (0, 1, (1,)), (3, 1, (3,)), (3, 1, (3,))]
    grid = small(*jobs, semantics=GridSemantics(reward_passed_step=reward_passed_step))
    assert act(grid, 0, 1, VOID, VOID, VOID, 0, 1, VOID) == rewards


@pytest.mark.parametrize(("semantics", "end"), [(PAPER, 3), (GridSemantics(ends_early=False), 10)])
def test_an_episode_ends_when_all_is_done_or_no_job_might_enter_any_more(semantics: GridSemantics, end: int) -> None:
    grid = small((1, 2, (1,)), semantics=semantics)
    act(grid, VOID, 0)
    while not grid.done[0]:
        act(grid, VOID)
    assert grid.clock.tolist() == [end]


@pytest.mark.parametrize("semantics", [PAPER, DEEPRM])
def test_episodes_are_cut_and_end_without_draining(semantics: GridSemantics) -> None:
    grid = small((1, 1, (1,)), (3, 1, (1,)), max_steps=2, semantics=semantics)
    act(grid, VOID, VOID)
    assert grid.done.tolist() == [False]
    act(grid, VOID)
    assert (grid.done.tolist(), grid.slots.tolist()) == ([True], [[0, -1, -1]])
    assert act(grid, 0) == [0]
    assert (grid.outcomes.tolist(), grid.clock.tolist()) == ([OVER], [3])
    grid = small((1, 4 - 1, (3,)), (1, 3, (3,)), steps=3, drain=False, max_steps=1, semantics=semantics)
    act(grid, VOID, 0, VOID)
    assert grid.done.tolist() == [False]
    act(grid, VOID)
    assert (grid.done.tolist(), grid.num_running.tolist(), grid.slots.tolist()) == ([True], [1], [[-1, 1, -1]])


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
