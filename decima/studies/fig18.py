"""Figure 18 of the Decima paper: accuracy of the simulator's predictions of Spark, from recorded or from live runs.

For recorded runs see ``decima.evaluation.spark.fidelity``. With ``--live``, Decima schedules single jobs and mixtures
of jobs on a real Spark, as in the paper. Tasks sleep (``live_spark``); their overhead is measured before each run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import mean_interval
from decima.evaluation.spark.fidelity import ALL, FROM_ALONE, PREDICTIONS, Fidelity, measure_fidelity
from decima.evaluation.spark.recordings import load_recordings
from decima.registry import LEARNED
from decima.service.sleeping import Setting
from decima.show.style import GREEN, GREY, ORANGE, RED, SKY, SWATCHES, draw_pairs, finish_axes, new_figure
from decima.show.tables import table_of
from decima.studies.on_spark import compare_live, needs_spark
from decima.studies.outcome import OptionError, Outcome, Setup
from workloads.sources.open import EMBEDDED, open_workload

#: Largest mean errors in the paper (Figure 18, appendix D), for a job alone on the cluster and for jobs sharing it.
PAPER_MEAN_ERROR = {"alone": 0.05, "sharing": 0.09}
# Heading of a column -> prediction, one of ``PREDICTIONS``.
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
#: Spark's scheduling mode -> marker and colour; kind of run -> colour.
SHARING = {"FIFO": ("o", ORANGE), "FAIR": ("s", GREEN)}
WHERE = {"alone": SKY, "sharing": RED}


def fig18(
    setup: Setup,
    recordings: Sequence[Path],
    live: bool = False,
    executors: int | None = None,
    seeds: int = 10,
    batches: int | None = None,
) -> Outcome:
    """Compare real and predicted times, of recorded runs or, with ``live``, of new runs on a real Spark.

    Raises ``OptionError`` for options of the other mode, without recordings or without pyspark.
    """
    if live:
        why = "with --live, Spark runs now and durations are measured"
        setup.refuse(dict.fromkeys(("recordings", "seeds"), why))
        return _live(setup, executors, batches)
    setup.refuse({"batches": "it needs --live"})
    if not recordings:
        raise OptionError(
            "fig18 needs runs on a real Spark: --recordings DIR names recordings of python -m "
            "workloads.spark.recorder, and --live makes new runs"
        )
    on_step = partial(setup.tell, "predicting")
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
    """Return a table of single queries and a table of mixtures, if recorded; times in seconds, errors in percent."""
    queries, mixtures, found = fidelity.queries(), fidelity.mixtures(), []
    if not queries.empty:
        labels = [f"{query}  {data}" for data, query in queries.index]
        title = f"Queries alone on {fidelity.executors} executors, {len(fidelity.runs)} runs"
        found.append(_table(title, "Query", labels, queries, QUERY_ERRORS))
    if not mixtures.empty:
        labels = [f"{name}  {sharing}" for name, sharing in mixtures["sharing"].items()]
        # Mixtures recorded only once are predicted from single runs, so two columns would be the same.
        hidden = () if "rerun error" in mixtures else ("Rerun", "From alone")
        errors = {heading: name for heading, name in MIXTURE_ERRORS.items() if heading not in hidden}
        found.append(_table("Applications that share it", "Mixture", labels, mixtures, errors))
    return found


def _table(
    title: str, heading: str, labels: list[str], results: pd.DataFrame, errors: Mapping[str, str]
) -> Table:
    columns = [f"{name} error" for name in errors.values()]
    shown = results[["real", ALL, *columns]] / [1000, 1000, *[1] * len(columns)]
    rows = [(label, *row) for label, row in zip(labels, shown.to_numpy(), strict=True)]
    rows.append(("Mean", *shown.mean()))
    forms = (".1f", ".1f", *[".1%"] * len(columns))
    table = table_of(title, (heading, "Real", "Sim.", *errors), rows, forms)
    table.rows[-2].end_section = True
    return table


def notes(fidelity: Fidelity) -> list[str]:
    """Return errors with those of the paper, and explanations of the columns, one sentence each."""
    summary, found = fidelity.summary().to_dict("index"), []
    for where, what in (("alone", "Alone"), ("sharing", "Sharing")):
        if (figures := summary.get((where, ALL))) is not None:
            found.append(
                f"{what}: mean error {figures['mean']:.1%} (paper: at most {PAPER_MEAN_ERROR[where]:.0%}), "
                f"95th percentile {figures['p95']:.1%}."
            )
    if (rerun := summary.get(("alone", "rerun"))) is not None:
        varies = "how much Spark itself varies"
        found.append(f"Rerun: predicted by the other half's wall time, {rerun['mean']:.1%}: {varies}.")
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
            "From alone: from single runs, which do not show how much applications slow each other down"
            f"{'' if any(map(math.isnan, busy)) else loaded}.",
        ]
    return [*found, "No driver: without the driver's time. Errors are means of absolute values over runs."]


def plot(fidelity: Fidelity) -> Figure:
    """Draw real and simulated times and their errors, as Figure 18 of the paper.

    Above are two bars per query, a panel per data set; below the simulated over the real JCT of applications in
    mixtures, and mean errors without each effect that the simulator models.
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
        axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **SWATCHES)
    if mixed:
        _plot_mixtures(figure.add_subplot(grid[-1, 0]), fidelity.applications)
    _plot_effects(figure.add_subplot(grid[-1, 1 if mixed else slice(None)]), fidelity.summary()["mean"])
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _plot_queries(axes: Axes, queries: pd.DataFrame) -> None:
    times_s = queries[["real", ALL]] / 1000
    draw_pairs(axes, times_s["real"], times_s[ALL])
    for place, (height, error) in enumerate(zip(times_s.max(axis=1), queries[f"{ALL} error"], strict=True)):
        axes.text(place, height, f"{error:.0%}", ha="center", va="bottom", fontsize="x-small")
    highest = 1.15 * times_s["real"].max()
    axes.set(ylabel="Wall time (s)", xlim=(-0.6, len(queries) - 0.4), ylim=(0, highest))
    axes.set_xticks(range(len(queries)), queries.index, fontsize="small")


