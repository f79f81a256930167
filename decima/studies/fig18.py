"""Figure 18 of the Decima paper: is the simulator true to Spark? See ``decima.evaluation.spark.fidelity``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.spark.fidelity import ALL, FROM_ALONE, PREDICTIONS, Fidelity, measure_fidelity
from decima.evaluation.spark.recordings import load_recordings
from decima.show.style import BLUE, GREEN, GREY, LEGEND, ORANGE, PINK, RED, SKY, new_figure
from decima.show.tables import new_table
from decima.studies.fig18_live import fig18_live
from decima.studies.outcome import OptionError, Outcome, Part

__all__ = ["fig18", "notes", "plot", "tables"]

#: Mean error of the paper's simulator (appendix D): jobs alone on the cluster, jobs that share it.
PAPER_MEAN_ERROR = {"alone": 0.05, "sharing": 0.09}
#: Heading of a column of the tables -> prediction.
_LATER = {"No waves": "no waves", "No par.": "no parallelism", "No driver": "no driver"}
QUERY_ERRORS = {"Error": ALL, "Rerun": "rerun", "Replay": "replay", **_LATER}
MIXTURE_ERRORS = {
    "Error": ALL,
    "Mean JCT": "mean JCT",
    "Rerun": "rerun",
    "Replay": "replay",
    "From alone": FROM_ALONE,
    "No moving": "no moving",
    **_LATER,
}
SHARING = {"FIFO": ("o", GREEN), "FAIR": ("s", PINK)}
WHERE = {"alone": SKY, "sharing": RED}


def fig18(
    part: Part,
    recordings: Sequence[Path],
    live: bool = False,
    executors: int | None = None,
    seeds: int = 10,
    batches: int | None = None,
) -> Outcome:
    """Compare real with predicted runs: recorded ones, or with ``live`` such that a real Spark runs now.

    Args:
        part: progress callback.
        recordings: folders, see ``load_recordings``.
        live: see ``fig18_live``.
        executors: of a query alone, by default 2; with ``live`` of Spark.
        seeds: draws of the durations that a prediction is the mean of.
        batches: with ``live``, the number of mixtures.

    Raises:
        OptionError: options of the other kind, or no recordings.
        WorkloadError: see ``load_recordings`` and ``measure_fidelity``.
    """
    if live:
        why = "with --live, Spark runs now and durations are measured"
        part.refuse(dict.fromkeys(("recordings", "seeds"), why))
        return fig18_live(part, executors, batches)
    part.refuse({"batches": "it is for --live"})
    if not recordings:
        raise OptionError(
            "fig18 needs runs on real Spark: --recordings DIR; python -m workloads.spark.recorder makes them, "
            "or --live runs jobs now"
        )
    on_step = partial(part.tell, "predicting")
    found = measure_fidelity(load_recordings(recordings), executors or 2, seeds, on_step)
    return Outcome(
        "fig18",
        _rounded(found.runs),
        tables(found),
        notes(found),
        extra={
            "executors": found.executors,
            "num_seeds": seeds,
            "paper_mean_error": PAPER_MEAN_ERROR,
            "summary": _rounded(found.summary().reset_index()).to_dict("records"),
            "replays": _rounded(found.replays).to_dict("records"),
            "applications": _rounded(found.applications).to_dict("records"),
        },
        pictures={"fig18": partial(plot, found)},
    )


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    return table.round(4).astype(dict.fromkeys(table.select_dtypes("number"), float))


def tables(fidelity: Fidelity) -> list[Table]:
    """Return tables of queries alone on the cluster, and of mixtures if there are any; seconds and percent."""
    queries, mixtures, found = fidelity.queries(), fidelity.mixtures(), []
    if not queries.empty:
        labels = [f"{query}  {data}" for data, query in queries.index]
        title = f"Queries alone on {fidelity.executors} executors, {len(fidelity.runs)} runs"
        found.append(_table(title, "Query", labels, queries, QUERY_ERRORS))
    if not mixtures.empty:
        labels = [f"{name}  {sharing}" for name, sharing in mixtures["sharing"].items()]
        # Mixtures recorded once are predicted from runs alone anyway.
        hidden = () if "rerun error" in mixtures else ("Rerun", "From alone")
        errors = {heading: name for heading, name in MIXTURE_ERRORS.items() if heading not in hidden}
        found.append(_table("Applications that share it", "Mixture", labels, mixtures, errors))
    return found


def _table(
    title: str, heading: str, labels: list[str], results: pd.DataFrame, errors: Mapping[str, str]
) -> Table:
    columns = [f"{name} error" for name in errors.values()]

    def cells(row: pd.Series[Any]) -> list[str]:
        times = [f"{row[name] / 1000:.1f}" for name in ("real", ALL)]
        return [*times, *("-" if np.isnan(row[column]) else f"{row[column]:.1%}" for column in columns)]

    table = new_table(title, heading, "Real", "Sim.", *errors)
    for label, (_, row) in zip(labels, results.iterrows(), strict=True):
        table.add_row(label, *cells(row))
    table.add_section()
    table.add_row("Mean", *cells(results[["real", ALL, *columns]].mean()))
    return table


def notes(fidelity: Fidelity) -> list[str]:
    """Return the result next to the paper's, and the meaning of the columns, one sentence per line."""
    summary, found = fidelity.summary().to_dict("index"), []
    for where, what in (("alone", "Alone"), ("sharing", "Sharing")):
        if (figures := summary.get((where, ALL))) is not None:
            found.append(
                f"{what}: mean error {figures['mean']:.1%} (paper: at most {PAPER_MEAN_ERROR[where]:.0%}), "
                f"95th percentile {figures['p95']:.1%}."
            )
    if ("alone", "rerun") in summary:
        mean = summary["alone", "rerun"]["mean"]
        found.append(
            f"Rerun: predicted by the other half's wall time, {mean:.1%}: how much Spark itself varies."
        )
    off = (fidelity.replays["replay"] / fidelity.replays["real"] - 1).abs()
    found.append(
        f"Replay: simulated from a run's own durations; of all {len(off)} runs alone {off.mean():.1%}, "
        f"at most {off.max():.1%}."
    )
    if not fidelity.applications.empty:
        both = (fidelity.runs, fidelity.applications)
        busy = [math.nan if table.empty else table["busy_cores"].mean() for table in both]
        loaded = (
            f" ({busy[0]:.2f} cores of the machine were busy with one, {busy[1]:.2f} when they shared it)"
        )
        repeated = "rerun" in fidelity.applications
        source = "other recordings of the same mixture" if repeated else "single runs"
        found += [
            f"Applications that share the cluster are predicted from {source}.",
            "From alone: from single runs, which do not tell how much applications slow each other down"
            f"{'' if any(map(math.isnan, busy)) else loaded}.",
        ]
    return [*found, "No driver: without the driver's time. Errors are means of absolute values over runs."]


