"""Alibaba's cluster trace of 2018: jobs of the table ``batch_task``, some 14 million tasks in eight days.

The table is a CSV file without a header, as published (github.com/alibaba/clusterdata, cluster-trace-v2018), or with a
line of column names, in any order, which may include further columns::

    task_name      number and parents of the task: R3_1_2 is task 3, which starts when tasks 1 and 2 are complete
    instance_num   number of its instances, which run in parallel
    job_name       its job
    task_type
    status         Terminated if it succeeded
    start_time     s since the trace began; 0 or empty if unknown
    end_time       s
    plan_cpu       for each instance; 100 is a core
    plan_mem       for each instance, percent of a machine's memory (normalised)

A task becomes a stage, and its instances become the stage's tasks. In a name, letters before the first number and words
that are no numbers (``R2_1_Stg1``) have no meaning; a name without a number there (``task_Nzg3``, ``MergeTask``) is a
task without parents. The trace cuts names at 50 characters: then a last number that may be incomplete is not used as a
parent, so such a stage may start earlier than it did. The tasks of a job may be anywhere in the file.

A job arrives when its first task started. Assumptions beyond the trace:

* **Durations**: an instance takes as long as its task, from start to end, as if all instances ran at once. If they ran
  in several waves, this is too long. Times are whole seconds; 0 s becomes 0.5 s.
* **Demands** are fractions of an executor, by default one with the 96 cores and all the memory of a machine of the
  trace, so that they fit executors of size 1, the default of clusters. Unknown demands are one core and no memory.
* **Weights**: on request, the weight of a job is 1 + the highest priority of its tasks. The priority is in a further
  column, a number from 0 (lowest); an empty field is 0.

Jobs that cannot be run again are dropped, and counted under the first reason that applies: a task that is unfinished,
has no instances, has no times, or ends before its start; that is its own parent; with an unknown parent; with the
number of another task of the job; or parents in a cycle.

Memory: some 110 bytes for each task of the file, and some kilobytes for each selected job.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.attributes import JobAttributes
from workloads.errors import check_path
from workloads.excerpt import Excerpt, check_executor, choose_jobs, reasons, task_failures
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError
from workloads.reading import opened
from workloads.sources.workload_file import Workload

__all__ = ["COLUMNS", "MACHINE", "read_alibaba"]

#: Size of a machine of the trace: cores, and memory in percent.
MACHINE = (96.0, 100.0)

_CUT_AT = 50
_SHORTEST_MS = 500.0

_NUMBERED = re.compile(r"[^_]*?[A-Za-z]([0-9]{1,9})(?:_(.*))?", re.DOTALL)
#: Placeholders for the number of a task without a number, and for a parent that cannot be a task.
_NO_NUMBER, _NO_TASK = 2**32 - 1, 2**32 - 2

#: Bits of a key that give the job; the other bits give the number of the task.
_JOB = ~(2**32 - 1)

_Places = NDArray[np.int32]

#: Columns of the table, in the order in which they were published.
COLUMNS: tuple[str, ...] = (
    "task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
)  # fmt: skip
_TEXTS = ("task_name", "job_name", "status")
_WHOLE = {"instances": "instance_num", "start_s": "start_time", "end_s": "end_time"}
_FLOATS = {"cpu": "plan_cpu", "memory": "plan_mem"}
_NUMBERS = (*_WHOLE.values(), *_FLOATS.values())
_USED = (*_TEXTS, *_NUMBERS)

#: Size of a block of lines, bytes.
_BLOCK = 1 << 24
#: Maximum size, bytes after decompression, and maximum number of tasks; the published table has 14 million.
_LARGEST, _MOST_TASKS = 2**31, 20_000_000


def read_alibaba(
    path: str | Path,
    excerpt: Excerpt | None = None,
    executor: tuple[float, float] = MACHINE,
    priority: str | None = None,
) -> Workload:
    """Read jobs of Alibaba's trace; see the description of the module.

    Args:
        path: the table, plain or gzipped (``.gz``).
        excerpt: selection of jobs; by default all.
        executor: size of an executor, cores and percent of a machine's memory, of which demands are fractions.
        priority: name of the column with the priorities of tasks; by default all jobs have weight 1.

    Returns:
        A profile for each selected job, in order of arrival, and their sequence. ``about`` lists assumptions and
        dropped jobs.

    Raises:
        WorkloadError: the file cannot be read or is malformed (the message names the line); or no job is left, or more
            than ``workloads.excerpt.MOST_JOBS``.
    """
    path, excerpt = check_path(path, "path", WorkloadError), excerpt or Excerpt()
    check_executor(executor)
    if priority in _USED:
        raise WorkloadError(f"priority must be a column without another meaning, got {priority!r}")
    tasks = _Tasks(read_table(path, priority))
    dropped = tasks.dropped()
    kept = np.flatnonzero(dropped == 0)
    counts = {why: int(count) for why, count in zip(_WHY, np.bincount(dropped)[1:], strict=False) if count}
    if not kept.size:
        raise WorkloadError(f"{path}: expected at least one job that can be run again, got {reasons(counts)}")
    arrival_s = tasks.arrival_s[kept]
    chosen = choose_jobs(path, excerpt, arrival_s)
    profiles = tuple(tasks.profile(job, excerpt, executor) for job in kept[chosen].tolist())
    about = {
        "source": "batch_task of Alibaba's cluster trace of 2018",
        "jobs in the table": tasks.num_jobs,
        "dropped": counts,
        "task names cut at 50 characters": tasks.num_cut,
        "durations": "instances are taken to last as long as their task",
        "demands": "shares of {:g} cores and {:g} % of a machine's memory".format(*executor),
        "excerpt": excerpt.about,
    }
    table, sequence = tasks.table, excerpt.sequence(profiles, arrival_s[chosen])
    failures = task_failures(table.failed, table.ended, table.instances)
    if priority is not None:
        highest = np.maximum.reduceat(table.priority[tasks.row], tasks.first[:-1])[kept[chosen]]
        weights = (JobAttributes(weight=1.0 + priority) for priority in highest.tolist())
        sequence = replace(sequence, attributes=tuple(weights))
        about["weights"] = f"1 + the highest {priority} of a job's tasks"
    return Workload(profiles, sequence, path.name.split(".")[0], about, failures)


def _shortened(name: str) -> str:
    """Shorten the name of a task without a number to its first word."""
    return name if _NUMBERED.fullmatch(name) else name.partition("_")[0]


def _meaning(name: str) -> tuple[int, list[int]]:
    """Return the number in a task name, and the numbers of the task's parents."""
    match = _NUMBERED.fullmatch(name)
    if not match:
        return _NO_NUMBER, []
    words = [word for word in (match[2] or "").split("_") if re.fullmatch("[0-9]+", word)]
    parents = [int(word) if len(word) <= 9 else _NO_TASK for word in words]
    # Parents ascend, unless the last number is incomplete.
    if len(name) == _CUT_AT and name[-1].isdigit() and parents[-2:] != sorted(set(parents[-2:])):
        parents.pop()
    return int(match[1]), list(dict.fromkeys(parents))


