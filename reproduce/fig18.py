"""Decima, Figure 18: accuracy of the simulator's predictions of real Spark, from recorded runs of TPC-H queries.

The paper's simulator is off by at most 5 % on average for a job alone on the cluster, and by 9 % for jobs that share
it. Half of the runs of a query predict the other half, also without each effect that the simulator models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decima.show.style import GREEN, GREY, ORANGE, RED, SKY, SWATCHES, draw_pairs, new_figure
from reproduce.common import Result
from reproduce.spark.fidelity import ALL, PREDICTIONS, Fidelity, measure_fidelity
from reproduce.spark.recordings import load_recordings
from workloads import WorkloadError

#: Largest mean errors in the paper (Figure 18, appendix D), and colours in the picture.
PAPER = {"alone": 0.05, "sharing": 0.09}
COLOURS = {"alone": SKY, "sharing": RED}
#: Spark's mode of sharing -> marker and colour.
MODES = {"FIFO": ("o", ORANGE), "FAIR": ("s", GREEN)}


def run(*, recordings: tuple[Path, ...] = (), executors: int = 2, seeds: int = 10) -> Result:
    """Predict recorded runs.

    Args:
        recordings: Folder that python -m workloads.spark.recorder wrote, or of event logs of single runs.
        executors: Number of executors of the predicted single runs.
        seeds: Number of simulations that a prediction averages.
    """
    if not recordings:
        raise WorkloadError("fig18 needs recorded runs: --recordings DIR; fig18-live makes new runs")
    fidelity = measure_fidelity(load_recordings(recordings), executors, seeds)
    summary = fidelity.summary().reset_index()
    summary["paper"] = summary["where"].map(PAPER).where(summary["prediction"] == ALL)
    tables = {"queries": in_seconds(fidelity.queries()), "mixtures": in_seconds(fidelity.mixtures())}
    tables = {"errors": summary, **{name: table for name, table in tables.items() if not table.empty}}
    errors = [*PREDICTIONS, "mean", "p95", "max", "mean JCT", "paper"]
    values = {
        f"{where} {statistic}": f"{row[statistic]:.1%}"
        for where, row in fidelity.summary().xs(ALL, level="prediction").iterrows()
        for statistic in ("mean", "p95")
    }
    return Result(tables, {"fig18": plot(fidelity)}, values, dict.fromkeys(errors, ".1%"))


def in_seconds(table: pd.DataFrame) -> pd.DataFrame:
    """Return real and simulated times, s, and mean errors, of a table of queries or of mixtures, which may be empty."""
    if table.empty:
        return table
    table = table.reset_index()
    table = table.assign(**{"real (s)": table["real"] / 1000, "simulated (s)": table[ALL] / 1000})
    names = [name for name in ("mixture", "sharing", "data", "query") if name in table]
    errors = [name for name in table if name.endswith(" error")]
    renamed = {name: name.removesuffix(" error") for name in errors}
    return table[[*names, "runs", "real (s)", "simulated (s)", *errors]].rename(columns=renamed)


def plot(fidelity: Fidelity) -> Figure:
    """Draw real and simulated times and their errors, as Figure 18 of the paper.

    Above are two bars for each query, a panel for each data set; below the simulated over the real completion time of
    applications in mixtures, and mean errors without each effect that the simulator models.
    """
    queries, applications = fidelity.queries(), fidelity.applications
    panels = [] if queries.empty else queries.index.unique("data").tolist()
    heights = [2.6] * len(panels) + [2.6 if applications.empty else 3.8]
    figure = new_figure(10, sum(heights))
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for row, data in enumerate(panels):
        axes = figure.add_subplot(grid[row, :])
        plot_queries(axes, queries.loc[data])
        axes.set_title(f"Alone on {fidelity.executors} executors, {data}", loc="left")
    for axes in figure.axes[:1]:
        axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **SWATCHES)
    if not applications.empty:
        plot_mixtures(figure.add_subplot(grid[-1, 0]), applications)
    columns = slice(None) if applications.empty else 1
    plot_effects(figure.add_subplot(grid[-1, columns]), fidelity.summary()["mean"])
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_queries(axes: Axes, queries: pd.DataFrame) -> None:
    """Draw the real and the simulated time of each query, with the mean error above."""
    times_s = queries[["real", ALL]] / 1000
    draw_pairs(axes, times_s["real"], times_s[ALL])
    for index, (height, error) in enumerate(zip(times_s.max(axis=1), queries[f"{ALL} error"], strict=True)):
        axes.text(index, height, f"{error:.0%}", ha="center", va="bottom", fontsize="x-small")
    axes.set(ylabel="Wall time (s)", xlim=(-0.6, len(queries) - 0.4), ylim=(0, 1.15 * times_s["real"].max()))
    axes.set_xticks(range(len(queries)), queries.index, fontsize="small")


def plot_mixtures(axes: Axes, applications: pd.DataFrame) -> None:
    """Draw the simulated over the real completion time; below the diagonal the prediction is too short."""
    longest = 1.05 * applications[["real", ALL]].max().max() / 1000
    line, paper = np.array([0.0, longest]), PAPER["sharing"]
    axes.fill_between(line, line * (1 - paper), line * (1 + paper), color="#eeeeee", label=f"± {paper:.0%}")
    axes.plot(line, line, color=GREY, linewidth=0.8)
    for mode, (marker, colour) in MODES.items():
        times_s = applications.loc[applications["sharing"] == mode, ["real", ALL]] / 1000
        axes.plot(times_s["real"], times_s[ALL], marker, color=colour, markersize=4, label=mode)
    axes.set(xlim=(0, longest), ylim=(0, longest), xlabel="Real JCT (s)", ylabel="Simulated JCT (s)")
    axes.set_title("Applications that share the cluster", loc="left")
    axes.set_aspect("equal")
    axes.legend(loc="upper left", **SWATCHES)


def plot_effects(axes: Axes, mean_errors: pd.Series[float]) -> None:
    """Draw mean errors, two bars for each prediction: a job alone, and jobs sharing the cluster."""
    positions = np.arange(len(PREDICTIONS))
    for offset, (where, colour) in zip((-0.2, 0.2), COLOURS.items(), strict=True):
        if where in mean_errors.index.get_level_values("where"):
            errors = 100 * mean_errors.xs(where, level="where").reindex(PREDICTIONS)
            bars = axes.barh(positions + offset, errors.fillna(0.0), 0.4, label=where, color=colour)
            labels = ["" if np.isnan(error) else f"{error:.1f}" for error in errors]
            axes.axvline(100 * PAPER[where], color=colour, linestyle="dashed", linewidth=0.8, zorder=0)
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            axes.bar_label(bars, labels, padding=2, fontsize="x-small", bbox=behind)
    axes.margins(x=0.1)
    axes.set_yticks(positions, PREDICTIONS, fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="Mean error (%); dashed: the paper's")
    axes.set_title("With and without effects", loc="left")
    axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **SWATCHES)
