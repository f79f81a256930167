"""Faults of the cluster: mean job completion time with lost executors, failing and slow tasks, and nights.

The simulator of the Decima paper has no faults. All schedulers meet the same faults (common random numbers).
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import draw_bars, legend_beside, new_figure
from reproduce.common import Result

#: Length of a day, s, whose second half is night; number of days; share of the executors that stay at night.
DAY_S, DAYS, STAYING = 240.0, 100, 0.6
#: Reference scheduler.
FAIR = "fair"
#: Without ``las``, under which a job of one stream never completes if outputs are lost.
SCHEDULERS = (
    *(FAIR, "fifo", "sjf-cp", "naive-weighted-fair", "weighted-fair:-1", "tuned-weighted-fair"),
    *("hesrpt", "inelastic-first", "srpt", "srpt-tuned"),
)
#: Schedulers in the picture.
DRAWN = (FAIR, "weighted-fair:-1", "tuned-weighted-fair", "hesrpt", "srpt", "srpt-tuned")


def kinds_of_faults(executors: int) -> dict[str, dict[str, Any]]:
    """Return the settings of each kind, options of ``decima compare``."""
    nights = [
        change
        for day in range(DAYS)
        for change in ((DAY_S * (day + 0.5), round(STAYING * executors)), (DAY_S * (day + 1), executors))
    ]
    mild, heavy = {"executor_lifetime": 1800.0}, {"executor_lifetime": 300.0}
    lost_output, failures, stragglers = (
        {"lost_output": True},
        {"task_failures": 0.02},
        {"stragglers": (0.05, 4.0)},
    )
    capacity = {"capacity": tuple(nights)}
    return {
        "none": {},
        "losses-mild": mild,
        "losses-heavy": heavy,
        "lost-output": heavy | lost_output,
        "failures": failures,
        "stragglers": stragglers,
        "speculation": stragglers | {"speculation": (0.75, 1.5)},  # as Spark 3 does
        "nights": capacity,
        "all": mild | lost_output | failures | stragglers | capacity,
    }


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    batch_jobs: int = 20,
    stream_jobs: int = 80,
    interval: float = 14.0,
    seeds: int = 10,
    seed: int = 0,
    workers: int = 1,
) -> Result:
    """Compare schedulers on batches and on streams, with each kind of faults.

    Args:
        workload: Jobs: tpch, synthetic, a workload file, or the folder of the published TPC-H profiles.
        executors: Number of executors.
        batch_jobs: Number of jobs in a batch.
        stream_jobs: Number of jobs in a stream.
        interval: Mean seconds between the jobs of a stream.
        seeds: Number of batches and of streams.
        seed: Seed of the first batch and stream.
        workers: Number of processes.
    """
    setting = {"workload": workload, "executors": executors, "seeds": seeds, "seed": seed, "workers": workers}
    arrivals = {
        "batches": {"jobs": batch_jobs},
        "streams": {"jobs": stream_jobs, "arrivals": "poisson", "interval": interval},
    }
    runs = pd.concat(
        decima.compare(SCHEDULERS, **setting, **jobs, faults=faults).assign(arrivals=name, faults=kind)
        for name, jobs in arrivals.items()
        for kind, faults in kinds_of_faults(executors).items()
    )
    tables = {
        name: pd.DataFrame([row(kind, mine) for kind, mine in rows.groupby("faults", sort=False)])
        for name, rows in runs.groupby("arrivals", sort=False)
    }
    return Result(
        tables, {"faults": plot(runs)}, formats={FAIR: ".1f", **dict.fromkeys(SCHEDULERS[1:], "+.1%")}
    )


def row(kind: str, runs: pd.DataFrame) -> dict[str, Any]:
    """Return fair sharing's mean JCT, s, the changes of the others, paired by seed, and the number of failed jobs."""
    jct_s = runs.pivot_table("mean_jct_s", "seed", "scheduler")
    cells: dict[str, Any] = {"faults": kind}
    cells[FAIR], cells[f"{FAIR}_ci95"] = decima.mean_interval(jct_s[FAIR])
    for name in SCHEDULERS[1:]:
        cells[name], cells[f"{name}_ci95"] = decima.paired_change(jct_s[name], jct_s[FAIR])
    return cells | {"failed jobs": int(runs["failed_jobs"].sum())}


def plot(runs: pd.DataFrame) -> Figure:
    """Draw mean JCTs with each kind of faults, one panel for each kind of arrivals."""
    figure = new_figure(11, 8)
    arrivals = runs["arrivals"].unique()
    for axes, name in zip(figure.subplots(len(arrivals), 1), arrivals, strict=True):
        groups = {
            kind.replace("-", "\n"): {
                scheduler: decima.mean_interval(mine.loc[mine["scheduler"] == scheduler, "mean_jct_s"])
                for scheduler in DRAWN
            }
            for kind, mine in runs[runs["arrivals"] == name].groupby("faults", sort=False)
        }
        draw_bars(axes, groups, "Mean JCT (s)")
        axes.set_title(name.capitalize())
    legend_beside(figure.axes[0])
    return figure
