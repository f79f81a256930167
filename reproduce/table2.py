"""Decima, Table 2: a policy that was trained with fewer arrivals than in the test.

Section 7.4 of the paper, with 45 s between arrivals in the test: tuned weighted fair sharing 91.2 ± 23.5 s, trained
there 65.4 ± 28.7 s, trained with 75 s between arrivals 104.8 ± 37.6 s (± is no confidence interval). Training on mixed
intervals and the interval as an input are not reproduced. Two trainings, about two hours of CPU time.
"""

from __future__ import annotations

from pathlib import Path

import decima
from reproduce.common import Result, interval_for_load, plot_means, stream_settings, train

TUNED, HERE, SPARSE = "tuned-weighted-fair", "decima trained there", "decima trained with fewer arrivals"
PAPER = {TUNED: "91.2 ± 23.5", HERE: "65.4 ± 28.7", SPARSE: "104.8 ± 37.6"}


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    load: float = 0.85,
    jobs: int = 400,
    seeds: int = 10,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
    workers: int = 1,
) -> Result:
    """Train one policy in the test setting and one with fewer arrivals, and compare them.

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
    interval = interval_for_load(load, workload, executors)
    schedulers = {TUNED: TUNED, "srpt": "srpt"}
    for name, trained_with in ((HERE, interval), (SPARSE, float(f"{interval * 75 / 45:.3g}"))):
        settings = [f"cluster.executors={executors}", *stream_settings(trained_with), *training]
        schedulers[name] = train(
            policies / f"stream-{trained_with:g}s-decima", "stream", settings, workload, workers
        )
    runs = decima.compare(
        schedulers,
        workload=workload,
        executors=executors,
        arrivals="poisson",
        interval=interval,
        jobs=jobs,
        seeds=seeds,
        seed=seed,
        workers=workers,
    )
    table = decima.summary_table(runs, against=TUNED)
    table["paper"] = table["scheduler"].map(PAPER)
    return Result({"streams": table}, {"table2": plot_means(table)})
