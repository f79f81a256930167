"""Decima, Figure 19: jobs, executors and memory over time on executors of four sizes, with Decima and Graphene*.

Appendix of the paper, in the setting of Figure 11b: Decima has fewer jobs in the system, gives each of them more
executors, and completes jobs sooner in busy periods.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import LEGEND, finish_axes, new_figure, styles
from reproduce.common import Result, over_time
from reproduce.fig10 import measured
from reproduce.fig11b import CLASSES, GRAPHENE_STAR
from simulator import EpisodeMetrics, EpisodeRecord
from simulator.cluster.tables import resources

SIZES = ["0.25", "0.5", "0.75", "1"]
#: Number of time windows of a curve.
WINDOWS = 60


def run(
    *,
    workload: str = "tpch",
    classes: str = CLASSES,
    interval: float = 4.0,
    jobs: int = 200,
    seed: int = 0,
    policy: str | None = None,
    workers: int = 1,
) -> Result:
    """Run one stream under both schedulers.

    Args:
        workload: tpch, or the folder of the published TPC-H profiles.
        classes: Executor classes, number x memory, for memory 0.25, 0.5, 0.75 and 1.
        interval: Mean seconds between arrivals.
        jobs: Jobs in the stream.
        seed: Seed of the stream.
        policy: Policy file of decima; by default the shipped policy of the most similar setting.
        workers: Processes.
    """
    setting = decima.make_conditions(
        workload=workload,
        classes=classes,
        memory_demand="uniform",
        arrivals="poisson",
        interval=interval,
        jobs=jobs,
        seeds=1,
        seed=seed,
    )
    comparison = decima.Comparison(setting, [GRAPHENE_STAR, "decima"], policy=policy)
    comparison.run(workers)
    records = comparison.episodes
    rows = []
    for name, record in records.items():
        row = measured(name, record, records[GRAPHENE_STAR])
        episode = EpisodeMetrics(record)
        row["Busy executors of a job"] = float(episode.busy_ms.sum() / record.jct_ms.sum())
        rows.append(row | {"fragmentation": episode.fragmentation["memory"]})
    table = pd.DataFrame(rows)
    speedup = table["JCT in busy periods (s)"].iloc[0] / table["JCT in busy periods (s)"].iloc[1]
    return Result({"stream": table}, {"fig19": plot(records)}, {"speedup in busy periods": f"{speedup:.2f}"})


def plot(records: Mapping[str, EpisodeRecord]) -> Figure:
    """Draw jobs in the system, executors of a job, unused memory, and busy executors of each class over time."""
    figure, looks = new_figure(12, 6), styles(records)
    grid = figure.add_gridspec(2, 12)
    jobs, of_a_job, unused = (figure.add_subplot(grid[0, 4 * column : 4 * column + 4]) for column in range(3))
    by_class = [figure.add_subplot(grid[1, 3 * column : 3 * column + 3]) for column in range(len(SIZES))]
    edges_ms = np.linspace(0, max(record.end_ms for record in records.values()), WINDOWS + 1)
    for name, record in records.items():
        look = {"label": name, **looks[name]}
        mean = {column: over_time(steps, edges_ms) for column, steps in resources(record).items()}
        present = over_time(record.jobs_in_system(), edges_ms)
        busy = [mean[f"class_{index}"] for index in range(len(SIZES))]
        with np.errstate(invalid="ignore", divide="ignore"):  # at the end, no job and no executor is busy
            per_job = np.sum(busy, axis=0) / present
            share = 1 - mean["memory_demanded"] / mean["memory_held"]
        curves = [present, per_job, 100 * share, *busy]
        for axes, values in zip([jobs, of_a_job, unused, *by_class], curves, strict=True):
            axes.plot(edges_ms[1:] / 1000, values, **look)
    figure.legend(*jobs.get_legend_handles_labels(), ncols=2, loc="outside upper left", **LEGEND)
    finish_axes(jobs, title="Jobs in the system", ylabel="Jobs", ylim=(0, None))
    finish_axes(of_a_job, title="Executors of a job", ylabel="Busy executors", ylim=(0, None))
    finish_axes(unused, title="Memory not needed", ylabel="Share of memory in use (%)", ylim=(0, 100))
    for axes, memory in zip(by_class, SIZES, strict=True):
        finish_axes(axes, title=f"Executors of memory {memory}", ylabel="Busy executors", ylim=(0, None))
    for axes in figure.axes:
        axes.set_xlabel("Time (s)")
    return figure
