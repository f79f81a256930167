from __future__ import annotations

import multiprocessing
import os
import time

import pytest

from decima.evaluation.workers import WorkerError, Workers


def scaled(factor: int, item: int) -> tuple[int, int]:
    return item, factor * item


def failing(shared: str, item: int) -> int:
    if item == 3:
        raise ValueError(f"{shared} at {item}")
    return item


def dying(shared: None, item: int) -> None:
    os._exit(1)


def sleeping_but_first(shared: None, item: int) -> None:
    time.sleep(600 if item else 0)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_do_not_depend_on_the_number_of_processes(processes: int) -> None:
    with Workers(10, processes) as workers:
        assert dict(workers.map(scaled, range(5))) == {0: 0, 1: 10, 2: 20, 3: 30, 4: 40}
        assert dict(workers.map(scaled, [7])) == {7: 70}


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_in_the_work_reaches_the_caller(processes: int) -> None:
    with pytest.raises(ValueError, match="work at 3"), Workers("work", processes) as workers:
        list(workers.map(failing, range(5)))


def test_a_worker_that_dies_is_an_error_not_a_silence() -> None:
    with pytest.raises(WorkerError, match="a worker process died"), Workers(None, 2) as workers:
        list(workers.map(dying, range(2)))


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interruption_ends_the_workers_at_once(processes: int) -> None:
    def interrupted() -> None:
        with Workers(None, processes) as workers:
            for _ in workers.map(sleeping_but_first, range(4)):
                raise KeyboardInterrupt

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - before < 500
    assert not multiprocessing.active_children()


def threads(shared: None, item: int) -> int:
    import torch

    return torch.get_num_threads()


def test_a_worker_process_has_one_thread_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Workers(None, 2) as workers:
        assert list(workers.map(threads, range(2))) == [1, 1]
