"""Worker processes on this machine. They end after Ctrl-C, an error or the death of the calling process."""

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

__all__ = ["Processes", "WorkerError", "available_cpus", "children_ignore"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: In a worker: first argument of every call, which is sent once to each worker.
_shared: Any = None


class WorkerError(DecimaError, RuntimeError):
    """Workers died or are not available."""


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Processes:
    """Worker pool of processes, see ``pool.Workers``.

    A pool of one worker runs in the calling process. More workers are spawned processes, not forked ones: spawning is
    the same on all platforms and safe beside threads. A script needs ``if __name__ == "__main__":``. Workers ignore
    Ctrl-C and SIGTERM; an exception inside the ``with`` block ends them at once.

    Args:
        shared: first argument of every call; picklable if ``count`` is more than 1.
        count: number of processes, at least 1.
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
            # If a worker died while sending a result, the pool waits for the rest of the result until this process
            # closes its end of the pipe. ProcessPoolExecutor has no public method for that.
            self._pool._result_queue._writer.close()  # type: ignore[attr-defined]
        self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield results in order of completion, see ``pool.Workers``.

        Raises:
            WorkerError: a worker process died.
            Exception: the first exception that ``function`` raises.
        """
        if self._pool is None:
            for item in items:
                yield function(self._shared, item)
            return
        try:
            with children_ignore(signal.SIGINT, signal.SIGTERM):  # submitting starts the processes
                futures = [self._pool.submit(_work, function, item) for item in items]
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process died before its work was done; was there enough memory?"
            ) from None


@contextmanager
def children_ignore(*signals: signal.Signals) -> Iterator[None]:
    """Block signals in processes started inside the block, from their first instruction on.

    In the calling process, signals wait until the end of the block. Windows has no signal masks: workers there ignore
    signals only after ``_start_worker``.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(shared: Any) -> None:
    global _shared
    _shared = shared
    # One CPU per process; by default PyTorch starts a thread for each CPU.
    os.environ["OMP_NUM_THREADS"] = "1"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent dies, since a killed parent cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_shared, item)
