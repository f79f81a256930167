"""Record TPC-H and jobs of many other kinds on a local Spark, with plans, bytes and rows, as a workload.

    python -m workloads.spark.recorder.local --scale-factors 0.05,0.2,0.5 --out DIR

One application for each scale factor runs all jobs one by one, ``--runs`` times, with Spark's defaults: adaptive
execution and broadcast joins are on. The folder gets the event logs, and ``jobs.json.gz``, a workload file of them.
Needs the extra ``[spark]`` and Java 17.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workloads.errors import DecimaError
from workloads.sources.workload_writer import write_workload
from workloads.spark.importing import import_event_logs
from workloads.spark.recorder.cluster import java_version, spark_home
from workloads.spark.recorder.kinds import JOBS
from workloads.spark.recorder.record import list_of, positive_float, positive_int
from workloads.spark.recorder.submission import slim_event_log
from workloads.spark.recorder.tpch import NUM_QUERIES, SCHEMAS, RecorderError, generate_tables, query_text

#: Largest scan task and number of tasks after a shuffle, at a scale factor of 1; both grow with its square root.
SPLIT_MB, SHUFFLE_PARTITIONS = 12.0, 24
#: Settings with which a query has the same plan at all scale factors, as in the recordings of the embedded set.
_FIXED_PLANS = {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"}

#: A job: gets a session, and a folder for its files.
Job = Callable[[Any, Path], object]


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status, 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m workloads.spark.recorder.local", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--tables", type=Path, help="folder of the TPC-H tables (default: OUT/tables)")
    parser.add_argument(
        "--scale-factors", type=list_of(positive_float), default=[0.05, 0.2, 0.5], help="1 is about 1 GB"
    )
    parser.add_argument("--runs", type=positive_int, default=2, help="runs of each job")
    parser.add_argument("--cores", type=positive_int, default=1, help="tasks that run at once")
    parser.add_argument(
        "--adaptive",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="adaptive execution and broadcast joins; without, a query has the same plan at all scale factors",
    )
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="log the CPU time of a task as its duration, for a machine that does other work; the time of Python "
        "workers is not counted",
    )
    parser.add_argument("--tpch-only", action="store_true", help="leave out the jobs of other kinds")
    options = parser.parse_args(arguments)
    try:
        java_version()
        spark_home()
        logs = options.out.resolve() / "eventlogs"
        logs.mkdir(parents=True, exist_ok=True)
        tables = (options.tables or options.out / "tables").resolve()
        for scale_factor in options.scale_factors:
            target = logs / f"sf{scale_factor:g}.json.gz"
            if not target.exists():
                jobs = tpch_queries(scale_factor) | ({} if options.tpch_only else JOBS)
                settings = session_settings(scale_factor, options.cores) | (
                    {} if options.adaptive else _FIXED_PLANS
                )
                record(jobs, scale_factor, settings, tables, target, options.runs, cpu_time=options.cpu_time)
        workload = import_event_logs([logs], name="jobs of many kinds on a local Spark").workload
        write_workload(options.out / "jobs.json.gz", workload)
        print(f"{len(workload.profiles)} profiles: {options.out / 'jobs.json.gz'}")
    except (DecimaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def record(
    jobs: Mapping[str, Job],
    scale_factor: float,
    settings: Mapping[str, str],
    tables: Path,
    target: Path,
    runs: int,
    *,
    cpu_time: bool = False,
) -> None:
    """Run jobs one by one in one application, and write its event log.

    Args:
        jobs: functions of the jobs, by name.
        scale_factor: scale factor of the tables.
        settings: Spark's settings.
        tables: folder of the tables of all scale factors.
        target: file of the event log, ``.json.gz``.
        runs: runs of each job.
        cpu_time: log the CPU time of a task as its duration.

    Raises:
        RecorderError: a job failed.
    """
    from pyspark.sql import SparkSession

    folder = generate_tables(tables, scale_factor)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    name = f"jobs-sf{scale_factor:g}"
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "events").mkdir()
        folders = {"spark.local.dir": str(scratch), "spark.eventLog.dir": (scratch / "events").as_uri()}
        spark = SparkSession.builder.appName(name).config(map={**settings, **folders}).getOrCreate()
        try:
            spark.sparkContext.setLogLevel("ERROR")
            create_views(spark, folder)
            for run in range(runs):
                for job_name, job in jobs.items():
                    _run(spark, f"{job_name}-{scale_factor:g}g", job, scratch, run)
        finally:
            spark.stop()
        [log] = (scratch / "events").iterdir()
        if cpu_time:
            use_cpu_times(log)
        notes = {"name": name, "sf": scale_factor, "n": settings["spark.master"], "cpu_time": cpu_time}
        slim_event_log(log, target, notes)


def create_views(spark: Any, folder: Path) -> None:
    """Create a temporary view of each TPC-H table in a session; ``folder`` has the tables of one scale factor."""
    for table, columns in SCHEMAS.items():
        path = folder / f"{table}.parquet"
        spark.read.schema(columns).parquet(path.as_uri()).createOrReplaceTempView(table)


def use_cpu_times(log: Path) -> None:
    """Replace the end of each task in an event log by its start plus its CPU time."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    for index, line in enumerate(lines):
        if "SparkListenerTaskEnd" in line and (event := json.loads(line))["Event"] == "SparkListenerTaskEnd":
            info, metrics = event["Task Info"], event.get("Task Metrics") or {}
            cpu_ns = sum(metrics.get(f"Executor {part}CPU Time", 0) for part in ("", "Deserialize "))
            info["Finish Time"] = info["Launch Time"] + max(math.ceil(cpu_ns / 1e6), 1)
            lines[index] = json.dumps(event, separators=(",", ":")) + "\n"
    log.write_text("".join(lines), encoding="utf-8")


def _run(spark: Any, name: str, job: Job, scratch: Path, run: int) -> None:
    spark.sparkContext.setJobDescription(name)
    begun = time.monotonic()
    try:
        job(spark, scratch)
    except Exception as error:  # Spark raises errors of many types
        raise RecorderError(f"{name}: {str(error).strip().splitlines()[0]}") from None
    print(f"run {run + 1}: {name} {time.monotonic() - begun:.1f} s", flush=True)


def tpch_queries(scale_factor: float) -> dict[str, Job]:
    """Return the queries of TPC-H by name."""
    texts = {query: query_text(query, scale_factor) for query in range(1, NUM_QUERIES + 1)}
    return {f"tpch-q{query}": partial(_collect, text) for query, text in texts.items()}


def _collect(text: str, spark: Any, scratch: Path) -> object:
    return spark.sql(text).collect()


def session_settings(scale_factor: float, cores: int) -> dict[str, str]:
    """Return Spark's settings for tables of a scale factor: sizes and numbers of tasks grow with its square root."""
    growth = scale_factor**0.5
    partitions = str(max(round(SHUFFLE_PARTITIONS * growth), 2))
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.maxPartitionBytes": f"{max(round(SPLIT_MB * growth * 1024), 256)}k",
        "spark.sql.files.openCostInBytes": "64k",
        "spark.sql.files.minPartitionNum": str(cores),
        "spark.sql.shuffle.partitions": partitions,
        "spark.default.parallelism": partitions,
        "spark.sql.autoBroadcastJoinThreshold": f"{max(round(2048 * scale_factor), 64)}k",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
