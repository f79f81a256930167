"""Real Spark standalone cluster on loopback: one master, and a worker for each one-core executor slot.

As every slot has its own worker, it can be bound to one core of the machine: the compiler and garbage collector of an
executor then only slow down this executor.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from workloads.spark.recorder.tpch import RecorderError

#: Minimum version of Java, for Spark 3.5 and 4.x.
MIN_JAVA = 17
_START_TIMEOUT_S = 60.0

# With times in ms since the epoch: only the driver's log has the time when an executor was granted.
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{UNIX_MILLIS} %p %c{1}: %m%n%ex
logger.master.name = org.apache.spark.deploy.master.Master
logger.master.level = info
logger.worker.name = org.apache.spark.deploy.worker.Worker
logger.worker.level = info
logger.backend.name = org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend
logger.backend.level = info
logger.decima.name = decima.spark
logger.decima.level = info
"""


def java_version() -> str:
    """Return the version of the Java that Spark uses, such as ``17.0.15``.

    Raises:
        RecorderError: Java is not installed, or too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).is_file():
        raise RecorderError(f"Java is not installed; Spark needs Java {MIN_JAVA}")
    output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', output)
    if not match or int(match[1]) < MIN_JAVA:
        raise RecorderError(f"Spark needs Java {MIN_JAVA}, but {program} is {output.splitlines()[:1]}")
    return match[0].split('"')[1]


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which contains all of Spark.

    Raises:
        RecorderError: pyspark is not installed.
    """
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise RecorderError("pyspark is not installed: pip install -e '.[spark]'")
    return Path(package.origin).parent


def free_port() -> int:
    """Return a free TCP port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass
class StandaloneCluster:
    """Standalone cluster as a context manager, which stops all its processes at the end, also on Ctrl-C.

    Raises:
        RecorderError: on entry: Java or pyspark is not installed, or a process does not start.
    """

    folder: Path  # folder of configuration, logs and scratch files; emptied at the start
    num_slots: int  # number of one-core executors that can run at once
    slot_memory_mb: int = 2048  # memory of a slot, MB
    pin: bool = True  # bind slot i to core i of the machine (modulo the number of cores)
    workers: int | None = None  # workers, which share the slots evenly; by default one for each slot
    #: Entries of ``spark-defaults.conf`` besides ``spark.master``.
    settings: Mapping[str, str] = field(default_factory=dict)
    master_url: str = field(default="", init=False)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        java_version()
        spark_home()
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("conf", "logs", "work", "local", "events"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "conf" / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        try:
            self._start_master()
            settings = {"spark.master": self.master_url, **self.settings}
            lines = "".join(f"{key} {value}\n" for key, value in settings.items())
            (self.folder / "conf" / "spark-defaults.conf").write_text(lines, encoding="utf-8")
            for index in range(self.workers or self.num_slots):
                self._start_worker(index)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def events_folder(self) -> Path:
        """Folder of the event logs of applications."""
        return self.folder / "events"

    def environment(self) -> dict[str, str]:
        """Return environment variables for all processes of Spark, including drivers."""
        return {
            **os.environ,
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "512m",
            "PYSPARK_PYTHON": sys.executable,
        }

    def stop(self) -> None:
        """Stop the workers with their executors, then the master."""
        while self._processes:
            stop_process(self._processes.pop())

    def _start_master(self) -> None:
        port = free_port()
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._start("master", "org.apache.spark.deploy.master.Master", arguments, "elected leader")
        self.master_url = f"spark://127.0.0.1:{port}"

    def _start_worker(self, number: int) -> None:
        cores = self.num_slots // (self.workers or self.num_slots)
        arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", str(cores)]
        arguments += ["--memory", f"{cores * self.slot_memory_mb}m", "--work-dir", str(self.folder / "work")]
        with _pinned_to(number) if self.pin else contextlib.nullcontext():
            self._start(
                f"worker{number}",
                "org.apache.spark.deploy.worker.Worker",
                [*arguments, self.master_url],
                "Successfully registered with master",
            )

    def _start(
        self, name: str, java_class: str, arguments: list[str], sign_of_life: str, prefix: Sequence[str] = ()
    ) -> None:
        """Start a program of Spark by a command that begins with ``prefix``, and wait for a line in its log."""
        log = self.folder / "logs" / f"{name}.log"
        command = [*prefix, str(spark_home() / "bin" / "spark-class"), java_class, *arguments]
        process = start_process(command, log, self.environment())
        self._processes.append(process)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while sign_of_life not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
                raise RecorderError(f"Spark's {name} did not start: {last[0]}")
            time.sleep(0.05)


def start_process(
    command: list[str], log: Path, environment: dict[str, str], *, piped: bool = False
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that Ctrl-C only reaches this process, which stops others in order.

    Args:
        log: file for stderr, and for stdout unless it is piped.
        piped: use pipes for stdin and stdout.
    """
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else file,
            stderr=file,
            start_new_session=True,
        )


def stop_process(process: subprocess.Popen[bytes], patience_s: float = 15.0) -> None:
    """Stop a process of `start_process` and its children; kill them after ``patience_s`` seconds."""
    for stop_signal in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


@contextlib.contextmanager
def _pinned_to(slot: int) -> Iterator[None]:
    """Bind processes that are started in this context, and their children, to one core (Linux only)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(allowed)[slot % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
