"""Driver of one recorded application: a process that runs one query for `workloads.spark.recorder`.

The driver writes JSON lines to the recorder. When its JVM is up, it writes ``{"state": "ready"}`` and waits for a line.
Then it registers with the cluster, runs the query and writes its measurements. So many drivers can be prepared in
advance, and measurements do not include the start of a JVM.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from workloads.spark.recorder.tpch import SCHEMAS

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the application that a JSON file, the only argument, describes.

    Keys of the file: conf (Spark's settings), tables (folder of parquet files), description and text of the query.
    """
    # Spark and its JVM may write to stdout, so the recorder's channel gets another descriptor.
    channel = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    application = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))

    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setAll(sorted(application["conf"].items()))
    SparkContext._ensure_initialized(conf=conf)
    print(json.dumps({"state": "ready"}), file=channel)
    if not sys.stdin.readline():
        return 1  # the recorder has ended
    print(json.dumps({"state": "done", **_run(conf, application)}), file=channel)
    return 0


def _run(conf: Any, application: dict[str, Any]) -> dict[str, Any]:
    """Open a session, run the query and close; return the measurements: times in s, clock times since the epoch."""
    from pyspark.sql import SparkSession

    opened = time.time()
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    context_up = time.time()
    for table, columns in SCHEMAS.items():
        path = Path(application["tables"]) / f"{table}.parquet"
        spark.read.schema(columns).parquet(path.as_uri()).createOrReplaceTempView(table)
    application_id = spark.sparkContext.applicationId
    spark.sparkContext.setJobDescription(application["description"])
    load = os.getloadavg()[0]
    before = _cpu_seconds(application_id)
    started = time.time()
    rows = spark.sql(application["text"]).collect()
    ended = time.time()
    used = {name: round(after - before[name], 2) for name, after in _cpu_seconds(application_id).items()}
    spark.stop()
    return {
        "app_id": application_id,
        "opened": round(opened, 3),
        "session_up_s": round(context_up - opened, 3),
        "start": round(started, 3),
        "wall": round(ended - started, 3),
        "rows": len(rows),
        "load1": round(load, 2),
        **used,
        "other_cpu_s": round(used["busy_cpu_s"] - used["our_cpu_s"], 2),
    }


def _cpu_seconds(application_id: str) -> dict[str, float]:
    """Return CPU time so far, s: of the machine, of this application's driver and executors, and stolen time."""
    import psutil

    machine = psutil.cpu_times()
    steal = getattr(machine, "steal", 0.0)
    busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
    # User time includes the time of guests.
    busy -= getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)
    driver = psutil.Process()
    ours = {process.pid: process for process in (driver, *driver.children(recursive=True))}
    for process in psutil.process_iter(["cmdline"]):
        if application_id in (process.info["cmdline"] or ()):
            ours[process.pid] = process
    seconds = 0.0
    for process in ours.values():
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue  # the process has ended meanwhile
        seconds += used.user + used.system
    return {"busy_cpu_s": busy, "our_cpu_s": seconds, "steal_s": steal}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
