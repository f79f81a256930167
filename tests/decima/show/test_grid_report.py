"""Pictures of schedulers on grids against stored baselines; see ``tests.decima.show.test_plots``."""

from pathlib import Path

import pytest

from decima.evaluation.grid import evaluate
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.evaluation.metrics import compare_metrics
from decima.schedulers.grid import GridTetris, Packer, ShortestJobFirst
from decima.show.grid_report import Compared, plot_bars, plot_by_load
from simulator.grid import GridConfig
from tests.decima.show.test_plots import difference
from workloads import DISTRIBUTIONS, draw_jobs


@pytest.fixture(scope="module")
def results() -> dict[float, Compared]:
    schedulers = {"sjf": ShortestJobFirst(), "packer": Packer(), "deeprm": GridTetris(0.003)}
    results: dict[float, Compared] = {}
    for load in (0.3, 0.9, 1.5):
        jobs = draw_jobs(DISTRIBUTIONS["code"], load=load, sets=20, seed=1)
        results[load] = compare_metrics(evaluate(GridConfig(), jobs, schedulers), schedulers, None, GRID_METRICS)
    return results


def test_measures_and_bars(results: dict[float, Compared], tmp_path: Path) -> None:
    assert difference(plot_by_load(results, "slowdown"), "deeprm-by-load", tmp_path) is None
    other = plot_by_load(results, "utilisation")
    assert other.axes[0].get_yscale() == "linear"
    assert len(other.axes[0].lines) == 3
    by_condition = {"low": results[0.3], "high": results[1.5]}
    figure = plot_bars(by_condition, ("slowdown", "completion"))
    assert difference(figure, "deeprm-bars", tmp_path) is None
