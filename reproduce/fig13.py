"""Decima, Figure 13: policies trained for the average JCT, for the same with free moves, and for the makespan.

Section 7.4 of the paper, on one batch of its own: for the average job completion time (JCT) 67.3 s, with a makespan of
119.6 s; if moves take no time 61.4 s and 114.3 s; for the makespan 74.5 s and 102.1 s. Two trainings, 96 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import SWATCHES, new_figure
from reproduce.common import Result, train
from simulator import EpisodeRecord
from simulator.cluster.picture import draw_schedule

COSTLY, FREE = "moves take 2 s", "moves are free"
FOR_JCT, FOR_JCT_FREE, FOR_MAKESPAN = "decima for JCT", "decima for JCT, free moves", "decima for makespan"
#: Condition and policy of each panel: each policy is shown in its training setting.
PANELS = [(COSTLY, FOR_JCT), (FREE, FOR_JCT_FREE), (COSTLY, FOR_MAKESPAN)]


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    jobs: int = 20,
    seeds: int = 50,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
    workers: int = 1,
) -> Result:
    """Train policies for three objectives, and compare them with moves that take 2 s, and without delay.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        jobs: Jobs in a batch.
        seeds: Number of batches.
        seed: Seed of the first batch.
        policies: Folder of the trained policies; complete trainings in it are not repeated.
        training: Setting of all trainings that differs from the recipe, such as iterations=20.
        workers: Processes.
    """
    size = [f"cluster.executors={executors}", f"workload.jobs={jobs}", *training]
    free = [*size, "cluster.moving_delay=0"]
    schedulers = {
        "fair": "fair",
        "tuned-weighted-fair": "tuned-weighted-fair",
        "weighted fair for makespan": "tuned-weighted-fair:makespan",
        "srpt": "srpt",
        FOR_JCT: train(policies / "batch", "batch", size, workload, workers),
        FOR_JCT_FREE: train(policies / "batch-free-moves", "batch", free, workload, workers),
        FOR_MAKESPAN: train(policies / "makespan", "makespan", size, workload, workers),
    }
    tables, episodes = [], {}
    for condition, moving_delay in ((COSTLY, 2.0), (FREE, 0.0)):
        setting = decima.make_conditions(
            workload=workload,
            executors=executors,
            jobs=jobs,
            moving_delay=moving_delay,
            seeds=seeds,
            seed=seed,
        )
        comparison = decima.Comparison(setting, schedulers)
        comparison.run(workers)
        tables.append(comparison.runs.assign(condition=condition))
        episodes |= {(condition, name): record for name, record in comparison.episodes.items()}
    metrics = ["mean_jct_s", "p95_jct_s", "makespan_s", "utilisation"]
    table = decima.summary_table(pd.concat(tables), "tuned-weighted-fair", metrics, by=["condition"])
    return Result({"batches": table}, {"fig13": plot(episodes)})


def plot(episodes: Mapping[tuple[str, str], EpisodeRecord]) -> Figure:
    """Draw the schedules of the three policies for the first batch on one time axis."""
    figure = new_figure(8, 9)
    end_s = max(episodes[panel].end_ms for panel in PANELS) / 1000
    for row, panel in enumerate(PANELS):
        record, (condition, scheduler) = episodes[panel], panel
        axes = figure.add_subplot(3, 1, row + 1)
        handles = draw_schedule(axes, record, end_s)
        times = f"average JCT {record.mean_jct_ms / 1000:.1f} s, makespan {record.makespan_ms / 1000:.1f} s"
        axes.set_title(f"{scheduler}: {times} ({condition})", loc="left", fontsize="medium")
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower right", **SWATCHES)
    return figure
