"""Several applications on one standalone cluster of Spark: its own FIFO, equal static shares, and Decima in charge.

The paper's own setting: each job is an application, and executors move from one to the other at the price of a JVM's
start. Applications are submitted at once, in their order; their tasks sleep (``live_spark``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.outputs import atomic_path
from decima.registry import LEARNED
from decima.service.live_spark import LiveSparkError, serving
from decima.service.sleeping import Setting, sleeping_history, sleeping_jobs
from decima.service.standalone_spark import Standalone
from decima.show.style import LEGEND, finish_axes, new_axes, styles
from decima.show.tables import interval_text, new_table
from decima.studies.fig9_spark import change_cells, column, compared_on_spark, mean_s, needs_spark
from decima.studies.outcome import Outcome, Part
from workloads.arrivals import JobSequence
from workloads.job import JobProfile
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload, write_workload

__all__ = ["FIFO", "SHARES", "compare_applications", "outcome", "spark_applications"]

#: Spark's standalone master gives all slots to the first application.
FIFO = "Spark FIFO"
#: ``spark.cores.max``: each application has as many, from beginning to end.
SHARES = "static shares"
#: The compared ways to share the cluster -> the scheduler whose colour each has.
WAYS = {FIFO: "fifo", SHARES: "fair", LEARNED: LEARNED}
#: Applications that come together register with the master so far apart, s, so that they come in their order.
APART_S = 0.5
#: Time limit of a batch: a multiple of the time that one executor would need, and a constant, s.
PATIENCE, PATIENCE_S = 1.0, 300.0


def spark_applications(part: Part, workload: str | Path | None, **setting: Any) -> Outcome:
    """Compare ways to share a real standalone cluster among applications.

    Args:
        part: progress callback.
        workload: profiles of jobs; by default the embedded TPC-H set.
        setting: fields of ``Setting``; ``executors`` are the cluster's slots.

    Raises:
        OptionError: pyspark is not installed.
        LiveSparkError, RecorderError, WorkloadError: see ``compare_applications``.
    """
    profiles, size = open_workload(workload or EMBEDDED).profiles, Setting(**setting)
    with needs_spark("spark-applications"):
        runs = compare_applications(profiles, size, partial(part.tell, "running"))
    return outcome(runs, size)


def compare_applications(
    profiles: Sequence[JobProfile],
    setting: Setting,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Run batches of applications on a real cluster, each of one job.

    The ways take turns with each batch, so that a machine that is busier for a while is busier for all.

    Args:
        profiles: what jobs are drawn from, see ``sleeping_jobs``.
        setting: what runs; ``executors`` are the cluster's slots.
        tell: progress callback: the number of runs done and of all.

    Returns:
        A row for each batch and way: ``batch``, ``scheduler``, ``real_ms`` (mean completion time) and ``jct_ms`` (list,
        of each application in order).

    Raises:
        WorkloadError: no profile is left.
        LiveSparkError: Spark or the service does not start, or an application fails.
        RecorderError: no Java, no pyspark, or the cluster does not come up.
    """
    naps = sleeping_jobs(profiles, setting)
    rows: list[dict[str, Any]] = []
    with sleeping_history(naps) as (folder, history):
        for batch in range(setting.batches):
            jobs = setting.sequence(naps, setting.seed + batch)
            for way in WAYS:
                where = folder / f"{batch} {way}".replace(" ", "-")
                jct_ms = _run(jobs, way, setting.executors, history, where)
                real_ms = float(np.mean(jct_ms))
                rows.append({"batch": batch, "scheduler": way, "real_ms": real_ms, "jct_ms": jct_ms})
                tell(len(rows), setting.batches * len(WAYS))
    return pd.DataFrame(rows)


