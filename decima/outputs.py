"""Files that a command writes: refused before the work begins, never left half-written."""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from decima import __version__
from workloads.errors import DecimaError

__all__ = [
    "OutputError",
    "atomic_path",
    "check_file",
    "json_in_html",
    "json_text",
    "make_folder",
    "prepare_outputs",
    "uninterrupted",
    "versions",
    "visible",
    "writing",
]


#: What a browser could take for markup -> what JSON writes instead.
_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "<>&"}
#: What is not seen, or changes what is seen: control characters, formats such as right-to-left, ends of paragraphs.
_UNSEEN = ("Cc", "Cf", "Zl", "Zp")


class OutputError(DecimaError, OSError):
    """An output that cannot be written. The message is one line that names it."""


def make_folder(folder: Path) -> None:
    """Make ``folder`` and its parents where they are missing, and prove that files can be written into it.

    Raises:
        OutputError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _prove_writable(folder / "probe")
    except OSError as error:
        raise OutputError(f"cannot write into the folder {folder}: {error.strerror or error}") from None


def check_file(path: Path) -> None:
    """Prove that ``path`` can be written, without touching what is there.

    Raises:
        OutputError: it is a folder, or its folder is missing or cannot be written.
    """
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    if path.is_fifo() and path.parts[:2] not in (("/", "dev"), ("/", "proc")):  # a shell's >(..) has a reader
        raise OutputError(f"cannot write {path}: it is a named pipe, which may have no reader")
    try:
        _prove_writable(path)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def prepare_outputs(folder: Path, *files: Path | None) -> None:
    """Make a folder as ``make_folder`` does, and check files as ``check_file`` does; they may lie in it.

    Raises:
        OutputError: one of them cannot be written.
    """
    make_folder(folder)
    for file in files:
        if file is not None:
            check_file(file)


def versions() -> dict[str, str]:
    """Of what results were made with, for them to tell."""
    return {"decima": __version__, "numpy": version("numpy"), "python": platform.python_version()}


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path to write to; ``path`` is replaced in one step when the block ends well, and untouched otherwise.

    What is not a regular file, such as ``/dev/stdout``, is written directly.
    """
    if _is_device(path):
        with writing(path):
            yield path
        return
    partial = _beside(path)
    try:
        with writing(path):
            yield partial
            partial.replace(path.resolve())
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever the system refuses in the block, such as room on a full disk, is told with the name of what is written.

    Raises:
        OutputError: it refuses something.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, DecimaError | BrokenPipeError):
            raise
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the block is over: files that belong together are written together.

    Only in the main thread, which is where Ctrl-C strikes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    struck = False

    def wait(number: int, frame: object) -> None:
        nonlocal struck
        struck = True

    handler = signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if struck:
            signal.raise_signal(signal.SIGINT)


def json_text(content: Any) -> str:
    """Results for a JSON file. It has no NaN: numbers that are not known are null."""
    return json.dumps(_known(content), indent=1, allow_nan=False) + "\n"


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_in_html(text: str) -> str:
    """JSON that means the same, and can end no script of the page that it stands in."""
    return text.translate(_ESCAPED)


def visible(text: str) -> str:
    """A text for people, in which control characters, such as a terminal's escape codes, are seen and do nothing.

    Ends of lines and tabs are what they are.
    """
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _UNSEEN else _escaped(char)
        for char in text
    )


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def _prove_writable(path: Path) -> None:
    if not _is_device(path):
        probe = _beside(path)
        probe.touch()
        probe.unlink()


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _beside(path: Path) -> Path:
    """A name of this process's own beside the file; through symbolic links, so that they survive."""
    try:
        target = path.resolve()
    except RuntimeError:
        raise OutputError(f"cannot write {path}: it is a link that leads to itself") from None
    return target.with_name(f".{os.getpid()}.{target.name}")
