"""Output files: check paths before the work begins, write files atomically, lock folders."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from workloads.errors import DecimaError

__all__ = [
    "LOCK", "OutputError", "atomic_path", "check_file", "folder_lock", "make_folder", "missing_paths",
    "prepare_outputs", "remove_paths", "uninterrupted", "writing",
]  # fmt: skip

#: Name of the file that ``folder_lock`` locks.
LOCK = "training.lock"


class OutputError(DecimaError, OSError):
    """An output cannot be written. The message is one line that names the output."""


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, and check that files can be written into it.

    Raises:
        OutputError: the folder cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _prove_writable(folder / "probe")
    except OSError as error:
        raise OutputError(f"cannot write into the folder {folder}: {error.strerror or error}") from None


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock an output folder, so that no other process, thread or training writes into it inside the block.

    The lock is a file, which is removed at the end. If this process is killed, the file remains and is unlocked. On
    file systems without locks the block runs unlocked.

    Raises:
        OutputError: the folder is locked already, or cannot be written to.
    """
    lock = FileLock(folder / LOCK)
    try:
        with suppress(NotImplementedError):
            lock.acquire(timeout=0)
    except Timeout:
        raise OutputError(
            f"{folder}: another training writes into this folder now; wait for its end, or choose another folder"
        ) from None
    except OSError as error:
        raise OutputError(f"cannot write into the folder {folder}: {error.strerror or error}") from None
    try:
        yield
    finally:
        with suppress(OSError):
            Path(
                lock.lock_file
            ).unlink()  # before the release: afterwards it may be the lock of another process
        lock.release()


def missing_paths(folder: Path, *names: str) -> list[Path]:
    """Return the paths of a folder, of its parents and of entries in it that do not exist yet, for ``remove_paths``."""
    paths = (*reversed(folder.parents), folder, *(folder / name for name in names))
    return [path for path in paths if not (path.exists() or path.is_symlink())]


def remove_paths(paths: Sequence[Path], contents: Collection[str] = ()) -> None:
    """Remove files and empty folders, the last path first; paths that are missing or in use remain.

    Args:
        contents: names of folders that are removed with their contents.
    """
    for path in reversed(paths):
        with suppress(OSError):
            if path.name in contents:
                shutil.rmtree(path)
            elif path.is_dir():
                path.rmdir()
            else:
                path.unlink()


def check_file(path: Path) -> None:
    """Check that a file can be written, without changing an existing file.

    Raises:
        OutputError: the path is a folder or a named pipe, or its folder is missing or cannot be written to.
    """
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    # Pipes of a shell (process substitution) have a reader.
    if path.is_fifo() and path.parts[:2] not in (("/", "dev"), ("/", "proc")):
        raise OutputError(f"cannot write {path}: it is a named pipe, which may have no reader")
    with writing(path):
        _prove_writable(path)


def prepare_outputs(folder: Path | None, *files: Path | None) -> None:
    """Create an output folder (``make_folder``), then check output files (``check_file``), which may lie in it.

    None stands for a folder or a file that is not wanted.

    Raises:
        OutputError: the folder or a file cannot be written.
    """
    if folder is not None:
        make_folder(folder)
    for file in files:
        if file is not None:
            check_file(file)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end of the block it replaces ``path``, unless the block raised.

    Special files, such as ``/dev/stdout``, are written directly.
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
    """Convert operating system errors in the block, such as a full disk, to an error that names the file.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, DecimaError | BrokenPipeError):
            raise
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, so that it cannot separate files that belong together.

    Has no effect outside the main thread, since only the main thread receives Ctrl-C.
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


def _prove_writable(path: Path) -> None:
    if not _is_device(path):
        probe = _beside(path)
        probe.touch()
        probe.unlink()


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _beside(path: Path) -> Path:
    """Return a temporary path in the folder of the file; a symbolic link is resolved, so that the link remains."""
    try:
        target = path.resolve()
    except RuntimeError:
        raise OutputError(f"cannot write {path}: it is a link that leads to itself") from None
    return target.with_name(f".{os.getpid()}.{target.name}")
