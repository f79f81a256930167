"""Worker pools: parse a specification such as ``4`` or ``ray:8``, and map work items over a pool.

Results arrive in order of completion. They must not depend on the worker or the order of the work items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from decima.workers import WorkerError

__all__ = ["Workers", "check_workers", "make_workers"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Maximum number of processes.
MOST = 1024
EXPECTED = f"a number from 1 to {MOST}, ray, ray:N or ray://HOST:PORT"


class Workers(Protocol):
    """Interface of worker pools, which call ``function(shared, item)`` for many work items; a context manager.

    An exception inside the ``with`` block stops all workers at once.

    Attributes:
        count: number of workers.
    """

    count: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def map(self, function: Callable[[Any, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results of ``function(shared, item)`` in order of completion; items start in the given order.

        Bind data that all items need to ``function`` (``functools.partial``): a node of Ray receives it only once.

        Raises:
            WorkerError: a worker died, or with Ray all retries of a work item failed.
            Exception: the first exception that ``function`` raises.
        """


def check_workers(spec: int | str) -> int | str:
    """Validate a specification of workers.

    Args:
        spec: number of processes; ``ray`` or ``ray:N`` for N actors (default: one per CPU) of the Ray cluster that the
            environment variable ``RAY_ADDRESS`` names, else of a new Ray on this machine; ``ray://HOST:PORT`` for
            a remote cluster.

    Returns:
        The specification; a number of processes as ``int``.

    Raises:
        WorkerError: the specification is malformed, or Ray is not installed.
    """
    text = str(spec)
    if re.fullmatch(r"[1-9]\d{,3}", text, re.ASCII) and int(text) <= MOST:
        return int(text)
    if not re.fullmatch(r"ray(:[1-9]\d*)?|ray://[^/\s]+:\d+", text, re.ASCII):
        raise WorkerError(f"{text!r} is not a specification of workers: expected {EXPECTED}")
    if find_spec("ray") is None:
        raise WorkerError("workers of Ray need the ray package: pip install -e '.[ray]'")
    return text


def make_workers(
    shared: Any, spec: int | str, most: int | None = None, *, works_along: bool = False
) -> Workers:
    """Create a worker pool.

    Args:
        shared: first argument of every call; picklable, except for a single process.
        spec: number of processes or Ray cluster, see ``check_workers``.
        most: maximum number of workers; unlimited if None.
        works_along: whether the calling process works, too, and starts other processes only if that saves time, see
            ``Processes``; actors of Ray start in any case.

    Raises:
        WorkerError: the workers are not available.
    """
    spec = check_workers(spec)
    if isinstance(spec, str):
        from decima.workers.ray_actors import RayWorkers

        return RayWorkers(shared, spec, most)
    if (count := spec if most is None else max(1, min(spec, most))) == 1:
        return _CallingProcess(shared)
    from decima.workers.processes import Processes

    return Processes(shared, count, works_along)


class _CallingProcess:
    """The calling process as the only worker, see ``Workers``."""

    def __init__(self, shared: Any) -> None:
        self.count, self._shared = 1, shared

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no process has started."""

    def map(self, function: Callable[[Any, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results in the order of the items."""
        for item in list(items):
            yield function(self._shared, item)