def _plot_mixtures(axes: Axes, applications: pd.DataFrame) -> None:
    """Draw the simulated over the real JCT; below the diagonal the prediction is too short."""
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
    axes.legend(loc="upper left", **SWATCHES)


def _plot_effects(axes: Axes, mean_errors: pd.Series[float]) -> None:
    """Draw mean errors, two bars per prediction: a job alone, and jobs sharing the cluster."""
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
    axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **SWATCHES)


# ---- live runs with Decima as the scheduler of Spark -------------------------------------------------------

ALONE, MIXTURES = "alone", "mixtures"
PAPER = dict(zip((ALONE, MIXTURES), PAPER_MEAN_ERROR.values(), strict=True))
#: Default size of live runs. With fewer tasks, the longest task of a stage, which is noise, would dominate its time.
SETTING = Setting(batches=3, tasks=0.2)


def _live(setup: Setup, executors: int | None, batches: int | None) -> Outcome:
    """Run single jobs and mixtures on a real Spark under Decima, and predict them.

    ``SETTING`` has the default numbers of executors and mixtures; there are two single jobs per mixture.
    """
    setting = replace(SETTING, executors=executors or SETTING.executors, batches=batches or SETTING.batches)
    alone = replace(setting, jobs=1, batches=2 * setting.batches)
    profiles, parts = open_workload(EMBEDDED).profiles, []
    for kind, each, before in ((ALONE, alone, 0), (MIXTURES, setting, alone.batches)):

        def tell(done: int, _: int, before: int = before) -> None:
            setup.tell("running", before + done, alone.batches + setting.batches)

        with needs_spark("fig18 --live"):
            runs, _ = compare_live(profiles, each, {LEARNED: LEARNED}, tell)
        runs = runs.rename(columns={"batch": "run"}).assign(kind=kind)
        parts.append(runs[["kind", "run", "real_ms", "predicted_ms"]])
    return live_outcome(pd.concat(parts, ignore_index=True), setting)


def live_outcome(runs: pd.DataFrame, setting: Setting) -> Outcome:
    """Return the outcome of live runs, one row each; ``setting`` is the size of the mixtures.

    Columns are ``kind`` (``alone`` or ``mixtures``), ``run`` (int64), ``real_ms`` and ``predicted_ms`` (float64, mean
    JCT).
    """
    errors = _errors(runs)
    rows = []
    for kind, words in {ALONE: "a job alone", MIXTURES: f"mixtures of {setting.jobs} jobs"}.items():
        mine = runs.loc[runs["kind"] == kind, ["real_ms", "predicted_ms"]] / 1000
        means = mean_interval(mine["real_ms"]), mine["predicted_ms"].mean()
        rows.append((words, str(len(mine)), *means, *errors[kind].values(), PAPER[kind]))
    table = table_of(
        f"Decima in charge of Spark, {setting.executors} executors",
        ("", "Runs", "Mean JCT", "Predicted", "Error", "Bias", "Paper"),
        rows,
        ("", ".1f", ".1f", ".1%", "+.1%", ".0%"),
    )
    return Outcome(
        "fig18",
        runs,
        [table],
        [
            "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
            "Error: mean absolute error of the predictions over the runs; bias: mean signed error.",
            "Paper: the largest mean error that Decima (SIGCOMM 2019) reports in its Figure 18.",
        ],
        extra={"setting": vars(setting), **errors},
        pictures={"fig18-live": partial(plot_live_fidelity, runs, setting)},
    )


def _errors(runs: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return mean absolute ``error`` and mean signed ``bias`` of predictions by kind of run, as fractions."""
    off = (runs["predicted_ms"] / runs["real_ms"] - 1).groupby(runs["kind"])
    return {kind: {"error": float(each.abs().mean()), "bias": float(each.mean())} for kind, each in off}


def plot_live_fidelity(runs: pd.DataFrame, setting: Setting) -> Figure:
    """Draw the real and the predicted mean JCT of each run, one panel per kind of run."""
    figure, errors = new_figure(10, 4), _errors(runs)
    titles = {ALONE: "A job alone", MIXTURES: f"Mixtures of {setting.jobs} jobs"}
    for axes, (kind, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        mine = runs[runs["kind"] == kind]
        times_s = mine[["real_ms", "predicted_ms"]] / 1000
        draw_pairs(axes, times_s["real_ms"], times_s["predicted_ms"])
        highest = times_s.to_numpy().max()
        axes.set_xticks(range(len(mine)), mine["run"].astype(str))
        axes.legend(**SWATCHES)
        title = f"{title}: off by {errors[kind]['error']:.1%}"
        finish_axes(axes, xlabel="Run", ylabel="Average JCT (s)", title=title, ylim=(0, 1.2 * highest))
        axes.grid(visible=False, axis="x")
        axes.axhline(0, color=GREY, linewidth=0.6)
    return figure
