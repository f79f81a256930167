"""Map work items over a worker pool: results in the order of the items, progress, and CPU time of the workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from decima.workers.pool import Workers

__all__ = ["map_in_order"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    workers: Workers,
    function: Callable[[Any, Item], Result],
    items: Sequence[Item],
    progress: Callable[[int, int], None] = lambda done, total: None,
    sizes: Iterable[int] | None = None,
) -> tuple[list[Result], float]:
    """Run work items and return their results in the order of the items.

    Args:
        workers: worker pool.
        function: called as ``function(shared, item)``.
        items: work items.
        progress: progress callback, called with the size of the finished items and the total size.
        sizes: size of each item; 1 by default.

    Returns:
        The results, and the CPU time of processes other than the caller, s.

    Raises:
        WorkerError: a worker died.
        Exception: the first exception that ``function`` raises.
    """
    size = [1] * len(items) if sizes is None else list(sizes)
    results: dict[int, Result] = {}
    elsewhere_s = 0.0
    progress(0, sum(size))
    for index, result, process, cpu_s in workers.map(partial(_timed, function), list(enumerate(items))):
        results[index] = result
        elsewhere_s += cpu_s if process != os.getpid() else 0.0
        progress(sum(size[index] for index in results), sum(size))
    return [results[index] for index in range(len(items))], elsewhere_s


def _timed(
    function: Callable[[Any, Item], Result], shared: Any, work: tuple[int, Item]
) -> tuple[int, Result, int, float]:
    index, item = work
    begun = time.process_time()
    return index, function(shared, item), os.getpid(), time.process_time() - begun
