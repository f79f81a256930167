import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.workers import WorkerError, pool as module, processes
from decima.workers.in_order import map_in_order
from decima.workers.pool import check_workers, make_workers
from tests.cases import cases
from tests.decima.workers.ray_cluster import NEEDS_RAY, check_that_silence_is_refused, ray_cluster
from tests.programs import ctrl_c_strikes, started

#: Workers of each kind, for tests of behaviour that all kinds share.
WORKERS = [1, 2, pytest.param("ray:2", marks=[pytest.mark.slow, NEEDS_RAY])]
SEVERAL = WORKERS[1:]


@pytest.fixture(scope="module", autouse=True)
def _no_ray_remains() -> Iterator[None]:
    yield
    _shut_down()


def _shut_down() -> None:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


def scaled(factor: int, item: int) -> tuple[int, int]:
    return item, factor * item


def busy(factor: int, item: int) -> int:
    begun = time.process_time()
    while time.process_time() == begun:
        pass
    return factor * item


def failing(shared: str, item: int) -> int:
    if item == 3:
        raise ValueError(f"{shared} at {item}")
    return item


def dying(shared: None, item: int) -> None:
    os._exit(1)


def dying_once(folder: Path, item: int) -> int:
    try:
        (folder / str(item)).touch(exist_ok=False)
    except FileExistsError:
        return item
    os._exit(1)


def node_of(shared: None, item: int) -> str:
    import ray

    time.sleep(0.2)
    return str(ray.get_runtime_context().get_node_id())


def large(shared: None, item: int) -> np.ndarray:
    return np.full(200_000, item)


