"""Decima, Figure 14: ablation study of Decima's ideas, as the load grows.

Section 7.4 of the paper: without parallelism control Decima is unstable from a load of 55 % on; trained on batches it
is worse than tuned weighted fair sharing above 65 %; without fixed sequences its JCT doubles above 75 %. Here, networks
of public re-implementations are compared, too. Six trainings, about six hours of CPU time.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

import decima
from decima.show.style import finish_axes, legend_beside, new_axes, styles
from reproduce.common import Result, interval_for_load, stream_settings, train

TUNED = "tuned-weighted-fair"


def reimplementations(executors: int) -> dict[str, list[str]]:
    """Return networks of public re-implementations of Decima: displayed name -> training settings.

    The plain GNN has no second network after the sums over children, and one output per limit instead of the limit as
    an input. Attention replaces the sums over children by attention-weighted means.
    """
    return {
        "plain GNN": [
            "policy.overrides.aggregate=false",
            "policy.overrides.summary_aggregate=false",
            "policy.overrides.limit=outputs",
            "policy.overrides.log_limits=false",
            f"policy.overrides.num_limits={executors}",
            "policy.overrides.wait=false",
        ],
        "attention": ["policy.overrides.encoder=attention"],
    }


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    load: tuple[float, ...] = (0.55, 0.65, 0.75, 0.85),
    jobs: int = 400,
    seeds: int = 10,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
    workers: int = 1,
) -> Result:
    """Train the full policy and variants at the highest load, and compare them at all loads.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        load: Share of the time that executors are busy; sets the time between arrivals.
        jobs: Jobs in a stream.
        seeds: Number of streams.
        seed: Seed of the first stream.
        policies: Folder of the trained policies; complete trainings in it are not repeated.
        training: Setting of all trainings that differs from the recipe, such as iterations=20.
        workers: Processes.
    """
    interval_of = {share: interval_for_load(share, workload, executors) for share in sorted(set(load))}
    highest = interval_of[max(interval_of)]
    size = [f"cluster.executors={executors}", *training]
    variants = {
        "decima": [],
        "no parallelism control": [
            "policy.overrides.limit=none",
            "policy.overrides.log_limits=false",
            "policy.overrides.wait=false",
        ],
        "no graph embedding": ["policy.overrides.graph=false"],
        "unfixed sequences": ["episodes.fixed_sequences=false"],
        **reimplementations(executors),
    }
    schedulers = {TUNED: TUNED, "srpt": "srpt"}
    for name, settings in variants.items():
        folder = policies / f"stream-{highest:g}s-{name.replace(' ', '-')}"
        every = [*size, *stream_settings(highest), *settings]
        schedulers[name] = train(folder, "stream", every, workload, workers)
    schedulers["trained on batches"] = train(policies / "batch", "batch", size, workload, workers)
    runs = pd.concat(
        decima.compare(
            schedulers,
            workload=workload,
            executors=executors,
            arrivals="poisson",
            interval=interval,
            jobs=jobs,
            seeds=seeds,
            seed=seed,
            workers=workers,
        ).assign(condition=f"load {share:.0%}")
        for share, interval in interval_of.items()
    )
    table = decima.summary_table(
        runs, TUNED, ["mean_jct_s", "p95_jct_s", "utilisation", "load"], by=["condition"]
    )
    intervals = ", ".join(f"{interval:g}" for interval in interval_of.values())
    return Result({"loads": table}, {"fig14": plot(table)}, {"intervals": f"{intervals} s"})


def plot(table: pd.DataFrame) -> Figure:
    """Draw the mean JCT over the load, one line per policy."""
    figure, axes = new_axes(7, 4)
    looks = styles(table["scheduler"])
    for name, rows in table.groupby("scheduler", sort=False):
        percent = rows["condition"].str.extract(r"(\d+)")[0].astype(float)
        axes.plot(percent, rows["mean_jct_s"], label=name, marker="o", markersize=4, **looks[str(name)])
    axes.set_xticks(sorted(set(percent)))
    finish_axes(axes, xlabel="Load (%)", ylabel="Average job completion time (s)", yscale="log")
    axes.yaxis.set_minor_formatter(LogFormatter())
    legend_beside(axes)
    return figure
