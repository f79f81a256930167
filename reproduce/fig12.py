"""Decima, Figures 12 and 20: which jobs Decima completes sooner than Graphene*, and on which executors.

Section 7.3 of the paper, in the setting of Figure 11b: Decima completes jobs of all sizes sooner, small ones most, and
uses 39 % more executors of the largest class on the smallest fifth of the jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import decima
from decima.show.style import BLACK, GREY, INTERVAL, finish_axes, new_figure
from reproduce.common import Result
from reproduce.fig11b import CLASSES, GRAPHENE_STAR
from simulator import EpisodeRecord
from workloads import WorkloadError

#: Groups of jobs by total work; all have the same number of jobs.
FIFTHS = ["smallest", "second", "third", "fourth", "largest"]
SIZES = ["0.25", "0.5", "0.75", "1"]


def run(
    *,
    workload: str = "tpch",
    classes: str = CLASSES,
    interval: float = 4.0,
    jobs: int = 200,
    seeds: int = 10,
    seed: int = 0,
    policy: str = "packing-tpch",
    workers: int = 1,
) -> Result:
    """Compare both schedulers by the work of jobs.

    Args:
        workload: tpch, or the folder of the published TPC-H profiles.
        classes: Executor classes, number x memory, for memory 0.25, 0.5, 0.75 and 1.
        interval: Mean seconds between arrivals.
        jobs: Jobs in a stream.
        seeds: Number of streams.
        seed: Seed of the first stream.
        policy: Name or file of the policy of decima.
        workers: Processes.
    """
    if jobs < len(FIFTHS):
        raise WorkloadError(f"{jobs} jobs: expected at least {len(FIFTHS)}, one for each fifth")
    setting = decima.make_conditions(
        workload=workload,
        classes=classes,
        memory_demand="uniform",
        arrivals="poisson",
        interval=interval,
        jobs=jobs,
        seeds=seeds,
        seed=seed,
    )
    comparison = decima.Comparison(setting, [GRAPHENE_STAR, "decima"], policy=policy)
    comparison.run(workers)
    # Experiments run again for their records: float64 [seeds, fifths, JCT and executors of each class].
    by_work = {
        name: np.array(
            [
                by_fifth(
                    decima.run_episode(
                        setting.cluster_of(seed), setting.sequence(seed), comparison.scheduler(name, seed)
                    )
                )
                for seed in setting.seeds
            ]
        )
        for name in comparison.schedulers
    }
    rows = []
    for fifth, name in enumerate(FIFTHS):
        row: dict[str, object] = {"Fifth of the jobs by work": name}
        for column, heading in enumerate(["vs JCT", *(f"vs executors of {size}" for size in SIZES)]):
            ours, theirs = (by_work[scheduler][:, fifth, column] for scheduler in ("decima", GRAPHENE_STAR))
            row[heading], row[f"{heading}_ci95"] = decima.paired_change(ours, theirs)
        rows.append(row)
    table = pd.DataFrame(rows)
    means = decima.summary_table(comparison.runs, GRAPHENE_STAR, ["mean_jct_s", "p95_jct_s", "fragmentation"])
    pictures = {"fig12": plot(table), "fig20": plot_executors(table)}
    formats = dict.fromkeys(table, "+.0%")
    return Result({"by work": table, "streams": means}, pictures, formats=formats)


def by_fifth(record: EpisodeRecord) -> list[list[float]]:
    """Return for each fifth of the jobs the mean JCT, ms, and mean numbers of executors that ran tasks of a job."""
    ran = record.task_executor >= 0
    tasks = pd.DataFrame(
        {"job": record.task_job[ran], "executor": record.task_executor[ran]}
    ).drop_duplicates()
    kind = record.executor_class[tasks["executor"]]
    jobs = range(len(record.sequence))
    used = (
        pd.crosstab(tasks["job"], kind)
        .reindex(index=jobs, columns=range(len(SIZES)), fill_value=0)
        .to_numpy()
    )
    order = np.argsort([profile.work_ms for profile in record.sequence.profiles], kind="stable")
    return [
        [record.jct_ms[fifth].mean(), *used[fifth].mean(axis=0)]
        for fifth in np.array_split(order, len(FIFTHS))
    ]


def plot(table: pd.DataFrame) -> Figure:
    """Draw the JCT of each fifth, and the executors of each class for the smallest jobs, relative to Graphene*."""
    figure = new_figure(9, 3.6)
    jct, executors = figure.subplots(1, 2)
    draw(jct, FIFTHS, table["vs JCT"].tolist(), table["vs JCT_ci95"].tolist())
    draw(executors, SIZES, *class_changes(table, 0))
    jct.set(xlabel="Fifth of the jobs by total work", ylabel="JCT, relative to Graphene*")
    executors.set(
        xlabel="Memory of the executors, smallest fifth",
        ylabel="Executors, relative to Graphene*",
    )
    return figure


def plot_executors(table: pd.DataFrame) -> Figure:
    """Draw the executors of each class relative to Graphene*, one panel for each fifth of the jobs."""
    figure = new_figure(12, 3.6)
    panels = figure.subplots(1, len(FIFTHS), sharey=True)
    for fifth, axes in enumerate(panels):
        draw(axes, SIZES, *class_changes(table, fifth))
        axes.set(xlabel="Memory of the executors", title=f"{FIFTHS[fifth]} fifth")
    panels[0].autoscale(axis="y")  # the panels share the axis
    panels[0].set(ylabel="Executors, relative to Graphene*", ylim=(0, None))
    return figure


def class_changes(table: pd.DataFrame, fifth: int) -> tuple[list[float], list[float]]:
    """Return the changes of the executors of each class, and half of their intervals."""
    row = table.iloc[fifth]
    return [row[f"vs executors of {size}"] for size in SIZES], [
        row[f"vs executors of {size}_ci95"] for size in SIZES
    ]


def draw(
    axes: Axes, names: list[str], changes: pd.Series[float] | list[float], half_widths: Sequence[float]
) -> None:
    """Draw ratios as bars with intervals, and a line at 1."""
    axes.bar(
        names, 1 + np.asarray(changes), yerr=half_widths, color=BLACK, width=0.7, capsize=2, ecolor=INTERVAL
    )
    axes.axhline(1, color=GREY, linewidth=0.8)
    finish_axes(axes, ylim=(0, None))
    axes.grid(visible=False, axis="x")
