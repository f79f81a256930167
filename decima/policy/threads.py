"""Settings of the process for small networks: threads of PyTorch, and memory that stays in the process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

__all__ = ["keep_memory", "one_thread"]

#: Numbers of two options of glibc's ``mallopt``, see ``malloc.h``.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3


@contextmanager
def one_thread() -> Iterator[None]:
    """Run PyTorch in one thread inside the block: more do not speed up small networks, and change the order of sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def keep_memory() -> None:
    """Keep freed memory in the process if the C library is glibc; do nothing with other libraries.

    By default glibc returns the memory of large arrays to the system, which clears it before the next array uses it.
    That took a fifth of the time of an update.
    """
    with suppress(AttributeError, OSError, TypeError):  # no glibc
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, 32 << 20)  # the largest one possible
        library.mallopt(TRIM_THRESHOLD, 1 << 30)
