"""Read the schedule of a cluster's capacity from a file."""

from __future__ import annotations

import math
from pathlib import Path

from simulator.cluster.faults import Faults
from workloads.errors import ConfigError, check_path
from workloads.reading import read_bytes
from workloads.texts import number_in, whole_in

__all__ = ["read_capacity"]

#: Maximum size of a file, bytes.
_LARGEST = 2**20


def read_capacity(path: str | Path) -> tuple[tuple[float, int], ...]:
    """Read a capacity schedule from a file: lines of a time in seconds and a number of executors.

    A comma may separate the two. Lines that are empty or begin with ``#`` are skipped.

    Raises:
        ConfigError: the file cannot be read, or a line is malformed or out of order.
    """
    path = check_path(path, "capacity", ConfigError)
    try:
        lines = read_bytes(path, _LARGEST).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ConfigError(f"capacity schedule {path}: {reason}") from None
    schedule: list[tuple[float, int]] = []
    for line_number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = line.replace(",", " ").split()
        reason = f"got {line[:60]!r}"
        time_s, executors = (number_in(words[0]), whole_in(words[1])) if len(words) == 2 else (math.nan, None)
        if not math.isnan(time_s) and executors is not None:
            schedule.append((1000 * time_s, executors))
            try:
                Faults(capacity=tuple(schedule[-2:]))
                continue
            except ConfigError as error:
                reason = str(error)
        raise ConfigError(
            f"capacity schedule {path}, line {line_number}: expected a time in seconds and a number of executors,"
            f" such as 3600,20: {reason}"
        )
    if not schedule:
        raise ConfigError(f"capacity schedule {path}: it has no line of a time and a number of executors")
    return tuple(schedule)
