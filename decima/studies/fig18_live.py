"""Figure 18 of the Decima paper with Decima in charge: JCTs that the simulator predicts, and those on a real Spark.

The paper's Figure 18 compares the simulator with its cluster while Decima schedules there: single jobs, and mixtures of
jobs. Here tasks sleep (``live_spark``), and the overhead of a task is measured before each run.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation.intervals import mean_interval
from decima.registry import LEARNED
from decima.service.sleeping import Setting
from decima.show.style import BLUE, GREY, LEGEND, ORANGE, finish_axes, new_figure
from decima.show.tables import interval_text, new_table
from decima.studies.fig9_spark import compare_live, needs_spark
from decima.studies.outcome import Outcome, Part
from workloads.sources.open import EMBEDDED, open_workload

__all__ = ["fig18_live", "outcome", "plot_live_fidelity"]

ALONE, MIXTURES = "alone", "mixtures"
#: The largest mean errors of the paper: of a job alone, and of jobs in a mixture.
PAPER = {ALONE: 0.05, MIXTURES: 0.09}
#: What runs. A stage of a few tasks ends with its longest one, whose duration is noise that no simulator knows.
SETTING = Setting(batches=3, tasks=0.2)


def fig18_live(part: Part, executors: int | None, batches: int | None) -> Outcome:
    """Run jobs alone and mixtures on a real Spark with Decima in charge, and predict them.

    Args:
        part: progress callback.
        executors: of Spark, by default those of ``SETTING``.
        batches: number of mixtures; there are twice as many runs of a job alone.

    Raises:
        OptionError: pyspark is not installed.
        LiveSparkError: Spark or the service does not start, or a job fails.
    """
    setting = replace(SETTING, executors=executors or SETTING.executors, batches=batches or SETTING.batches)
    alone = replace(setting, jobs=1, batches=2 * setting.batches)
    profiles, parts = open_workload(EMBEDDED).profiles, []
    for kind, each, before in ((ALONE, alone, 0), (MIXTURES, setting, alone.batches)):

        def tell(done: int, _: int, before: int = before) -> None:
            part.tell("running", before + done, alone.batches + setting.batches)

        with needs_spark("fig18 --live"):
            runs, _ = compare_live(profiles, each, {LEARNED: LEARNED}, tell)
        runs = runs.rename(columns={"batch": "run"}).assign(kind=kind)
        parts.append(runs[["kind", "run", "real_ms", "predicted_ms"]])
    return outcome(pd.concat(parts, ignore_index=True), setting)


def outcome(runs: pd.DataFrame, setting: Setting) -> Outcome:
    """Return the outcome.

    Args:
        runs: a row for each run, columns ``kind`` (``alone`` or ``mixtures``), ``run`` (int64), ``real_ms`` and
            ``predicted_ms`` (float64, mean JCT).
        setting: of the mixtures; jobs alone have the same executors and durations.
    """
    errors = _errors(runs)
    table = new_table(
        f"Decima in charge of Spark, {setting.executors} executors",
        *("", "Runs", "Mean JCT", "Predicted", "Error", "Bias", "Paper"),
    )
    for kind, words in {ALONE: "a job alone", MIXTURES: f"mixtures of {setting.jobs} jobs"}.items():
        mine = runs[runs["kind"] == kind]
        table.add_row(
            words,
            str(len(mine)),
            interval_text(mean_interval(mine["real_ms"].to_numpy() / 1000)),
            f"{mine['predicted_ms'].mean() / 1000:.1f}",
            f"{errors[kind]['error']:.1%}",
            f"{errors[kind]['bias']:+.1%}",
            f"{PAPER[kind]:.0%}",
        )
    return Outcome(
        "fig18",
        runs,
        [table],
        [
            "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
            "Error: by how much a prediction is wrong, either way, mean over the runs; bias: with its sign.",
            "Paper: the largest mean error that Decima (SIGCOMM 2019) reports in its Figure 18.",
        ],
        extra={"setting": vars(setting), **errors},
        pictures={"fig18-live": partial(plot_live_fidelity, runs, setting)},
    )


def _errors(runs: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return kind -> mean absolute ``error`` of the predictions, and mean ``bias``, as fractions."""
    off = (runs["predicted_ms"] / runs["real_ms"] - 1).groupby(runs["kind"])
    return {kind: {"error": float(each.abs().mean()), "bias": float(each.mean())} for kind, each in off}


def plot_live_fidelity(runs: pd.DataFrame, setting: Setting) -> Figure:
    """Draw the real and the predicted mean JCT of each run."""
    figure, errors = new_figure(10, 4), _errors(runs)
    titles = {ALONE: "A job alone", MIXTURES: f"Mixtures of {setting.jobs} jobs"}
    for axes, (kind, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        mine = runs[runs["kind"] == kind]
        places, highest = np.arange(len(mine)), mine[["real_ms", "predicted_ms"]].to_numpy().max() / 1000
        axes.bar(places - 0.2, mine["real_ms"] / 1000, 0.38, color=BLUE, label="real")
        axes.bar(places + 0.2, mine["predicted_ms"] / 1000, 0.38, color=ORANGE, label="simulated")
        axes.set_xticks(places, mine["run"].astype(str))
        axes.legend(**LEGEND)
        title = f"{title}: off by {errors[kind]['error']:.1%}"
        finish_axes(axes, xlabel="Run", ylabel="Average JCT (s)", title=title, ylim=(0, 1.2 * highest))
        axes.grid(visible=False, axis="x")
        axes.axhline(0, color=GREY, linewidth=0.6)
    return figure