def _run(jobs: JobSequence, way: str, slots: int, history: Path, where: Path) -> list[float]:
    """Return the completion times of a batch, ms."""
    where.mkdir()
    with ExitStack() as programs:
        settings = {}
        if way == SHARES:
            settings = {"spark.cores.max": str(max(1, slots // len(jobs)))}
        elif way != FIFO:
            address = programs.enter_context(serving(way, history, where / "served.jsonl", slots))
            settings = {
                "spark.plugins": "decima.spark.DecimaPlugin",
                "spark.decima.address": address,
                "spark.decima.executors": "true",
            }
        cluster = programs.enter_context(Standalone(where / "cluster", slots, settings))
        names = [f"application-{number}" for number in range(len(jobs))]
        for name, profile in zip(names, jobs.profiles, strict=True):
            write_workload(where / f"{name}.json", Workload((profile,), name="sleeping"))
            # Its first argument is what the cluster knows the application by.
            cluster.submit(name, [sys.executable, "-m", "decima.service.spark_application", str(where), name])
        _wait(cluster, names, where, "ready", PATIENCE_S)
        begin_s = time.time()
        for number, name in enumerate(names):
            with atomic_path(where / f"{name}.go") as path:  # a program that sees the file sees all of it
                path.write_text(str(begin_s + number * APART_S))
        work_s = sum(profile.work_ms for profile in jobs.profiles) / 1000
        _wait(cluster, names, where, "done", PATIENCE * work_s + PATIENCE_S)
        ends_s = [float((where / f"{name}.done").read_text()) for name in names]
        return [(end_s - begin_s) * 1000 for end_s in ends_s]


def _wait(cluster: Standalone, names: Sequence[str], where: Path, ending: str, patience_s: float) -> None:
    """Wait until each application has written a file with this ending."""
    end_s = time.monotonic() + patience_s
    while not all((where / f"{name}.{ending}").exists() for name in names):
        for name in names:
            if cluster.applications[name].poll():
                last = cluster.log(name).strip().splitlines()[-1:]
                raise LiveSparkError(f"{name} failed on Spark: {''.join(last)}")
        if time.monotonic() > end_s:
            raise LiveSparkError(f"applications on Spark are not done after {patience_s:.0f} s")
        time.sleep(0.05)


def outcome(runs: pd.DataFrame, setting: Setting) -> Outcome:
    """Return the outcome of what ``compare_applications`` measured."""
    others = (FIFO, SHARES)
    title = f"{setting.batches} batches of {setting.jobs} applications on Spark, {setting.executors} slots"
    table = new_table(title, "Scheduler", "Mean completion time", *(f"vs {name}" for name in others))
    for name in WAYS:
        table.add_row(name, interval_text(mean_s(runs, name)), *change_cells(runs, name, others))
    batches = new_table("Mean completion time of each", "Batch", *WAYS)
    for batch, rows in runs.groupby("batch"):
        by_name = rows.set_index("scheduler")["real_ms"] / 1000
        batches.add_row(str(batch), *(f"{by_name[name]:.1f}" for name in WAYS))
    return Outcome(
        "spark-applications",
        runs,
        [table, batches],
        [
            "Times are seconds from submission to the end of the application, starts of its executors included.",
            "± is half a 95 % confidence interval (Student's t); changes are paired by batches.",
            f"{SHARES}: spark.cores.max is {max(1, setting.executors // setting.jobs)} for each.",
        ],
        extra={"setting": vars(setting), "schedulers": compared_on_spark(runs, others)},
        pictures={"spark-applications": partial(plot_applications, runs, setting)},
    )


def plot_applications(runs: pd.DataFrame, setting: Setting) -> Figure:
    """Draw the mean completion time of each batch."""
    figure, axes = new_axes(6, 4)
    looks = styles(WAYS.values())
    for name, colour in WAYS.items():
        axes.plot(column(runs, name).to_numpy() / 1000, marker="o", label=name, **looks[colour])
    axes.set_xticks(range(runs["batch"].nunique()))
    axes.legend(**LEGEND)
    title = f"{setting.jobs} applications on {setting.executors} slots of a real Spark"
    finish_axes(axes, xlabel="Batch", ylabel="Average completion time (s)", title=title)
    axes.set_ylim(bottom=0)
    return figure
