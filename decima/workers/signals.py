"""Signals, such as Ctrl-C, that child processes ignore."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["children_ignore"]


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
