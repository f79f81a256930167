"""Decima, Figure 9b: mean job completion times on streams of 1,000 TPC-H jobs at a load of 85 %.

Section 7.2 of the paper: jobs arrive 45 s apart by a Poisson process, on executors that run tasks for about 85 % of the
time. Decima is 29 % below weighted fair sharing with the best alpha. ``fig10`` shows one of the streams in detail.
"""

from __future__ import annotations

import decima
from decima.show.plots import plot_jct_cdf
from reproduce.common import Result, change, interval_for_load

SCHEDULERS = ["fifo", "sjf-cp", "fair", "tuned-weighted-fair", "srpt", "srpt-tuned", "decima"]


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    load: float = 0.85,
    interval: float | None = None,
    jobs: int = 1000,
    seeds: int = 10,
    seed: int = 0,
    policy: str = "tpch-stream",
    workers: int = 1,
) -> Result:
    """Compare schedulers on streams.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        load: Share of the time that executors are busy; sets the time between arrivals.
        interval: Mean seconds between arrivals, instead of a load; the published code has 25.
        jobs: Jobs in a stream.
        seeds: Number of streams.
        seed: Seed of the first stream.
        policy: Name or file of the policy of decima.
        workers: Processes.
    """
    interval = interval or interval_for_load(load, workload, executors)
    runs = decima.compare(
        SCHEDULERS,
        workload=workload,
        executors=executors,
        arrivals="poisson",
        interval=interval,
        jobs=jobs,
        seeds=seeds,
        seed=seed,
        checkpoint=policy,
        workers=workers,
    )
    table = decima.summary_table(
        runs, "tuned-weighted-fair", ["mean_jct_s", "p95_jct_s", "utilisation", "load"]
    )
    table["paper"] = table["scheduler"].map({"decima": "-29%"})
    jct_s = runs.pivot_table("mean_jct_s", "seed", "scheduler")
    values = {"interval": f"{interval:g} s", "decima vs srpt-tuned": change(runs, "decima", "srpt-tuned")}
    picture = plot_jct_cdf({name: jct_s[name].to_numpy() for name in SCHEDULERS})
    return Result({"streams": table}, {"fig9b": picture}, values)