def plot(fidelity: Fidelity) -> Figure:
    """Draw real and simulated times side by side with the error in percent, as the paper's Figure 18.

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
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _plot_queries(axes: Axes, queries: pd.DataFrame) -> None:
    place = np.arange(len(queries))
    real, simulated = queries["real"] / 1000, queries[ALL] / 1000
    axes.bar(place - 0.2, real, 0.4, label="real", color=BLUE)
    axes.bar(place + 0.2, simulated, 0.4, label="simulated", color=ORANGE)
    for number, error in enumerate(queries[f"{ALL} error"]):
        height = max(real.iloc[number], simulated.iloc[number])
        axes.text(number, height, f"{error:.0%}", ha="center", va="bottom", fontsize="x-small")
    axes.set(ylabel="Wall time (s)", xlim=(-0.6, len(queries) - 0.4), ylim=(0, 1.15 * real.max()))
    axes.set_xticks(place, queries.index, fontsize="small")


def _plot_mixtures(axes: Axes, applications: pd.DataFrame) -> None:
    """Below the diagonal the simulator is too fast."""
    longest = 1.05 * applications[["real", ALL]].max().max() / 1000
    line, allowed = np.array([0.0, longest]), PAPER_MEAN_ERROR["sharing"]
    low, high = line * (1 - allowed), line * (1 + allowed)
    axes.fill_between(line, low, high, color="#eeeeee", label=f"± {allowed:.0%}")
    axes.plot(line, line, color=GREY, linewidth=0.8)
    for sharing, (marker, colour) in SHARING.items():
        group = applications[applications["sharing"] == sharing]
        look: dict[str, Any] = {"marker": marker, "color": colour, "linestyle": "none", "markersize": 4}
        axes.plot(group["real"] / 1000, group[ALL] / 1000, label=sharing, **look)
    axes.set(xlim=(0, longest), ylim=(0, longest), xlabel="Real JCT (s)", ylabel="Simulated JCT (s)")
    axes.set_title("Applications that share the cluster", loc="left")
    axes.set_aspect("equal")
    axes.legend(loc="upper left", **LEGEND)


def _plot_effects(axes: Axes, mean_errors: pd.Series[float]) -> None:
    """Draw one pair of bars for each prediction."""
    place = np.arange(len(PREDICTIONS))
    for offset, (where, colour) in zip((-0.2, 0.2), WHERE.items(), strict=True):
        if where in mean_errors.index.get_level_values("where"):
            errors = 100 * mean_errors.xs(where, level="where").reindex(PREDICTIONS)
            bars = axes.barh(place + offset, errors.fillna(0.0), 0.4, label=where, color=colour)
            labels = ["" if np.isnan(error) else f"{error:.1f}" for error in errors]
            axes.bar_label(bars, labels, padding=2, fontsize="x-small")
            axes.axvline(100 * PAPER_MEAN_ERROR[where], color=colour, linestyle="dashed", linewidth=0.8)
    axes.set_yticks(place, PREDICTIONS, fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="Mean error (%); dashed: the paper's")
    axes.set_title("With and without effects", loc="left")
    axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **LEGEND)
