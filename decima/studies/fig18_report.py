"""A measured fidelity for people: tables, notes, and the picture after the paper's Figure 18."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from decima.show.shown import Shown
from decima.show.style import BLUE, GREEN, GREY, LEGEND, ORANGE, PINK, RED, SKY, new_figure
from decima.show.tables import new_table
from decima.studies.fig18 import ALL, FROM_ALONE, PAPER_MEAN_ERROR, VARIANTS, Fidelity

__all__ = ["fidelity_notes", "fidelity_tables", "plot_fidelity", "shown"]

#: Heading of a column of the tables -> column of the results.
_QUERY_ERRORS = {
    "Error": f"{ALL} error",
    "Rerun": "rerun error",
    "Replay": "replay error",
    "No waves": "no waves error",
    "No par.": "no parallelism error",
    "No driver": "no driver error",
}
_MIXTURE_ERRORS = {
    "Error": f"{ALL} error",
    "Mean JCT": "mean JCT error",
    "Rerun": "rerun error",
    "Replay": "replay error",
    "From alone": f"{FROM_ALONE} error",
    "No moving": "no moving error",
    "No waves": "no waves error",
    "No par.": "no parallelism error",
    "No driver": "no driver error",
}
_REAL, _SIMULATED = BLUE, ORANGE
_SHARING = {"FIFO": ("o", GREEN), "FAIR": ("s", PINK)}
_WHERE = {"alone": SKY, "sharing": RED}


def shown(fidelity: Fidelity, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=fidelity_tables(fidelity),
        notes=fidelity_notes(fidelity),
        json=fidelity.to_json(command=command),
        pictures={"fig18": partial(plot_fidelity, fidelity)},
    )


def fidelity_tables(fidelity: Fidelity) -> list[Table]:
    """Queries alone on the cluster, and mixtures if there are any; times in seconds, errors in percent."""
    queries, tables = fidelity.queries(), []
    if not queries.empty:
        labels = [f"{query}  {data}" for data, query in queries.index]
        title = f"Queries alone on {fidelity.executors} executors, {len(fidelity.runs)} runs"
        tables.append(_table(title, "Query", labels, queries, _QUERY_ERRORS))
    mixtures = fidelity.mixtures()
    if not mixtures.empty:
        labels = [f"{name}  {sharing}" for name, sharing in mixtures["sharing"].items()]
        # Mixtures recorded once are predicted from runs alone anyway.
        hidden = set() if "rerun error" in mixtures else {"Rerun", "From alone"}
        errors = {heading: name for heading, name in _MIXTURE_ERRORS.items() if heading not in hidden}
        tables.append(_table("Applications that share it", "Mixture", labels, mixtures, errors))
    return tables


def fidelity_notes(fidelity: Fidelity) -> list[str]:
    """The result next to the paper's, and what the columns mean, one sentence per line."""
    summary = fidelity.summary().to_dict("index")
    notes = []
    for where, what in (("alone", "Alone"), ("sharing", "Sharing")):
        if (where, ALL) in summary:
            figures = summary[where, ALL]
            notes.append(
                f"{what}: mean error {figures['mean']:.1%} (paper: at most {PAPER_MEAN_ERROR[where]:.0%}), "
                f"95th percentile {figures['p95']:.1%}."
            )
    if ("alone", "rerun") in summary:
        mean = summary["alone", "rerun"]["mean"]
        notes.append(
            f"Rerun: predicted by the other half's wall time, {mean:.1%}: how much Spark itself varies."
        )
    replays = fidelity.replays
    off = (replays["replay"] / replays["real"] - 1).abs()
    return [
        *notes,
        f"Replay: simulated from a run's own durations; of all {len(off)} runs alone {off.mean():.1%}, "
        f"at most {off.max():.1%}.",
        *(_sharing_notes(fidelity) if not fidelity.applications.empty else ()),
        "No driver: without the driver's time. Errors are means of absolute values over runs.",
    ]


def _sharing_notes(fidelity: Fidelity) -> list[str]:
    """What mixtures are predicted from, and what runs alone do not tell of them: how loaded the machine is."""
    from_alone = "From alone: from single runs, which do not tell how much applications slow each other down"
    tables = (fidelity.runs, fidelity.applications)
    busy = [math.nan if table.empty else table["busy_cores"].mean() for table in tables]
    if not any(map(math.isnan, busy)):
        from_alone += (
            f" ({busy[0]:.2f} cores of the machine were busy with one, {busy[1]:.2f} when they shared it)"
        )
    repeated = "rerun" in fidelity.applications
    source = "other recordings of the same mixture" if repeated else "single runs"
    return [f"Applications that share the cluster are predicted from {source}.", f"{from_alone}."]


