"""Servers that run Spark for their clients, under a policy: Spark Connect and the Thrift server."""

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from decima.service.protocol import Answer, StateMessage
from reproduce.spark.live import LEAN, LOCAL, LOGGING, with_plugin
from tests.spark.harness import spark_environment, spark_home, until, why_not
from tests.spark.policy import PolicyServer, ordered
from workloads.spark.recorder.cluster import free_port

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


def one_task_at_once(state: StateMessage) -> Answer:
    return ordered()(state).model_copy(update={"limits": {job.id: 1 for job in state.jobs}})


@pytest.fixture
def server() -> Iterator[PolicyServer]:
    server = PolicyServer(one_task_at_once)
    yield server
    server.close()
    assert not server.problems


@contextmanager
def spark_server(main: str, folder: Path, address: str, *arguments: str, **conf: object) -> Iterator[None]:
    """Run a server with the plugin inside the block; dots in the names of ``conf`` are written ``__``."""
    (folder / "log4j2.properties").write_text(LOGGING.format(path=folder / "driver.log"))
    settings = {
        **LOCAL,
        **with_plugin(address),
        "spark.decima.timeoutMs": "30000",
        "spark.driver.extraJavaOptions": f"{LEAN} -Dlog4j2.configurationFile=file:{folder}/log4j2.properties "
        f"-Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **{name.replace("__", "."): str(value) for name, value in conf.items()},
    }
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[4]", "--class", main]
    options = [f"--conf={name}={value}" for name, value in settings.items()]
    environment = os.environ | spark_environment()
    with (folder / "out.log").open("w") as out:
        process = subprocess.Popen(
            [*submit, *options, "spark-internal", *arguments],
            env=environment,
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def check(server: PolicyServer, name: str) -> None:
    """Check that a query was one job with its plan, and that the limit held."""
    until(lambda: server.states and not server.states[-1].jobs)
    jobs = [job for state in server.states for job in state.jobs]
    assert len({job.id for job in jobs}) == 1
    assert all(name in (job.name or "") for job in jobs)
    assert any(job.plan for job in jobs)
    assert max(job.running for job in jobs) == 1


def why_no_connect() -> str | None:
    if not list((spark_home() / "jars").glob("spark-connect_*.jar")):
        return "needs a pyspark with Spark Connect, 4.0 or later"
    missing = [name for name in ("grpc", "grpc_status", "pandas", "pyarrow") if importlib.util.find_spec(name) is None]
    return f"needs {' and '.join(missing)} of pyspark[connect]" if missing else None


@pytest.mark.skipif(why_not() is None and why_no_connect() is not None, reason="needs pyspark[connect], 4.0 or later")
def test_queries_of_spark_connect(server: PolicyServer, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    port = free_port()
    with spark_server(CONNECT, tmp_path, server.address, spark__connect__grpc__binding__port=port):
        until(lambda: server.hellos)
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        assert session.range(0, 400, 1, 4).selectExpr("id % 7 as k").groupBy("k").count().count() == 7
        check(server, "Spark Connect - session_id")
        session.stop()


def test_queries_of_the_thrift_server(server: PolicyServer, tmp_path: Path) -> None:
    port = free_port()
    query = "select k, count(*) from (select id % 7 as k from range(0, 400, 1, 4)) group by k"
    listen = ["--hiveconf", f"hive.server2.thrift.port={port}", "--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
    with spark_server(THRIFT, tmp_path, server.address, *listen):
        until(lambda: server.hellos)
        beeline = [
            str(spark_home() / "bin" / "beeline"), "-u", f"jdbc:hive2://127.0.0.1:{port}", "-n", "me", "-e", query,
        ]  # fmt: skip
        environment = os.environ | spark_environment()

        def answers() -> bool:
            """Whether the server, which listens some time after its first message to the policy, has answered."""
            done = subprocess.run(beeline, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
            return done.returncode == 0 and "7 rows selected" in done.stdout + done.stderr

        until(answers)
        check(server, "group by k")
