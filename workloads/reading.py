"""Read input files: regular files only, of bounded size; gzip, JSON, and errors that name the place.

All files that a user can be handed are opened here. ``open_regular`` opens a file, ``opened`` also decompresses it,
``read_bytes`` and ``read_document`` read it as a whole.
"""

from __future__ import annotations

import errno
import gc
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from workloads.errors import WorkloadError

#: Maximum size of a file that is read as a whole, in bytes after decompression.
LARGEST = 2**27
#: Maximum number of values in a JSON document; each takes up to 80 bytes of memory.
MOST_VALUES = 2**23
#: Number of bytes that are read or decompressed at a time.
_BLOCK = 2**18

#: An escaped surrogate in JSON; a pair of surrogates is one character.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """Open a regular file for reading; reject pipes, which may block, and devices, which may be endless.

    Args:
        most: maximum size of the file, bytes; None: any size, for files that are read in pieces.

    Raises:
        OSError: the file cannot be read, is not regular or too large; ``strerror`` has the reason.
    """
    try:
        _check_kind(path.stat().st_mode, path)
    except ValueError:  # the name contains a NUL
        raise OSError(errno.EINVAL, "not a file name", str(path)) from None
    # A pipe may have taken the file's place by now; without blocking, opening it returns at once.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        state = os.fstat(handle)
        _check_kind(state.st_mode, path)
        if most is not None and state.st_size > most:
            raise _too_large(most)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_kind(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a pipe, socket or device", str(path))


def _too_large(most: int) -> OSError:
    size = f"{most >> 20} MiB" if most >> 20 else f"{most} bytes"
    return OSError(errno.EFBIG, f"more than {size}")


def all_of(file: BinaryIO, most: int = LARGEST) -> bytes:
    """Read the rest of an open file.

    Raises:
        OSError: the rest has more than ``most`` bytes.
    """
    data = io.BytesIO()
    while block := file.read(_BLOCK):
        if data.tell() + len(block) > most:
            raise _too_large(most)
        data.write(block)
    return data.getvalue()


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """Read a whole regular file; raises like ``open_regular`` and ``all_of``."""
    with open_regular(path, most) as file:
        return all_of(file, most)


class _Bounded(io.RawIOBase):
    """The first ``most`` bytes of a stream; more bytes are an error. A small archive may contain an endless stream."""

    def __init__(self, stream: io.BufferedIOBase, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._stream.readinto1(buffer)
        self._left -= count
        if self._left < 0:
            raise _too_large(self._most)
        return count


def bounded(stream: io.BufferedIOBase, most: int) -> BinaryIO:
    """Return a stream of decompressed data as a file that raises ``OSError`` after ``most`` bytes."""
    return io.BufferedReader(_Bounded(stream, most), _BLOCK)


@contextmanager
def opened(path: Path, expected: str, most: int = LARGEST) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, decompressed if its name ends in ``.gz``.

    Args:
        expected: description of the expected file, for the error message.
        most: maximum size, bytes after decompression.

    Raises:
        WorkloadError: the file cannot be read, is too large, or is not gzip although its name says so.
    """
    try:
        with open_regular(path, most) as raw:
            yield bounded(gzip.GzipFile(fileobj=raw), most) if path.suffix.lower() == ".gz" else raw
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise WorkloadError(f"{path}: expected gzip, the file is malformed or cut short") from None
    except OSError as error:
        raise unreadable(path, error, expected) from None


def unreadable(path: Path, error: OSError, expected: str) -> WorkloadError:
    """Return the error for a file that the system cannot read."""
    return WorkloadError(f"{path}: {error.strerror}, expected {expected}")


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause garbage collection inside the block: it takes half of the time of reading jobs, which have no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_num_values(text: str | bytes) -> None:
    """Raise ``ValueError`` if a JSON text has more than ``MOST_VALUES`` values: a small file can fill the memory."""
    if len(text) <= MOST_VALUES:
        return
    marks = (
        (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    )  # each value follows one of these
    if sum(map(text.count, marks)) > MOST_VALUES:  # type: ignore[arg-type]
        raise ValueError(f"more than {MOST_VALUES:,} values")


def parse_json(text: str) -> object:
    """Parse JSON text.

    Raises:
        ValueError: the JSON is invalid, has more than ``MOST_VALUES`` values or too many levels of brackets, repeats a
            key, or has an unpaired surrogate, which UTF-8 cannot encode.
    """
    check_num_values(text)
    repeats = False

    def build(pairs: list[tuple[str, object]]) -> object:
        nonlocal repeats
        result = dict(pairs)
        repeats |= len(result) != len(pairs)
        return result

    try:
        document = json.loads(text, object_pairs_hook=build)
        if repeats:
            from workloads.malformed_json import repeated_key

            raise repeated_key(text)
        if _SURROGATE.search(text):
            from workloads.malformed_json import check_surrogates

            check_surrogates(document)
    except RecursionError:
        raise ValueError("too many levels of brackets") from None
    return document


def read_document(path: Path, expected: str, parse: Callable[[str], object] = parse_json) -> object:
    """Read and parse a text file.

    Args:
        expected: description of the expected file, for the error message.
        parse: function from text to document.

    Raises:
        WorkloadError: the file cannot be read, is not UTF-8, or cannot be parsed.
    """
    with opened(path, expected) as file:
        data = all_of(file)
    try:
        text = data.decode("utf-8-sig")
        del data  # a document may be large
        return parse(text)
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: byte {error.start}: expected UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise WorkloadError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise WorkloadError(f"{path}: too many levels of brackets") from None
    except ValueError as error:  # from TOML, a repeated key, or a number of thousands of digits
        raise WorkloadError(f"{path}: {error}") from None
