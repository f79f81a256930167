"""A standalone Spark cluster on this machine: a master, a worker with a shuffle service, and applications.

Run as a program, this module is an application that runs one job on the cluster, for the study ``spark-applications``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from decima.outputs import atomic_path
from decima.service.live_spark import LEAN, LOCAL, LiveSpark, java_environment
from workloads.arrivals import JobSequence
from workloads.sources.open import open_workload
from workloads.spark.recorder.cluster import StandaloneCluster, free_port, start_process

__all__ = ["Standalone"]


class Standalone(StandaloneCluster):
    """A standalone cluster of one-core executors that can move between applications.

    It is a context manager that kills all processes at exit.

    Args:
        folder: folder for logs and configuration; its content is deleted at the start.
        slots: number of cores of the worker.
        settings: further lines of ``spark-defaults.conf`` for all applications.
        environment: further environment variables of all processes.

    Attributes:
        applications: application name -> process.

    Raises:
        RecorderError: on entry, if Java or pyspark is missing or a process does not start.
    """

    def __init__(
        self,
        folder: Path,
        slots: int,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        defaults = {
            **LOCAL,
            "spark.executor.cores": "1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": LEAN,
            "spark.shuffle.service.enabled": "true",
            "spark.shuffle.service.port": str(free_port()),
            **settings,
        }
        super().__init__(folder, slots, pin=False, workers=1, settings=defaults)
        self.applications: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {**java_environment(), "SPARK_DAEMON_JAVA_OPTS": LEAN, **(environment or {})}

    def environment(self) -> dict[str, str]:
        """Return environment variables for all processes of Spark, including drivers."""
        return {**super().environment(), **self._environment}

    def submit(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a program as an application. ``log`` returns its output."""
        variables = {**self.environment(), **(environment or {})}
        self.applications[name] = start_process(list(command), self._log(name), variables)

    def log(self, name: str) -> str:
        """Return the output of an application."""
        return self._log(name).read_text(errors="replace")

    def kill(self, name: str) -> None:
        """Kill an application with all its processes."""
        process = self.applications[name]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Kill the applications, and stop the worker, its executors and the master."""
        for name in self.applications:
            self.kill(name)
        super().stop()

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"


def main(folder: Path, name: str) -> None:
    """Wait for the file with the start time, run the job of the application ``name`` and write its end time."""
    from pyspark import SparkConf, SparkContext

    # Start the JVM and load its classes outside the measurement, which includes the executors' start.
    SparkContext._ensure_initialized()
    jobs = JobSequence(open_workload(str(folder / f"{name}.json")).profiles, np.zeros(1))
    (folder / f"{name}.ready").touch()
    go = folder / f"{name}.go"
    while not go.exists():
        time.sleep(0.02)
    time.sleep(max(0.0, float(go.read_text()) - time.time()))
    context = SparkContext(conf=SparkConf().setAppName(name))
    LiveSpark(context, 1, fair=False).run(jobs)
    with atomic_path(folder / f"{name}.done") as path:
        path.write_text(str(time.time()))
    context.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
