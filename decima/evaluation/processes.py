"""Workers that are processes of this machine, with clean ends: Ctrl-C, errors, a lost parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from workloads.errors import DecimaError

__all__ = ["Processes", "WorkerError", "available_cpus"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: What every piece of work needs; sent to a worker once, when it starts.
_shared: Any = None


class WorkerError(DecimaError, RuntimeError):
    """A worker ended without an answer, or none can be had."""


def available_cpus() -> int:
    """Number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Processes:
    """See ``workers.Workers``.

    With one process everything happens in the caller's own. More processes are spawned, which is the same on
    every platform and safe beside threads; a script that uses them therefore needs the customary
    ``if __name__ == "__main__":``. Workers leave Ctrl-C and SIGTERM to the caller: an exception inside the ``with``
    block ends them at once.

    Args:
        shared: handed to every call; picklable if there are several processes.
        count: at least 1.
    """

    def __init__(self, shared: Any, count: int) -> None:
        self.count = count
        self._shared = shared
        self._pool: ProcessPoolExecutor | None = None
        if count > 1:
            self._others = set(multiprocessing.active_children())
            self._pool = ProcessPoolExecutor(
                count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(shared,),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        if error is not None:
            for process in set(multiprocessing.active_children()) - self._others:
                process.kill()
            # Whoever died in the middle of a result leaves the pool waiting for the rest, as this process could still
            # write it; there is no public way to say that it will not.
            self._pool._result_queue._writer.close()  # type: ignore[attr-defined]
        self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See ``workers.Workers``; a process that dies is an error.

        Raises:
            WorkerError: a worker process died.
            Exception: whatever ``function`` raises first.
        """
        if self._pool is None:
            for item in items:
                yield function(self._shared, item)
            return
        try:
            with _children_leave_signals():  # submitting starts the processes
                futures = [self._pool.submit(_work, function, item) for item in items]
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process died before its work was done; was there enough memory?"
            ) from None


@contextmanager
def _children_leave_signals() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C or SIGTERM, from their first instruction on; here they wait meanwhile.

    Windows has no such masks; there, workers ignore them once they have begun.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(shared: Any) -> None:
    global _shared
    _shared = shared
    # A process is one CPU's work. PyTorch, if it is imported here, would start as many threads as there are CPUs.
    os.environ["OMP_NUM_THREADS"] = "1"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, and they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_shared, item)
