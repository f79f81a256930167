"""Find Spark's event logs, and stream their events line by line: one file, the parts of a rolled log, a zip archive."""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from workloads.job import WorkloadError
from workloads.reading import check_num_values, open_regular, unreadable
from workloads.spark.compression import DAMAGE, UnsupportedCompressionError, decompressed

#: Longest line that is read as a whole, bytes. Spark writes plans of many megabytes, which are not used.
MAX_LINE = 64 * 2**20
#: Longer lines are rejected, bytes: only a decompression bomb has one.
MOST_OF_A_LINE = 2**30
#: Maximum number of blank lines.
MOST_BLANK = 10**6
#: Maximum number of files in a zip archive, and size of its table of contents, bytes.
MOST_MEMBERS, LARGEST_CONTENTS = 4096, 2**21
#: Number of bytes of the first line that are read to recognise an event log.
_PROBE = 4096

_EVENT_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"\\]+)"')
#: Part of a rolled log of Spark: number, application, compression, whether it replaces the parts before it.
_SPARK_PART = re.compile(r"events_(\d+)_(.+?)(?:\.(?:lz4|lzf|snappy|zstd|gz))?(\.compact)?")
#: Part of a rolled log of Databricks: its time; the newest part has none.
_DATABRICKS_PART = re.compile(
    r"eventlog(?:-(\d{4})-(\d\d?)-(\d\d?)--(\d\d?)-(\d\d?))?(?:\.(?:gz|zst|zstd|lz4|snappy))?"
)
#: Files that Spark writes beside its logs, without events.
_MARKER = re.compile(r"appstatus_.+|APPLICATION_COMPLETE|SPARK_VERSION_.+|COMPRESSION_CODEC_.+")
#: Reason why a file is skipped in a folder.
NO_LOG = "not a Spark event log"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


class UnusableLogError(WorkloadError):
    """A file or an application contains nothing to import. It is skipped if it was found in a folder.

    Args:
        place: file, and line if known.
        reason: what the log lacks; equal for all logs that are counted together.
        details: details of this log, for the message.
    """

    def __init__(self, place: object, reason: str, details: str = "") -> None:
        super().__init__(f"{place}: {reason}{details}")
        self.reason = reason


@dataclass
class Problems:
    """Problems of a log: raised as errors, or collected if a partial log is accepted."""

    MAX_MESSAGES = 20

    partial: bool  # collect problems instead of raising them
    messages: list[str] = field(default_factory=list)  # the first ``MAX_MESSAGES`` problems, one line each
    count: int = 0

    def report(self, message: str) -> None:
        """Raise ``message`` as a `WorkloadError`, or collect it."""
        if not self.partial:
            raise WorkloadError(message)
        self.note(message)

    def note(self, message: str) -> None:
        """Collect a problem that does not invalidate a log, such as a missing end."""
        self.count += 1
        if len(self.messages) < self.MAX_MESSAGES:
            self.messages.append(message)

    @property
    def lines(self) -> tuple[str, ...]:
        """The messages, and the number of further problems."""
        more = self.count - len(self.messages)
        return (*self.messages, *([f"and {more} problems more"] if more else []))


