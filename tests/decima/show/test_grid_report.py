"""Pictures of schedulers on grids against stored baselines; see ``tests.decima.show.test_plots``."""

from pathlib import Path

import pandas as pd
import pytest

from decima.evaluation.grid import evaluate
from decima.evaluation.metrics import GRID_METRICS, compare_metrics
from decima.schedulers.grid import Packer, ShortestJobFirst, Tetris
from decima.show.grid_report import Compared, plot_bars, plot_by_load
from decima.studies.deeprm import plot_learning, plot_lengths
from decima.studies.successors import plot_curves
from simulator.grid import GridConfig
from tests.decima.show.test_plots import difference
from workloads import DISTRIBUTIONS, draw_jobs

#: What a training might measure.
CURVE: list[dict[str, float]] = [{"iteration": iteration} for iteration in range(51)]
for k, row in enumerate(CURVE[1:], start=1):
    row |= {"slowdown": 3 + 4 / (1 + k / 5), "return": -20.0 - 200 / k, "return_best": -15.0 - 200 / k}
for k, row in enumerate(CURVE[::10]):
    row["validation_slowdown"] = 3.2 + 4 / (1 + 2 * k)


@pytest.fixture(scope="module")
def results() -> dict[float, Compared]:
    schedulers = {"sjf": ShortestJobFirst(), "packer": Packer(), "deeprm": Tetris(0.003)}
    results: dict[float, Compared] = {}
    for load in (0.3, 0.9, 1.5):
        jobs = draw_jobs(DISTRIBUTIONS["code"], load=load, sets=20, seed=1)
        results[load] = compare_metrics(evaluate(GridConfig(), jobs, schedulers), schedulers, None, GRID_METRICS)
    return results


def test_measures_bars_and_withheld_jobs(results: dict[float, Compared], tmp_path: Path) -> None:
    assert difference(plot_by_load(results, "slowdown"), "deeprm-by-load", tmp_path) is None
    other = plot_by_load(results, "utilisation")
    assert other.axes[0].get_yscale() == "linear"
    assert len(other.axes[0].lines) == 3
    by_condition = {"low": results[0.3], "high": results[1.5]}
    figure = plot_bars(by_condition, ("slowdown", "completion"))
    assert difference(figure, "deeprm-bars", tmp_path) is None
    table = pd.DataFrame(
        {
            "deeprm slowdown": [2.0, 1.5, 4.0, 3.5],
            "deeprm withheld": [0, 3, 40, 57],
            "tetris* slowdown": [3.0, 2.0, 2.5, 2.2],
        },
        index=[1, 3, 10, 15],
    )
    assert difference(plot_lengths(table), "deeprm-withheld", tmp_path) is None


def test_learning_curves_of_networks(tmp_path: Path) -> None:
    heuristics = {"sjf": 3.0, "packer": 5.4, "tetris*": 2.9, "random": 7.8}
    assert difference(plot_learning(CURVE, heuristics), "deeprm-learning", tmp_path) is None
    figure = plot_curves({"deeprm": CURVE, "cnn": CURVE[:31]})
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [6, 4]