def cut_off(path: Path, item: int) -> bytes:
    """Die in the middle of sending a result."""

    def send_half(connection: Connection, buffer: memoryview) -> None:
        os.write(connection.fileno(), bytes(buffer)[: len(buffer) // 2])
        path.touch()
        time.sleep(600)

    Connection._send = send_half  # type: ignore[attr-defined,method-assign]
    return bytes(100_000)


def sleeping_but_first(shared: None, item: int) -> None:
    time.sleep(600 if item else 0)


@pytest.mark.parametrize("spec", WORKERS)
def test_results_and_errors_do_not_depend_on_who_works(spec: int | str) -> None:
    with make_workers(10, spec) as workers:
        assert dict(workers.map(scaled, range(5))) == {0: 0, 1: 10, 2: 20, 3: 30, 4: 40}
        assert dict(workers.map(scaled, [7])) == {7: 70}
    with pytest.raises(ValueError, match=r"^work at 3$"), make_workers("work", spec) as workers:
        list(workers.map(failing, range(5)))


def test_an_interruption_ends_a_worker_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    """In a separate program, since at exit the pool's thread would wait for the rest of the result."""
    path = tmp_path / "written"
    code = f"""
import os, pathlib, signal, threading, time
from decima.workers.pool import make_workers
from tests.decima.workers.test_workers import cut_off

path = pathlib.Path({str(path)!r})

def interrupt():
    while not path.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
with make_workers(path, 2) as workers:
    list(workers.map(cut_off, range(2)))
"""
    with started([sys.executable, "-c", code]) as process:
        _, stderr = process.communicate()
    assert path.exists()
    assert "KeyboardInterrupt" in stderr
    assert process.returncode == 130 or process.returncode == -signal.SIGINT


@pytest.mark.parametrize("spec", SEVERAL)
def test_a_worker_that_always_dies_is_an_error_not_a_silence(spec: int | str) -> None:
    with pytest.raises(WorkerError, match=r"died .*enough memory\?$"), make_workers(None, spec) as workers:
        list(workers.map(dying, range(2)))


@pytest.mark.parametrize("spec", WORKERS)
def test_an_interruption_ends_the_workers_at_once(spec: int | str) -> None:
    def interrupted() -> None:
        with make_workers(None, spec) as workers:
            for _ in workers.map(sleeping_but_first, range(4)):
                raise KeyboardInterrupt

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - before < 500
    assert not multiprocessing.active_children()


@pytest.fixture
def _starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes start while the calling process runs its first work items."""
    for name, value in {"LOOK_S": 0.01, "LOADING_S": 0.0, "START_S": 0.01}.items():
        monkeypatch.setattr(processes, name, value)


def process_of(shared: None, item: int) -> tuple[int, int]:
    time.sleep(0.02)
    return item, os.getpid()


@pytest.mark.usefixtures("_starts_at_once")
def test_the_caller_works_along_with_other_processes() -> None:
    with make_workers(None, 3, works_along=True) as workers:
        assert workers.count == 3
        for _ in range(2):  # the second time the processes are there
            results = []
            while len(results) < 50 or len({process for _, process in results}) < 3:  # on a busy machine
                results = list(workers.map(process_of, range(50 + len(results))))
            assert sorted(item for item, _ in results) == list(range(len(results)))
            assert len({process for _, process in results}) == 3
            assert os.getpid() in dict(map(reversed, results))  # type: ignore[call-overload]
    assert not multiprocessing.active_children()


def test_no_process_starts_for_little_work() -> None:
    with make_workers(10, 3, works_along=True) as workers:
        assert dict(workers.map(scaled, range(100))) == {item: 10 * item for item in range(100)}
        assert not multiprocessing.active_children()


def waiting_in(caller: int, item: int) -> int:
    if os.getpid() == caller:
        time.sleep(600)
    return item


@pytest.mark.usefixtures("_starts_at_once")
def test_processes_start_while_the_caller_is_in_its_first_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's item never ends. When processes have done all others, Ctrl-C ends it."""
    finish, others = processes._Work._finish, []

    def interrupt_after_the_last(*given: Any) -> None:
        finish(*given)
        others.append(given)
        if len(others) == 9:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(processes._Work, "_finish", interrupt_after_the_last)
    with ctrl_c_strikes(), pytest.raises(KeyboardInterrupt), make_workers(os.getpid(), 2, works_along=True) as workers:
        list(workers.map(waiting_in, range(10)))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("_starts_at_once")
def test_errors_in_the_caller_and_in_processes_end_the_work() -> None:
    for _ in range(3):
        with pytest.raises(ValueError, match=r"^work at 3$"), make_workers("work", 2, works_along=True) as workers:
            list(workers.map(failing, range(50)))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("_starts_at_once")
def test_data_that_cannot_be_sent_to_processes_is_an_error() -> None:
    with (
        pytest.raises((AttributeError, pickle.PicklingError)),
        make_workers(lambda: None, 2, works_along=True) as workers,
    ):
        list(workers.map(process_of, range(50)))


def dying_elsewhere(caller: int, item: int) -> int:
    time.sleep(0.02)
    return item if os.getpid() == caller else os._exit(1)


@pytest.mark.usefixtures("_starts_at_once")
def test_the_death_of_a_process_ends_the_work_of_the_caller() -> None:
    with pytest.raises(WorkerError, match="died"), make_workers(os.getpid(), 2, works_along=True) as workers:
        list(workers.map(dying_elsewhere, range(1000)))


def threads(shared: None, item: int) -> int:
    import torch

    return torch.get_num_threads()


@pytest.mark.parametrize("spec", SEVERAL)
def test_a_worker_has_one_thread_of_pytorch(spec: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    _shut_down()  # so that a new Ray reads the variable
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with make_workers(None, spec) as workers:
        assert list(workers.map(threads, [0])) == [1]


@pytest.mark.slow
@NEEDS_RAY
def test_work_of_an_actor_that_dies_is_done_again(tmp_path: Path) -> None:
    with make_workers(tmp_path, "ray:2") as workers:
        assert sorted(workers.map(dying_once, range(3))) == [0, 1, 2]


@pytest.mark.slow
@NEEDS_RAY
def test_a_ray_that_is_started_here_listens_to_this_machine_only() -> None:
    psutil = pytest.importorskip("psutil")
    _shut_down()
    with make_workers(1, "ray:1") as workers:
        assert list(workers.map(scaled, [1])) == [(1, 1)]
        me = psutil.Process()
        listening = {
            each.laddr.ip
            for process in (me, *me.children(recursive=True))
            for each in process.net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        }
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@pytest.mark.slow
@NEEDS_RAY
def test_work_goes_on_elsewhere_when_a_node_is_killed() -> None:
    """Ray keeps large results on the node that computed them, so that they are lost with it and computed again."""
    _shut_down()
    with ray_cluster(2) as nodes, make_workers(None, "ray") as workers:
        assert workers.count == 2
        assert len(set(workers.map(node_of, range(8)))) == 2
        found = []
        for array in workers.map(large, range(12)):
            found.append(int(array[0]))
            assert (array == array[0]).all()
            if len(found) == 2:
                nodes[0].kill()
        assert sorted(found) == list(range(12))
        assert len(set(workers.map(node_of, range(4)))) == 1


@cases("spec", "0", "-1", "two", "ray:0", "ray:", "ray:x", "ray://", "ray://here", "RAY", "", "1025", "100000000")
def test_what_means_no_workers_is_refused(spec: str) -> None:
    with pytest.raises(
        WorkerError,
        match=r"is not a specification of workers: expected a number from 1 to 1024, ray, ray:N or ray://HOST",
    ):
        check_workers(spec)


def test_ray_that_is_missing_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(WorkerError, match=r"pip install -e '\.\[ray\]'"):
        check_workers("ray")
    assert check_workers("3") == 3


@NEEDS_RAY
@pytest.mark.parametrize("by_name", [False, True])
def test_a_cluster_that_is_not_there_is_told_at_once(by_name: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_silence_is_refused(by_name, monkeypatch)


def test_there_are_no_more_processes_than_work() -> None:
    with make_workers(None, 5, most=1) as workers:
        assert workers.count == 1


@pytest.mark.parametrize("count", WORKERS)
def test_results_come_in_the_order_of_the_items_with_the_time_of_other_processes(count: int | str) -> None:
    seen: list[tuple[int, int]] = []
    with make_workers(3, count) as workers:
        results, elsewhere_s = map_in_order(
            workers, busy, [2, 1, 4], lambda done, total: seen.append((done, total)), [1, 2, 3]
        )
    assert results == [6, 3, 12]
    assert (elsewhere_s > 0) == (count != 1)
    assert len(seen) == 4
    assert (seen[0], seen[-1]) == ((0, 6), (6, 6))
    assert seen == sorted(seen)