@dataclass(frozen=True)
class LogFile:
    """A file on disk, or the file named ``member`` in the zip archive ``path``."""

    path: Path
    member: str = ""

    @cached_property
    def shown(self) -> Path:
        """The path for messages; that of a member continues the path of its archive."""
        return self.path / "".join(char if char.isprintable() else "?" for char in self.member.lstrip("/"))

    @property
    def name(self) -> str:
        """Name without folders."""
        return self.shown.name

    def __str__(self) -> str:
        return str(self.shown)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file for reading.

        Raises:
            WorkloadError: the system cannot read the file, or the archive is malformed.
        """
        if self.member:
            with _archive(self.path) as archive, archive.open(self.member) as file:
                yield file  # type: ignore[misc]  # it can be read like any other file
        else:
            try:
                file = open_regular(self.path)
            except OSError as error:
                raise UnusableLogError(
                    self.path, f"{error.strerror}, expected an event log of Spark"
                ) from None
            with file:
                yield file


@dataclass(frozen=True)
class EventLog:
    """One log: path, files (one, or those of a rolled log, oldest first), and messages about missing parts.

    Args:
        in_progress: whether Spark has not closed the log: the application still runs, or its driver died.
        found_in: folder or archive in which the log was found; None if the caller named the log.
    """

    path: Path
    files: tuple[LogFile, ...]
    gaps: tuple[str, ...] = ()
    in_progress: bool = False
    found_in: Path | None = None


def find_event_logs(*paths: Path) -> list[EventLog]:
    """Return the event logs at ``paths``.

    A path is a file, a zip archive, or a folder, whose logs and archives are found at any depth. The parts of a rolled
    log, of Spark (``events_1_ID``, ..) or of Databricks (``eventlog-DATE--TIME.gz``, .., ``eventlog``), are one log.
    In folders and archives, names that begin with ``.`` or ``_`` are left out.

    Raises:
        WorkloadError: a path does not exist, an archive is damaged, or a folder or archive contains no log.
    """
    parts: dict[tuple[object, str], list[LogFile]] = {}
    found_in: dict[tuple[object, str], Path | None] = {}
    running: set[Path] = set()  # folders of rolled logs that Spark has not closed
    for path in paths:
        inside = _files_inside(path)
        for file in [LogFile(path)] if inside is None else inside:
            folder, application = file.shown.parent, _application_of_part(file.name)
            if inside is not None and _MARKER.fullmatch(file.name):
                if file.name.endswith(".inprogress"):
                    running.add(folder)
                continue
            # Every file that is not a part of a rolled log has a key of its own.
            key = (folder, application) if application else (len(parts), "")
            parts.setdefault(key, []).append(file)
            found_in[key] = None if inside is None else path
        if inside is not None and path not in found_in.values():
            raise WorkloadError(f"{path}: the folder contains no event log")
    return [_log_of(files, found_in[key], running) for key, files in parts.items()]


def _files_inside(path: Path) -> list[LogFile] | None:
    """Return the files in a zip archive, or in a folder at any depth, by path; None for another file."""
    if path.is_file():
        return _members(path) if _is_archive(path) else None
    if not path.is_dir():
        raise WorkloadError(f"{path}: no {'event log' if path.exists() else 'such file or folder'}")
    files: list[LogFile] = []
    folders = [path]
    visited: set[Path] = set()
    while folders:
        folder = folders.pop()
        if folder.resolve() in visited:  # a link to a folder above
            continue
        visited.add(folder.resolve())
        for entry in folder.iterdir():
            if entry.name.startswith((".", "_")):
                continue
            if entry.is_dir():
                folders.append(entry)
            elif entry.is_file():
                files += _members(entry) if _is_archive(entry) else [LogFile(entry)]
    return sorted(files, key=lambda file: file.shown)


def _is_archive(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(4) in _ZIP
    except OSError:  # reported when the log is read
        return False


def _members(path: Path) -> list[LogFile]:
    """Return the files in a zip archive, such as the download of Spark's history server."""
    with _archive(path) as archive:
        names = {member.filename for member in archive.infolist() if not member.is_dir()}
    if len(names) > MOST_MEMBERS:
        raise WorkloadError(
            f"{path}: {len(names):,} files, expected at most {MOST_MEMBERS:,} in a zip archive"
        )
    members = [
        LogFile(path, name)
        for name in names
        if not any(part.startswith((".", "_")) for part in PurePosixPath(name.lstrip("/")).parts)
    ]
    return sorted(members, key=lambda file: file.shown)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive; raise `WorkloadError` if it is unreadable."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(_ShortReads(file)) as archive:  # type: ignore[arg-type]
            yield archive
    except OSError as error:
        raise unreadable(path, error, "an event log of Spark") from None
    except (zipfile.BadZipFile, RuntimeError) as error:
        raise WorkloadError(f"{path}: the zip archive is unreadable ({error})") from None


