"""Streams of 200 TPC-H jobs at a moderate load, 25 s apart as in the published code of Decima.

The first table of the README has these streams beside the batches of Figure 9a. At a load of about 56 % few jobs wait,
so that schedulers differ less than at 85 % (Figure 9b).
"""

from __future__ import annotations

import decima
from reproduce.common import Result, change, plot_means

SCHEDULERS = [
    "fifo",
    "sjf-cp",
    "fair",
    "weighted-fair",
    "tuned-weighted-fair",
    "srpt",
    "srpt-tuned",
    "decima",
]


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    interval: float = 25.0,
    jobs: int = 200,
    seeds: int = 20,
    seed: int = 0,
    policy: str = "tpch-stream",
    workers: int = 1,
) -> Result:
    """Compare schedulers on streams.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        interval: Mean seconds between arrivals.
        jobs: Jobs in a stream.
        seeds: Number of streams.
        seed: Seed of the first stream.
        policy: Policy of decima: a shipped one or a file.
        workers: Processes.
    """
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
    table = decima.summary_table(runs, against="tuned-weighted-fair")
    values = {"decima vs srpt-tuned": change(runs, "decima", "srpt-tuned")}
    return Result({"streams": table}, {"streams": plot_means(table)}, values)