#: Reasons for dropping jobs, in order of precedence.
_WHY = (
    "an unfinished task",
    "a task without instances",
    "a task without times",
    "a task that ends before its start",
    "a task that is its own parent",
    "a parent that is not there",
    "a number that two tasks have",
    "parents in a cycle",
)


class _Tasks:
    """All tasks of a table, sorted by job and number; the place of a task is its index in this order."""

    def __init__(self, table: Table) -> None:
        meanings = [_meaning(name) for name in table.names]
        number = np.array([number for number, _ in meanings], dtype=np.int64)
        key = (table.job.astype(np.int64) << 32) + number[table.name]
        self.table = table
        #: Row in the table of the task at each place.
        self.row = np.argsort(key, kind="stable").astype(np.int32)
        #: Job and number of the task at each place, ascending.
        self.key = key[self.row]
        self.num_jobs = len(table.jobs)
        #: First place of each job, and the total number of tasks.
        self.first = np.searchsorted(self.key, np.arange(self.num_jobs + 1) << 32)
        self.arrival_s = np.minimum.reduceat(table.start_s[self.row], self.first[:-1])
        self.num_cut = int(np.array([len(name) == _CUT_AT for name in table.names])[table.name].sum())
        self.parent, self.child = self._edges([parents for _, parents in meanings])
        self.first_edge = np.searchsorted(self.child, self.first.astype(np.int32))

    def _edges(self, parents: Sequence[Sequence[int]]) -> tuple[_Places, _Places]:
        """Return the edges as places of parents and children, sorted by child; -1 for a missing parent."""
        count = np.array([len(of_child) for of_child in parents], dtype=np.int32)
        flat = np.array([number for of_child in parents for number in of_child], dtype=np.int64)
        first = np.cumsum(count, dtype=np.int32) - count
        name = self.table.name[self.row]
        num_parents = count[name]
        child = np.repeat(np.arange(len(name), dtype=np.int32), num_parents)
        # Index of each edge in the flat list of parents of all names.
        position = np.arange(len(child), dtype=np.int32)
        position += np.repeat(first[name] - np.cumsum(num_parents, dtype=np.int32) + num_parents, num_parents)
        wanted = (self.key[child] & _JOB) + flat[position]
        parent = np.searchsorted(self.key, wanted).astype(np.int32)
        there = self.key[np.minimum(parent, len(name) - 1)] == wanted
        return np.where(there, parent, np.int32(-1)), child

    def dropped(self) -> NDArray[np.int64]:
        """Return 0 for each job to keep, else the reason for dropping it: an index in ``_WHY``, counted from 1."""
        why = np.zeros(self.num_jobs, dtype=np.int64)
        for index, jobs in enumerate(self._jobs_to_drop(), 1):
            why[jobs[why[jobs] == 0]] = index
        return why

    def _jobs_to_drop(self) -> Iterator[NDArray[np.signedinteger[Any]]]:
        """Yield the jobs to drop for each reason in ``_WHY``, with repetition."""
        table = self.table
        yield table.job[~table.ended]
        yield table.job[table.instances == 0]
        yield table.job[(table.start_s == 0) | (table.end_s == 0)]
        yield table.job[table.end_s < table.start_s]
        job = self.key >> 32
        yield job[self.child[self.parent == self.child]]
        yield job[self.child[self.parent < 0]]
        yield job[1:][(np.diff(self.key) == 0) & (self.key[1:] & ~_JOB != _NO_NUMBER)]
        there = self.parent >= 0
        yield job[_in_cycles(self.parent[there], self.child[there], len(job))]

    def profile(self, job: int, excerpt: Excerpt, executor: tuple[float, float]) -> JobProfile:
        """Build the profile of a job that is not dropped."""
        table, (first, stop) = self.table, self.first[job : job + 2].tolist()
        cores, percent = executor
        stages = tuple(
            StageProfile(
                excerpt.num_tasks(table.instances[row].item()),
                TaskDurations.constant(
                    max((table.end_s[row] - table.start_s[row]).item() * 1000.0, _SHORTEST_MS)
                ),
                table.names[table.name[row]],
                _known(table.cpu[row], 100.0) / 100 / cores,
                _known(table.memory[row], 0.0) / percent,
            )
            for row in self.row[first:stop].tolist()
        )
        edges = slice(*self.first_edge[job : job + 2].tolist())
        pairs = np.stack([self.parent[edges] - first, self.child[edges] - first], axis=1)
        return JobProfile(str(table.jobs[job]), stages, pairs)


