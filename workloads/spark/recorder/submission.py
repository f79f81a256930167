"""One application on the recording cluster, from the start of its driver to its event log."""

from __future__ import annotations

import contextlib
import json
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.spark.recorder.cluster import StandaloneCluster, start_process, stop_process
from workloads.spark.recorder.slim import slim_event_log
from workloads.spark.recorder.tpch import RecorderError, query_text, tables_folder

__all__ = ["Application", "Driver", "Layout"]

_READY_TIMEOUT_S = 120.0
_GRANTED = re.compile(r"^(\d+) INFO \S+: Granted executor ID \S+/(\d+) on ", re.MULTILINE)


@dataclass(frozen=True)
class Layout:
    """How a query is cut into tasks.

    Args:
        split: most bytes that a task reads from a table, such as ``12m``.
        shuffle_partitions: tasks of a stage that reads shuffles.
    """

    split: str
    shuffle_partitions: int

    @classmethod
    def parse(cls, text: str) -> Layout:
        """From text such as ``12m/16``; ValueError if it is none."""
        match = re.fullmatch(r"(\d+[kmg])/([1-9]\d*)", text)
        if not match:
            raise ValueError(f"a layout is written as in 12m/16, not {text!r}")
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.split}/{self.shuffle_partitions}"


@dataclass(frozen=True)
class Application:
    """One query as an application.

    Args:
        name: names the application and its log.
        query: 1 to 22.
        scale_factor: of the tables.
        executors: most that it may hold, one core each.
        layout: how it is cut into tasks.
        wait_for_executors: the query begins when it holds them all, else at once.
    """

    name: str
    query: int
    scale_factor: float
    executors: int
    layout: Layout
    wait_for_executors: bool

    def conf(self, cluster: StandaloneCluster) -> dict[str, str]:
        """Spark's settings."""
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
            # Numbers of tasks must depend on the data only, not on the executors there are.
            "spark.sql.files.maxPartitionBytes": self.layout.split,
            "spark.sql.files.minPartitionNum": "1",
            "spark.sql.shuffle.partitions": partitions,
            "spark.default.parallelism": partitions,
            "spark.sql.leafNodeDefaultParallelism": partitions,
        }


class Driver:
    """The driver process of an application: started ahead, submitted, finished."""

    def __init__(self, application: Application, cluster: StandaloneCluster, tables: Path) -> None:
        """Start the process; its JVM comes up by itself.

        Args:
            application: what it runs.
            cluster: where; it must have been started.
            tables: the folder of all tables.
        """
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
        command = [sys.executable, "-m", "workloads.spark.recorder.driver", str(description)]
        self._process = start_process(command, self._log, cluster.environment(), piped=True)

    @classmethod
    @contextlib.contextmanager
    def started(cls, application: Application, cluster: StandaloneCluster, tables: Path) -> Iterator[Driver]:
        """A driver that is ready to be submitted, and stopped at the end whatever happens."""
        driver = cls(application, cluster, tables)
        try:
            driver._answer("ready", _READY_TIMEOUT_S)
            yield driver
        finally:
            stop_process(driver._process)

    def submit(self) -> float:
        """Let it register with the cluster and run its query; return the time, s since the epoch."""
        assert self._process.stdin
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        return time.time()

    def finish(self, logs: Path, timeout_s: float) -> dict[str, Any]:
        """Wait for its end, put its event log into ``logs`` as ``NAME.json.gz``, and return what it measured.

        Raises:
            RecorderError: it failed, or took too long.
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
        """The driver's next message, which must tell of ``state``."""
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
        return (errors or lines or ["it said nothing"])[-1].strip()
