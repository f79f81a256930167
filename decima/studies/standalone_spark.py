"""A standalone cluster of Spark on this machine: a master, a worker with a shuffle service, and applications."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from decima.service.plugin import JAR
from decima.studies.live_spark import LEAN, LiveSparkError, java_environment

__all__ = ["Standalone", "free_ports", "standalone"]

#: Far longer than anything here takes to start, s.
PATIENCE_S = 120.0
#: Settings of log4j for daemons and applications alike.
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.decima.name = decima.spark
logger.decima.level = info
logger.master.name = org.apache.spark.deploy.master.Master
logger.master.level = info
logger.worker.name = org.apache.spark.deploy.worker.Worker
logger.worker.level = info
"""


def free_ports(count: int) -> list[int]:
    """Nobody listens there now."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Standalone:
    """A running cluster, on which executors have one core each.

    Args:
        folder: for its files; made.
        environment: what all its programs are told besides.

    Attributes:
        folder: with its files.
        processes: by name, those of applications included.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._environment = {**os.environ, **java_environment(), **(environment or {})}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, slots: int, settings: Mapping[str, str]) -> None:
        """Start master and worker.

        Args:
            slots: cores of the worker.
            settings: lines of ``spark-defaults.conf`` that all applications have.

        Raises:
            LiveSparkError: they do not start.
        """
        port, shuffle = free_ports(2)
        master = f"spark://127.0.0.1:{port}"
        for each in ("conf", "events", "local", "work"):
            (self.folder / each).mkdir(parents=True)
        defaults = {
            "spark.master": master,
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": LEAN,
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": LEAN,
            "spark.shuffle.service.enabled": "true",
            "spark.shuffle.service.port": str(shuffle),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.jars": str(JAR),
            **settings,
        }
        lines = "".join(f"{key} {value}\n" for key, value in defaults.items())
        (self.folder / "conf" / "spark-defaults.conf").write_text(lines)
        (self.folder / "conf" / "log4j2.properties").write_text(LOGGING)
        host = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._daemon("master.Master", [*host, "--port", str(port)], "I have been elected leader")
        place = ["--cores", str(slots), "--memory", "16g", "--work-dir", str(self.folder / "work"), master]
        self._daemon("worker.Worker", [*host, *place], "Successfully registered with master")

    def run(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a program that knows the cluster; see ``log`` for what it says."""
        known = {
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": LEAN,
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env={**self._environment, **known, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """What a program has said."""
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        """Kill a program and all that it started."""
        process = self.processes[name]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """Kill all of it."""
        for name in reversed(self.processes):
            self.kill(name)

    def _daemon(self, name: str, arguments: list[str], sign_of_life: str) -> None:
        program = str(spark_home() / "bin" / "spark-class")
        self.run(name, [program, f"org.apache.spark.deploy.{name}", *arguments])
        end_s = time.monotonic() + PATIENCE_S
        while sign_of_life not in self.log(name):
            if time.monotonic() > end_s or self.processes[name].poll() is not None:
                last = self.log(name).strip().splitlines()[-1:]
                raise LiveSparkError(f"Spark's {name} does not start: {''.join(last)}")
            time.sleep(0.05)


def spark_home() -> Path:
    """Of the Spark that pyspark brings."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("no pyspark", name="pyspark")
    return Path(spec.origin).parent


@contextmanager
def standalone(folder: Path, slots: int, settings: Mapping[str, str]) -> Iterator[Standalone]:
    """A cluster that is gone after the block, with all that it has started; see ``Standalone.start``."""
    cluster = Standalone(folder)
    try:
        cluster.start(slots, settings)
        yield cluster
    finally:
        cluster.end()
