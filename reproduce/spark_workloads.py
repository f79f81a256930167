"""Real work on a real Spark: ETL, SQL and machine learning under Spark's own FIFO and FAIR modes, a rule, and Decima.

One Spark application runs batches of simultaneous jobs, each kind of jobs by itself: extract-transform-load jobs
(joins, windows, Python, caches), queries of TPC-H, and training of models. Adaptive execution is on, and no task
sleeps. The ways to schedule alternate within the application: without a service, Spark orders the jobs itself, FIFO in
its default pool, or FAIR with a pool for each job; with a service, the plugin asks it.

A job is the program of one thread, which may consist of several queries and Spark jobs, one after the other. First all
jobs run alone, twice: this warms the application up, and its event log becomes the history of the services.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.service.log import Question, read_log
from decima.show.style import LEGEND, finish_axes, new_axes, styles
from reproduce.common import Result
from reproduce.spark.live import TIMEOUT_MS, LiveSparkError, serving, started_context, with_plugin
from reproduce.spark.sleeping import check_pyspark
from reproduce.unknown_spark import wait_for_driver
from workloads import Workload, write_workload
from workloads.spark.importing import import_event_logs
from workloads.spark.recorder.cluster import free_port
from workloads.spark.recorder.kinds import JOBS
from workloads.spark.recorder.local import Job, create_views, session_settings, tpch_queries
from workloads.spark.recorder.tpch import generate_tables

FIFO, FAIR = "Spark FIFO", "Spark FAIR"
#: Delay between the submissions of a batch, s. It keeps their order.
APART_S = 0.02
#: Number of times that each job runs alone; the first run of a query compiles its code.
RUNS_ALONE = 2
#: Scale factors of the TPC-H tables by kind, 1 is about 1 GB; each job exists with each of them.
SCALE_FACTORS = {"ETL": (0.05, 0.15), "SQL": (0.05, 0.15), "ML": (0.02, 0.05)}
#: Job names of the kinds other than SQL, without the scale factor.
ETL = (
    "etl-partitions", "etl-csv", "etl-json", "deduplicate", "cache-reuse", "python-udf", "python-words", "rdd-join",
    "window-rank", "window-running", "window-lag", "window-join",
)  # fmt: skip
ML = ("ml-kmeans", "ml-logistic-regression", "ml-decision-tree", "ml-als", "ml-text-features", "page-rank")


class Served(NamedTuple):
    """A way to schedule by a service.

    Attributes:
        policy: scheduler of the service.
        knows: whether the history contains the kind of the batch; otherwise only the other kinds, from which the
            service estimates task times.
    """

    policy: str
    knows: bool


#: Way to schedule -> service; None: Spark itself.
WAYS = {
    FIFO: None,
    FAIR: None,
    "srpt-tuned": Served("srpt-tuned", True),
    "decima": Served("decima", True),
    "decima, no history": Served("decima", False),
}


def run(
    *,
    jobs: int = 10,
    batches: int = 15,
    slots: int = 2,
    scale: float = 1.0,
    logs: Path | None = None,
    seed: int = 0,
) -> Result:
    """Run batches of real jobs on Spark in each way; needs ``pip install -e '.[spark]'``, takes 40 minutes.

    Args:
        jobs: Number of jobs in a batch.
        batches: Number of batches; the three kinds take turns.
        slots: Number of tasks that run at once.
        scale: Factor on the sizes of the tables.
        logs: Folder for the logs of the services, by batch and way; by default they are not kept.
        seed: Seed of the draws of jobs.
    """
    check_pyspark()
    kinds = [*SCALE_FACTORS]
    address = f"127.0.0.1:{free_port()}"
    rows = []
    questions = missed = 0
    with ExitStack() as programs:
        folder = Path(
            programs.enter_context(TemporaryDirectory(prefix="decima-work-", ignore_cleanup_errors=True))
        )
        by_kind = programs.enter_context(application(folder, slots, scale, address))
        drawn = [draw(by_kind[kinds[batch % len(kinds)]], jobs, (seed, batch)) for batch in range(batches)]
        for _ in range(RUNS_ALONE):
            for job in dict.fromkeys(itertools.chain.from_iterable(drawn)):
                run_batch([job], folder / "scratch", fair=False)
        histories = write_histories(by_kind, folder)
        for batch, batch_jobs in enumerate(drawn):
            kind = kinds[batch % len(kinds)]
            first = batch // len(kinds) % len(WAYS)  # no way is always the first
            for way in [*WAYS][first:] + [*WAYS][:first]:
                log = (logs or folder) / f"{batch}-{way.replace(', ', '-').replace(' ', '-')}.jsonl"
                with ExitStack() as services:
                    if served := WAYS[way]:
                        history = histories["" if served.knows else kind]
                        log.parent.mkdir(parents=True, exist_ok=True)
                        services.enter_context(serving(served.policy, history, log, address=address))
                        wait_for_driver(log)
                    jct_s = run_batch(batch_jobs, folder / "scratch", fair=way == FAIR)
                for question in read_log(log) if served else ():
                    if isinstance(question, Question):
                        questions += 1
                        missed += question.missed.late + question.missed.lost if question.missed else 0
                load, _, _ = os.getloadavg()
                rows += [
                    {
                        "batch": batch,
                        "kind": kind,
                        "job": job.name,
                        "scheduler": way,
                        "jct_s": time_s,
                        "load": load,
                    }
                    for job, time_s in zip(batch_jobs, jct_s, strict=True)
                ]
    runs = pd.DataFrame(rows)
    loads = runs["load"]
    values = {
        "load average": f"{loads.min():.1f} to {loads.max():.1f}",
        "late or lost answers": f"{missed} of {questions:,}",
    }
    return result(runs)._replace(values=values)


class SparkJob(NamedTuple):
    """A job of a batch: its name, its program, and the session in which it runs."""

    name: str
    program: Job
    session: Any


@contextmanager
def application(folder: Path, slots: int, scale: float, address: str) -> Iterator[dict[str, list[SparkJob]]]:
    """Start a Spark application, with its event log in ``folder / "events"``, and yield the jobs of each kind."""
    from pyspark.sql import SparkSession

    events = folder / "events"
    events.mkdir()
    scale_factors = {kind: [scale * factor for factor in factors] for kind, factors in SCALE_FACTORS.items()}
    largest = max(itertools.chain.from_iterable(scale_factors.values()))
    settings = {
        **session_settings(largest, slots),
        **with_plugin(address, timeoutMs=TIMEOUT_MS),
        "spark.scheduler.mode": "FAIR",
        "spark.eventLog.dir": events.as_uri(),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
    }
    with started_context(folder / "spark", settings, java_options="") as context:
        by_kind: dict[str, list[SparkJob]] = {}
        for kind, factors in scale_factors.items():
            by_kind[kind] = []
            for scale_factor in factors:
                session = SparkSession(context).newSession()
                for name, value in session_settings(scale_factor, slots).items():
                    if name.startswith("spark.sql."):
                        session.conf.set(name, value)
                create_views(session, generate_tables(folder / "tables", scale_factor))
                names = {"ETL": ETL, "ML": ML}.get(kind, ())
                programs = {name: JOBS[name] for name in names} or tpch_queries(scale_factor)
                by_kind[kind] += [
                    SparkJob(f"{name}-{scale_factor:g}g", program, session)
                    for name, program in programs.items()
                ]
        yield by_kind


def draw(jobs: Sequence[SparkJob], number: int, seed: tuple[int, ...]) -> list[SparkJob]:
    """Draw a batch of different jobs."""
    chosen = np.random.default_rng(seed).choice(len(jobs), min(number, len(jobs)), replace=False)
    return [jobs[index] for index in chosen.tolist()]


def run_batch(jobs: Sequence[SparkJob], scratch: Path, *, fair: bool) -> list[float]:
    """Run jobs at the same time, one thread each, and return their completion times, s.

    Args:
        scratch: folder for files of the jobs, which is deleted.
        fair: whether each job has its own pool.

    Raises:
        LiveSparkError: a job failed.
    """
    from pyspark import InheritableThread

    context = jobs[0].session.sparkContext
    context._jvm.System.gc()  # also deletes shuffles and caches of earlier batches
    jct_s = [0.0] * len(jobs)
    failures: list[str] = []
    start_s = time.monotonic() + 0.2

    def work(index: int) -> None:
        job, folder = jobs[index], scratch / str(index)
        try:
            folder.mkdir(parents=True)
            context.setJobDescription(job.name)
            context.setLocalProperty("spark.scheduler.pool", str(index) if fair else None)
            time.sleep(max(0.0, start_s + index * APART_S - time.monotonic()))
            job.program(job.session, folder)
            jct_s[index] = time.monotonic() - start_s
        except Exception as error:  # raised again after all jobs have ended
            failures.append(f"{job.name}: {error}".splitlines()[0])

    threads = [InheritableThread(target=partial(work, index)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shutil.rmtree(scratch, ignore_errors=True)
    if failures:
        raise LiveSparkError(f"a job failed on Spark: {failures[0]}")
    return jct_s


def write_histories(by_kind: Mapping[str, Sequence[SparkJob]], folder: Path) -> dict[str, Path]:
    """Write workload files of the jobs in the application's event log.

    Returns:
        Kind -> file without the jobs of this kind; the empty kind has all.
    """
    workload = import_event_logs([folder / "events"]).workload
    files = {}
    for kind in ("", *by_kind):
        left_out = tuple(job.name for job in by_kind.get(kind, ()))
        profiles = tuple(
            profile for profile in workload.profiles if not (left_out and profile.name.startswith(left_out))
        )
        files[kind] = folder / f"history{kind and f'-without-{kind}'}.json"
        write_workload(files[kind], Workload(profiles, name="history", about=workload.about))
    return files


def result(runs: pd.DataFrame) -> Result:
    """Return tables and picture of the completion times of jobs: columns batch, kind, job, scheduler, jct_s."""
    mean_s = runs.pivot_table("jct_s", ["batch", "kind"], "scheduler")[[*WAYS]]
    kinds = [*runs["kind"].unique()]
    parts = {"all": mean_s} | {kind: mean_s[mean_s.index.get_level_values("kind") == kind] for kind in kinds}
    ways = []
    for way in WAYS:
        row = {"scheduler": way, "mean_jct_s": mean_s[way].mean()}
        row["vs Spark FIFO"], row["vs Spark FIFO_ci95"] = change(mean_s, way, FIFO)
        for part, times_s in parts.items():
            column = "vs Spark FAIR" if part == "all" else f"{part} vs FAIR"
            row[column], row[f"{column}_ci95"] = change(times_s, way, FAIR)
        ways.append(row)
    by_job = runs.pivot_table("jct_s", ["batch", "kind", "job"], "scheduler")[[*WAYS]]
    return Result(
        {"ways": pd.DataFrame(ways), "batches": mean_s.reset_index(), "jobs": by_job.reset_index()},
        {"spark-workloads": plot(parts)},
        formats={"batch": "", **{f"{kind} vs FAIR": "+.1%" for kind in kinds}},
    )


def change(mean_s: pd.DataFrame, way: str, other: str) -> tuple[float, float]:
    """Return the relative change of the mean JCT from another way, paired by batch, with its interval."""
    return (np.nan, np.nan) if way == other else decima.paired_change(mean_s[way], mean_s[other])


def plot(parts: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the changes of each way from FAIR by kind: the mean with its interval, and a point for each batch."""
    figure, axes = new_axes(9, 4)
    ways = [way for way in WAYS if way != FAIR]
    names = {way: served.policy if (served := WAYS[way]) else "fifo" for way in ways}
    looks = styles(names.values())
    for group, mean_s in enumerate(parts.values()):
        for place, way in enumerate(ways):
            at = group * (len(ways) + 1) + place
            mean, half_width = change(mean_s, way, FAIR)
            served, color = WAYS[way], looks[names[way]]["color"]
            axes.bar(
                at,
                100 * mean,
                yerr=100 * np.nan_to_num(half_width),
                color=color,
                alpha=0.5,
                hatch="//" if served and not served.knows else None,
                edgecolor="white",
                label=way if group == 0 else None,
            )
            axes.plot([at] * len(mean_s), 100 * (mean_s[way] / mean_s[FAIR] - 1), ".", color=color)
    middles = [group * (len(ways) + 1) + (len(ways) - 1) / 2 for group in range(len(parts))]
    axes.set_xticks(middles, ["all kinds" if part == "all" else part for part in parts])
    axes.axhline(0, color="black", linewidth=0.8)
    axes.legend(**LEGEND)
    finish_axes(axes, ylabel="Mean JCT against FAIR (%)", title="Real work on a real Spark, each batch")
    return figure
