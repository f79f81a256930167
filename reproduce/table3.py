"""Decima, Table 3: policies that were trained with fewer jobs, or on fewer executors, than in the test.

Section 7.3 of the paper: trained with 15 times fewer concurrent jobs 7 % above a policy trained in the test setting,
trained on 10 times fewer executors 3 % above. Here, the jobs are those of a trace (``docs/reproduce/table3.md`` has the
command that imports them). Three trainings, about an hour and a half of CPU time.
"""

from __future__ import annotations

from pathlib import Path

import decima
from reproduce.common import Result, plot_means, train

TUNED, HERE = "tuned-weighted-fair", "decima trained there"
FEWER_JOBS, FEWER_EXECUTORS = (
    "decima trained with 15 times fewer jobs",
    "decima trained on 10 times fewer executors",
)


def run(
    *,
    workload: str = "trace-before.json.gz",
    executors: int = 200,
    interval: float = 65.0,
    jobs: int = 200,
    seeds: int = 10,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
    workers: int = 1,
) -> Result:
    """Train policies in three settings, and compare them in the first.

    Args:
        workload: Workload file without arrivals.
        executors: Executors of the cluster, a multiple of 4.
        interval: Mean seconds between arrivals in the test.
        jobs: Jobs in a stream.
        seeds: Number of streams.
        seed: Seed of the first stream.
        policies: Folder of the trained policies; complete trainings in it are not repeated.
        training: Setting of all trainings that differs from the recipe, such as iterations=20.
        workers: Processes.
    """
    schedulers = {name: name for name in (TUNED, "tuned-graphene-star", "srpt")}
    trainings = {
        HERE: (interval, executors),
        FEWER_JOBS: (interval * 15, executors),
        FEWER_EXECUTORS: (interval * 10, max(4, executors // 10)),
    }
    for name, (trained_with, count) in trainings.items():
        # Horizons of the recipe, whose mean time between arrivals is 66.7 s, scale with the time between arrivals.
        settings = [
            f"cluster.classes={four_sizes(count)}",
            f"workload.interval={trained_with}",
            f"returns.horizon={8000 * trained_with / (200 / 3):.6g}",
            f"critic.gae_horizon={1200 * trained_with / (200 / 3):.6g}",
            *training,
        ]
        folder = policies / f"trace-{trained_with:g}s-{count}-executors"
        schedulers[name] = train(folder, "trace", settings, workload, workers)
    runs = decima.compare(
        schedulers,
        workload=workload,
        classes=four_sizes(executors),
        semantics="trace",
        arrivals="poisson",
        interval=interval,
        jobs=jobs,
        seeds=seeds,
        seed=seed,
        workers=workers,
    )
    table = decima.summary_table(runs, against=TUNED)
    table["paper"] = table["scheduler"].map({FEWER_JOBS: "7% above there", FEWER_EXECUTORS: "3% above there"})
    return Result({"streams": table}, {"table3": plot_means(table)})


def four_sizes(executors: int) -> str:
    """Return executor classes of equal size with memory 0.25, 0.5, 0.75 and 1."""
    return ",".join(f"{executors // 4}x{memory}" for memory in (0.25, 0.5, 0.75, 1))
