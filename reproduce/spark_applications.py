"""Applications that share a real cluster of Spark: first come first served, equal shares, and Decima.

As on the cluster of the Decima paper, each job is an application, and an executor that moves to another application
takes the start of a JVM. Spark's master gives all slots to the first application, or ``spark.cores.max`` limits each to
an equal share; Decima sets the number of executors of each application through the plugin and ``decima serve --slots``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.outputs import atomic_path
from decima.show.style import LEGEND, finish_axes, new_axes, styles
from reproduce.common import Result
from reproduce.fig9_spark import change
from reproduce.spark.live import LiveSparkError, Standalone, serving, with_plugin
from reproduce.spark.sleeping import SparkSetting, sleeping_history, sleeping_jobs
from workloads import JobProfile, Workload, write_workload

FIFO, SHARES, DECIMA = "Spark FIFO", "static shares", "decima"
#: Way to share the cluster -> scheduler with its colour in the picture.
LOOKS = {FIFO: "fifo", SHARES: "fair", DECIMA: "decima"}
#: Time between the starts of applications, s, which keeps their order.
APART_S = 0.5
#: Time limit of a batch beside the time of its work on one executor, s.
TIMEOUT_S = 300.0


def run(
    *,
    workload: str = "tpch",
    slots: int = 8,
    jobs: int = 4,
    batches: int = 3,
    scale: float = 10.0,
    tasks: float = 0.1,
    seed: int = 0,
) -> Result:
    """Run batches of applications in each way; needs ``pip install -e '.[spark]'``, takes 20 minutes.

    Args:
        workload: Jobs: tpch, a workload file, or the folder of the published TPC-H profiles.
        slots: Slots of the cluster.
        jobs: Number of applications in a batch.
        batches: Number of batches.
        scale: Factor on the durations of tasks.
        tasks: Factor on the number of tasks of each stage.
        seed: Seed of the first batch.
    """
    setting = SparkSetting(slots, jobs, batches, scale=scale, tasks=tasks, seed=seed)
    naps = sleeping_jobs(decima.open_workload(workload).profiles, setting)
    rows = []
    with sleeping_history(naps) as (folder, history):
        for batch in range(batches):
            profiles = setting.sequence(naps, seed + batch).profiles
            for way in LOOKS:
                run_folder = folder / f"{batch}-{way.replace(' ', '-')}"
                times_s = run_batch(profiles, way, slots, history, run_folder)
                rows.append({"batch": batch, "scheduler": way, "mean_s": float(np.mean(times_s))})
    means = pd.DataFrame(rows).pivot_table("mean_s", "batch", "scheduler")[[*LOOKS]]
    return Result(
        {"ways": comparison(means), "batches": means.reset_index()},
        {"spark-applications": plot(means, jobs, slots)},
        {"slots of a static share": str(max(1, slots // jobs))},
    )


def run_batch(
    profiles: Sequence[JobProfile], way: str, slots: int, history: Path, folder: Path
) -> list[float]:
    """Run one application for each job, and return their times from submission to the end, s.

    The applications start their drivers, wait for a common start time in a file, and write their end times to files.
    """
    folder.mkdir()
    with ExitStack() as programs:
        settings = {}
        if way == SHARES:
            settings = {"spark.cores.max": str(max(1, slots // len(profiles)))}
        elif way == DECIMA:
            address = programs.enter_context(serving("decima", history, folder / "served.jsonl", slots))
            settings = with_plugin(address, executors="true")
        cluster = programs.enter_context(Standalone(folder / "cluster", slots, settings))
        names = [f"application-{index}" for index in range(len(profiles))]
        for name, profile in zip(names, profiles, strict=True):
            write_workload(folder / f"{name}.json", Workload((profile,), name="sleeping"))
            # The first argument of ``submit`` identifies the application in the cluster.
            cluster.submit(name, [sys.executable, "-m", "reproduce.spark.live", str(folder), name])
        wait_for(cluster, [folder / f"{name}.ready" for name in names], TIMEOUT_S)
        begin_s = time.time()
        for index, name in enumerate(names):
            with atomic_path(folder / f"{name}.go") as path:  # no application reads half of the file
                path.write_text(str(begin_s + index * APART_S))
        ends = [folder / f"{name}.done" for name in names]
        wait_for(cluster, ends, sum(profile.work_ms for profile in profiles) / 1000 + TIMEOUT_S)
        return [float(end.read_text()) - begin_s for end in ends]


def wait_for(cluster: Standalone, files: Sequence[Path], timeout_s: float) -> None:
    """Wait until each application has written its file, named after it.

    Raises:
        LiveSparkError: an application failed, or the time is over.
    """
    end_s = time.monotonic() + timeout_s
    while not all(file.exists() for file in files):
        for name, application in cluster.applications.items():
            if application.poll():
                last = cluster.log(name).strip().splitlines()[-1:]
                raise LiveSparkError(f"{name} failed on Spark: {''.join(last)}")
        if time.monotonic() > end_s:
            raise LiveSparkError(f"applications on Spark are not done after {timeout_s:.0f} s")
        time.sleep(0.05)


def comparison(means: pd.DataFrame) -> pd.DataFrame:
    """Return the mean completion time of each way, s, and its changes against the others, paired by batch."""
    rows = []
    for way in LOOKS:
        mean, half_width = decima.mean_interval(means[way])
        row = {"scheduler": way, "mean (s)": mean, "mean (s)_ci95": half_width}
        for other in (FIFO, SHARES):
            row[f"vs {other}"], row[f"vs {other}_ci95"] = change(means[way], means[other])
        rows.append(row)
    return pd.DataFrame(rows)


def plot(means: pd.DataFrame, jobs: int, slots: int) -> Figure:
    """Draw the mean completion time of each batch, one line for each way to share the cluster."""
    figure, axes = new_axes(6, 4)
    for way, look in zip(LOOKS, styles(LOOKS.values()).values(), strict=True):
        axes.plot(means.index, means[way], marker="o", label=way, **look)
    axes.set_xticks(means.index)
    axes.legend(**LEGEND)
    title = f"{jobs} applications on {slots} slots of a real Spark"
    finish_axes(axes, xlabel="Batch", ylabel="Average completion time (s)", title=title, ylim=(0, None))
    return figure
