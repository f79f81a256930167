"""Columns of Alibaba's table ``batch_task``; ``workloads.sources.alibaba`` says what they mean, and is the one to use.

The file is read in blocks, so that besides the columns, which are mostly numbers, only a block of text is in memory.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.job import WorkloadError
from workloads.sources.files import opened

__all__ = ["COLUMNS", "Table", "read_table"]

COLUMNS: tuple[str, ...] = (
    "task_name",
    "instance_num",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
)
_TEXTS = ("task_name", "job_name", "status")
_WHOLE = {"instances": "instance_num", "start_s": "start_time", "end_s": "end_time"}
_FLOATS = {"cpu": "plan_cpu", "memory": "plan_mem"}
_NUMBERS = (*_WHOLE.values(), *_FLOATS.values())
_USED = (*_TEXTS, *_NUMBERS)

_BLOCK = 1 << 24
_LIMIT = 2.0**31


@dataclass(frozen=True, eq=False)
class Table:
    """The table's rows, tasks, in the order of the file.

    Args:
        job: int32 [num_tasks], places in ``jobs``.
        name: int32 [num_tasks], places in ``names``.
        ended: bool [num_tasks], whether the task ended well.
        failed: bool [num_tasks], whether it failed.
        instances: int32 [num_tasks], 0 if not known.
        start_s: int32 [num_tasks], s, 0 if not known.
        end_s: likewise.
        cpu: float32 [num_tasks], 100 is a core; NaN if not known.
        memory: float32 [num_tasks], percent of a machine; NaN if not known.
        jobs: names of jobs, in the order of the file.
        names: names of tasks, shortened, without repetition.
    """

    job: NDArray[np.int32]
    name: NDArray[np.int32]
    ended: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    instances: NDArray[np.int32]
    start_s: NDArray[np.int32]
    end_s: NDArray[np.int32]
    cpu: NDArray[np.float32]
    memory: NDArray[np.float32]
    jobs: NDArray[np.object_]
    names: tuple[str, ...]


def read_table(path: Path, shorten: Callable[[str], str]) -> Table:
    """Read the columns of a file, plain or gzipped.

    Args:
        path: the file.
        shorten: what is kept of a task's name. Most are unlike all others, so it should make few of them.

    Raises:
        WorkloadError: the file is missing, not gzip where it should be, empty, or malformed, with the line.
    """
    names: dict[str, int] = {}
    jobs: list[str] = []
    parts: list[dict[str, NDArray[Any]]] = []
    with opened(path, "a table batch_task (.csv, .csv.gz)") as file:
        for line, columns, block in _blocks(path, file):
            table = _parse(path, line, columns, block)
            name, its_names = pd.factorize(table["task_name"].to_numpy())
            job, its_jobs = pd.factorize(table["job_name"].to_numpy())
            places = [names.setdefault(shorten(each), len(names)) for each in its_names]
            part = {
                "job": (job + len(jobs)).astype(np.int32),
                "name": np.array(places, dtype=np.int32)[name],
                "ended": table["status"].to_numpy() == "Terminated",
                "failed": table["status"].to_numpy() == "Failed",
            }
            for column, source in _WHOLE.items():
                part[column] = np.nan_to_num(table[source].to_numpy()).astype(np.int32)
            for column, source in _FLOATS.items():
                part[column] = table[source].to_numpy().astype(np.float32)
            parts.append(part)
            jobs += its_jobs.tolist()
    if not parts:
        raise WorkloadError(f"{path}: expected at least one task, a line of {len(COLUMNS)} fields")
    # A job that is in several blocks, or in several places of the file, is one.
    number, different = pd.factorize(np.array(jobs, dtype=object))
    del jobs
    joined = {column: np.concatenate([part.pop(column) for part in parts]) for column in tuple(parts[0])}
    joined["job"] = number.astype(np.int32)[joined["job"]]
    return Table(**joined, jobs=different, names=tuple(names))


def _blocks(path: Path, file: BinaryIO) -> Iterator[tuple[int, tuple[str, ...], bytes]]:
    """Yield blocks of whole lines, a few megabytes each: number of the first line, columns, lines."""
    columns, line, rest = COLUMNS, 1, b""
    while data := file.read(_BLOCK):
        lines, newline, rest = (rest + data).rpartition(b"\n")
        if len(rest) >= _BLOCK:
            raise WorkloadError(
                f"{path}: line {line}: expected {len(columns)} fields, got {_BLOCK} characters"
            )
        if line == 1 and newline and (found := _header(path, lines.partition(b"\n")[0])):
            columns, line, lines = found, 2, lines.partition(b"\n")[2]
        if lines:
            yield line, columns, lines + newline
            line += lines.count(b"\n") + 1
    if rest and not (line == 1 and _header(path, rest)):
        yield line, columns, rest + b"\n"


def _header(path: Path, line: bytes) -> tuple[str, ...] | None:
    """Return the column names if the first line has them."""
    columns = tuple(name.strip() for name in line.decode("utf-8-sig", errors="replace").split(","))
    if not set(columns) & set(COLUMNS):
        return None
    for name in _USED:
        if columns.count(name) != 1:
            raise WorkloadError(f"{path}: line 1: expected one column {name}, got {columns.count(name)}")
    return columns


def _parse(path: Path, line: int, columns: tuple[str, ...], block: bytes) -> pd.DataFrame:
    """Parse the used columns: texts, and float64 with NaN for empty fields."""
    block = block.replace(b"\r\n", b"\n")
    _check_fields(path, line, len(columns), block)
    try:
        table = _read(block, columns, dict.fromkeys(_NUMBERS, np.float64))
    except ValueError:
        table = _read(block, columns, dict.fromkeys(_NUMBERS, str))
        for name in _NUMBERS:
            unreadable = pd.to_numeric(table[name], errors="coerce").isna() & (table[name] != "")
            _refuse(path, line, table, name, unreadable.to_numpy(), "a number")
    for name in _TEXTS:
        _refuse(path, line, table, name, (table[name] == "").to_numpy(), "a text")
    for name in _NUMBERS:
        number = table[name].to_numpy(dtype=np.float64)
        whole = name in _WHOLE.values()
        wrong = (number < 0) | (number >= _LIMIT) | (whole & (np.floor(number) < number))
        expected = f"a {'whole ' if whole else ''}number from 0 to 2^31"
        _refuse(path, line, table, name, wrong, expected)
    return table


def _check_fields(path: Path, line: int, count: int, block: bytes) -> None:
    characters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    commas = np.searchsorted(np.flatnonzero(characters == ord(",")), ends)
    fields = np.diff(commas, prepend=0) + 1
    if (wrong := np.flatnonzero(fields != count)).size:
        place = wrong[0]
        raise WorkloadError(f"{path}: line {line + place}: expected {count} fields, got {fields[place]}")


def _read(block: bytes, columns: tuple[str, ...], numbers: dict[str, Any]) -> pd.DataFrame:
    return pd.read_csv(
        BytesIO(block),
        header=None,
        names=list(columns),
        usecols=list(_USED),
        dtype=dict.fromkeys(_TEXTS, str) | numbers,
        keep_default_na=False,
        na_values={name: [""] for name, kind in numbers.items() if kind is not str},
        quoting=csv.QUOTE_NONE,
        encoding_errors="replace",
        lineterminator="\n",
        engine="c",
    )


def _refuse(
    path: Path, line: int, table: pd.DataFrame, name: str, wrong: NDArray[np.bool_], expected: str
) -> None:
    if wrong.any():
        place = int(wrong.argmax())
        got = str(table[name].iloc[place])[:40]
        raise WorkloadError(f"{path}: line {line + place}: {name}: expected {expected}, got {got!r}")
