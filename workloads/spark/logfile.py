"""Find Spark's event logs, and stream their events line by line: plain, gzip or zstd, one file or a rolled log."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from workloads.job import WorkloadError
from workloads.reading import open_regular, unreadable

try:
    import zstandard
except ImportError:  # an optional extra: only zstd logs need it
    zstandard = None  # type: ignore[assignment, unused-ignore]

#: Longest line that is read as a whole, bytes. Spark writes plans of many megabytes, which are not used.
MAX_LINE = 64 * 2**20
#: Longer lines are rejected, bytes: only a decompression bomb has one.
MOST_OF_A_LINE = 2**30
#: Maximum number of blank lines.
MOST_BLANK = 10**6
#: Number of bytes of the first line that are read to recognise an event log.
_PROBE = 4096

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UNREADABLE = {b"LZ4Block": "lz4", b"\x82SNAPPY": "snappy", b"ZV": "lzf", b"PK\x03\x04": "zip"}
_DAMAGE: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error)
if zstandard is not None:
    _DAMAGE = (*_DAMAGE, zstandard.ZstdError)

_EVENT_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"\\]+)"')
_ROLLED_FILE = re.compile(r"events_(\d+)_.+")


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
class EventLog:
    """One log: path, files (one, or those of a rolled log, oldest first), and messages about missing parts."""

    path: Path
    files: tuple[Path, ...]
    gaps: tuple[str, ...] = ()

    @property
    def in_progress(self) -> bool:
        """Whether Spark has not closed the log: the application still runs, or its driver died."""
        names = [self.path.name, *(file.name for file in self.path.glob("appstatus_*"))]
        return any(name.endswith(".inprogress") for name in names)


def find_event_logs(path: Path) -> list[EventLog]:
    """Return the event logs at ``path``: a file, the folder of a rolled log (``eventlog_v2_*``), or a folder of both.

    Raises:
        WorkloadError: the path does not exist, or the folder contains no log.
    """
    if path.is_file():
        return [EventLog(path, (path,))]
    if not path.is_dir():
        raise WorkloadError(f"{path}: no {'event log' if path.exists() else 'such file or folder'}")
    if rolled := _rolled_log(path):
        return [rolled]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    rolled_logs = [_rolled_log(entry) for entry in entries if entry.is_dir()]
    logs = [log for log in rolled_logs if log]
    logs += [EventLog(entry, (entry,)) for entry in entries if entry.is_file()]
    if not logs:
        raise WorkloadError(f"{path}: the folder contains no event log")
    return sorted(logs, key=lambda log: log.path)


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
    for file in log.files:
        for number, line in _lines(file, problems):
            place = f"{file}:{number}"
            try:
                yield place, *_parse(line, wanted)
            except (ValueError, RecursionError):
                if number == 1:
                    raise WorkloadError(
                        f'{place}: not a Spark event log (expected {{"Event":...}})'
                    ) from None
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


def _lines(path: Path, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a file, each cut to `MAX_LINE` bytes."""
    with _opened(path) as file, _decompressed(path, file) as stream:
        number = blank = 0
        while True:
            number += 1
            try:
                # A huge file of one line must be recognised as no log without being read.
                line = start = stream.readline(_PROBE if number == 1 else MAX_LINE)
                if number == 1 and _EVENT_NAME.match(start):
                    line = start if start.endswith(b"\n") else start + stream.readline(MAX_LINE)
                rest, length = line, len(line)
                while len(rest) >= MAX_LINE and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE)
                    length += len(rest)
                    if length > MOST_OF_A_LINE:
                        raise WorkloadError(f"{path}:{number}: a line of more than {length >> 20} MiB")
            except EOFError:
                problems.note(f"{path}:{number}: the data end early (truncated, or still being written)")
                return
            except _DAMAGE as error:
                problems.report(f"{path}:{number}: the data are damaged ({error})")
                return
            if not line:
                if number == 1:
                    raise WorkloadError(f"{path}:1: the file is empty, not a Spark event log")
                return
            if line.strip():
                yield number, line
            elif (blank := blank + 1) > MOST_BLANK:
                raise WorkloadError(f"{path}:{number}: more than {MOST_BLANK:,} blank lines")


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise unreadable(path, error, "an event log of Spark") from None


def _decompressed(path: Path, file: BinaryIO) -> BinaryIO | io.BufferedIOBase:
    """Return the decompressed stream; the first bytes determine the compression, not the name of the file."""
    start = file.read(8)
    file.seek(0)
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(_ZSTD):
        if zstandard is None:
            raise WorkloadError(f"{path}: zstd logs need the zstandard package: pip install -e '.[spark]'")
        # Spark ends a frame at every flush.
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return io.BufferedReader(reader)
    for magic, name in _UNREADABLE.items():
        if start.startswith(magic):
            raise WorkloadError(
                f"{path}: {name} compression is not supported; unpack it, or use gzip or zstd"
            )
    return file


def _rolled_log(folder: Path) -> EventLog | None:
    """Return the rolled log in ``folder``, beginning with its last compaction; None for another folder."""
    numbered = [
        (int(match[1]), file) for file in folder.iterdir() if (match := _ROLLED_FILE.fullmatch(file.name))
    ]
    if not numbered:
        return None
    # Compaction to file N replaces all files up to N, which Spark may not have deleted yet.
    compacted = max((number for number, file in numbered if file.name.endswith(".compact")), default=0)
    parts = {
        number: file
        for number, file in sorted(numbered)
        if number > compacted or (number == compacted and file.name.endswith(".compact"))
    }
    gaps = []
    if compacted:
        gaps.append(f"compacted by Spark: the events of jobs that ended before file {compacted} are gone")
    missing = sorted(set(range(max(compacted, 1), max(parts) + 1)) - set(parts))
    if missing:
        gaps.append(f"part {missing[0]} of the rolled log (events_{missing[0]}_...) is missing")
    return EventLog(folder, tuple(parts.values()), tuple(gaps))
