"""Decima, Figure 9a: mean job completion times on batches of 20 TPC-H jobs, against classic schedulers.

Section 7.2 of the paper: shortest job first along the critical path is 1.6 times and fair sharing 2.5 times as fast as
first in, first out; naive weighting is worse than none; Decima is 21 % below weighted fair sharing with the best alpha.
"""

from __future__ import annotations

import decima
from decima.show.plots import plot_jct_cdf
from reproduce.common import Result

SCHEDULERS = [
    "fifo",
    "sjf-cp",
    "fair",
    "naive-weighted-fair",
    "weighted-fair",
    "tuned-weighted-fair",
    "srpt",
    "srpt-tuned",
]


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    jobs: int = 20,
    seeds: int = 100,
    seed: int = 0,
    policy: str | None = None,
    workers: int = 1,
) -> Result:
    """Compare schedulers on batches.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        jobs: Jobs in a batch.
        seeds: Number of batches.
        seed: Seed of the first batch.
        policy: Policy file of decima; by default the shipped policy of the most similar setting.
        workers: Processes.
    """
    runs = decima.compare(
        [*SCHEDULERS, "decima"],
        workload=workload,
        executors=executors,
        jobs=jobs,
        seeds=seeds,
        seed=seed,
        checkpoint=policy,
        workers=workers,
    )
    table = decima.summary_table(runs, against="tuned-weighted-fair")
    table["paper"] = table["scheduler"].map({"decima": "-21%"})
    jct_s = runs.pivot_table("mean_jct_s", "seed", "scheduler")
    means = jct_s.mean()
    values = {f"fifo over {name}": f"{means['fifo'] / means[name]:.1f}" for name in ("sjf-cp", "fair")}
    picture = plot_jct_cdf({name: jct_s[name].to_numpy() for name in table["scheduler"]})
    return Result({"batches": table}, {"fig9a": picture}, values)
