"""Three hosts beside stock Spark: speculation, locality, excluded executors, a host that vanishes, a lost service."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.spark.eventlog import events
from tests.spark.harness import Sleeper, application, nap, until, why_not
from tests.spark.hosts import HostCluster, Hosts, why_no_hosts

WHY_NOT = why_not() or why_no_hosts()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]
WORKERS, SLOTS = 3, 4
#: The host of the service when a link between driver and service is cut.
AWAY = WORKERS
CONF = {
    "spark__speculation": "true",
    "spark__speculation__interval": "100ms",
    "spark__speculation__minTaskRuntime": "300ms",
    "spark__speculation__task__duration__threshold": "500ms",
    "spark__excludeOnFailure__enabled": "true",
    "spark__excludeOnFailure__application__maxFailedTasksPerExecutor": 1000,
    "spark__network__timeout": "10s",
    "spark__executor__heartbeatInterval": "1s",
    "spark__network__timeoutInterval": "2s",
    "spark__decima__retryMs": 300,
}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(WORKERS + 1) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def cluster(hosts: Hosts, tmp_path_factory) -> Iterator[HostCluster]:
    with HostCluster(tmp_path_factory.mktemp("cluster") / "c", hosts, WORKERS, SLOTS) as cluster:
        yield cluster


@contextmanager
def serve_away(hosts: Hosts) -> Iterator[str]:
    """Run ``decima serve`` on a host without a worker; yield its address."""
    command = [*hosts.on(AWAY), sys.executable, "-m", "decima", "serve", "--policy", "srpt", "--no-token"]
    command += ["--spark", "0", "--host", hosts.address(AWAY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@pytest.fixture(scope="module", params=["decima", "stock"])
def sleeper(request, hosts: Hosts, cluster: HostCluster, tmp_path_factory) -> Iterator[Sleeper]:
    with serve_away(hosts) as address:
        conf: dict[str, Any] = cluster.application(SLOTS, **CONF)
        if request.param == "stock":
            conf["spark__plugins"] = ""
        with application(tmp_path_factory.mktemp("spark") / "app", address, **conf) as sleeper:
            if request.param == "decima":
                until(lambda: "INFO spark: policy at" in sleeper.log())
            until(lambda: hosts_used(sleeper) == WORKERS, patience_s=120)
            yield sleeper


def hosts_used(sleeper: Sleeper) -> int:
    """Return the number of executors."""
    return int(sleeper.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def attempts(sleeper: Sleeper, name: str, what: str = "TaskEnd") -> list[dict[str, Any]]:
    """Return the events of the ends, or starts, of a job's task attempts."""
    sleeper.tasks()  # waits until the event log is complete
    stages, found = set(), []
    for event in events(sleeper.folder / "events"):
        if event["Event"] == "SparkListenerStageSubmitted":
            if (event.get("Properties") or {}).get("spark.job.description") == name:
                stages.add(event["Stage Info"]["Stage ID"])
        elif event["Event"] == f"SparkListener{what}" and event["Stage ID"] in stages:
            found.append(event)
    return found


@pytest.mark.parametrize("tasks", [1, 6])
def test_a_slow_task_gets_a_copy_on_another_host(sleeper: Sleeper, tasks: int) -> None:
    """The job has nothing else to run, so the policy says hold."""
    name = f"slow {tasks}"
    slow = nap(100).replace("100L", "case when spark_partition_id() = 0 then 12000L else 100L end")
    sleeper.start(name, frame=sleeper.spark.range(0, tasks * 32, 1, tasks).selectExpr("id", slow)).join()
    starts = [event["Task Info"] for event in attempts(sleeper, name, "TaskStart")]
    copy = next(start for start in starts if start["Speculative"] and start["Index"] == 0)
    [first] = [start for start in starts if start["Index"] == 0 and not start["Speculative"]]
    assert copy["Host"] != first["Host"]
    assert copy["Launch Time"] - first["Launch Time"] < 9000


def test_tasks_run_where_their_input_is(sleeper: Sleeper) -> None:
    frame = sleeper.source(WORKERS * SLOTS, 50).cache()
    sleeper.start("cached", frame=frame).join()
    sleeper.start("local", frame=frame.selectExpr("id", nap(100, "t"))).join()
    frame.unpersist()
    found = [event["Task Info"]["Locality"] for event in attempts(sleeper, "local")]
    assert found == ["PROCESS_LOCAL"] * WORKERS * SLOTS


HOST = "reflect('org.apache.spark.util.Utils', 'localHostName')"


def test_a_host_that_fails_is_excluded(sleeper: Sleeper, hosts: Hosts) -> None:
    """Its tasks succeed elsewhere."""
    fails = f"case when {HOST} = '{hosts.address(0)}' then raise_error('bad host') else id end as id"
    frame = sleeper.spark.range(0, 24 * 32, 1, 24).selectExpr(nap(300), fails)
    sleeper.start("bad host", frame=frame).join()
    found = attempts(sleeper, "bad host")
    failed = [event["Task Info"]["Host"] for event in found if event["Task Info"]["Failed"]]
    assert "bad host" in sleeper.durations
    assert set(failed) == {hosts.address(0)}
    assert len(failed) <= 2 * SLOTS


def test_a_host_that_vanishes(sleeper: Sleeper, hosts: Hosts) -> None:
    """Its tasks run again on the others, and nothing else does."""
    job = sleeper.start("vanishes", (60, 1000))
    until(lambda: sleeper.running() > (WORKERS - 1) * SLOTS or not job.is_alive())
    assert job.is_alive()
    hosts.link(0, "down")
    try:
        job.join()
    finally:
        hosts.link(0, "up")
    found = attempts(sleeper, "vanishes")
    done = [event for event in found if event["Task End Reason"]["Reason"] == "Success"]
    assert {event["Task Info"]["Index"] for event in done} == set(range(60))
    again = [event for event in found if event["Task End Reason"]["Reason"] != "Success"]
    assert {event["Task Info"]["Host"] for event in again} <= {hosts.address(0)}
    until(lambda: hosts_used(sleeper) == WORKERS)


def test_a_partition_between_driver_and_service(request, sleeper: Sleeper, hosts: Hosts) -> None:
    """Spark continues in its own order, and the driver connects again when the link is up."""
    if "stock" in request.node.callspec.id:
        pytest.skip("has no service")
    known = len(sleeper.log())
    hosts.link(AWAY, "down")
    try:
        sleeper.start("partition", (24, 300), (12, 300)).join()
        assert "did not answer within 200 ms" in sleeper.log()[known:]
        known = len(sleeper.log())
    finally:
        hosts.link(AWAY, "up")
    until(lambda: "INFO spark: policy at" in sleeper.log()[known:], patience_s=120)
    found = attempts(sleeper, "partition")
    assert len(found) == 36
    assert all(event["Task End Reason"]["Reason"] == "Success" for event in found)