def plot_fidelity(fidelity: Fidelity) -> Figure:
    """Real and simulated times side by side with the error in percent, as the paper's Figure 18.

    One panel for each set of data, a pair of bars per query; below, the applications of the mixtures, real
    against simulated job completion time, and the mean errors with and without each effect.
    """
    queries, mixed = fidelity.queries(), not fidelity.applications.empty
    panels = [] if queries.empty else queries.index.unique("data").tolist()
    heights = [2.6] * len(panels) + [3.8 if mixed else 2.6]
    figure = new_figure(10, sum(heights))
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for row, data in enumerate(panels):
        axes = figure.add_subplot(grid[row, :])
        _plot_queries(axes, queries.loc[data])
        axes.set_title(f"Alone on {fidelity.executors} executors, {data}", loc="left")
    for axes in figure.axes[:1]:
        axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **LEGEND)
    if mixed:
        _plot_mixtures(figure.add_subplot(grid[-1, 0]), fidelity.applications)
    _plot_effects(figure.add_subplot(grid[-1, 1 if mixed else slice(None)]), fidelity.summary()["mean"])
    return figure


def _plot_queries(axes: Axes, queries: pd.DataFrame) -> None:
    place = np.arange(len(queries))
    real, simulated = queries["real"] / 1000, queries[ALL] / 1000
    axes.bar(place - 0.2, real, 0.4, label="real", color=_REAL)
    axes.bar(place + 0.2, simulated, 0.4, label="simulated", color=_SIMULATED)
    for number, error in enumerate(queries[f"{ALL} error"]):
        height = max(real.iloc[number], simulated.iloc[number])
        axes.text(number, height, f"{error:.0%}", ha="center", va="bottom", fontsize="x-small")
    axes.set(ylabel="Wall time (s)", xlim=(-0.6, len(queries) - 0.4), ylim=(0, 1.15 * real.max()))
    axes.set_xticks(place, queries.index, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)


def _plot_mixtures(axes: Axes, applications: pd.DataFrame) -> None:
    """Below the diagonal the simulator is too fast."""
    longest = 1.05 * applications[["real", ALL]].max().max() / 1000
    line = np.array([0.0, longest])
    allowed = PAPER_MEAN_ERROR["sharing"]
    axes.fill_between(
        line, line * (1 - allowed), line * (1 + allowed), color="#eeeeee", label=f"± {allowed:.0%}"
    )
    axes.plot(line, line, color=GREY, linewidth=0.8)
    for sharing, (marker, colour) in _SHARING.items():
        group = applications[applications["sharing"] == sharing]
        look: dict[str, Any] = {"marker": marker, "color": colour, "linestyle": "none", "markersize": 4}
        axes.plot(group["real"] / 1000, group[ALL] / 1000, label=sharing, **look)
    axes.set(xlim=(0, longest), ylim=(0, longest), xlabel="Real JCT (s)", ylabel="Simulated JCT (s)")
    axes.set_title("Applications that share the cluster", loc="left")
    axes.set_aspect("equal")
    axes.legend(loc="upper left", **LEGEND)
    axes.spines[["top", "right"]].set_visible(False)


def _plot_effects(axes: Axes, mean_errors: pd.Series[float]) -> None:
    """One pair of bars for each prediction."""
    predictions = ("replay", "rerun", *VARIANTS, FROM_ALONE)
    place = np.arange(len(predictions))
    for offset, (where, colour) in zip((-0.2, 0.2), _WHERE.items(), strict=True):
        if where in mean_errors.index.get_level_values("where"):
            errors = 100 * mean_errors.xs(where, level="where").reindex(predictions)
            bars = axes.barh(place + offset, errors.fillna(0.0), 0.4, label=where, color=colour)
            labels = ["" if np.isnan(error) else f"{error:.1f}" for error in errors]
            axes.bar_label(bars, labels, padding=2, fontsize="x-small")
            axes.axvline(100 * PAPER_MEAN_ERROR[where], color=colour, linestyle="dashed", linewidth=0.8)
    axes.set_yticks(place, predictions, fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="Mean error (%); dashed: the paper's")
    axes.set_title("With and without effects", loc="left")
    axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **LEGEND)
    axes.spines[["top", "right"]].set_visible(False)


def _table(
    title: str, heading: str, labels: list[str], results: pd.DataFrame, errors: dict[str, str]
) -> Table:
    table = new_table(title, heading, "Real", "Sim.", *errors)
    for label, (_, row) in zip(labels, results.iterrows(), strict=True):
        table.add_row(label, *_cells(row, errors))
    table.add_section()
    table.add_row("Mean", *_cells(results[["real", ALL, *errors.values()]].mean(), errors))
    return table


def _cells(row: pd.Series[Any], errors: dict[str, str]) -> list[str]:
    times = [f"{row[name] / 1000:.1f}" for name in ("real", ALL)]
    return [*times, *("-" if np.isnan(row[column]) else f"{row[column]:.1%}" for column in errors.values())]
