"""Pictures of schedulers on grids, as matplotlib figures; nothing here touches pyplot or a display."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from decima.evaluation.grid import Evaluation
from decima.show.grid_report import HEADINGS
from decima.show.plots import BARS, DPI, LEGEND, finish_axes, styles

__all__ = ["legend_beside", "plot_bars", "plot_by_load"]

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
    figure = Figure(figsize=(7, 4), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    names = list(dict.fromkeys(name for row in results.values() for name in row))
    looks = styles(names)
    for name in names:
        loads = sorted(load for load, row in results.items() if name in row)
        points = np.array([results[load][name].interval(measure) for load in loads])
        percent = 100 * np.array(loads)
        axes.plot(percent, points[:, 0], label=name, marker="o", markersize=3, linewidth=1.4, **looks[name])
        low, high = points[:, 0] - points[:, 1], points[:, 0] + points[:, 1]
        axes.fill_between(percent, low, high, color=looks[name]["color"], alpha=0.15, linewidth=0)
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
    names = list(dict.fromkeys(name for row in results.values() for name in row))
    looks = styles(names)
    bars = sum(len(row) + 1 for row in results.values())
    figure = Figure(
        figsize=(len(measures) * min(max(2.2, 0.25 * bars + 0.8), 5.0) + 2, 3.6),
        dpi=DPI,
        layout="constrained",
    )
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        place, ticks, drawn = 0.0, [], set[str]()
        for condition, row in results.items():
            ticks.append((place + (len(row) - 1) / 2, condition))
            for name, evaluation in row.items():
                mean, half_width = evaluation.interval(measure)
                error = 0.0 if math.isnan(half_width) else half_width
                label = "" if name in drawn else name
                drawn.add(name)
                axes.bar(place, mean, yerr=error, label=label, color=looks[name]["color"], **BARS)
                place += 1
            place += 1
        axes.set_xticks([tick for tick, _ in ticks], [text for _, text in ticks])
        axes.tick_params(axis="x", length=0)
        finish_axes(axes, ylabel=HEADINGS[measure], ylim=(0, None))
        axes.grid(visible=False, axis="x")
    legend_beside(panels[-1])
    return figure


def legend_beside(axes: Axes) -> None:
    """A legend to the right of the axes."""
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **LEGEND)


def _logarithmic(axes: Axes, least: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(bottom=least)
    axes.yaxis.set_major_locator(FixedLocator(_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(ScalarFormatter())
