"""Worker pool of actors on a Ray cluster, which needs the extra ``ray``.

Data that all work items need lies in Ray's object store and is sent once to each node. When an actor or its node dies,
another actor repeats the work item, and a replacement actor starts wherever a CPU is free. The calling process must
stay alive.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from decima.workers import WorkerError, available_cpus
from workloads.errors import DecimaError

__all__ = ["RayWorkers"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Maximum number of attempts for a work item.
MOST_TRIES = 4
#: Time limit for the start of an actor, s.
PATIENCE_S = 300.0
#: Time limit for the first connection to a cluster, s.
CONNECT_S = 10.0


class _Running(NamedTuple):
    """An actor and the index of its work item (None while the actor starts)."""

    actor: Any
    number: int | None


class RayWorkers:
    """Worker pool of Ray actors, see ``Workers``.

    Args:
        shared: first argument of every call; picklable.
        spec: ``ray``, ``ray:N`` or ``ray://HOST:PORT``, see ``check_workers``.
        most: maximum number of actors; unlimited if None.

    Raises:
        WorkerError: the cluster cannot be reached, or has no CPUs.
    """

    def __init__(self, shared: Any, spec: str, most: int | None = None) -> None:
        count = "" if "://" in spec else spec.partition(":")[2]
        ray = _connect(spec, int(count or 0))
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if cpus < 1:
            raise WorkerError("the Ray cluster has no CPUs")
        self.count = max(1, min(int(count or cpus), cpus if most is None else most))
        self._ray = ray
        self._shared = ray.put(shared)
        self._make = ray.remote(num_cpus=1)(_Actor)
        self._idle: list[Any] = []
        self._running: dict[Any, _Running] = {}
        for _ in range(self.count):
            self._start_one()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in (*self._idle, *(task.actor for task in self._running.values())):
            self._ray.kill(actor)
        self._idle, self._running = [], {}

    def map(self, function: Callable[[Any, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield results in order of completion, see ``Workers``.

        Raises:
            WorkerError: all attempts at one work item ended with the death of its actor, or no actor starts.
            Exception: the first exception that ``function`` raises.
        """
        work = list(items)
        tries = [0] * len(work)
        waiting = deque(range(len(work)))
        common = self._ray.put(function)
        left = len(work)
        try:
            while left:
                while self._idle and waiting:
                    actor, index = self._idle.pop(), waiting.popleft()
                    tries[index] += 1
                    # Ray resolves references in arguments but not in lists: so an actor fetches the function once.
                    self._running[actor.work.remote([common], work[index])] = _Running(actor, index)
                ready, (actor, done) = self._next()
                self._idle.append(actor)
                try:
                    result = self._answer(ready)
                except _LostError as error:
                    self._ray.kill(self._idle.pop())
                    self._start_one()
                    if done is not None:
                        if tries[done] == MOST_TRIES:
                            raise WorkerError(
                                f"Ray workers died {MOST_TRIES} times with the same work item: {error}; "
                                "was there enough memory?"
                            ) from None
                        waiting.appendleft(done)
                    continue
                if done is not None:
                    left -= 1
                    yield result
        finally:
            # The caller has stopped reading results: replace the busy actors.
            for ready, task in list(self._running.items()):
                if task.number is not None:
                    del self._running[ready]
                    self._ray.kill(task.actor)
                    self._start_one()

    def _start_one(self) -> None:
        """Request an actor, which may have to wait for a free CPU before it answers."""
        actor = self._make.remote([self._shared])
        self._running[actor.begun.remote()] = _Running(actor, None)

    def _next(self) -> tuple[Any, _Running]:
        """Wait for the next answer of an actor; return its reference, and the actor with its work item."""
        works = any(task.number is not None for task in self._running.values())
        ready, _ = self._ray.wait(list(self._running), timeout=None if works else PATIENCE_S)
        if not ready:
            raise WorkerError(f"no Ray worker started within {PATIENCE_S:.0f} s; is a CPU free?")
        return ready[0], self._running.pop(ready[0])

    def _answer(self, ready: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ready)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, errors.RayError):  # its input data was lost
                raise _LostError(_first_line(cause)) from None
            raise (cause if isinstance(cause, Exception) else WorkerError(_first_line(error))) from None
        except errors.RayError as error:
            raise _LostError(_first_line(error)) from None


class _LostError(DecimaError):
    """An actor died, or its answer was lost."""


class _Actor:
    """Actor that runs work items one after the other in its own process."""

    def __init__(self, shared: list[Any]) -> None:
        import ray

        # As in local processes. Unpickling may import PyTorch, so the variable is set first.
        os.environ["OMP_NUM_THREADS"] = "1"
        self._get = ray.get
        self._shared = ray.get(shared[0])
        self._known: Any = None
        self._function: Any = None

    def begun(self) -> None:
        """Return when the actor runs."""

    def work(self, function: list[Any], item: Any) -> Any:
        if self._known != function[0]:
            self._known, self._function = function[0], self._get(function[0])
        return self._function(self._shared, item)


#: Environment variables that Ray reads at import: no usage statistics, no output of workers on the caller's stdout.
#: Errors of work items are raised in the caller.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
#: Also read at import: without it, even a local Ray listens on all addresses of the machine, whatever
#: ``_node_ip_address`` is.
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
#: For a Ray that is started here: its workers get the scheduling priority of the caller.
NOT_NICE = {"RAY_worker_niceness": "0"}


def _connect(spec: str, cpus: int) -> Any:
    """Connect to a cluster, or start one that only this machine can reach. An existing connection is kept.

    Returns:
        The module ``ray``.
    """
    address = spec if "://" in spec else os.environ.get("RAY_ADDRESS")
    for name, value in (QUIET | (LOOPBACK_ONLY | NOT_NICE if address is None else _token())).items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _same_signals():
        try:
            if address is not None:
                _reach(address)
                ray.init(address=address, **quiet)
            else:
                ray.init(address="local", num_cpus=cpus or available_cpus(), include_dashboard=False, **quiet)
        except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
            where = "Ray does not start here" if address is None else f"{address}: there is no Ray cluster"
            raise WorkerError(f"{where}: {_first_line(error)}") from None
    if address is None and not _only_here(ray):
        ray.shutdown()
        raise WorkerError(
            "Ray would listen to other machines, as it was imported before; "
            "set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, or call ray.init"
        )
    return ray


def _reach(address: str) -> None:
    """Fail at once if an address is unreachable; Ray would retry for minutes.

    Raises:
        OSError: the address does not accept connections.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()


def _token() -> dict[str, str]:
    """Return the environment variable that sends the cluster's token, if the caller has one."""
    here = [os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")]
    return {"RAY_AUTH_MODE": "token"} if any(here) or Path("~/.ray/auth_token").expanduser().is_file() else {}


def _only_here(ray: Any) -> bool:
    """Return whether all nodes have loopback addresses only."""
    return all(ip_address(node["NodeManagerAddress"]).is_loopback for node in ray.nodes())


@contextmanager
def _same_signals() -> Iterator[None]:
    """Restore the caller's SIGTERM handler after Ray has replaced it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error message, and the last line too if the first ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
