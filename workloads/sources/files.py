"""Shared by readers of files: gzip, JSON, and errors that name the file."""

from __future__ import annotations

import gc
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from workloads.job import WorkloadError
from workloads.reading import all_of, open_regular
from workloads.sources.file_format import place_name

__all__ = ["garbage_collection_paused", "opened", "parse_json", "read_document", "reasons", "unreadable"]


#: A surrogate as JSON escapes it; two of them may be one character.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@contextmanager
def opened(path: Path, expected: str) -> Iterator[BinaryIO]:
    """Open a file as bytes, decompressed if its name ends in ``.gz``.

    Args:
        path: the file.
        expected: description of the expected file, for the error message.

    Raises:
        WorkloadError: it cannot be read, or is not gzip where it should be.
    """
    try:
        with open_regular(path) as raw:
            # A gzip file can be read like any other.
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
    """Pause the search for reference cycles: it takes half of the time of reading many jobs, which have none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_json(text: str) -> object:
    """Parse a JSON text.

    Raises:
        ValueError: it is not JSON, an object has a key twice, or a text holds half a surrogate pair, which no
            file in UTF-8 could hold.
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
    if repeated:
        _refuse_repeated(document, ())
    if _SURROGATE.search(text):
        _refuse_surrogates(document, ())
    return document


def read_document(path: Path, expected: str, parse: Callable[[str], object] = parse_json) -> object:
    """Read and parse a file, JSON by default; ``expected`` as in ``opened``.

    Raises:
        WorkloadError: it cannot be read, is not UTF-8, or means nothing.
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
    except ValueError as error:  # TOML's own, a repeated key, or a number of thousands of digits
        raise WorkloadError(f"{path}: {error}") from None


def reasons(dropped: Mapping[str, int]) -> str:
    """Format reasons for dropping and their counts in words."""
    return ", ".join(f"{count} with {why}" for why, count in dropped.items())


class _Repeated:
    """Marks a JSON object with a repeated key, so that the error can name its place."""

    def __init__(self, key: str) -> None:
        self.key = key


def _refuse_repeated(value: object, place: tuple[str | int, ...]) -> None:
    if isinstance(value, _Repeated):
        raise WorkloadError(f"{place_name((*place, value.key))}: this key is given more than once")
    inner = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for key, item in inner:
        _refuse_repeated(item, (*place, key))


def _refuse_surrogates(value: object, place: tuple[str | int, ...]) -> None:
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        where = f"{place_name(place)}: " if place else ""
        raise WorkloadError(f"{where}expected characters, got half a surrogate pair in {value!r:.60}")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_surrogates(key, place)
            _refuse_surrogates(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_surrogates(item, (*place, index))
