"""Figure 18 of the Decima paper with Decima in charge: what the simulator predicts, and what a real Spark takes.

The paper's Figure 18 compares the simulator with its cluster while Decima schedules there: single jobs, and mixtures of
jobs. Here tasks sleep (``live_spark``), and what a task takes beside its sleep is measured before each run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.intervals import mean_interval
from decima.outputs import json_text
from decima.registry import LEARNED
from decima.show.shown import Shown
from decima.show.style import BLUE, GREY, LEGEND, ORANGE, finish_axes, new_figure
from decima.show.tables import interval_text, new_table
from decima.studies.fig9_spark import Setting, compare_live
from workloads.job import JobProfile

__all__ = ["PAPER", "SETTING", "LiveFidelity", "measure_live_fidelity", "plot_live_fidelity", "shown"]

ALONE, MIXTURES = "alone", "mixtures"
#: The largest mean errors of the paper: of a job alone, and of jobs in a mixture.
PAPER = {ALONE: 0.05, MIXTURES: 0.09}
#: What runs. A stage of a few tasks ends with its longest one, which is a matter of luck that no simulator knows.
SETTING = Setting(batches=3, tasks=0.2)


@dataclass(frozen=True, eq=False)
class LiveFidelity:
    """What came out.

    Attributes:
        setting: of the mixtures; jobs alone have the same executors and durations.
        runs: a row for each run, columns ``kind`` (``alone`` or ``mixtures``), ``run`` (int64), ``real_ms`` and
            ``predicted_ms`` (float64, mean JCT).
    """

    setting: Setting
    runs: pd.DataFrame

    def of(self, kind: str) -> pd.DataFrame:
        """The runs of a kind."""
        return self.runs[self.runs["kind"] == kind]

    def error(self, kind: str) -> float:
        """Mean over the runs of by what fraction a prediction is wrong, either way."""
        runs = self.of(kind)
        return float((runs["predicted_ms"] / runs["real_ms"] - 1).abs().mean())

    def bias(self, kind: str) -> float:
        """By what fraction predictions are too long on average."""
        runs = self.of(kind)
        return float((runs["predicted_ms"] / runs["real_ms"] - 1).mean())

    def to_json(self, **extra: Any) -> str:
        """All of it; ``extra`` is added as it is."""
        content = {
            **extra,
            "setting": vars(self.setting),
            **{kind: {"error": self.error(kind), "bias": self.bias(kind)} for kind in PAPER},
            "runs": self.runs.to_dict("records"),
        }
        return json_text(content)


def measure_live_fidelity(
    profiles: Sequence[JobProfile], setting: Setting, tell: Callable[[int, int], None]
) -> LiveFidelity:
    """Run jobs alone and mixtures on a real Spark with Decima in charge, and predict them.

    Args:
        profiles: what jobs are drawn from; those whose DAG Spark cannot run as it stands are passed over.
        setting: of the mixtures; there are twice as many runs of a job alone.
        tell: told how many runs are done, and of how many.

    Raises:
        WorkloadError: no profile is left.
        LiveSparkError: Spark or the service does not start, or a job fails.
        ModuleNotFoundError: pyspark is not installed.
    """
    alone = replace(setting, jobs=1, batches=2 * setting.batches)
    total, parts = alone.batches + setting.batches, []
    for kind, each, before in ((ALONE, alone, 0), (MIXTURES, setting, alone.batches)):
        said = partial(_said, tell, before, total)
        runs = compare_live(profiles, each, {LEARNED: LEARNED}, said).runs.rename(columns={"batch": "run"})
        parts.append(runs.assign(kind=kind)[["kind", "run", "real_ms", "predicted_ms"]])
    return LiveFidelity(setting, pd.concat(parts, ignore_index=True))


def _said(tell: Callable[[int, int], None], before: int, total: int, done: int, _: int) -> None:
    tell(before + done, total)


def shown(found: LiveFidelity, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=[_table(found)],
        notes=[
            "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
            "Error: by how much a prediction is wrong, either way, mean over the runs; bias: with its sign.",
            "Paper: the largest mean error that Decima (SIGCOMM 2019) reports in its Figure 18.",
        ],
        json=found.to_json(command=command),
        pictures={"fig18-live": partial(plot_live_fidelity, found)},
    )


def _table(found: LiveFidelity) -> Table:
    setting = found.setting
    title = f"Decima in charge of Spark, {setting.executors} executors"
    table = new_table(title, "", "Runs", "Mean JCT", "Predicted", "Error", "Bias", "Paper")
    kinds = {ALONE: "a job alone", MIXTURES: f"mixtures of {setting.jobs} jobs"}
    for kind, words in kinds.items():
        runs = found.of(kind)
        table.add_row(
            words,
            str(len(runs)),
            interval_text(mean_interval(runs["real_ms"].to_numpy() / 1000)),
            f"{runs['predicted_ms'].mean() / 1000:.1f}",
            f"{found.error(kind):.1%}",
            f"{found.bias(kind):+.1%}",
            f"{PAPER[kind]:.0%}",
        )
    return table


def plot_live_fidelity(found: LiveFidelity) -> Figure:
    """Real and predicted mean JCT of each run."""
    figure = new_figure(10, 4)
    titles = {ALONE: "A job alone", MIXTURES: f"Mixtures of {found.setting.jobs} jobs"}
    for axes, (kind, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        runs = found.of(kind)
        places = np.arange(len(runs))
        axes.bar(places - 0.2, runs["real_ms"] / 1000, 0.38, color=BLUE, label="real")
        axes.bar(places + 0.2, runs["predicted_ms"] / 1000, 0.38, color=ORANGE, label="simulated")
        axes.set_xticks(places, runs["run"].astype(str))
        axes.legend(**LEGEND)
        finish_axes(
            axes,
            xlabel="Run",
            ylabel="Average JCT (s)",
            title=f"{title}: off by {found.error(kind):.1%}",
            ylim=(0, 1.2 * runs[["real_ms", "predicted_ms"]].to_numpy().max() / 1000),  # room for the legend
        )
        axes.grid(visible=False, axis="x")
        axes.axhline(0, color=GREY, linewidth=0.6)
    return figure
