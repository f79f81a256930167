"""Pictures and tables of trainings; see ``tests.decima.show.test_plots``."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from decima.learning.curves import LearningCurve
from decima.learning.metrics import CLUSTER_METRICS, GRID_METRICS
from decima.show.learning import LABELS, curves_table, plot_curves
from decima.show.style import STYLES
from tests.decima.show.test_plots import difference


def curve(start: float, end: float, half: float, runs: int = 3) -> LearningCurve:
    iterations = np.arange(0, 101, 10)
    mean = end + (start - end) * np.exp(-iterations / 30)
    return LearningCurve(iterations, mean, np.full(len(mean), half), runs)


CURVES = {
    "update.learning_rate=0.001": curve(9.0, 3.0, 0.8),
    "update.learning_rate=0.01": curve(9.0, 4.0, 0.3),
    "a name with $math$ in it, and far longer than there is room for, " * 2: curve(9.0, 6.0, np.nan, 1),
}


def test_a_learning_curve_has_its_interval(tmp_path: Path) -> None:
    figure = plot_curves(CURVES, "validation_slowdown", ("the best heuristic", 4.5))
    assert difference(figure, "learning-curves", tmp_path) is None
    [axes] = figure.axes
    assert axes.get_xlabel() == "Iterations of reinforcement learning"
    assert axes.get_ylabel() == "Mean slowdown on validation"
    assert "the best heuristic" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_curve_with_behaviour_cloning_has_whole_epochs_and_its_untrained_policy_in_words(tmp_path: Path) -> None:
    iterations = np.arange(-3, 3)
    cloned = LearningCurve(iterations, np.array([95.0, 32.0, 31.0, 30.0, 29.5, 29.0]), np.full(6, np.nan), 1)
    figure = plot_curves({"policy": cloned}, "validation_mean_jct_s", ("tuned weighted fair", 31.5))
    assert difference(figure, "learning-curve-cloning", tmp_path) is None
    [axes] = figure.axes
    assert axes.get_ylim()[1] < 40
    words = [text.get_text() for text in axes.texts]
    assert words == ["behaviour cloning", "reinforcement learning", "untrained: 95"]
    ticks = [axes.xaxis.get_major_formatter()(tick, None) for tick in (-3, -2, -1, 0, 1, 2)]
    assert ticks == ["0", "1", "2", "0", "1", "2"]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    near = LearningCurve(iterations, np.array([33.0, 32.0, 31.0, 30.0, 29.5, 29.0]), np.full(6, np.nan), 1)
    [axes] = plot_curves({"policy": near}, "validation_mean_jct_s").axes
    assert axes.get_ylim()[1] > 33
    assert len(axes.texts) == 2


def test_a_single_point_has_one_tick_and_its_reference_the_colour_of_the_scheduler() -> None:
    one = LearningCurve(np.array([0]), np.array([31.0]), np.array([np.nan]), 1)
    reference = ("tuned weighted fair, the best alpha of each sequence", 31.5)
    figure = plot_curves({"policy": one}, "validation_mean_jct_s", reference)
    figure.draw_without_rendering()
    [axes] = figure.axes
    left, right = axes.get_xlim()
    ticks = [text for text in axes.get_xticklabels() if left <= text.get_position()[0] <= right]
    assert [text.get_text() for text in ticks] == ["0"]
    policy, line = axes.lines
    assert policy.get_color() == STYLES["decima"][0]
    assert line.get_color() == STYLES["tuned-weighted-fair"][0]
    assert policy.get_linewidth() > line.get_linewidth()


def test_labels_and_names_of_curves() -> None:
    assert LABELS.keys() | {"iteration"} == CLUSTER_METRICS.keys() | GRID_METRICS.keys()
    many = {f"rate={k}": curve(9.0, k, 0.5) for k in range(12)}
    figure = plot_curves(many, "validation_slowdown")
    assert len(figure.axes[0].lines) == 12
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"rate={k}" for k in range(6)]
    console = Console(width=200, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(curves_table(CURVES, "validation_slowdown"))
    rows = [line.split() for line in console.export_text().splitlines() if line.startswith(" update")]
    assert rows[0][1] == "3"
    assert float(rows[0][2]) == pytest.approx(3.0 + 6 * np.exp(-100 / 30), abs=1e-3)
    assert (rows[0][4], rows[0][-3:]) == ("0.800", ["9.000", "at", "0"])
