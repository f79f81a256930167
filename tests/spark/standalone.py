"""A standalone cluster with several applications, as users have it: the plugin's lines are in spark-defaults.conf."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decima.service.plugin import JAR
from tests.spark.eventlog import events_of
from tests.spark.harness import LEAN, PATIENCE_S, spark_environment, spark_home, until

_DEFAULTS = """\
spark.master {master}
spark.executor.cores 1
spark.executor.memory 512m
spark.executor.extraJavaOptions {lean}
spark.driver.memory 512m
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.extraJavaOptions {lean}
spark.shuffle.service.enabled true
spark.shuffle.service.port {shuffle}
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.eventLog.enabled true
spark.eventLog.rolling.enabled false
spark.eventLog.compress false
spark.eventLog.dir file://{folder}/events
spark.sql.adaptive.enabled false
spark.jars {jar}
spark.plugins decima.spark.DecimaPlugin
spark.decima.address 127.0.0.1:{service}
spark.decima.executors true
"""
_LOGGING = """\
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
_PROGRAM = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.harness import Sleeper
folder, name, stages = Path(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
sleeper = Sleeper(SparkSession.builder.appName(name).getOrCreate(), folder)
count = 0
while count == 0 or not (folder / f"{name}.stop").exists():
    sleeper.start(f"{name}{count}", *stages).join()
    count += 1
sleeper.spark.stop()
"""


def free_ports(count: int) -> list[int]:
    """Nobody listens there now."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


@dataclass(frozen=True)
class Summary:
    """What the event log of an application says.

    Attributes:
        tasks: how many ended.
        failed, repeated: of these, did not succeed; were not the first attempt.
        stages_repeated: stages that were run again.
        joined, left: executors.
    """

    tasks: int
    failed: int
    repeated: int
    stages_repeated: int
    joined: int
    left: int


class Cluster:
    """A master, one worker with an external shuffle service, and applications that run jobs until they are stopped."""

    def __init__(self, folder: Path, slots: int, service: int) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        port, shuffle = free_ports(2)
        self.master = f"spark://127.0.0.1:{port}"
        for each in ("conf", "events", "local", "work"):
            (folder / each).mkdir(parents=True)
        defaults = _DEFAULTS.format(
            master=self.master, lean=LEAN, shuffle=shuffle, folder=folder, jar=JAR, service=service
        )
        (folder / "conf" / "spark-defaults.conf").write_text(defaults)
        (folder / "conf" / "log4j2.properties").write_text(_LOGGING)
        host = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._daemon("master.Master", [*host, "--port", str(port)], "I have been elected leader")
        place = ["--cores", str(slots), "--memory", "16g", "--work-dir", str(folder / "work"), self.master]
        self._daemon("worker.Worker", [*host, *place], "Successfully registered with master")

    def start(self, name: str, *stages: tuple[int, float], **conf: Any) -> None:
        """Start an application that runs jobs of these stages, one after the other, until it is stopped."""
        arguments = [f"--conf={key.replace('__', '.')}={value}" for key, value in conf.items()]
        submit = {"PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"])}
        command = [sys.executable, "-c", _PROGRAM, str(self.folder), name, repr(stages)]
        self._start(name, command, submit)

    def stop(self, *names: str) -> None:
        """Let applications end with the job that they are at."""
        for name in names:
            (self.folder / f"{name}.stop").touch()
        for name in names:
            assert self.processes[name].wait(PATIENCE_S) == 0, self.log(name)

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self.folder / f"{name}.log").read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The event log of an application."""
        for path in (self.folder / "events").iterdir():
            events = list(events_of(path))
            if any(event.get("App Name") == name for event in events):
                return events
        raise FileNotFoundError(name)

    def summary(self, name: str) -> Summary:
        """See ``Summary``."""
        events = self.events(name)

        def of(kind: str) -> list[dict[str, Any]]:
            return [event for event in events if event["Event"] == f"SparkListener{kind}"]

        return Summary(
            tasks=len(of("TaskEnd")),
            failed=sum(event["Task End Reason"]["Reason"] != "Success" for event in of("TaskEnd")),
            repeated=sum(event["Task Info"]["Attempt"] > 0 for event in of("TaskEnd")),
            stages_repeated=sum(
                event["Stage Info"]["Stage Attempt ID"] > 0 for event in of("StageSubmitted")
            ),
            joined=len(of("ExecutorAdded")),
            left=len(of("ExecutorRemoved")),
        )

    def most_held(self, *names: str, killed_ms: float) -> int:
        """Most executors that these applications had at once; those of a driver that was killed went then."""
        changes: list[tuple[float, int]] = []
        for name in names:
            held: set[str] = set()
            for event in self.events(name):
                if event["Event"] == "SparkListenerExecutorAdded":
                    held.add(event["Executor ID"])
                    changes.append((event["Timestamp"], 1))
                elif event["Event"] == "SparkListenerExecutorRemoved":
                    held.discard(event["Executor ID"])
                    changes.append((event["Timestamp"], -1))
                elif event["Event"] == "SparkListenerApplicationEnd":
                    changes.extend([(event["Timestamp"], -1)] * len(held))
                    held.clear()
            changes.extend([(killed_ms, -1)] * len(held))
        most = now = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        return most

    def kill(self, name: str) -> None:
        """Kill a process and all that it started."""
        process = self.processes[name]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _daemon(self, name: str, arguments: list[str], sign_of_life: str) -> None:
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        self._start(name, command, {})
        until(lambda: sign_of_life in self.log(name))

    def _start(self, name: str, command: list[str], more: Mapping[str, str]) -> None:
        environment = os.environ | spark_environment() | more
        environment |= {
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": LEAN,
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )


@contextmanager
def cluster(folder: Path, slots: int, service: int) -> Iterator[Cluster]:
    """A cluster that is gone after the block, with all that it has started."""
    made = Cluster.__new__(Cluster)
    made.processes = {}
    try:
        made.__init__(folder, slots, service)  # type: ignore[misc]
        yield made
    finally:
        for name in reversed(made.processes):
            made.kill(name)
