"""Read user files: regular files only, at most ``LARGEST`` bytes; gzip, JSON, and errors that name the place."""

from __future__ import annotations

import errno
import gc
import gzip
import json
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from workloads.job import WorkloadError

#: Maximum size of a file that is read as a whole, in bytes after decompression.
LARGEST = 2**29

#: An escaped surrogate in JSON; a pair of surrogates is one character.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; reject pipes, which may block, and devices, which may be endless.

    Raises:
        OSError: the file cannot be read or is not regular; ``strerror`` has the reason.
    """
    try:
        mode = path.stat().st_mode
    except ValueError:  # the name contains a NUL
        raise OSError(errno.EINVAL, "not a file name", str(path)) from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "a pipe, socket or device", str(path))
    return path.open("rb")


def all_of(file: BinaryIO, most: int = LARGEST) -> bytes:
    """Read the rest of an open file.

    Raises:
        OSError: the rest has more than ``most`` bytes.
    """
    data = file.read(most + 1)
    if len(data) > most:
        size = f"{most >> 20} MiB" if most >> 20 else f"{most} bytes"
        raise OSError(errno.EFBIG, f"more than {size}")
    return data


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """Read a whole regular file; raises like ``open_regular`` and ``all_of``."""
    with open_regular(path) as file:
        return all_of(file, most)


@contextmanager
def opened(path: Path, expected: str) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, decompressed if its name ends in ``.gz``.

    Args:
        expected: description of the expected file, for the error message.

    Raises:
        WorkloadError: the file cannot be read, or is not gzip although its name says so.
    """
    try:
        with open_regular(path) as raw:
            # A GzipFile can be read like any other file.
            yield gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw  # type: ignore[misc]
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


def parse_json(text: str) -> object:
    """Parse JSON text.

    Raises:
        ValueError: the JSON is invalid, repeats a key, or has an unpaired surrogate, which UTF-8 cannot encode.
    """
    repeated = False

    def build(pairs: list[tuple[str, object]]) -> object:
        nonlocal repeated
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        repeated = True
        return _Repeated(Counter(key for key, _ in pairs).most_common(1)[0][0])

    document = json.loads(text, object_pairs_hook=build)
    if repeated or _SURROGATE.search(text):
        _check_json(document, (), repeated)
    return document


class _Repeated:
    """Placeholder for a JSON object with a repeated key, so that the error can name its place."""

    def __init__(self, key: str) -> None:
        self.key = key


def _check_json(value: object, place: tuple[str | int, ...], repeated: bool) -> None:
    """Raise on repeated keys if ``repeated``, else on unpaired surrogates, at any depth."""
    if isinstance(value, _Repeated):
        raise WorkloadError(f"{place_name((*place, value.key))}: this key is given more than once")
    if not repeated and isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        where = f"{place_name(place)}: " if place else ""
        raise WorkloadError(f"{where}expected characters, got half a surrogate pair in {value!r:.60}")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_json(key, place, repeated)
            _check_json(item, (*place, key), repeated)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_json(item, (*place, index), repeated)


def place_name(location: Iterable[str | int]) -> str:
    """Format a place in a document, such as ``jobs[3].profile``."""
    text = ""
    for part in location:
        if part in ("<number>", "<name>", "<list>", "<object>", "[key]"):  # added by pydantic
            continue
        if isinstance(part, str) and re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


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
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: byte {error.start}: expected UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise WorkloadError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise WorkloadError(f"{path}: too many levels of brackets") from None
    except ValueError as error:  # from TOML, a repeated key, or a number of thousands of digits
        raise WorkloadError(f"{path}: {error}") from None


def reasons(dropped: Mapping[str, int]) -> str:
    """Format the reasons for dropping, with their counts."""
    return ", ".join(f"{count} with {why}" for why, count in dropped.items())
