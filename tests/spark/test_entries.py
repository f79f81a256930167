"""Ways into Spark besides a batch application: structured streaming, and several applications in one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.eventlog import most_at_once
from tests.spark.harness import Sleeper, application, until, why_not
from tests.spark.policy import PolicyServer, ordered

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
BATCHES = 3


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


def test_each_micro_batch_of_a_stream_is_a_job(
    sleeper: Sleeper, server: PolicyServer, tmp_path: Path
) -> None:
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


def test_a_second_application_in_the_same_jvm_has_a_policy_too(
    sleeper: Sleeper, server: PolicyServer
) -> None:
    """Last, since the first application ends."""
    from pyspark.sql import SparkSession

    settings = dict(sleeper.spark.sparkContext.getConf().getAll())
    for name in ("spark.app.id", "spark.app.startTime", "spark.driver.port"):
        settings.pop(name, None)
    settings["spark.app.name"] = "second"
    sleeper.spark.stop()
    server.states.clear()
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        until(lambda: [hello.name for hello in server.hellos] == ["app", "second"])
        server.policy = ordered(limits={"L": 1})
        Sleeper(spark, sleeper.folder).start("L", (4, 100)).join()
        jobs = [job for state in server.states for job in state.jobs if job.name == "L"]
        assert max(job.running for job in jobs) == 1
    finally:
        spark.stop()
