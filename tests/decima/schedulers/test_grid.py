from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.evaluation.grid import make_grid_scheduler
from decima.schedulers.base import SchedulerError
from decima.schedulers.grid import KNOBS, GridRandomChoice, GridTetris, Packer, ShortestJobFirst, play, tune_tetris
from simulator.grid import Grid, GridConfig
from tests.decima.learning.grid.examples import grid_of, tiny_grid
from tests.simulator.grid.naive import Written
from workloads.grid_jobs import DISTRIBUTIONS, draw_jobs


def queue(*jobs: tuple[int, tuple[int, int]], **changes: Any) -> Grid:
    """Return one episode with jobs of a duration and demand in slots 0, 1, .., on ten units of two resources."""
    written: list[Written] = [(0, *job) for job in jobs]
    return grid_of(written, **{"units": 10, "slot_width": 10, "visible_jobs": len(jobs), **changes})


def test_the_best_job_goes_first() -> None:
    assert ShortestJobFirst()(queue((3, (1, 1)), (1, (1, 1)), (2, (9, 9)))).tolist() == [1]
    # The last two jobs need the same number of units; one unit of the first resource is occupied at that time.
    grid = queue((1, (4, 1)), (1, (1, 3)), (1, (3, 1)))
    actions = []
    for _ in range(3):
        actions += Packer()(grid).tolist()
        grid.step(actions[-1:])
    assert actions == [0, 1, 2]  # 10 x 5 units; then 6 + 27 against 18 + 9
    # Scores of 0.02 * 10 * 5 + 0.98 / 5 and 0.02 * 10 * 2 + 0.98; equal at a knob of 0.8 / 30.8.
    grid = queue((5, (4, 1)), (1, (1, 1)))
    np.testing.assert_allclose(GridTetris(0.02).score(grid)[0, 0], [1.196, 1.38])
    equal = 0.8 / 30.8
    assert [GridTetris(equal + more)(grid).tolist() for more in (-0.001, 0.001)] == [[1], [0]]
    for knob, alone in ((0.0, ShortestJobFirst()), (1.0, Packer())):
        np.testing.assert_allclose(GridTetris(knob).score(grid), alone.score(grid))


@pytest.mark.parametrize("heuristic", [ShortestJobFirst(), Packer(), GridTetris(0.1)])
def test_among_equals_the_lowest_number_is_chosen(heuristic: ShortestJobFirst) -> None:
    grid = queue((4, (1, 1)), (2, (2, 2)), (2, (2, 2)), machines=2)
    assert heuristic(grid).tolist() == [1]


@pytest.mark.parametrize("name", ["sjf", "packer", "tetris"])
def test_jobs_that_cannot_start_are_passed_over_or_wait(name: str) -> None:
    # The job could be booked for a later time. Another episode without jobs is independent.
    grid = grid_of([(0, 2, (3, 3)), (0, 1, (1, 1))], [(5, 1, (1, 1))])
    grid.step([0, 2])
    assert grid.action_mask()[0].tolist() == [False, True, True]
    assert make_grid_scheduler(name)(grid).tolist() == [2, 2]
    grid = queue((5, (6, 6)), (1, (6, 6)), (3, (4, 4)))
    grid.step([0])
    assert make_grid_scheduler(name)(grid).tolist() == [2]


def test_machines_and_random_choices() -> None:
    # Action 2 i + j is the job in slot j on machine i.
    grid = queue((3, (8, 8)), (2, (1, 1)), machines=2)
    grid.step([0])
    assert ShortestJobFirst()(grid).tolist() == [1]  # either machine would do
    assert Packer()(grid).tolist() == [2 + 1]  # where more is free
    full = queue((3, (10, 10)), (2, (1, 1)), machines=2)
    full.step([0])
    assert ShortestJobFirst()(full).tolist() == [2 + 1]
    grid = grid_of(*[[(0, 1, (1, 1))]] * 3000)
    counts = np.bincount(GridRandomChoice(1)(grid), minlength=3)
    assert (np.abs(counts - 1000) < 4 * np.sqrt(3000 * 2 / 9)).all()
    grid = tiny_grid(50)
    default, same, other = (make_grid_scheduler(spec)(grid).tolist() for spec in ("random", "random:0", "random:1"))
    assert default == same
    assert default != other


def test_names_and_knobs_of_heuristics() -> None:
    assert isinstance(make_grid_scheduler("sjf"), ShortestJobFirst)
    assert isinstance(make_grid_scheduler("packer"), Packer)
    for spec, knob in (("tetris", 0.5), ("tetris:0.01", 0.01), ("tetris:1", 1.0)):
        heuristic = make_grid_scheduler(spec)
        assert isinstance(heuristic, GridTetris)
        assert heuristic.knob == knob
    assert list(KNOBS) == sorted(KNOBS, reverse=True)
    assert 0 < min(KNOBS) < 0.01 in KNOBS  # which weighs both alike
    assert max(KNOBS) == GridTetris().knob
    wrong = ("1.5", "-0.1", "nan", "x", "")
    for spec in (*map("tetris:{}".format, wrong), "random:-1", "random:0.5", "sjf:1"):
        with pytest.raises(SchedulerError, match=f"'{spec}': expected tetris:KNOB"):
            make_grid_scheduler(spec)
    for spec in ("lifo", "", "SJF"):
        with pytest.raises(SchedulerError, match=f"unknown heuristic '{spec}': expected one of sjf, packer"):
            make_grid_scheduler(spec)


LONGEST = """
from decima.schedulers.grid import ScoredRule

class LongestJobFirst(ScoredRule):
    def score(self, grid):
        return grid.slot_duration[:, None, :]

class NoRule:
    pass
"""


def test_a_rule_of_ones_own_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_grid_rules.py").write_text(LONGEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rule = make_grid_scheduler("own_grid_rules:LongestJobFirst")
    assert rule(queue((3, (1, 1)), (5, (1, 1)), (4, (9, 9)))).tolist() == [1]
    with pytest.raises(SchedulerError, match="'own_grid_rules:NoRule': expected a class whose objects map a grid"):
        make_grid_scheduler("own_grid_rules:NoRule")
    with pytest.raises(SchedulerError, match=r"heuristic 'own_grid_rules:Missing'"):
        make_grid_scheduler("own_grid_rules:Missing")


def test_tetris_gets_the_knob_of_the_lowest_slowdown() -> None:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=10, seed=1)
    slowdowns = {knob: np.nanmean(play(Grid(GridConfig(), jobs), GridTetris(knob)).slowdown()) for knob in KNOBS}
    knob = tune_tetris(Grid(GridConfig(), jobs))
    assert slowdowns[knob] == min(slowdowns.values())
    assert slowdowns[knob] < slowdowns[0.5]
