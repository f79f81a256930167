"""Ray workers on a fake Ray: distribution and repetition of work items, and connections."""

import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decima.workers import WorkerError, pool, ray_actors
from decima.workers.pool import make_workers
from decima.workers.ray_actors import LOOPBACK_ONLY, NOT_NICE, QUIET
from tests.cases import cases
from tests.decima.workers.fake_ray import Died, FakeRay, RayError, RayTaskError
from tests.decima.workers.ray_cluster import check_that_silence_is_refused

VARIABLES = (*QUIET, *LOOPBACK_ONLY, *NOT_NICE)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove cluster and token from the environment, and restore it afterwards."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (*VARIABLES, "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(pool, "find_spec", lambda name: name)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.fixture
def listening() -> Iterator[str]:
    """Return an address that accepts connections."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def scaled(factor: int, item: int) -> tuple[int, int]:
    return item, factor * item


class Dying:
    """Work that kills its actor in its first attempts, by item."""

    def __init__(self, times: dict[int, int], error: type[BaseException] = Died) -> None:
        self.times, self.error = Counter(times), error
        self.tried: list[int] = []

    def __call__(self, shared: None, item: int) -> int:
        self.tried.append(item)
        if self.times[item] > 0:
            self.times[item] -= 1
            raise self.error("it was lost\nhere")
        return item


def test_actors_share_the_work_and_are_used_again(ray: FakeRay) -> None:
    with make_workers(10, "ray") as workers:
        assert workers.count == len(ray.actors) == 2
        assert dict(workers.map(scaled, range(5))) == {0: 0, 1: 10, 2: 20, 3: 30, 4: 40}
        assert dict(workers.map(scaled, [7])) == {7: 70}
        assert list(workers.map(scaled, [])) == []
    # Each actor receives data only once, and uses one CPU and one thread.
    assert {actor.num_cpus for actor in ray.actors} == {1}
    assert ray.fetched == {10: 2, scaled: 2 + 1}
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert not ray.alive


def test_an_actor_fetches_a_function_once_for_all_items(ray: FakeRay) -> None:
    ray.cpus = 1
    with make_workers(10, "ray") as workers:
        assert len(list(workers.map(scaled, range(5)))) == 5
        assert ray.fetched == {10: 1, scaled: 1}


def test_an_actor_without_a_cpu_waits_while_the_others_work(ray: FakeRay) -> None:
    with make_workers(1, "ray:3", most=5) as workers:
        assert workers.count == 3
        assert sorted(workers.map(scaled, range(4))) == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert [actor.calls > 0 for actor in ray.actors] == [True, True, False]


@cases(
    "spec, most, count",
    ("ray", None, 8), ("ray", 3, 3), ("ray:5", None, 5), ("ray:5", 2, 2), ("ray:2", 5, 2), ("ray", 0, 1),
)  # fmt: skip
def test_there_are_as_many_actors_as_have_a_cpu_and_work(ray: FakeRay, spec: str, most: int | None, count: int) -> None:
    ray.cpus = 8
    with make_workers(None, spec, most) as workers:
        assert workers.count == len(ray.actors) == count


def test_a_cluster_without_cpus_is_refused(ray: FakeRay) -> None:
    ray.cpus = 0
    with pytest.raises(WorkerError, match=r"^the Ray cluster has no CPUs$"):
        make_workers(None, "ray")


def test_where_no_actor_begins_the_wait_has_an_end(ray: FakeRay) -> None:
    with make_workers(1, "ray") as workers:
        ray.cpus = 0
        with pytest.raises(WorkerError, match=r"^no Ray worker started within 300 s; is a CPU free\?$"):
            list(workers.map(scaled, [1]))
        assert ray.timeouts == [300.0]
        # Work items have no time limit.
        ray.cpus = 2
        assert list(workers.map(scaled, [1])) == [(1, 1)]
        assert None in ray.timeouts[1:]


def test_what_an_actor_had_begun_is_done_again_first(ray: FakeRay) -> None:
    ray.cpus = 1
    work = Dying({0: 3, 2: 1})
    with make_workers(None, "ray") as workers:
        assert list(workers.map(work, range(3))) == [0, 1, 2]
        assert work.tried == [0, 0, 0, 0, 1, 2, 2]
        assert (len(ray.actors), len(ray.alive)) == (1 + 4, 1)


@pytest.mark.parametrize("error", [Died, RayError])
def test_work_that_always_ends_its_actor_is_given_up(ray: FakeRay, error: type[BaseException]) -> None:
    reason = "The actor died unexpectedly: out of memory" if error is Died else "it was lost"
    message = f"^Ray workers died 4 times with the same work item: {reason}; was there enough memory\\?$"
    work = Dying({1: 9}, error)
    with pytest.raises(WorkerError, match=message), make_workers(None, "ray") as workers:
        list(workers.map(work, range(2)))
    assert work.tried.count(1) == 4


def test_actors_that_die_are_replaced_and_errors_raised(ray: FakeRay) -> None:
    with make_workers(3, "ray") as workers:
        ray.actors[0].alive = False
        assert sorted(workers.map(scaled, range(3))) == [(0, 0), (1, 3), (2, 6)]
        assert len(ray.alive) == 2
    with make_workers(3, "ray") as workers:
        with pytest.raises(ValueError, match=r"^it was lost\nhere$"):
            list(workers.map(Dying({1: 1}, ValueError), range(5)))
        # Busy actors are replaced, since their answers would be taken for results of other work items.
        assert sorted(workers.map(scaled, range(3))) == [(0, 0), (1, 3), (2, 6)]
        assert len(ray.alive) == 2
    assert not ray.alive


def test_an_error_that_did_not_survive_the_way_is_told_in_a_line(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RayTaskError, "cause", property(lambda _: "a text"))
    told = r"^the task failed: ValueError\('it was lost\\nhere'\)$"
    with pytest.raises(WorkerError, match=told), make_workers(3, "ray") as workers:
        list(workers.map(Dying({1: 1}, ValueError), range(5)))


def test_results_that_are_not_wanted_and_open_connections(ray: FakeRay) -> None:
    with make_workers(2, "ray") as workers:
        results = workers.map(scaled, range(9))
        next(results)
        results.close()  # type: ignore[attr-defined]
        assert len(ray.alive) == 2
        assert sorted(workers.map(scaled, range(3))) == [(0, 0), (1, 2), (2, 4)]
    ray.options = {"mine": True}
    ray.address = "10.0.0.1"  # the user's own Ray may be anywhere
    with make_workers(1, "ray") as workers:
        assert list(workers.map(scaled, [1])) == [(1, 1)]
    assert ray.options == {"mine": True}


def test_a_ray_that_is_started_here_is_quiet_and_for_this_machine_only(ray: FakeRay) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def init(**options: Any) -> None:
        """Replace a signal handler and read the environment, as Ray does."""
        assert {name: os.environ[name] for name in VARIABLES} == QUIET | LOOPBACK_ONLY | NOT_NICE
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ray.options = options

    ray.init = init  # type: ignore[method-assign]
    with make_workers(None, "ray:2"):
        assert ray.options == {
            "address": "local", "num_cpus": 2, "include_dashboard": False, "log_to_driver": False,
            "logging_level": logging.ERROR,
        }  # fmt: skip
    assert signal.getsignal(signal.SIGTERM) is before
    assert "RAY_AUTH_MODE" not in os.environ


def test_a_ray_that_is_started_here_has_the_cpus_of_this_process(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "available_cpus", lambda: 17)
    make_workers(None, "ray")
    assert ray.options is not None
    assert ray.options["num_cpus"] == 17


def test_a_ray_that_would_listen_to_others_is_stopped(ray: FakeRay) -> None:
    ray.address = "10.0.0.1"
    with pytest.raises(WorkerError, match=r"^Ray would listen to other machines, .* or call ray\.init$"):
        make_workers(None, "ray")
    assert not ray.is_initialized()


@pytest.mark.parametrize("by_name", [False, True])
def test_a_cluster_elsewhere_is_reached_by_its_address(
    ray: FakeRay, listening: str, by_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = listening if by_name else f"ray://{listening}"
    if by_name:
        monkeypatch.setenv("RAY_ADDRESS", address)
    ray.address = "10.0.0.1"
    with make_workers(1, "ray" if by_name else address) as workers:
        assert workers.count == 2
        assert list(workers.map(scaled, [1])) == [(1, 1)]
    assert ray.options == {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    # An existing Ray keeps its settings; without a token, no authentication is set.
    assert {name: os.environ.get(name) for name in VARIABLES} == QUIET | dict.fromkeys((*LOOPBACK_ONLY, *NOT_NICE))
    assert "RAY_AUTH_MODE" not in os.environ


def test_an_address_has_ten_seconds_to_answer(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append((address, timeout))
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(WorkerError, match=r"^ray://far.example:10001: there is no Ray cluster: timed out$"):
        make_workers(1, "ray://far.example:10001")
    assert tried == [(("far.example", 10001), 10.0)]


def test_an_address_without_a_port_is_left_to_ray(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with make_workers(1, "ray"):
        assert ray.options is not None
        assert ray.options["address"] == "auto"


@pytest.mark.parametrize("where", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token"])
def test_a_token_is_shown_to_a_cluster_elsewhere(
    ray: FakeRay, listening: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where.startswith("RAY"):
        monkeypatch.setenv(where, "secret")
    else:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    make_workers(1, f"ray://{listening}")
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_what_the_user_set_stays(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    make_workers(1, "ray")
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"


@cases(
    "error, told",
    (RuntimeError("  version mismatch:  \n\n here 3.11\nthere 3.12 "), "version mismatch: there 3.12"),
    (ValueError("two\nlines"), "two"),
    (ConnectionError("alone:"), "alone:"),
    (OSError(), "OSError"),
)
def test_why_a_ray_does_not_start_is_told_in_a_line(ray: FakeRay, listening: str, error: Exception, told: str) -> None:
    def init(**options: Any) -> None:
        raise error

    ray.init = init  # type: ignore[method-assign]
    with pytest.raises(WorkerError, match=f"^Ray does not start here: {told}$"):
        make_workers(None, "ray")
    with pytest.raises(WorkerError, match=f"^ray://{listening}: there is no Ray cluster: {told}$"):
        make_workers(None, f"ray://{listening}")


@pytest.mark.parametrize("by_name", [False, True])
def test_an_address_at_which_nothing_listens_is_refused_at_once(
    ray: FakeRay, by_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_that_silence_is_refused(by_name, monkeypatch)
    assert not ray.is_initialized()
