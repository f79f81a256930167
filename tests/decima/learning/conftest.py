"""One PyTorch thread, as in training; reference schedulers are tuned once; workers start once."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest

from decima.policy.threads import one_thread
from tests.decima.learning.examples import Runs, sweep_once, tune_once


@pytest.fixture(autouse=True)
def _one_thread_tunes_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("decima.learning.cluster.validation.weighted_fair_ms", sweep_once)
    monkeypatch.setattr("decima.evaluation.grid.tune_tetris", tune_once)
    with one_thread():
        yield


@pytest.fixture(scope="session")
def _other_process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def other_process(_other_process: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pools of several workers run all work items in one other process, which takes seconds to start."""

    class Pool:
        def __init__(self, shared: Any, count: int, works_along: bool = False) -> None:
            self.shared, self.count = shared, count

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def map(self, function: Callable[[Any, Any], Any], items: Iterable[Any]) -> Iterator[Any]:
            futures = [_other_process.submit(function, self.shared, item) for item in items]
            for future in reversed(futures):  # an order that the results must not depend on
                yield future.result()

    monkeypatch.setattr("decima.workers.processes.Processes", Pool)


@pytest.fixture(params=["cluster", "grid"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    """Run small trainings of each kind, for behaviour that all trainings share."""
    return Runs(request.param, tmp_path)


@pytest.fixture
def grid_runs(tmp_path: Path) -> Runs:
    return Runs("grid", tmp_path)
