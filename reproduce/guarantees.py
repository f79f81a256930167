"""The cost of the guarantee that no job is later than a factor times its completion time under fair sharing.

Rules and policies with a short mean serve small jobs first, and large jobs wait. ``no-later-than`` overrules decisions
that would make a job later than it may be. In theory, with fluid jobs and free moves, the bound holds exactly.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import LEGEND, finish_axes, new_figure, styles
from reproduce.common import Result
from simulator import EpisodeMetrics

RULE = "srpt"
SCHEDULERS = ("fair", RULE, "las", "srpt-tuned", "decima:tpch-stream")

FORMATS = {
    **{"factor": "g", "mean JCT": "+.1%", "p99 JCT": "+.1%", "changed": ".1%"},
    **dict.fromkeys(("late jobs", "late jobs, kept"), ".1%"),
    **dict.fromkeys(("latest (s)", "latest, kept (s)"), ".0f"),
}


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    jobs: int = 200,
    interval: float = 14.0,
    factor: tuple[float, ...] = (1.5, 2.0, 3.0),
    seeds: int = 20,
    seed: int = 810_000,
) -> Result:
    """Compare schedulers with and without the guarantee.

    Args:
        workload: Jobs: tpch, synthetic, a workload file, or the folder of the published TPC-H profiles.
        executors: Number of executors.
        jobs: Number of jobs in a stream.
        interval: Mean seconds between jobs.
        factor: Guaranteed completion time, as a multiple of that under fair sharing.
        seeds: Number of streams.
        seed: Seed of the first stream.
    """
    cluster, profiles = decima.ClusterConfig(num_executors=executors), decima.open_workload(workload).profiles
    rows = []
    for sequence_seed in range(seed, seed + seeds):
        sequence = decima.poisson_arrivals(profiles, jobs, 1000 * interval, sequence_seed)
        fair_s = decima.run_episode(cluster, sequence, decima.make_scheduler("fair")).jct_ms / 1000
        for name, bound in product(SCHEDULERS, (None, *factor)):
            guarantee = "" if bound is None else f",no-later-than={bound:g}"
            record = decima.run_episode(cluster, sequence, decima.make_scheduler(name + guarantee))
            episode = EpisodeMetrics(record)
            for compared in factor if bound is None else (bound,):
                late_s = record.jct_ms / 1000 - compared * fair_s
                rows.append(
                    {
                        "scheduler": name,
                        "seed": sequence_seed,
                        "factor": compared,
                        "is_kept": bound is not None,
                        "mean_jct_s": record.mean_jct_ms / 1000,
                        "p99_jct_s": episode.jct_percentile_ms(99) / 1000,
                        "worst_slowdown": episode.worst_slowdown,
                        "late": np.mean(late_s > 0),
                        "latest_s": max(late_s.max(), 0.0),
                        "changed": len(record.kept.overruled) / record.num_decisions if record.kept else 0.0,
                    }
                )
    runs = pd.DataFrame(rows)
    alone = runs[~runs["is_kept"] & (runs["factor"] == factor[0])]
    metrics = ["mean_jct_s", "p99_jct_s", "worst_slowdown"]
    costs = cost_table(runs)
    return Result(
        {"without guarantee": decima.summary_table(alone, against=RULE, metrics=metrics), "cost": costs},
        {"guarantees": plot(costs)},
        formats=FORMATS,
    )


def cost_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each scheduler and factor: changes by the guarantee, paired by seed, and late jobs.

    ``late jobs``: share of the jobs that are later than the factor allows, without and with the guarantee; ``latest``:
    by how much the latest job of a stream is, s; ``changed``: share of the decisions that the guarantee changed.
    """
    rows = []
    for (name, factor), mine in runs.groupby(["scheduler", "factor"], sort=False):
        alone, kept = (mine[mine["is_kept"] == is_kept].sort_values("seed") for is_kept in (False, True))
        row = {"scheduler": name, "factor": factor}
        for heading, column in (("mean JCT", "mean_jct_s"), ("p99 JCT", "p99_jct_s")):
            row[heading], row[f"{heading}_ci95"] = decima.paired_change(kept[column], alone[column])
        row |= {"late jobs": alone["late"].mean(), "late jobs, kept": kept["late"].mean()}
        row |= {"latest (s)": alone["latest_s"].mean(), "latest, kept (s)": kept["latest_s"].mean()}
        rows.append(row | {"changed": kept["changed"].mean()})
    return pd.DataFrame(rows)


def plot(costs: pd.DataFrame) -> Figure:
    """Draw the change of the mean JCT, late jobs, and the latest job over the factor; pale: without the guarantee."""
    figure = new_figure(13, 4)
    cost, late, latest = figure.subplots(1, 3)
    for name, look in styles(SCHEDULERS).items():
        rows, look = costs[costs["scheduler"] == name], look | {"marker": "o", "markersize": 5}
        errors = 100 * rows["mean JCT_ci95"]
        cost.errorbar(
            rows["factor"], 100 * rows["mean JCT"], errors, capsize=2, elinewidth=1, label=name, **look
        )
        for axes, kept, alone, scale in (
            (late, "late jobs, kept", "late jobs", 100),
            (latest, "latest, kept (s)", "latest (s)", 1),
        ):
            axes.plot(rows["factor"], scale * rows[kept], **look)
            axes.plot(rows["factor"], scale * rows[alone], **look, alpha=0.5, markerfacecolor="white")
    cost.axhline(0.0, color="0.6", linewidth=0.8)
    factor = "Guaranteed JCT, as a factor on that of fair"
    finish_axes(cost, title="Cost", xlabel=factor, ylabel="Change of the mean JCT (%)")
    finish_axes(late, title="Late jobs (pale: without guarantee)", xlabel=factor, ylabel="Late jobs (%)")
    finish_axes(latest, title="Latest job (pale: without guarantee)", xlabel=factor, ylabel="Lateness (s)")
    handles = cost.get_legend_handles_labels()
    figure.legend(
        *handles, ncols=len(SCHEDULERS), loc="outside lower center", **{**LEGEND, "handlelength": 4}
    )
    return figure
