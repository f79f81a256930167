"""Executors that move between applications on a standalone cluster: no task fails or runs twice."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.spark.harness import until, why_not
from tests.spark.policy import PolicyServer, ordered
from tests.spark.standalone import Cluster, cluster
from workloads.spark.recorder.cluster import free_port

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLOTS = 6
STAGES = ((12, 300), (6, 300))


@pytest.fixture(scope="module")
def server() -> Iterator[PolicyServer]:
    server = PolicyServer(ordered())
    yield server
    assert not server.problems


@pytest.fixture(scope="module")
def running(tmp_path_factory, server: PolicyServer) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "c", SLOTS, server.port) as made:
        yield made


def held(server: PolicyServer, name: str) -> int:
    """Return the number of executors that an application keeps."""
    state = server.latest.get(name)
    return -1 if state is None else sum(not executor.leaving for executor in state.executors)


def present(server: PolicyServer, name: str) -> int:
    """Return the number of its executors, including those that are about to leave."""
    state = server.latest.get(name)
    return 0 if state is None else len(state.executors)


def give(server: PolicyServer, shares: dict[str, int]) -> None:
    """Wait until applications hold exactly these numbers of executors, and no others exist."""
    server.targets = shares
    begin = time.monotonic()
    until(lambda: all(held(server, name) == present(server, name) == share for name, share in shares.items()))
    print(f"{shares} after {time.monotonic() - begin:.1f} s; load {os.getloadavg()[0]:.0f}")
    time.sleep(1)


def test_shares_change_again_and_again(running: Cluster, server: PolicyServer) -> None:
    """Twenty times, and a driver is killed in between; the others continue."""
    server.targets = dict.fromkeys("ABC", 0)
    for name in "ABC":
        running.application(name, *STAGES)
    until(lambda: set("ABC") <= server.latest.keys())
    assert {hello.moves_executors for hello in server.hellos} == {True}
    print()
    for share in ("222", "411", "141", "114", "330", "033", "303", "222", "123", "321"):
        give(server, dict(zip("ABC", map(int, share), strict=True)))
    running.kill("C")
    killed_ms = time.time() * 1e3
    for share in ("33", "42", "24", "51", "15", "60", "06", "33", "24", "42"):
        give(server, dict(zip("AB", map(int, share), strict=True)))
    moves = [server.latest[name].move_ms for name in "AB"]
    print(f"from the request to the first task, ms: {moves}")
    assert all(move is not None and 100 < move < 60_000 for move in moves)
    running.end("A", "B")
    for name in "ABC":
        summary = running.summary(name)
        print(name, summary)
        assert summary.tasks > 0
        assert (summary.failed, summary.repeated, summary.stages_repeated) == (0, 0, 0)
        assert summary.left > 0
    assert running.most_held("A", "B", "C", killed_ms=killed_ms) == SLOTS


def test_applications_outlive_the_service(running: Cluster, server: PolicyServer) -> None:
    """They keep their executors, and obey when the service is back. An application that starts alone requests all
    executors.
    """
    server.targets = {"D": 2, "E": 2}
    running.application("D", *STAGES)
    until(lambda: held(server, "D") == 2)
    nobody = free_port()
    running.application("E", *STAGES, spark__decima__address=f"127.0.0.1:{nobody}", spark__decima__startMs=1000)
    until(lambda: "all there are" in running.log("E"))
    until(lambda: running.summary("E").joined == SLOTS - 2)
    port = server.port
    server.close()
    time.sleep(3)
    known = running.summary("D")
    assert (known.joined, known.left) == (2, 0)
    again = PolicyServer(ordered(), port=port)
    try:
        again.targets = {"D": 1}
        until(lambda: held(again, "D") == 1 == present(again, "D"))
    finally:
        again.close()
    running.end("D", "E")
    for name in "DE":
        summary = running.summary(name)
        assert (summary.failed, summary.repeated, summary.stages_repeated) == (0, 0, 0)


def test_where_nothing_can_be_moved(running: Cluster, server: PolicyServer) -> None:
    """The application runs, and its log has the reason."""
    running.application("F", (2, 50), spark__cores__max=2)
    until(lambda: "the policy cannot move executors: spark.cores.max is set" in running.log("F"))
    running.end("F")
    assert running.summary("F").tasks >= 2
