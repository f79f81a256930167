"""Worker processes on this machine. They end after Ctrl-C, an error or the death of the calling process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from decima.workers import WorkerError
from decima.workers.signals import children_ignore

__all__ = ["Processes"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Environment variable with the number of threads of numerical libraries.
THREADS = "OMP_NUM_THREADS"
#: Time until another process works, s, and the part of the first work item in which compiled code is loaded.
START_S, LOADING_S = 1.5, 0.5
#: Interval at which the caller's progress is looked at before other processes start, s.
LOOK_S = 0.25
#: Marks that no work item is left.
NO_ITEM: Any = object()
#: In a worker: first argument of every call, which is sent once to each worker.
_shared: Any = None


class Processes:
    """Worker pool of processes, see ``pool.Workers``.

    On Linux, workers are forked from a server process that has imported the caller's modules of this project, so that
    a worker starts at once; elsewhere they are spawned. Both are safe beside threads. A script needs ``if __name__ ==
    "__main__":``. Workers ignore Ctrl-C and SIGTERM; an exception inside the ``with`` block ends them at once.

    Args:
        shared: first argument of every call; picklable.
        count: number of workers, at least 2.
        works_along: whether the calling process is one of the workers. Other processes then start only if the rest of
            the work takes longer than their start.
    """

    def __init__(self, shared: Any, count: int, works_along: bool = False) -> None:
        self.count = count
        self._shared = shared
        self._works_along = works_along
        self._pool: ProcessPoolExecutor | None = None
        if not self._works_along:
            self._pool = self._start(count)

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
        work = _Work(function, items)
        starter = None
        if self._pool is not None:
            work.start_some(self._pool, self._num_processes)
        else:
            starter = threading.Thread(target=self._start_if_worthwhile, args=(work,), daemon=True)
            starter.start()
        try:
            while work.num_done < work.num_items:
                item = work.take() if self._works_along and work.finished.empty() else NO_ITEM
                yield work.finished.get().result() if item is NO_ITEM else function(self._shared, item)
                work.num_done += 1
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process died before its work was done; was there enough memory?"
            ) from None
        finally:
            work.end()
            if starter is not None:
                starter.join()

    def _start_if_worthwhile(self, work: _Work) -> None:
        """Start processes as soon as the work that is left takes longer than their start, in a thread.

        The caller works meanwhile, also while the processes start.
        """
        begun_s = time.monotonic()
        while not work.ended.wait(LOOK_S):
            spent_s = max(time.monotonic() - begun_s - LOADING_S, 0.0)
            worthwhile = int(spent_s / max(work.num_done, 1) * len(work.left) / START_S)
            if worthwhile:
                self._pool = self._start(min(self.count - 1, len(work.left), worthwhile))
                work.start_some(self._pool, self._num_processes)
                return

    def _start(self, num_processes: int) -> ProcessPoolExecutor:
        """Create the pool, whose processes start with their first work items."""
        self._num_processes = num_processes
        self._others = set(multiprocessing.active_children())
        return ProcessPoolExecutor(
            num_processes,
            mp_context=_context(),
            initializer=_start_worker,
            initargs=(self._shared, dict(os.environ)),
        )


class _Work:
    """Work items of one call of ``Processes.map``, taken by processes and by the caller.

    Attributes:
        left: items that no worker has taken yet.
        finished: results or errors of processes that the caller has not received yet.
        ended: whether the caller needs no more results.
    """

    def __init__(self, function: Callable[[Any, Any], Any], items: Iterable[Any]) -> None:
        self.left = deque(items)
        self.num_items, self.num_done = len(self.left), 0
        self.finished: SimpleQueue[Future[Any]] = SimpleQueue()
        self.ended = threading.Event()
        self._function = function

    def take(self) -> Any:
        """Return the next item; ``NO_ITEM`` if there is none."""
        try:
            return self.left.popleft()
        except IndexError:
            return NO_ITEM

    def end(self) -> None:
        """Start no more items."""
        self.ended.set()
        self.left.clear()

    def start_some(self, pool: ProcessPoolExecutor, num_processes: int) -> None:
        """Give each process a work item, and one more, so that no process waits for the caller."""
        for _ in range(num_processes + 1):
            self._start_next(pool)

    def _start_next(self, pool: ProcessPoolExecutor) -> None:
        if (item := self.take()) is not NO_ITEM:
            self._submit(pool, item).add_done_callback(partial(self._finish, pool))

    def _submit(self, pool: ProcessPoolExecutor, item: Any) -> Future[Any]:
        try:
            with children_ignore(signal.SIGINT, signal.SIGTERM):  # submitting may start a process
                return pool.submit(_work, self._function, item)
        except Exception as error:  # the pool is broken, no process starts, or ``shared`` cannot be pickled
            failed = Future[Any]()
            failed.set_exception(error)
            return failed

    def _finish(self, pool: ProcessPoolExecutor, finished: Future[Any]) -> None:
        """Receive a result in the thread of the pool, which must not wait for the caller, and start the next item."""
        self.finished.put(finished)
        # A broken pool takes no item: submitting one would wait for a lock that this thread holds.
        if not finished.cancelled() and finished.exception() is None:
            self._start_next(pool)


def _context() -> BaseContext:
    """Return how processes start: forked from a server where that is safe, else spawned."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [name for name in sys.modules if name.partition(".")[0] in ("workloads", "simulator", "decima")]
    )
    with _one_thread(), children_ignore(signal.SIGINT, signal.SIGTERM):
        forkserver.ensure_running()
    return context


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set the number of threads of numerical libraries to 1 for processes that start inside the block."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "1"
    try:
        yield
    finally:
        os.environ.pop(THREADS)
        if before is not None:
            os.environ[THREADS] = before


def _start_worker(shared: Any, environment: dict[str, str]) -> None:
    global _shared
    _shared = shared
    # A server process has the environment of an earlier time. One CPU per process; by default PyTorch starts a thread
    # for each CPU.
    os.environ.clear()
    os.environ.update(environment | {THREADS: "1"})
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent dies, since a killed parent cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_shared, item)
