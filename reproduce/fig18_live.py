"""Decima, Figure 18 with Decima in charge of a real Spark: the simulator's predictions of single jobs and mixtures.

The paper's simulator is off by at most 5 % on average for single jobs and 9 % for mixtures of jobs. Here Spark runs on
this machine, and each task sleeps for its recorded duration; the overhead of tasks and stages is measured before each
run.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import SWATCHES, draw_pairs, finish_axes, new_figure
from reproduce.common import Result
from reproduce.spark.sleeping import SparkSetting, run_on_spark

#: Largest mean errors in the paper (appendix D).
PAPER = {"a job alone": 0.05, "mixtures": 0.09}


def run(
    *, executors: int = 8, jobs: int = 10, batches: int = 3, scale: float = 4.0, tasks: float = 0.2
) -> Result:
    """Run jobs on Spark under Decima, and predict them; needs ``pip install -e '.[spark]'``, takes 15 minutes.

    With fewer tasks, the longest task of a stage, which is noise, would dominate the stage's time.

    Args:
        executors: Number of executors, with one slot each.
        jobs: Number of jobs in a mixture.
        batches: Number of mixtures; twice as many jobs run alone.
        scale: Factor on the durations of tasks.
        tasks: Factor on the number of tasks of each stage.
    """
    profiles = decima.open_workload("tpch").profiles
    alone = SparkSetting(executors, 1, 2 * batches, scale=scale, tasks=tasks)
    mixtures = SparkSetting(executors, jobs, batches, scale=scale, tasks=tasks)
    runs = {
        name: run_on_spark(profiles, setting, {"decima": "decima"})
        for name, setting in (("a job alone", alone), ("mixtures", mixtures))
    }
    table = pd.DataFrame([row(name, mine) for name, mine in runs.items()])
    all_runs = pd.concat([mine.assign(kind=name) for name, mine in runs.items()])
    all_runs = all_runs.assign(
        **{"real (s)": all_runs["real_ms"] / 1000, "predicted (s)": all_runs["predicted_ms"] / 1000}
    )
    tables = {"fidelity": table, "runs": all_runs[["kind", "batch", "real (s)", "predicted (s)"]]}
    return Result(
        tables, {"fig18-live": plot(runs)}, formats={"error": ".1%", "bias": "+.1%", "paper": ".0%"}
    )


def row(name: str, runs: pd.DataFrame) -> dict[str, object]:
    """Return means, s, and the mean absolute and the mean signed error of the predictions."""
    mean, half_width = decima.mean_interval(runs["real_ms"] / 1000)
    off = runs["predicted_ms"] / runs["real_ms"] - 1
    return {
        **{"kind": name, "runs": len(runs), "mean_jct_s": mean, "mean_jct_ci95_s": half_width},
        **{
            "predicted (s)": runs["predicted_ms"].mean() / 1000,
            "error": off.abs().mean(),
            "bias": off.mean(),
        },
        "paper": PAPER[name],
    }


def plot(runs: dict[str, pd.DataFrame]) -> Figure:
    """Draw the real and the predicted mean JCT of each run, one panel for each kind of run."""
    figure = new_figure(10, 4)
    for axes, (name, mine) in zip(figure.subplots(1, 2), runs.items(), strict=True):
        real_s, predicted_s = mine["real_ms"] / 1000, mine["predicted_ms"] / 1000
        draw_pairs(axes, real_s, predicted_s)
        axes.set_xticks(range(len(mine)), mine["batch"])
        axes.legend(**SWATCHES)
        title = f"{name.capitalize()}: off by {(predicted_s / real_s - 1).abs().mean():.1%}"
        highest = 1.2 * max(real_s.max(), predicted_s.max())
        finish_axes(axes, xlabel="Run", ylabel="Average JCT (s)", title=title, ylim=(0, highest))
        axes.grid(visible=False, axis="x")
    return figure
