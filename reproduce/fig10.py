"""Decima, Figure 10: one stream of 1,000 TPC-H jobs in detail, with Decima and with tuned weighted fair sharing.

Section 7.2 of the paper: Decima has fewer jobs in the system in busy periods, in which it completes jobs about twice as
fast; it completes small jobs sooner by giving them more executors, and the work of a job is inflated less.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MultipleLocator

import decima
from decima.show.style import GREY, LEGEND, finish_axes, new_figure, plain_log_ticks, styles
from reproduce.common import Result, interval_for_load, over_time
from simulator import EpisodeMetrics, EpisodeRecord

TUNED = "tuned-weighted-fair"
#: Jobs from this quantile on of the number of jobs in the system at their arrival are in a busy period.
BUSY = 0.9


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    load: float = 0.85,
    jobs: int = 1000,
    seed: int = 0,
    policy: str = "tpch-stream",
    workers: int = 1,
) -> Result:
    """Run one stream under both schedulers.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        load: Share of the time that executors are busy; sets the time between arrivals.
        jobs: Jobs in the stream.
        seed: Seed of the stream.
        policy: Name or file of the policy of decima.
        workers: Processes.
    """
    interval = interval_for_load(load, workload, executors)
    setting = decima.make_conditions(
        workload=workload,
        executors=executors,
        arrivals="poisson",
        interval=interval,
        jobs=jobs,
        seeds=1,
        seed=seed,
    )
    comparison = decima.Comparison(setting, [TUNED, "decima"], policy=policy)
    comparison.run(workers)
    records = comparison.episodes
    table = pd.DataFrame([measured(name, record, records[TUNED]) for name, record in records.items()])
    speedup = table["JCT in busy periods (s)"].iloc[0] / table["JCT in busy periods (s)"].iloc[1]
    return Result({"stream": table}, {"fig10": plot(records)}, {"speedup in busy periods": f"{speedup:.2f}"})


def measured(name: str, record: EpisodeRecord, reference: EpisodeRecord) -> dict[str, object]:
    """Return the row of a scheduler; busy periods are those of the reference."""
    steps = reference.jobs_in_system()
    present = steps.to_numpy()[
        np.searchsorted(steps.index.to_numpy(), reference.sequence.arrival_ms, "right") - 1
    ]
    busy, episode = present >= np.quantile(present, BUSY), EpisodeMetrics(record)
    return {
        "scheduler": name,
        "mean_jct_s": record.mean_jct_ms / 1000,
        "JCT in busy periods (s)": float(record.jct_ms[busy].mean()) / 1000,
        "Jobs in the system": episode.mean_jobs_in_system,
        "Executed work (executor h)": float(episode.busy_ms.sum()) / 3_600_000,
    }


def plot(records: dict[str, EpisodeRecord]) -> Figure:
    """Draw jobs in the system and JCT over time; JCT, executors and executed work over the size of a job."""
    figure, looks = new_figure(12, 7), styles(records)
    grid = figure.add_gridspec(2, 6)
    present, done, jct = (figure.add_subplot(grid[0, 2 * column : 2 * column + 2]) for column in range(3))
    executors, work = figure.add_subplot(grid[1, :3]), figure.add_subplot(grid[1, 3:])
    for name, record in records.items():
        jobs, dots = record.jobs(), {"color": looks[name]["color"], "s": 5, "alpha": 0.5, "linewidths": 0}
        edges_ms = np.linspace(0, record.end_ms, 101)
        present.plot(
            edges_ms[1:] / 1000, over_time(record.jobs_in_system(), edges_ms), label=name, **looks[name]
        )
        window = pd.cut(jobs["completion_ms"], np.linspace(0, record.end_ms, 31))
        mean_s = jobs.groupby(window, observed=True)["jct_ms"].mean() / 1000
        done.plot([interval.right / 1000 for interval in mean_s.index], mean_s.to_numpy(), **looks[name])
        jct.scatter(jobs["work_ms"] / 1000, jobs["jct_ms"] / 1000, **dots)
        begin_ms = pd.Series(record.task_start_ms).groupby(record.task_job).min()
        executors.scatter(
            jobs["work_ms"] / 1000, jobs["busy_ms"] / (jobs["completion_ms"] - begin_ms), **dots
        )
    tuned, learned = (EpisodeMetrics(record).busy_ms / 1000 for record in records.values())
    work.plot(tuned, tuned, color=GREY, linewidth=0.8)
    work.scatter(tuned, learned, color=looks["decima"]["color"], s=5, alpha=0.5, linewidths=0)
    figure.legend(*present.get_legend_handles_labels(), ncols=2, loc="outside upper left", **LEGEND)
    size = "Size of the job (executor s)"
    finish_axes(present, title="(a) Jobs in the system", xlabel="Time (s)", ylabel="Jobs", ylim=(0, None))
    finish_axes(
        done, title="(b) JCT of jobs that complete", xlabel="Time (s)", ylabel="Mean JCT (s)", ylim=(0, None)
    )
    finish_axes(jct, title="(c) JCT of each job", xlabel=size, ylabel="JCT (s)", xscale="log", yscale="log")
    finish_axes(
        executors, title="(d) Executors of each job", xlabel=size, ylabel="Busy executors, on average"
    )
    executors.set(xscale="log", ylim=(0, None))
    finish_axes(work, title="(e) Executed work of each job", xlabel=f"With {TUNED} (executor s)")
    work.set(ylabel="With decima (executor s)", xscale="log", yscale="log")
    for axis in (jct.xaxis, jct.yaxis, executors.xaxis, work.xaxis, work.yaxis):
        plain_log_ticks(axis)
    for axes in (present, done):
        axes.xaxis.set_major_locator(MultipleLocator(5000))
    jct.xaxis.set_major_locator(LogLocator())  # the panel is narrow
    return figure
