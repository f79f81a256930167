"""One application on the recording cluster: its run, from the start of its driver to its event log, and the driver.

Run as a program, this module is the driver, a process that runs one query. It writes JSON lines to the recorder. When
its JVM is up, it writes ``{"state": "ready"}`` and waits for a line. Then it registers with the cluster, runs the query
and writes its measurements. So many drivers can be prepared in advance, and measurements do not include the start of a
JVM.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.spark.logfile import Problems, events, find_event_logs
from workloads.spark.reader import EVENT_NAMES
from workloads.spark.recorder.cluster import StandaloneCluster, start_process, stop_process
from workloads.spark.recorder.tpch import SCHEMAS, RecorderError, query_text, tables_folder

_READY_TIMEOUT_S = 120.0
_GRANTED = re.compile(r"^(\d+) INFO \S+: Granted executor ID \S+/(\d+) on ", re.MULTILINE)


@dataclass(frozen=True)
class Layout:
    """Settings that determine the numbers of tasks of a query."""

    split: str  # maximum input of a scan task, such as ``12m``
    shuffle_partitions: int  # number of tasks of a stage that reads shuffles

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse a layout such as ``12m/16``; raise ValueError if the text has another form."""
        match = re.fullmatch(r"(\d+[kmg])/([1-9]\d*)", text)
        if not match:
            raise ValueError(f"a layout is written as in 12m/16, not {text!r}")
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.split}/{self.shuffle_partitions}"


@dataclass(frozen=True)
class Application:
    """Application that runs one query."""

    name: str  # name of the application and its log
    query: int  # number of the query, 1 to 22
    scale_factor: float  # scale factor of the tables
    executors: int  # maximum number of one-core executors
    layout: Layout  # settings for the numbers of tasks
    wait_for_executors: bool  # start the query when all executors have registered; else at once

    def conf(self, cluster: StandaloneCluster) -> dict[str, str]:
        """Return Spark's settings for the application."""
        partitions = str(self.layout.shuffle_partitions)
        return {
            "spark.master": cluster.master_url,
            "spark.app.name": self.name,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.cores.max": str(self.executors),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0" if self.wait_for_executors else "0.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": cluster.events_folder.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            # The plan, and so the DAG, must be the same in every run.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            # Numbers of tasks must depend on the data only, not on the number of executors.
            "spark.sql.files.maxPartitionBytes": self.layout.split,
            "spark.sql.files.minPartitionNum": "1",
            "spark.sql.shuffle.partitions": partitions,
            "spark.default.parallelism": partitions,
            "spark.sql.leafNodeDefaultParallelism": partitions,
        }


class DriverProcess:
    """Driver process of an application: started in advance, submitted, finished."""

    def __init__(self, application: Application, cluster: StandaloneCluster, tables: Path) -> None:
        """Start the process without waiting for its JVM."""
        self.application = application
        self._cluster = cluster
        self._log = cluster.folder / "logs" / f"{application.name}.log"
        description = self._log.with_suffix(".json")
        settings = {
            "conf": application.conf(cluster),
            "tables": str(tables_folder(tables, application.scale_factor)),
            "description": f"q{application.query:02d}",
            "text": query_text(application.query, application.scale_factor),
        }
        description.write_text(json.dumps(settings), encoding="utf-8")
        command = [sys.executable, "-m", "workloads.spark.recorder.submission", str(description)]
        self._process = start_process(command, self._log, cluster.environment(), piped=True)

    @classmethod
    @contextlib.contextmanager
    def started(
        cls, application: Application, cluster: StandaloneCluster, tables: Path
    ) -> Iterator[DriverProcess]:
        """Start a driver, and wait until it is ready to be submitted; stop it at the end of the context."""
        driver = cls(application, cluster, tables)
        try:
            driver._answer("ready", _READY_TIMEOUT_S)
            yield driver
        finally:
            stop_process(driver._process)

    def submit(self) -> float:
        """Tell the driver to register with the cluster and run its query; return the time, s since the epoch."""
        assert self._process.stdin
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        return time.time()

    def finish(self, logs: Path, timeout_s: float) -> dict[str, Any]:
        """Wait for the end, write the event log to ``logs`` as ``NAME.json.gz``, and return the measurements.

        Raises:
            RecorderError: the application failed, or took too long.
        """
        measured = self._answer("done", timeout_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        text = self._log.read_text(errors="replace")
        granted = {executor: {"granted": int(at)} for at, executor in _GRANTED.findall(text)}
        application = self.application
        record = {
            "name": application.name,
            "query": application.query,
            "sf": application.scale_factor,
            "n": application.executors,
            "layout": str(application.layout),
            **measured,
        }
        source = self._cluster.events_folder / measured["app_id"]
        slim_event_log(source, logs / f"{application.name}.json.gz", {**record, "executors": granted})
        source.unlink()
        return record

    def _answer(self, state: str, timeout_s: float) -> dict[str, Any]:
        """Return the driver's next message, which must have the given ``state``."""
        assert self._process.stdout
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not readable:
            raise RecorderError(f"{self.application.name}: not {state} after {timeout_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RecorderError(f"{self.application.name}: the driver failed: {self._last_error()}")
        message: dict[str, Any] = json.loads(line)
        if message.pop("state") != state:
            raise RecorderError(f"{self.application.name}: expected to be {state}, got {line[:80]!r}")
        return message

    def _last_error(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"\S*(Error|Exception)\b", line)]
        return (errors or lines or ["no output"])[-1].strip()


_BULKY = frozenset({
    "Accumulables", "Attributes", "Callsite", "Classpath Entries", "Details", "Hadoop Properties", "JVM Information",
    "Log Urls", "Metrics Properties", "Storage Level", "System Properties", "Task Executor Metrics", "Updated Blocks",
    "details", "metadata", "metricType", "modifiedConfigs", "physicalPlanDescription", "simpleString",
})  # fmt: skip
_PROPERTIES = (
    "spark.sql.execution.id", "spark.sql.execution.root.id", "spark.jobGroup.id", "spark.job.description",
    "spark.scheduler.pool",
)  # fmt: skip


def slim_event_log(source: Path, target: Path, recording: Mapping[str, Any]) -> None:
    """Copy the parts of a log that the reader needs to ``target`` (gzip), atomically.

    The first event is ``RunMeta`` with the entries of ``recording``.

    Raises:
        WorkloadError: ``source`` is damaged.
    """
    unfinished = target.with_name(target.name + ".part")
    [log] = find_event_logs(source)
    # Without a time stamp in the gzip header, equal logs give equal files.
    with unfinished.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(_line({"Event": "RunMeta", **recording}))
        for _, _, event in events(log, EVENT_NAMES, Problems(partial=False)):
            if event is not None:
                packed.write(_line(_slim(event)))
    unfinished.replace(target)


def _line(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _slim(value: Any) -> Any:
    """Return a value without bulky entries, at any depth."""
    if isinstance(value, list):
        return [_slim(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _slim(item) for key, item in value.items() if key not in _BULKY}
    if isinstance(properties := kept.get("Properties"), dict):
        kept["Properties"] = {key: properties[key] for key in _PROPERTIES if key in properties}
    if "Completion Time" in value and value.get("Accumulables"):  # of a stage: which operators ran in it
        kept["Accumulables"] = [{"ID": accumulator["ID"]} for accumulator in value["Accumulables"]]
    return kept


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
