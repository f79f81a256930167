"""Decima, Figure 9a on a real Spark: Decima in charge, against Spark's own FIFO and FAIR and weighted fair sharing.

The paper ran batches of 20 TPC-H jobs on 25 machines, and reports a mean job completion time 40 % below FIFO. Here
Spark runs on this machine, and each task sleeps for its recorded duration; shuffles are real, but carry a few bytes.
Weighted fair sharing and Decima schedule through the plugin and ``decima serve``. The simulator predicts each run.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import LEGEND, finish_axes, new_figure, styles
from reproduce.common import Result
from reproduce.spark.sleeping import SparkSetting, run_on_spark

#: Displayed name -> scheduler. The first two are Spark's own; ``weighted-fair`` is tuned in the simulator.
SCHEDULERS = {
    "Spark FIFO": "fifo",
    "Spark FAIR": "fair",
    "weighted fair": "weighted-fair",
    "decima": "decima",
}


def run(
    *,
    workload: str = "tpch",
    executors: int = 8,
    jobs: int = 15,
    batches: int = 5,
    arrivals: Literal["batch", "poisson"] = "batch",
    scale: float = 2.0,
    tasks: float = 0.1,
    seed: int = 0,
) -> Result:
    """Run batches of jobs on Spark under each scheduler; needs ``pip install -e '.[spark]'``, takes half an hour.

    Args:
        workload: Jobs: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Number of executors, with one slot each.
        jobs: Number of jobs in a batch or stream.
        batches: Number of batches or streams.
        arrivals: All jobs at once, or a stream that keeps executors busy for 85 % of the time.
        scale: Factor on the durations of tasks.
        tasks: Factor on the number of tasks of each stage.
        seed: Seed of the first batch.
    """
    setting = SparkSetting(executors, jobs, batches, arrivals, scale, tasks, seed)
    runs = run_on_spark(decima.open_workload(workload).profiles, setting, SCHEDULERS)
    overhead = {
        f"overhead of a {name}": f"{runs[column].mean():.0f} ms ({runs[column].min():.0f} to {runs[column].max():.0f})"
        for name, column in (("task", "task_ms"), ("stage", "stage_ms"))
    }
    tuned = runs.loc[runs["scheduler"] == "weighted fair", "setting"]
    values = {**overhead, "weighted fair": tuned.iloc[0]}
    return Result(tables(runs), {"fig9-spark": plot(runs)}, values, {"batch": "", "error": "+.1%"})


def tables(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return means over the batches with paired changes, and the real and the predicted mean JCT of each batch, s."""
    real_s = runs.pivot_table("real_ms", "batch", "scheduler") / 1000
    predicted_s = runs.pivot_table("predicted_ms", "batch", "scheduler") / 1000
    rows = []
    for name in runs["scheduler"].unique():
        mean, half_width = decima.mean_interval(real_s[name])
        row = {"scheduler": name, "mean_jct_s": mean, "mean_jct_ci95_s": half_width}
        row |= {"predicted (s)": predicted_s[name].mean(), "error": predicted_s[name].mean() / mean - 1}
        for other in ("Spark FIFO", "Spark FAIR"):
            row[f"vs {other}"], row[f"vs {other}_ci95"] = change(real_s[name], real_s[other])
        rows.append(row)
    batches = {
        f"{name}{suffix}": table[name]
        for name in runs["scheduler"].unique()
        for suffix, table in (("", real_s), (", predicted", predicted_s))
    }
    return {"schedulers": pd.DataFrame(rows), "batches": pd.DataFrame(batches).reset_index()}


def change(times_s: pd.Series[float], other_s: pd.Series[float]) -> tuple[float, float]:
    """Return the relative change of the mean of paired times with its interval; NaN against itself.

    Batches differ much in size, so this is the mean of their ratios, weighted by the times of the other scheduler.
    """
    if times_s.name == other_s.name:
        return np.nan, np.nan
    return decima.mean_interval(times_s / other_s - 1, weights=other_s)


def plot(runs: pd.DataFrame) -> Figure:
    """Draw the mean JCT under each scheduler, real and predicted, and the real mean JCT of each batch."""
    figure = new_figure(10, 4)
    means, batches = figure.subplots(1, 2)
    names = runs["scheduler"].unique()
    looks = dict(zip(names, styles(SCHEDULERS[name] for name in names).values(), strict=True))
    for index, (name, mine) in enumerate(runs.groupby("scheduler", sort=False)):
        real_s, predicted_s = mine["real_ms"] / 1000, mine["predicted_ms"] / 1000
        mean, half_width = decima.mean_interval(real_s)
        bars = {"width": 0.38, "color": looks[name]["color"]}
        labels = ("real", "simulated") if index == 0 else (None, None)
        means.bar(index - 0.2, mean, yerr=np.nan_to_num(half_width), label=labels[0], **bars)
        means.bar(index + 0.2, predicted_s.mean(), alpha=0.4, label=labels[1], **bars)
        batches.plot(mine["batch"], real_s, marker="o", label=name, **looks[name])
    means.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    batches.set_xticks(runs["batch"].unique())
    finish_axes(means, ylabel="Average JCT (s)", title="Real and simulated, 95 % interval")
    finish_axes(batches, xlabel="Batch", ylabel="Average JCT (s)", title="Each batch, real", ylim=(0, None))
    for axes in (means, batches):
        axes.legend(**LEGEND)
    return figure
