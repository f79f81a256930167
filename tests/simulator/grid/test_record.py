"""Records of grid episodes; rewards add up to their metrics."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from simulator.grid import DEEPRM, Grid, GridConfig
from tests.simulator.grid.build import VOID, act, small
from tests.simulator.grid.strategies import MANY, grids, job_sets, random_actions
from workloads.grid_jobs import JobSets

NONE = float("nan")


def test_times_and_table_of_jobs() -> None:
    # One unit: a job of two steps, then a job of three, and a third job that is never booked.
    grid = small((0, 2, (1,)), (0, 3, (1,)), (1, 1, (1,)), units=1, slot_width=1, horizon=6, max_steps=3)
    act(grid, 0, 1, VOID, VOID, VOID, VOID)
    record = grid.record()
    assert record.start.tolist() == [[0, 2, -1]]
    assert record.waiting.tolist()[0] == pytest.approx([0, 2, NONE], nan_ok=True)
    assert record.completion.tolist()[0] == pytest.approx([2, 5, NONE], nan_ok=True)
    assert record.slowdown().tolist()[0] == pytest.approx([1, 5 / 3, NONE], nan_ok=True)
    assert record.slowdown(whole=True).tolist()[0] == pytest.approx([1, 1, NONE], nan_ok=True)
    assert (record.makespan.tolist(), record.unfinished.tolist(), record.clock.tolist()) == ([5], [1], [4])
    sets = [[(0, 2, (1, 2)), (0, 4, (3, 0)), (0, 1, (1, 1))], [(1, 1, (2, 2))]]
    config = GridConfig(units=3, visible_jobs=1, slot_width=3, horizon=6, backlog=1, machines=2)
    grid = Grid(config, JobSets.of(sets, 3))
    grid.step([1, 2])
    grid.step([1, 1])
    rows = {
        "set": [0, 0, 0, 1], "job": [0, 1, 2, 0], "enter": [0, 0, 0, 1], "duration": [2, 4, 1, 1],
        "demand_0": [1, 3, 1, 2], "demand_1": [2, 0, 1, 2], "machine": [1, 1, NONE, 1], "start": [0, 2, NONE, 1],
        "finish": [2, 6, NONE, 2], "waiting": [0, 2, NONE, 0], "completion": [2, 6, NONE, 1],
        "slowdown": [1, 1.5, NONE, 1], "dropped": [False, False, True, False],
    }  # fmt: skip
    pd.testing.assert_frame_equal(grid.record().table(), pd.DataFrame(rows), check_dtype=False)


def test_utilisation_and_jobs_that_never_end() -> None:
    grid = small((0, 2, (3, 1)), (1, 1, (1, 0)), num_resources=2, machines=2)
    act(grid, 0, VOID, 3)
    # 2 x 4 + 1 unit-steps of 12 units in 2 steps.
    assert grid.record().makespan.tolist() == [2]
    assert grid.record().utilisation.tolist() == [9 / 24]
    record = small((0, 2, (1,))).record()
    assert (record.makespan.tolist(), record.utilisation.tolist()) == ([0], [0])
    assert record.unfinished.tolist() == [1]
    assert np.isnan(record.slowdown()).all()
    grid = small(*[(0, 1, (1,))] * 3, (5, 1, (1,)), visible_jobs=1, backlog=1, max_steps=3)
    act(grid, 0, *[VOID] * 4)
    record = grid.record()
    assert (record.unfinished.tolist(), record.dropped.tolist()) == ([3], [[False, False, True, False]])
    assert record.num_entered.tolist() == [3]
    record = small((0, 1, (1,)), (1, 1, (1,)), semantics=DEEPRM).record()
    assert (record.is_job.tolist(), record.unfinished.tolist()) == ([[False, True]], [1])
    assert record.table()["job"].tolist() == [1]


@MANY
@given(st.data(), grids(whole=True), st.integers(1, 12), st.integers(0, 2**32))
def test_whatever_is_done_rewards_add_up_to_the_objective(
    data: st.DataObject, config: GridConfig, steps: int, seed: int
) -> None:
    grid = Grid(config, JobSets.of(data.draw(job_sets(config, steps)), steps))
    choose = random_actions(seed, void=data.draw(st.sampled_from((0.0, 0.2, 0.6))))
    total = np.zeros(len(grid))
    while not grid.done.all():
        total += grid.step(choose(grid))
    record = grid.record()
    expected = {"slowdown": -np.nansum(record.slowdown(), axis=1), "completion": -np.nansum(record.completion, axis=1)}
    np.testing.assert_allclose(total, expected[config.objective], rtol=1e-12, atol=1e-12)
    assert (record.unfinished == record.dropped.sum(axis=1)).all()
    assert (record.clock == np.maximum(record.makespan, 1)).all()
