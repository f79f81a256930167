"""Pictures of schedulers on grids, as matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from decima.evaluation.grid import Evaluation
from decima.show.grid_report import HEADINGS
from decima.show.style import draw_bars, finish_axes, legend_beside, new_axes, new_figure, styles

__all__ = ["plot_bars", "plot_by_load"]

#: Measures that are never below this are drawn on a logarithmic scale: a heuristic that is ten times as bad as the
#: others would flatten them.
_LEAST = {"slowdown": 1.0}
_TICKS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)


def plot_by_load(results: Mapping[float, Mapping[str, Evaluation]], measure: str) -> Figure:
    """A measure against the load, one line per scheduler, as DeepRM's Figure 4.

    Args:
        results: load -> scheduler -> how it did; the load as a share.
        measure: a name of ``MEASURES``.
    """
    figure, axes = new_axes(7, 4)
    for name, look in styles(dict.fromkeys(name for row in results.values() for name in row)).items():
        loads = sorted(load for load, row in results.items() if name in row)
        points = np.array([results[load][name].interval(measure) for load in loads])
        percent = 100 * np.array(loads)
        axes.plot(percent, points[:, 0], label=name, marker="o", markersize=3, linewidth=1.4, **look)
        low, high = points[:, 0] - points[:, 1], points[:, 0] + points[:, 1]
        axes.fill_between(percent, low, high, color=look["color"], alpha=0.15, linewidth=0)
    finish_axes(axes, xlabel="Load (%)", ylabel=HEADINGS[measure], xlim=(0, None))
    if measure in _LEAST:
        _logarithmic(axes, _LEAST[measure])
    else:
        axes.set_ylim(bottom=0)
    legend_beside(axes)
    return figure


def plot_bars(results: Mapping[str, Mapping[str, Evaluation]], measures: Sequence[str]) -> Figure:
    """Means with their confidence intervals: a panel for each measure, in it a group of bars for each condition.

    Args:
        results: condition -> scheduler -> how it did.
        measures: names of ``MEASURES``.
    """
    bars = sum(len(row) + 1 for row in results.values())
    figure = new_figure(len(measures) * min(max(2.2, 0.25 * bars + 0.8), 5.0) + 2, 3.6)
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        groups = {
            condition: {name: evaluation.interval(measure) for name, evaluation in row.items()}
            for condition, row in results.items()
        }
        draw_bars(axes, groups, HEADINGS[measure])
    legend_beside(panels[-1])
    return figure


def _logarithmic(axes: Axes, least: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(bottom=least)
    axes.yaxis.set_major_locator(FixedLocator(_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(ScalarFormatter())
