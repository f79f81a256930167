"""Bytes of files that people hand over: of regular files only, and never more than there is room for."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["LARGEST", "all_of", "open_regular", "read_bytes"]

#: Of a file that is read whole, unpacked, bytes.
LARGEST = 2**29


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Pipes, which may block, and devices, which may have no end, are refused.

    Raises:
        OSError: the file cannot be read or is not regular; ``strerror`` says why.
    """
    try:
        mode = path.stat().st_mode
    except ValueError:  # a NUL in its name
        raise OSError(errno.EINVAL, "no name of a file", str(path)) from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "a pipe, socket or device", str(path))
    return path.open("rb")


def all_of(file: BinaryIO, most: int = LARGEST) -> bytes:
    """What is left of an open file, which may unpack what it reads.

    Raises:
        OSError: it is more than so many bytes; ``strerror`` says so.
    """
    data = file.read(most + 1)
    if len(data) > most:
        size = f"{most >> 20} MiB" if most >> 20 else f"{most} bytes"
        raise OSError(errno.EFBIG, f"more than {size}")
    return data


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """All of a regular file.

    Raises:
        OSError: as ``open_regular`` and ``all_of``.
    """
    with open_regular(path) as file:
        return all_of(file, most)
