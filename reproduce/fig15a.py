"""Decima, Figure 15a: how fast encodings of the parallelism limit learn.

Section 7.4 of the paper: separate outputs for the limits of a job have more parameters than one function with the limit
as an input, and learn more slowly, as do limits of stages, which have more policies to explore. Policies learn by
reinforcement learning alone, as in the paper. Five trainings, about two hours of CPU time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import count_iterations, finish_axes, legend_beside, new_axes, styles
from reproduce.common import Result, interval_for_load, stream_settings, train
from reproduce.fig14 import reimplementations

TUNED = "tuned-weighted-fair"


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
    """Train policies with different encodings, and compare them on streams.

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
    encodings = {
        "decima": [],
        "an output per limit": [
            "policy.overrides.limit=outputs",
            "policy.overrides.log_limits=false",
            f"policy.overrides.num_limits={executors}",
        ],
        "limits of stages": ["policy.overrides.limit=stage"],
        **reimplementations(executors),
    }
    # Under an untrained policy jobs only accumulate, so episodes are short at first (section 5.3, challenge 1).
    scratch = [
        f"cluster.executors={executors}",
        *stream_settings(interval),
        "episodes.batches=0",
        "episodes.final_sequences=null",
        "policy.overrides.wait=false",
        f"curriculum={{start: {10 * interval:.6g}, end: {60 * interval:.6g}}}",
        "episodes.sequences=4",
    ]
    schedulers, curves = {TUNED: TUNED, "srpt": "srpt"}, {}
    for name, settings in encodings.items():
        folder = policies / f"scratch-{interval:g}s-{name.replace(' ', '-')}"
        schedulers[name] = train(folder, "stream", [*scratch, *settings, *training], workload, workers)
        curves[name] = pd.read_json(folder / "metrics.jsonl", lines=True)
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
    return Result({"streams": decima.summary_table(runs, TUNED)}, {"fig15a": plot(curves)})


def plot(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the mean JCT on validation sequences over iterations; dashed: tuned weighted fair sharing."""
    figure, axes = new_axes(7, 4)
    looks = styles([*curves, TUNED])
    for name, rows in curves.items():
        measured = rows.dropna(subset="validation_mean_jct_s")
        axes.plot(measured["iteration"], measured["validation_mean_jct_s"], label=name, **looks[name])
        # All policies have the same validation sequences; improvement = 1 - JCT / JCT of the reference.
        reference_s = (measured["validation_mean_jct_s"] / (1 - measured["improvement"])).iloc[0]
    axes.axhline(reference_s, label=TUNED, **looks[TUNED])
    finish_axes(axes, xlabel="Iterations", ylabel="Average job completion time (s)", ylim=(0, None))
    count_iterations(axes)
    legend_beside(axes)
    return figure