def _known(number: np.float32, default: float) -> float:
    """Return a number as written in the table, which has at most six decimal places; ``default`` for NaN."""
    return default if np.isnan(number) else round(float(number), 6)


def _in_cycles(parent: _Places, child: _Places, num_tasks: int) -> _Places:
    """Return tasks in or after a cycle: remove tasks without parents until every remaining task has one."""
    while True:
        waits = np.zeros(num_tasks, dtype=bool)
        waits[child] = True
        left = waits[parent]
        if left.all():
            return child
        parent, child = parent[left], child[left]


# The table is read in blocks, so that only one block of text is in memory besides the columns.


@dataclass(frozen=True, eq=False)
class Table:
    """Rows (tasks) of the table, in the order of the file."""

    job: NDArray[np.int32]  # int32 [num_tasks], index in ``jobs``
    name: NDArray[np.int32]  # int32 [num_tasks], index in ``names``
    ended: NDArray[np.bool_]  # bool [num_tasks], whether the task succeeded
    failed: NDArray[np.bool_]  # bool [num_tasks], whether the task failed
    instances: NDArray[np.int32]  # int32 [num_tasks], number of instances; 0 if unknown
    start_s: NDArray[np.int32]  # int32 [num_tasks], start time, s; 0 if unknown
    end_s: NDArray[np.int32]  # int32 [num_tasks], end time, s; 0 if unknown
    cpu: NDArray[np.float32]  # float32 [num_tasks], demand, 100 is a core; NaN if unknown
    memory: NDArray[np.float32]  # float32 [num_tasks], demand, percent of a machine; NaN if unknown
    priority: NDArray[np.float32]  # float32 [num_tasks], 0 if unknown
    jobs: NDArray[np.object_]  # distinct names of jobs, in the order of the file
    names: tuple[str, ...]  # distinct names of tasks, shortened


