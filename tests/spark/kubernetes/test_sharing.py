"""Applications that share the slots of Kubernetes: executors move, and no task fails, runs twice or is repeated."""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from decima.service.log import Answered, read_log
from reproduce.spark.live import LEAN, LOCAL, LOGGING, with_plugin
from tests.decima.service.test_serve import decima_serve
from tests.spark.harness import PATIENCE_S, spark_environment, until, why_not
from tests.spark.kubernetes.cluster import Kubernetes
from tests.spark.policy import PolicyServer, ordered
from tests.spark.standalone import PROGRAM, EventLogs
from workloads.spark.recorder.cluster import start_process

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLOTS = 8
#: (tasks, ms) of the stages of each job: the second reads what the first has written.
STAGES = ((10, 250), (6, 250))
#: Stages of jobs that are worth many executors.
LONG = ((120, 1000), (40, 1000))
SHARES = ("332", "611", "161", "116", "440", "044", "404", "332", "233", "521")
SHARES_AFTER_CRASH = ("44", "62", "26", "71", "17", "80", "08", "44", "35", "53")


class Drivers(EventLogs):
    """Drivers in client mode, each with its own configuration; all are killed at the end.

    Args:
        folder: folder for logs and event logs.
        master: value of ``spark.master``.
        address: address of the service.
    """

    def __init__(self, folder: Path, master: str, address: str, **conf: str) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("conf", "events", "local"):
            (folder / name).mkdir(parents=True)
        self._settings = {
            **LOCAL,
            "spark.master": master,
            "spark.driver.memory": "512m",
            "spark.executor.cores": "1",
            "spark.kubernetes.container.image": "none",
            "spark.kubernetes.allocation.batch.delay": "1s",
            "spark.kubernetes.dynamicAllocation.deleteGracePeriod": "60s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{folder}/events",
            "spark.sql.adaptive.enabled": "false",
            **with_plugin(address, executors="true"),
            **conf,
        }

    def start(self, name: str, *stages: tuple[int, float]) -> None:
        """Start an application that runs jobs of these stages, one after the other, until it is stopped."""
        conf = self.folder / "conf" / name
        conf.mkdir()
        (conf / "log4j2.properties").write_text(LOGGING.format(path=self.folder / f"{name}.spark.log"))
        settings = self._settings | {
            "spark.driver.extraJavaOptions": f"{LEAN} -Dlog4j2.configurationFile=file:{conf}/log4j2.properties"
        }
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        environment = {
            **os.environ, **spark_environment(), "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"), "PYTHONPATH": str(Path(__file__).parents[3]),
        }  # fmt: skip
        command = [sys.executable, "-c", PROGRAM, str(self.folder), name, repr(stages)]
        self.processes[name] = start_process(command, self.folder / f"{name}.log", environment)

    def stop(self, *names: str) -> None:
        """Let applications end after their current job."""
        for name in names:
            (self.folder / f"{name}.stop").touch()
        for name in names:
            assert self.processes[name].wait(PATIENCE_S) == 0, (self.folder / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        """Kill a driver."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def close(self) -> None:
        """Kill all drivers that still run."""
        for name, process in self.processes.items():
            if process.poll() is None:
                self.kill(name)


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def change(server: PolicyServer, shares: dict[str, int]) -> float:
    """Change the shares as the service does: slots are given when the executors of others have left.

    Returns:
        The time that it took, s.
    """
    begin = time.monotonic()

    def count(name: str) -> int:
        state = server.latest.get(name)
        return -1 if state is None else len(state.executors)

    server.targets = {name: min(share, max(count(name), 0)) for name, share in shares.items()}
    until(lambda: all(count(name) <= share for name, share in shares.items()))
    server.targets = shares
    until(lambda: all(count(name) == share for name, share in shares.items()))
    return time.monotonic() - begin


def registration_ms(cluster: Kubernetes, events: list[dict[str, Any]], created: dict[str, float]) -> list[float]:
    """Return the times from the creation of pods to the registration of their executors, ms."""
    return [
        event["Timestamp"] - created[pod] * 1e3
        for event in events
        if event["Event"] == "SparkListenerExecutorAdded"
        for pod in created
        if pod.endswith(f"-exec-{event['Executor ID']}")
    ]


def test_shares_change_again_and_again(tmp_path, cleanup) -> None:
    """Twenty changes of three applications; a driver is killed after the tenth, and the others use its slots."""
    server = PolicyServer(ordered())
    cleanup.callback(server.close)
    cluster = cleanup.enter_context(Kubernetes(tmp_path / "kubernetes", SLOTS))
    drivers = Drivers(tmp_path / "spark", cluster.master, server.address)
    cleanup.callback(drivers.close)
    server.targets = dict.fromkeys("ABC", 0)
    for name in "ABC":
        drivers.start(name, *STAGES)
    until(lambda: set("ABC") <= server.latest.keys())
    assert {hello.moves_executors for hello in server.hellos} == {True}
    for share in SHARES:
        took_s = change(server, dict(zip("ABC", map(int, share), strict=True)))
        print(f"\n{share} after {took_s:.1f} s; load {os.getloadavg()[0]:.0f}", end="", flush=True)
    drivers.kill("C")
    until(lambda: not any(pod["metadata"]["labels"]["spark-app-name"] == "c" for pod in cluster.pods()))
    for share in SHARES_AFTER_CRASH:
        took_s = change(server, dict(zip("AB", map(int, share), strict=True)))
        print(f"\n{share} after {took_s:.1f} s; load {os.getloadavg()[0]:.0f}", end="", flush=True)
    moves = [server.latest[name].move_ms for name in "AB"]
    drivers.stop("A", "B")
    until(lambda: not cluster.pods())
    print(f"\nfrom the request to the first task, ms: {moves}; pods: {max(c.pods for c in cluster.changes)} at most")
    for name in "ABC":
        summary = drivers.summary(name)
        print(name, summary)
        assert summary.tasks > 0
        assert (summary.failed, summary.repeated, summary.stages_repeated) == (0, 0, 0)
        created = {
            change.pod: change.time_s for change in reversed(cluster.changes) if change.application == name.lower()
        }
        delays = registration_ms(cluster, drivers.events(name), created)
        assert len(delays) == summary.joined
        print(f"from the pod to the registered executor: {statistics.median(delays):.0f} ms at the median")
    assert max(change.pods for change in cluster.changes) == SLOTS
    assert all(move is not None and 100 < move < 60_000 for move in moves)
    posts = sum(call.method == "POST" and call.path.endswith("/pods") for call in cluster.calls)
    print(f"{posts} pods created, {len(cluster.calls)} requests")
    assert not server.problems


def test_a_service_shares_the_slots(tmp_path, cleanup) -> None:
    """``decima serve --slots``, as the guide has it: three applications come and go; each gets executors."""
    token = tmp_path / "token"
    _, said = cleanup.enter_context(
        decima_serve("--slots", str(SLOTS), "--token-file", str(token), "--log", str(tmp_path / "live.jsonl"))
    )
    cluster = cleanup.enter_context(Kubernetes(tmp_path / "kubernetes", SLOTS))
    drivers = Drivers(tmp_path / "spark", cluster.master, said["spark"], **{"spark.decima.tokenFile": str(token)})
    cleanup.callback(drivers.close)

    def pods(name: str) -> int:
        return sum(pod["metadata"]["labels"]["spark-app-name"] == name.lower() for pod in cluster.pods())

    def gets_executors(name: str) -> None:
        begin = time.monotonic()
        until(lambda: pods(name) > 0)
        print(
            f"\n{name} has its first pod after {time.monotonic() - begin:.1f} s; load {os.getloadavg()[0]:.0f}",
            end="",
            flush=True,
        )

    drivers.start("A", *LONG)
    gets_executors("A")
    until(lambda: pods("A") > 1)
    for name, stages in (("B", LONG), ("C", STAGES)):
        drivers.start(name, *stages)
        gets_executors(name)
    drivers.stop("A")
    until(lambda: pods("B") > 1)
    drivers.stop("B", "C")
    until(lambda: not cluster.pods())
    for name in "ABC":
        summary = drivers.summary(name)
        print(f"\n{name} {summary}", end="")
        assert summary.tasks > 0
        assert (summary.failed, summary.repeated, summary.stages_repeated) == (0, 0, 0)
    assert drivers.summary("A").left > 0
    assert max(change.pods for change in cluster.changes) <= SLOTS
    answers = [line for line in read_log(tmp_path / "live.jsonl") if isinstance(line, Answered)]
    assert not any(line.failure for line in answers)
    print(f"\n{len(answers)} answers, the slowest in {max(line.took_ms for line in answers):.0f} ms")
