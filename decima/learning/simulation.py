"""What the simulations of trainings share: who works, and the CPU time that it takes."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from decima.workers.pool import make_workers

__all__ = ["SharedSimulation"]


class SharedSimulation:
    """Runs episodes by workers; a context manager. Who works, and how many, does not show in the results.

    Args:
        shared: what every worker needs.
        workers: see ``check_workers``.

    Attributes:
        cpu_s: CPU time of all episodes so far, over all workers, s.

    Raises:
        WorkerError: there are no such workers.
    """

    def __init__(self, shared: Any, workers: int | str) -> None:
        self._workers = make_workers(shared, workers)
        self.cpu_s = 0.0

    def __enter__(self) -> Self:
        self._workers.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.__exit__(kind, error, trace)