def read_table(path: Path, priority: str | None = None) -> Table:
    """Read the columns of a table, plain or gzipped."""
    numbers = _NUMBERS if priority is None else (*_NUMBERS, priority)
    used = (*_TEXTS, *numbers)
    names: dict[str, int] = {}
    jobs: list[str] = []
    parts: list[dict[str, NDArray[Any]]] = []
    with opened(path, "a table batch_task (.csv, .csv.gz)", _LARGEST) as file:
        for line, columns, block in _blocks(path, file, used):
            if line > _MOST_TASKS:
                raise WorkloadError(f"{path}: line {line}: expected at most {_MOST_TASKS:,} tasks")
            if not set(used) <= set(columns):
                raise WorkloadError(f"{path}: line 1: expected column names, among them {priority}")
            table = _parse(path, line, columns, block, numbers)
            name, its_names = pd.factorize(table["task_name"].to_numpy())
            job, its_jobs = pd.factorize(table["job_name"].to_numpy())
            codes = [names.setdefault(_shortened(name), len(names)) for name in its_names]
            part = {
                "job": (job + len(jobs)).astype(np.int32),
                "name": np.array(codes, dtype=np.int32)[name],
                "ended": table["status"].to_numpy() == "Terminated",
                "failed": table["status"].to_numpy() == "Failed",
            }
            for column, source in _WHOLE.items():
                part[column] = np.nan_to_num(table[source].to_numpy()).astype(np.int32)
            for column, source in _FLOATS.items():
                part[column] = table[source].to_numpy().astype(np.float32)
            priorities = np.zeros(len(table)) if priority is None else table[priority].to_numpy()
            part["priority"] = np.nan_to_num(priorities).astype(np.float32)
            parts.append(part)
            jobs += its_jobs.tolist()
    if not parts:
        raise WorkloadError(f"{path}: expected at least one task, a line of {len(COLUMNS)} fields")
    # The rows of a job may be in several blocks.
    number, different = pd.factorize(np.array(jobs, dtype=object))
    del jobs
    joined = {column: np.concatenate([part.pop(column) for part in parts]) for column in tuple(parts[0])}
    joined["job"] = number.astype(np.int32)[joined["job"]]
    return Table(**joined, jobs=different, names=tuple(names))


def _blocks(
    path: Path, file: BinaryIO, used: tuple[str, ...]
) -> Iterator[tuple[int, tuple[str, ...], bytes]]:
    """Yield blocks of whole lines, a few megabytes each: number of the first line, columns, lines."""
    columns, line, rest = COLUMNS, 1, b""
    while data := file.read(_BLOCK):
        lines, newline, rest = (rest + data).rpartition(b"\n")
        if len(rest) >= _BLOCK:
            raise WorkloadError(
                f"{path}: line {line}: expected {len(columns)} fields, got {_BLOCK} characters"
            )
        if line == 1 and newline and (header := _header(path, lines.partition(b"\n")[0], used)):
            columns, line, lines = header, 2, lines.partition(b"\n")[2]
        if lines:
            yield line, columns, lines + newline
            line += lines.count(b"\n") + 1
    if rest and not (line == 1 and _header(path, rest, used)):
        yield line, columns, rest + b"\n"


def _header(path: Path, line: bytes, used: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the column names if the first line has them; else None."""
    columns = tuple(name.strip() for name in line.decode("utf-8-sig", errors="replace").split(","))
    if not set(columns) & set(COLUMNS):
        return None
    for name in used:
        if columns.count(name) != 1:
            raise WorkloadError(f"{path}: line 1: expected one column {name}, got {columns.count(name)}")
    return columns


def _parse(
    path: Path, line: int, columns: tuple[str, ...], block: bytes, numbers: tuple[str, ...]
) -> pd.DataFrame:
    """Parse the used columns: texts, and float64 numbers with NaN for empty fields."""
    block = block.replace(b"\r\n", b"\n")
    _check_fields(path, line, len(columns), block)
    try:
        table = _read(block, columns, dict.fromkeys(numbers, np.float64))
    except ValueError:
        table = _read(block, columns, dict.fromkeys(numbers, str))
        for name in numbers:
            unreadable = pd.to_numeric(table[name], errors="coerce").isna() & (table[name] != "")
            _refuse(path, line, table, name, unreadable.to_numpy(), "a number")
    for name in _TEXTS:
        _refuse(path, line, table, name, (table[name] == "").to_numpy(), "a text")
    for name in numbers:
        values = table[name].to_numpy(dtype=np.float64)
        whole = name in _WHOLE.values()
        bits = 31 if name in _NUMBERS else 20  # priorities become weights, which have a smaller limit
        wrong = (values < 0) | (values >= 2.0**bits) | (whole & (np.floor(values) < values))
        expected = f"a {'whole ' if whole else ''}number from 0 to 2^{bits}"
        _refuse(path, line, table, name, wrong, expected)
    return table


def _check_fields(path: Path, line: int, count: int, block: bytes) -> None:
    characters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    commas = np.searchsorted(np.flatnonzero(characters == ord(",")), ends)
    fields = np.diff(commas, prepend=0) + 1
    if (wrong := np.flatnonzero(fields != count)).size:
        row = wrong[0]
        raise WorkloadError(f"{path}: line {line + row}: expected {count} fields, got {fields[row]}")


def _read(block: bytes, columns: tuple[str, ...], numbers: dict[str, Any]) -> pd.DataFrame:
    return pd.read_csv(
        BytesIO(block),
        header=None,
        names=list(columns),
        usecols=[*_TEXTS, *numbers],
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
        row = int(wrong.argmax())
        got = str(table[name].iloc[row])[:40]
        raise WorkloadError(f"{path}: line {line + row}: {name}: expected {expected}, got {got!r}")
