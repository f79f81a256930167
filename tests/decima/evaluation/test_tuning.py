from __future__ import annotations

import numpy as np

from decima.evaluation.run import run_scheduler
from decima.evaluation.tuning import ALPHAS, GRIDS, TUNED, best_for_all, best_settings, sweep, sweep_ms
from decima.registry import make_scheduler
from tests.decima.evaluation.examples import CLUSTER, conditions

SEQUENCE = conditions(num_jobs=8).sequence(5)


def test_the_alphas_are_the_papers_sweep() -> None:
    assert len(ALPHAS) == 41
    assert (ALPHAS[0], ALPHAS[10], ALPHAS[20], ALPHAS[40]) == (-2.0, -1.0, 0.0, 2.0)
    assert len({f"{alpha:g}" for alpha in ALPHAS}) == 41


def test_every_setting_of_a_grid_is_a_scheduler() -> None:
    for name, grid in GRIDS.items():
        assert len(set(grid)) == len(grid)
        assert type(make_scheduler(grid[0])) is type(make_scheduler(name))
        assert all(make_scheduler(setting) for setting in grid)
        assert {f"tuned-{name}", f"tuned-{name}:once", f"tuned-{name}:makespan"} <= TUNED.keys()


def test_a_sweep_runs_each_setting_that_is_not_known() -> None:
    known = run_scheduler(CLUSTER, SEQUENCE, "fifo")
    settings = ("weighted-fair:-1", "weighted-fair:0.5")
    runs = dict(sweep(CLUSTER, SEQUENCE, settings, {"weighted-fair:0.5": known}))
    assert tuple(runs) == settings
    assert runs["weighted-fair:0.5"] is known
    expected = run_scheduler(CLUSTER, SEQUENCE, "weighted-fair:-1")
    assert runs["weighted-fair:-1"].completion_ms.tolist() == expected.completion_ms.tolist()


def test_hindsight_takes_the_first_setting_of_those_that_are_best() -> None:
    runs = list(sweep(CLUSTER, SEQUENCE))
    best = best_settings(runs, ("jct", "makespan"))
    assert best.keys() == {"jct", "makespan"}
    for objective, (setting, record) in best.items():
        swept = sweep_ms(CLUSTER, SEQUENCE, objective)
        assert setting == GRIDS["weighted-fair"][int(swept.argmin())]
        assert swept.min() == (record.mean_jct_ms if objective == "jct" else record.makespan_ms)
    tie = [("one", runs[0][1]), ("other", runs[0][1])]
    assert best_settings(tie, ["jct"])["jct"][0] == "one"


def test_one_alpha_for_all_is_the_best_on_average() -> None:
    sweeps = np.full((2, 41), 9.0)
    sweeps[:, 3] = 1.0, 8.0
    sweeps[:, 7] = 4.0, 4.0
    sweeps[:, 8] = 4.0, 4.0
    assert best_for_all(sweeps) == ALPHAS[7]
    assert best_for_all(sweeps, [f"setting {place}" for place in range(41)]) == "setting 7"
