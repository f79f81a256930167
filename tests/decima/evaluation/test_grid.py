"""Metrics of schedulers on grids against values computed by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from decima.evaluation.grid import (
    HEURISTIC_NAMES,
    GridComparison,
    Withholding,
    evaluate,
    heuristics_for,
    measure_sets,
    summary,
)
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.evaluation.metrics import ShownMetric, compare_metrics, mean_interval
from decima.evaluation.summary import summary_table
from decima.policy.grid_config import GridJobs
from decima.schedulers.base import SchedulerError
from decima.schedulers.grid import KNOBS, GridTetris, Packer, ShortestJobFirst, play
from simulator.grid import Grid, GridConfig
from tests.simulator.grid.build import SMALL
from workloads import DISTRIBUTIONS, JobSets, draw_jobs

#: Shortest first, the one-step job of the first set goes before the other; the second set's job runs alone.
JOBS = JobSets.of([[(0, 2, (3,)), (0, 1, (3,))], [(0, 4, (1,))], []], steps=3)
CONFIG = GridConfig(**SMALL)


def wait(grid: Grid) -> NDArray[np.int64]:
    return np.full(len(grid), grid.config.num_actions - 1)


def compared(runs: pd.DataFrame, reference: str | None = None) -> dict[str, dict[str, ShownMetric]]:
    return compare_metrics(runs, runs["scheduler"].unique(), reference, GRID_METRICS)


@pytest.fixture
def by_hand() -> pd.DataFrame:
    return evaluate(CONFIG, JOBS, {"sjf": ShortestJobFirst()})


def test_means_and_intervals(by_hand: pd.DataFrame) -> None:
    assert by_hand[["scheduler", "set", "jobs", "unfinished"]].to_numpy().tolist() == [
        ["sjf", 0, 2, 0],
        ["sjf", 1, 1, 0],
    ]
    of_jobs = {"slowdown": (1.5 + 1 + 1) / 3, "completion": (3 + 1 + 4) / 3, "waiting": (1 + 0 + 0) / 3}
    means = {**of_jobs, "makespan": (3 + 4) / 2, "utilisation": (1 + 1 / 3) / 2}
    row = compared(by_hand)["sjf"]
    assert {name: each.mean.mean for name, each in row.items()} == pytest.approx(means)
    # Means of the sets, weighted by their numbers of jobs.
    assert row["slowdown"].mean == mean_interval([1.25, 1], [2, 1])
    assert row["makespan"].mean == pytest.approx(mean_interval([3, 4]))  # sets count alike
    alone = compared(evaluate(CONFIG, JOBS[:1], {"sjf": ShortestJobFirst()}))["sjf"]
    mean, half_width = alone["slowdown"].mean
    assert mean == 1.25
    assert math.isnan(half_width)


def test_differences_are_paired_by_set() -> None:
    schedulers = {"none": wait, "sjf": ShortestJobFirst()}
    runs = evaluate(GridConfig(**SMALL, max_steps=9), JOBS, schedulers)
    row = compared(runs, "none")
    assert row["none"]["slowdown"].change == (0, 0)
    change, half_width = row["sjf"]["completion"].change
    assert change == pytest.approx((8 / 3) / 10 - 1)  # all three jobs end at step 10, unbooked
    assert half_width == pytest.approx(mean_interval([2 - 10, 4 - 10], [2, 1]).half_width / 10)
    table = summary_table(runs, against="none", metrics=["completion", "makespan"]).set_index("scheduler")
    assert tuple(table.loc["sjf", ["vs none", "vs none_ci95"]]) == pytest.approx((change, half_width))
    assert table.loc["sjf", "completion"] == pytest.approx(8 / 3)


def test_unbooked_jobs_count_and_the_best_is_found() -> None:
    runs = evaluate(GridConfig(**SMALL, max_steps=3), JOBS[:1], {"none": wait})
    [row] = runs.to_dict("records")
    assert (row["completion"], row["slowdown"], row["waiting"]) == (4, (2 + 4) / 2, (2 + 3) / 2)
    both = compared(evaluate(GridConfig(**SMALL, max_steps=9), JOBS, {"none": wait, "sjf": ShortestJobFirst()}))
    for metric in ("slowdown", "utilisation"):
        assert GRID_METRICS[metric].best({name: row[metric].mean.mean for name, row in both.items()}) == "sjf"


def test_heuristics_and_what_is_withheld() -> None:
    distribution = DISTRIBUTIONS["code"]
    training = draw_jobs(distribution, load=1.3, sets=10, seed=3)
    chosen = heuristics_for(GridConfig(), training, [*HEURISTIC_NAMES, "tetris:0.25"])
    assert list(chosen) == ["sjf", "packer", "tetris*", "random", "tetris:0.25"]
    tuned, fixed = chosen["tetris*"], chosen["tetris:0.25"]
    assert isinstance(tuned, GridTetris)
    assert isinstance(fixed, GridTetris)
    assert fixed.knob == 0.25
    means = compared(evaluate(GridConfig(), training, {str(knob): GridTetris(knob) for knob in KNOBS}))
    assert min(means, key=lambda knob: means[knob]["slowdown"].mean.mean) == str(tuned.knob)
    with pytest.raises(SchedulerError, match="unknown heuristic 'fifo'"):
        heuristics_for(GridConfig(), training, ["fifo"])

    # The scheduler withholds all jobs for two steps, and then books the shortest job first.
    def late(grid: Grid) -> NDArray[np.int64]:
        return np.where(grid.clock < 2, wait(grid), ShortestJobFirst()(grid))

    grid = Grid(CONFIG, JOBS)
    watched = Withholding(late, grid)
    record = play(grid, watched)
    # Both jobs of the first set could start in both steps; when the short one runs, the long one could not.
    assert (watched.held.tolist(), watched.held_steps.tolist()) == ([[2, 2], [2, 0], [0, 0]], [2, 2, 0])
    assert watched.steps.tolist() == record.clock.tolist()


def test_training_and_evaluation_draw_other_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int]] = []

    def draw(jobs: GridJobs, grid: GridConfig, sets: int, seed: int) -> JobSets:
        drawn.append((sets, seed))
        return draw_jobs(DISTRIBUTIONS["code"], load=0.5, sets=sets, seed=seed)

    monkeypatch.setattr(GridJobs, "draw", draw)
    comparison = GridComparison(GridConfig(), {"": GridJobs()}, ("sjf", "packer"), sets=2, seed=64)
    comparison.run()
    assert list(comparison.table()) == ["sjf", "packer"]
    assert sorted(drawn) == [(2, 64), (2, 1_000_064)]
    default = GridComparison(GridConfig(), {"": GridJobs()})
    assert (default.schedulers, default.sets) == (("sjf", "packer", "tetris*", "random"), 100)


def test_a_summary_tells_each_measure_with_its_interval_and_sets(by_hand: pd.DataFrame) -> None:
    found = summary(by_hand)["sjf"]
    assert (found["unfinished"], found["makespan"]["per_set"]) == (0, [3, 4])
    assert found["completion"]["per_set"] == [2, 4]
    for name, each in compared(by_hand)["sjf"].items():
        assert (found[name]["mean"], found[name]["ci95"]) == each.mean
    late = evaluate(GridConfig(**SMALL, max_steps=3), JOBS, {"none": wait})
    assert summary(late)["none"]["unfinished"] == 3
    nothing = measure_sets(play(Grid(CONFIG, JOBS[2:]), ShortestJobFirst())).assign(scheduler="sjf")
    assert all(
        math.isnan(each.mean.mean) for each in compare_metrics(nothing, ["sjf"], None, GRID_METRICS)["sjf"].values()
    )


@pytest.mark.parametrize("scheduler", [ShortestJobFirst(), Packer(), GridTetris(0.01)])
def test_work_conserving_heuristics_withhold_nothing(scheduler: ShortestJobFirst) -> None:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=10, seed=4)
    watched = Withholding(scheduler, Grid(GridConfig(), jobs))
    evaluate(GridConfig(), jobs, {"": watched})
    assert not watched.held.any()
