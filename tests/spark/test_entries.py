"""Ways into Spark: structured streaming, several applications in one JVM, and a driver on a worker (cluster mode).

An application with a short queue of events is the last in the same JVM, as a JVM starts slowly.
"""

import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from decima.service.plugin import PluginError, javac
from decima.service.protocol import JobMessage
from reproduce.spark.live import LEAN, Standalone, with_plugin
from tests.spark.eventlog import most_at_once
from tests.spark.harness import PATIENCE_S, Sleeper, application, spark_environment, spark_home, until, why_not
from tests.spark.policy import PolicyServer, ordered

pytestmark = [pytest.mark.spark, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
BATCHES = 3
#: Waves of queries, and queries at the same time.
WAVES, AT_ONCE = 3, 8
#: Spark 3.5 does not open these packages of Java 17 to a driver on a worker.
OPENS = " ".join(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch",
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[PolicyServer]:
    server = PolicyServer(ordered())
    yield server
    server.close()
    assert not server.problems


@pytest.fixture(scope="module")
def sleeper(tmp_path_factory: pytest.TempPathFactory, server: PolicyServer) -> Iterator[Sleeper]:
    folder = tmp_path_factory.mktemp("spark")
    conf = {"spark__decima__timeoutMs": 30_000, "spark__decima__retryMs": 300}
    with application(folder / "app", server.address, "local[4]", **conf) as sleeper:
        until(lambda: server.hellos)
        yield sleeper


def test_each_micro_batch_of_a_stream_is_a_job(sleeper: Sleeper, server: PolicyServer, tmp_path: Path) -> None:
    """Each is a query with its plan. The policy's limit holds, and no batch stays."""

    def policy(state):
        answer = ordered()(state)
        return answer.model_copy(update={"limits": {job.id: 2 for job in state.jobs}})

    server.policy = policy
    spark = sleeper.spark
    rows = spark.readStream.format("rate").option("rowsPerSecond", 40).option("numPartitions", 4).load()
    counts = rows.selectExpr("value % 8 as k").groupBy("k").count()
    query = (
        counts.writeStream.format("noop")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        until(lambda: query.lastProgress and query.lastProgress["batchId"] >= BATCHES)
    finally:
        query.stop()
    assert query.exception() is None
    batches = {job.id: job for state in server.states for job in state.jobs if job.plan is not None}
    assert len(batches) >= BATCHES
    assert all("batch = " in (job.name or "") for job in batches.values())
    until(lambda: not server.states[-1].jobs)
    assert most_at_once(sleeper.tasks()) <= 2
    server.policy = ordered()


@contextmanager
def next_application(sleeper: Sleeper, server: PolicyServer, name: str, **conf: object) -> Iterator[Sleeper]:
    """End the application and run another one in the same JVM."""
    from pyspark.sql import SparkSession

    settings = dict(sleeper.conf)
    for key in ("spark.app.id", "spark.app.startTime", "spark.driver.port"):
        settings.pop(key, None)
    settings |= {"spark.app.name": name} | {key.replace("__", "."): str(conf[key]) for key in conf}
    sleeper.spark.stop()
    server.states.clear()
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        until(lambda: server.hellos[-1].name == name)
        yield Sleeper(spark, sleeper.folder, sleeper.log_file)
    finally:
        spark.stop()


def test_a_second_application_in_the_same_jvm_has_a_policy_too(sleeper: Sleeper, server: PolicyServer) -> None:
    with next_application(sleeper, server, "second") as second:
        assert [hello.name for hello in server.hellos[-2:]] == ["app", "second"]
        server.policy = ordered(limits={"L": 1})
        second.start("L", (4, 100)).join()
        jobs = [job for state in server.states for job in state.jobs if job.name == "L"]
        assert max(job.running for job in jobs) == 1


def test_a_job_ends_whose_end_was_dropped(sleeper: Sleeper, server: PolicyServer) -> None:
    """The queue of the plugin has room for one event; queries and Spark jobs without a query end at the same time."""
    conf = {"spark__scheduler__listenerbus__eventqueue__decima__capacity": 1}
    server.policy = ordered()
    with next_application(sleeper, server, "dropping", **conf) as dropping:
        context = dropping.spark.sparkContext
        jvm = context._jvm.org.apache.spark.api.java.JavaSparkContext(context._jsc.sc())
        for _ in range(WAVES):
            threads = [dropping.start(f"query {number}", (8, 1)) for number in range(AT_ONCE)]
            for _ in range(AT_ONCE):
                assert jvm.parallelize(list(range(8)), 8).count() == 8
            for thread in threads:
                thread.join()
        ended = len(server.states)
        until(lambda: not server.states[-1].jobs)
        assert "Dropping event from queue decima" in dropping.log()
    left = {job.id for state in server.states[ended:] for job in state.jobs}
    print(f"{len(left)} jobs were left")


@pytest.mark.slow
def test_a_driver_on_a_worker_asks_the_policy(tmp_path: Path) -> None:
    """``spark-submit --deploy-mode cluster`` on a standalone cluster, which takes no Python applications."""
    jar = application_jar(tmp_path)
    server = PolicyServer(ordered(limits={"sleeps": 1}))
    settings = with_plugin(server.address, timeoutMs="30000") | {"spark.driver.extraJavaOptions": f"{LEAN} {OPENS}"}
    with Standalone(tmp_path / "cluster", 3, settings, spark_environment()) as cluster:
        submit = str(spark_home() / "bin" / "spark-submit")
        cluster.submit("submit", [submit, "--deploy-mode", "cluster", "--class", "Sleeps", str(jar)])
        assert cluster.applications["submit"].wait(PATIENCE_S) == 0, cluster.log("submit")
        until(lambda: any(job.name == "sleeps" and job.stages[0].done > 4 for job in jobs(server)))
        [stderr] = (cluster.folder / "work").rglob("driver-*/stderr")
        until(lambda: "asked and answered" in stderr.read_text())
    server.close()
    assert not server.problems
    assert max(job.running for job in jobs(server)) == 1


def jobs(server: PolicyServer) -> list[JobMessage]:
    return [job for state in list(server.states) for job in state.jobs]


def application_jar(folder: Path) -> Path:
    """Compile the Java application."""
    try:
        compiler = javac()
    except PluginError as error:
        pytest.skip(str(error))
    source = Path(__file__).with_name("application") / "Sleeps.java"
    options = ("--release", "8", "-nowarn", "-Xlint:none", "-cp", f"{spark_home()}/jars/*", "-d", str(folder))
    subprocess.run([str(compiler), *options, str(source)], check=True)
    with zipfile.ZipFile(folder / "sleeps.jar", "w") as jar:
        for file in folder.glob("*.class"):
            jar.write(file, file.name)
    return folder / "sleeps.jar"