class _ShortReads(io.BufferedReader):
    """Archive with a limited size of its table of contents, which `zipfile` reads as a whole."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LARGEST_CONTENTS:
            raise zipfile.BadZipFile(f"its table of contents has more than {LARGEST_CONTENTS >> 20} MiB")
        return super().read(size)


def _application_of_part(name: str) -> str:
    """Return what the names of the parts of one rolled log have in common; empty for another file."""
    if match := _SPARK_PART.fullmatch(name):
        return match[2]
    return "eventlog" if _DATABRICKS_PART.fullmatch(name) else ""


def _log_of(files: list[LogFile], found_in: Path | None, running: set[Path]) -> EventLog:
    """Return the log of one file, or of the parts of a rolled log in one folder."""
    numbered = {
        (int(match[1]), bool(match[3])): file for file in files if (match := _SPARK_PART.fullmatch(file.name))
    }
    folder = files[0].shown.parent
    if len(files) == 1 and (found_in is None or not numbered):
        [file] = files
        return EventLog(file.shown, (file,), (), file.name.endswith(".inprogress"), found_in)
    if not numbered:
        return EventLog(folder, _by_time(files), found_in=found_in)
    # Compaction to file N replaces all files up to N, which Spark may not have deleted yet.
    compacted = max((part for part, is_compact in numbered if is_compact), default=0)
    parts = {
        part: file
        for (part, is_compact), file in sorted(numbered.items(), key=lambda item: item[0])
        if part > compacted or (is_compact and part == compacted)
    }
    gaps = []
    if compacted:
        gaps.append(f"compacted by Spark: the events of jobs that ended before file {compacted} are gone")
    missing = next((part for part in range(max(compacted, 1), max(parts)) if part not in parts), None)
    if missing is not None:
        gaps.append(f"part {missing} of the rolled log (events_{missing}_...) is missing")
    return EventLog(folder, tuple(parts.values()), tuple(gaps), folder in running, found_in)


def _by_time(files: Iterable[LogFile]) -> tuple[LogFile, ...]:
    """Return the parts of a rolled log of Databricks in order of their times, which are in their names."""
    by_time = {}
    for file in files:
        match = _DATABRICKS_PART.fullmatch(file.name)
        written = match and match[1] and [int(part) for part in match.groups()]
        by_time[tuple(written or (math.inf,))] = file  # the newest part has no time
    return tuple(by_time[time] for time in sorted(by_time))


def events(log: EventLog, wanted: frozenset[str], problems: Problems) -> Iterator[tuple[str, str, Any]]:
    """Yield the events of a log in order.

    Args:
        wanted: names of the events to parse.
        problems: collects lines that are not events, damaged data, and missing parts of a rolled log.

    Yields:
        Place (``FILE:LINE``), name, and content of each event; None instead of the content of an unwanted event.

    Raises:
        WorkloadError: there is a problem and ``problems`` does not collect it, or the file is not an event log.
    """
    for gap in log.gaps:
        problems.report(f"{log.path}: {gap}")
    is_log = False
    for file in log.files:
        shown = str(file)
        for line_number, line in _lines(file, problems, may_be_empty=len(log.files) > 1):
            place = f"{shown}:{line_number}"
            try:
                yield place, *_parse(line, wanted)
                is_log = True
            except (ValueError, RecursionError):
                if not is_log:
                    raise UnusableLogError(place, NO_LOG, ' (expected {"Event":...})') from None
                report = problems.report if line.endswith(b"\n") or len(line) >= MAX_LINE else problems.note
                report(f"{place}: {_describe_bad(line)}")


def _parse(line: bytes, wanted: frozenset[str]) -> tuple[str, Any]:
    """Return name and content of an event; raise ValueError if the line is not an event."""
    if match := _EVENT_NAME.match(line):
        name = match[1].decode()
        if name not in wanted:
            return name, None
        if len(line) >= MAX_LINE:
            raise ValueError("too long")
    check_num_values(line)
    event = json.loads(line)
    if not isinstance(event, dict) or not isinstance(name := event.get("Event"), str):
        raise ValueError("no event")
    return name, event if name in wanted else None


def _describe_bad(line: bytes) -> str:
    if len(line) >= MAX_LINE:
        return f"an event of more than {MAX_LINE >> 20} MiB"
    if not line.endswith(b"\n"):
        return "the log is cut off in mid-line (truncated, or still being written)"
    return f"not an event: {line[:40].decode(errors='replace').strip()!r}"


def _lines(file: LogFile, problems: Problems, may_be_empty: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a file, each cut to `MAX_LINE` bytes."""
    line_number = blank = 0
    try:
        with file.opened() as content, decompressed(content) as stream:
            while True:
                line_number += 1
                # A huge file of one line must be recognised as no log without being read.
                line = start = stream.readline(_PROBE if line_number == 1 else MAX_LINE)
                if line_number == 1 and _EVENT_NAME.match(start):
                    line = start if start.endswith(b"\n") else start + stream.readline(MAX_LINE)
                rest, length = line, len(line)
                while len(rest) >= MAX_LINE and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE)
                    length += len(rest)
                    if length > MOST_OF_A_LINE:
                        raise WorkloadError(f"{file}:{line_number}: a line of more than {length >> 20} MiB")
                if not line:
                    break
                if line.strip():
                    yield line_number, line
                elif (blank := blank + 1) > MOST_BLANK:
                    raise WorkloadError(f"{file}:{line_number}: more than {MOST_BLANK:,} blank lines")
    except EOFError:
        problems.note(f"{file}:{max(line_number, 1)}: the data end early (truncated, or still being written)")
    except UnsupportedCompressionError as error:
        raise UnusableLogError(file, str(error)) from None
    except DAMAGE as error:
        problems.report(f"{file}:{max(line_number, 1)}: the data are damaged ({error})")
    else:
        if line_number == 1 and not may_be_empty:
            raise UnusableLogError(f"{file}:1", f"the file is empty, {NO_LOG}")
