"""Who does independent pieces of work: processes of this machine, or actors of a Ray cluster.

Whoever has work to share out asks for no more than a context manager with ``map``, and sorts what it gives: results
come as they are ready, and must not depend on where or in what order they were made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from decima.evaluation.processes import Processes, WorkerError, available_cpus
from decima.evaluation.ray_workers import RayWorkers

__all__ = ["WorkerError", "Workers", "available_cpus", "check_workers", "make_workers"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: All processes start with the first piece of work.
MOST = 1024
EXPECTED = f"a number from 1 to {MOST}, ray, ray:N or ray://HOST:PORT"


class Workers(Protocol):
    """Calls ``function(shared, item)`` for many items; a context manager.

    An exception inside the ``with`` block ends all work at once.

    Attributes:
        count: how many work at once.
    """

    count: int

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def map(self, function: Callable[[Any, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results in the order in which they are ready; work begins in the order of ``items``.

        What all items need belongs to the function (``functools.partial``): it travels once to where it is needed.

        Raises:
            WorkerError: workers died, more often than work is done again.
            Exception: whatever ``function`` raises first.
        """


def check_workers(spec: int | str) -> int | str:
    """A description of workers, if it is one and can be had.

    Args:
        spec: a number of processes; ``ray`` or ``ray:N``, actors of the Ray cluster that ``RAY_ADDRESS`` names, or of
            one that is started here; ``ray://HOST:PORT``, those of a cluster elsewhere. As many as there are CPUs
            unless N says otherwise.

    Returns:
        The same; a number as one.

    Raises:
        WorkerError: it is none, or Ray is not installed.
    """
    text = str(spec)
    if re.fullmatch(r"[1-9]\d{,3}", text, re.ASCII) and int(text) <= MOST:
        return int(text)
    if not re.fullmatch(r"ray(:[1-9]\d*)?|ray://[^/\s]+:\d+", text, re.ASCII):
        raise WorkerError(f"{text!r} are no workers: expected {EXPECTED}")
    if find_spec("ray") is None:
        raise WorkerError("workers of Ray need the ray package: pip install -e '.[ray]'")
    return text


def make_workers(shared: Any, spec: int | str, most: int | None = None) -> Workers:
    """Workers as described.

    Args:
        shared: handed to every call; picklable if it is not this process that works.
        spec: see ``check_workers``.
        most: there is no use for more than this; any number if omitted.

    Raises:
        WorkerError: there are no such workers.
    """
    spec = check_workers(spec)
    if isinstance(spec, str):
        return RayWorkers(shared, spec, most)
    return Processes(shared, spec if most is None else max(1, min(spec, most)))
