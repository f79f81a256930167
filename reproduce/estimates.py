"""Wrong estimates of task durations: mean job completion time against fair sharing, which needs no estimates.

The simulator of the Decima paper knows the mean task duration of each stage. Here schedulers see durations that are
wrong by a log-normal factor per job or per stage, or are the workload's typical ones, for a job without history;
completed tasks correct the estimates.
``seh:0`` is SRPT on the remainder of the first estimate, without any correction.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import GREY, LEGEND, finish_axes, new_figure, styles
from reproduce.common import Result

#: Kind of error -> its sizes: standard deviation of the logarithm of the factor, or share of jobs without history.
ERRORS = {"job": (0.25, 0.5, 1.0, 2.0), "stage": (0.25, 0.5, 1.0, 2.0), "unknown": (0.3, 1.0)}
#: Kind of error -> field of ``simulator.cluster.config.Knowledge``, label of an axis.
FIELDS = {"job": "job_error", "stage": "stage_error", "unknown": "unknown"}
LABELS = {
    "job": "Error per job (sigma)",
    "stage": "Error per stage (sigma)",
    "unknown": "Share of unknown jobs",
}
#: Reference, which uses no estimates; and the rule whose curve others are compared with.
FAIR, RULE = "fair", "srpt"
SCHEDULERS = (
    *(FAIR, "weighted-fair:-1", "las", "hesrpt", "inelastic-first", "sjf-estimate", "seh:0"),
    *("seh", "srpt-bounce", "gittins", RULE, "srpt-tuned"),
)


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
    """Compare schedulers on batches and on streams, with exact estimates and with each error.

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
    settings = [("exact", 0.0), *((kind, size) for kind, sizes in ERRORS.items() for size in sizes)]
    runs = pd.concat(
        decima.compare(
            SCHEDULERS,
            **setting,
            **jobs,
            knowledge={} if kind == "exact" else {FIELDS[kind]: size, "estimator": "typical"},
        ).assign(arrivals=name, kind=kind, size=size)
        for name, jobs in arrivals.items()
        for kind, size in settings
    )
    tables = {
        name: pd.DataFrame(
            [row(*error, group) for error, group in mine.groupby(["kind", "size"], sort=False)]
        )
        for name, mine in runs.groupby("arrivals", sort=False)
    }
    return Result(tables, {"estimates": plot(runs)}, formats=dict.fromkeys(SCHEDULERS, "+.1%"))


def row(kind: str, size: float, runs: pd.DataFrame) -> dict[str, Any]:
    """Return the change of each scheduler's mean JCT against fair sharing, paired by seed, with its interval."""
    jct_s = runs.pivot_table("mean_jct_s", "seed", "scheduler")
    cells: dict[str, Any] = {"errors": kind if kind == "exact" else f"{kind} {size:g}"}
    for name in SCHEDULERS[1:]:
        cells[name], cells[f"{name}_ci95"] = decima.paired_change(jct_s[name], jct_s[FAIR])
    return cells


def plot(runs: pd.DataFrame) -> Figure:
    """Draw the mean JCT over the size of the error; rows are kinds of arrivals, columns are kinds of errors."""
    means = runs.groupby(["arrivals", "kind", "size", "scheduler"])["mean_jct_s"].mean()
    figure, looks = new_figure(13, 9), styles(SCHEDULERS)
    arrivals = runs["arrivals"].unique()
    panels = figure.subplots(len(arrivals), len(ERRORS), squeeze=False, sharey="row")
    for row, name in zip(panels, arrivals, strict=True):
        exact = means[name, "exact", 0.0]
        for axes, (kind, sizes) in zip(row, ERRORS.items(), strict=True):
            for (scheduler, look), marker in zip(looks.items(), cycle("os^vDPX*<>p"), strict=False):
                jct_s = [exact[scheduler], *(means[name, kind, size, scheduler] for size in sizes)]
                axes.plot([0, *sizes], jct_s, label=scheduler, marker=marker, markersize=5, **look)
            axes.axhline(exact[RULE], color=GREY, linestyle=":", linewidth=0.8, label=f"{RULE}, exact")
            finish_axes(axes, title=name.capitalize(), xlabel=LABELS[kind], ylabel="Mean JCT (s)")
    panels[0][-1].legend(**LEGEND, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
