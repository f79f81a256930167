"""Worker pools for independent work items: processes of this machine, or actors of a Ray cluster.

``pool`` chooses and describes them; ``processes`` and ``ray_actors`` have them; ``in_order`` maps items over them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from workloads.errors import DecimaError


class WorkerError(DecimaError, RuntimeError):
    """Workers died or are not available."""


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
