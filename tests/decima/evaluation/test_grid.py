"""Metrics of schedulers on grids against values computed by hand."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from decima.evaluation.grid import (
    HEURISTIC_NAMES,
    MEASURES,
    Evaluation,
    GridConditions,
    Withholding,
    best_of,
    evaluate,
    heuristics_for,
    relative_change,
)
from decima.evaluation.metrics import mean_interval
from decima.schedulers.base import SchedulerError
from decima.schedulers.grid import KNOBS, Packer, ShortestJobFirst, Tetris
from simulator.grid import Grid, GridConfig
from tests.simulator.grid.build import SMALL
from workloads import DISTRIBUTIONS, JobSets, draw_jobs

#: Shortest first, the one-step job of the first set goes before the other; the second set's job runs alone.
JOBS = JobSets.of([[(0, 2, (3,)), (0, 1, (3,))], [(0, 4, (1,))], []], steps=3)
CONFIG = GridConfig(**SMALL)


def wait(grid: Grid) -> NDArray[np.int64]:
    return np.full(len(grid), grid.config.num_actions - 1)


@pytest.fixture
def by_hand() -> Evaluation:
    return evaluate(CONFIG, JOBS, {"sjf": ShortestJobFirst()})["sjf"]


def test_means_and_intervals(by_hand: Evaluation) -> None:
    of_jobs = {"slowdown": (1.5 + 1 + 1) / 3, "completion": (3 + 1 + 4) / 3, "waiting": (1 + 0 + 0) / 3}
    means = {**of_jobs, "makespan": (3 + 4) / 2, "utilisation": (1 + 1 / 3) / 2}
    assert means.keys() == MEASURES.keys()
    assert {measure: by_hand.mean(measure) for measure in means} == pytest.approx(means)
    assert {measure: by_hand.interval(measure)[0] for measure in means} == pytest.approx(means)
    # Means of the sets, weighted by their numbers of jobs.
    assert by_hand.interval("slowdown") == mean_interval([1.25, 1], [2, 1])
    assert by_hand.interval("makespan") == pytest.approx(mean_interval([3, 4]))  # sets count alike
    alone = evaluate(CONFIG, JOBS[:1], {"sjf": ShortestJobFirst()})["sjf"]
    mean, half_width = alone.interval("slowdown")
    assert mean == 1.25
    assert math.isnan(half_width)
    assert relative_change(by_hand, by_hand, "slowdown") == (0, 0)
    late = evaluate(GridConfig(**SMALL, max_steps=9), JOBS, {"none": wait})["none"]
    change, half_width = relative_change(by_hand, late, "completion")
    assert change == pytest.approx((8 / 3) / 10 - 1)  # all three jobs end at step 10, unbooked
    assert half_width > 0


def test_unbooked_jobs_count_and_the_best_is_found() -> None:
    config = GridConfig(**SMALL, max_steps=3)
    evaluation = evaluate(config, JOBS[:1], {"none": wait})["none"]
    assert evaluation.record.clock.tolist() == [4]
    assert evaluation.by_job("completion").tolist() == [[4, 4]]
    assert evaluation.by_job("slowdown").tolist() == [[2, 4]]
    assert evaluation.by_job("waiting").tolist() == [[2, 3]]
    both = evaluate(GridConfig(**SMALL, max_steps=9), JOBS, {"none": wait, "sjf": ShortestJobFirst()})
    assert {best_of(both, measure) for measure in ("slowdown", "utilisation")} == {"sjf"}


def test_heuristics_and_what_is_withheld() -> None:
    distribution = DISTRIBUTIONS["code"]
    training = draw_jobs(distribution, load=1.3, sets=10, seed=3)
    chosen = heuristics_for(GridConfig(), training, [*HEURISTIC_NAMES, "tetris:0.25"])
    assert list(chosen) == ["sjf", "packer", "tetris*", "random", "tetris:0.25"]
    tuned, fixed = chosen["tetris*"], chosen["tetris:0.25"]
    assert isinstance(tuned, Tetris)
    assert isinstance(fixed, Tetris)
    assert fixed.knob == 0.25
    means = {knob: evaluate(GridConfig(), training, {"": Tetris(knob)})[""].mean("slowdown") for knob in KNOBS}
    assert means[tuned.knob] == min(means.values())
    with pytest.raises(SchedulerError, match="unknown heuristic 'fifo'"):
        heuristics_for(GridConfig(), training, ["fifo"])

    # The scheduler withholds all jobs for two steps, and then books the shortest job first.
    def late(grid: Grid) -> NDArray[np.int64]:
        return np.where(grid.clock < 2, wait(grid), ShortestJobFirst()(grid))

    grid = Grid(CONFIG, JOBS)
    watched = Withholding(late, grid)
    record = evaluate(CONFIG, JOBS, {"late": watched})["late"].record
    # Both jobs of the first set could start in both steps; when the short one runs, the long one could not.
    assert (watched.held.tolist(), watched.held_steps.tolist()) == ([[2, 2], [2, 0], [0, 0]], [2, 2, 0])
    assert watched.steps.tolist() == record.clock.tolist()


def test_training_and_evaluation_draw_other_sets() -> None:
    drawn: list[tuple[int, int]] = []

    def draw(sets: int, seed: int) -> JobSets:
        drawn.append((sets, seed))
        return draw_jobs(DISTRIBUTIONS["code"], load=0.5, sets=sets, seed=seed)

    conditions = GridConditions(GridConfig(), draw, ("sjf", "packer"), sets=2, seed=64)
    found = conditions.run()
    assert list(found) == ["sjf", "packer"]
    assert sorted(drawn) == [(2, 64), (2, 1_000_064)]
    drawn.clear()
    assert list(conditions.run({"mine": ShortestJobFirst()})) == ["mine"]
    assert drawn == [(2, 64)]
    assert GridConditions(GridConfig(), draw).heuristics == ("sjf", "packer", "tetris*", "random")
    assert (conditions.networks, GridConditions(GridConfig(), draw).sets) == ({}, 100)


def test_a_summary_tells_each_measure_with_its_interval_and_sets(by_hand: Evaluation) -> None:
    summary = by_hand.summary()
    assert (summary["unfinished"], summary["makespan"]["per_set"]) == (0, [3, 4])
    assert summary["completion"]["per_set"] == [2, 4]
    for measure in MEASURES:
        assert (summary[measure]["mean"], summary[measure]["ci95"]) == by_hand.interval(measure)
    late = evaluate(GridConfig(**SMALL, max_steps=3), JOBS, {"none": wait})["none"]
    assert late.summary()["unfinished"] == 3
    nothing = evaluate(CONFIG, JOBS[2:], {"sjf": ShortestJobFirst()})["sjf"]
    assert all(math.isnan(nothing.mean(measure)) for measure in MEASURES)


@pytest.mark.parametrize("scheduler", [ShortestJobFirst(), Packer(), Tetris(0.01)])
def test_work_conserving_heuristics_withhold_nothing(scheduler: ShortestJobFirst) -> None:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=10, seed=4)
    watched = Withholding(scheduler, Grid(GridConfig(), jobs))
    evaluate(GridConfig(), jobs, {"": watched})
    assert not watched.held.any()
