"""Job logs in Standard Workload Format (SWF), as jobs for a cluster of executors or for a grid of resources.

A line of a log is a job: 18 numbers, of which -1 means unknown. Lines that begin with ``;`` are comments;
``; Field: value`` describes the machine.

``read_swf`` reads a log. ``swf_jobs`` draws sets of jobs for a grid from a log. ``read_swf_workload`` makes jobs for a
cluster of executors: a job that ran on n processors for t seconds becomes a job of one stage,

* by default of n tasks of t seconds, each for one executor. Executors need not start together, so a scheduler may run
  the job on fewer executors, and then it takes longer. This is how Spark runs work that can be divided into tasks.
* as a **gang**, of one task of t seconds that demands n times the cpu of a processor. An executor is then a machine
  of a cluster of classes (``--classes 4x64:1`` are 4 machines of 64 processors), and a job runs on a single machine,
  on all its processors at once. A job that is larger than every machine is rejected when the cluster begins: the
  simulator has no tasks that start together on several executors. Nor do two jobs share a machine: an executor runs
  one task at a time.

Every task takes the run time of its job, the only time in the log. Jobs arrive at their submit times. Demands are in
processors, and memory is left out, unless the size of an executor is given: then both are fractions of this size, and
unknown memory is 0.

Source: the format's definition, version 2.2, at the Parallel Workloads Archive
(www.cs.huji.ac.il/labs/parallel/workload/swf.html), where there are logs of many machines.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import RandomStream, random_stream
from workloads.attributes import DEFAULT_TENANT, JobAttributes
from workloads.errors import check_number, check_one_of, check_path, check_whole
from workloads.excerpt import Excerpt, check_executor, choose_jobs, reasons, task_failures
from workloads.grid_jobs import JobSets
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError
from workloads.reading import opened, unreadable
from workloads.sources.workload_file import Workload
from workloads.texts import number_in

__all__ = ["SwfLog", "read_swf", "read_swf_workload", "swf_jobs"]

_KB_IN_GIB = 2**20
_NUM_FIELDS = 18
#: Maximum number of characters of a line, and maximum number of blank lines.
_LONGEST_LINE, _MOST_BLANK = 2**16, 10**6
#: Maximum size, bytes after decompression, and maximum number of jobs; the largest published logs have a few million.
_LARGEST, _MOST_JOBS = 2**30, 5_000_000
_EXPECTED = "a log in Standard Workload Format"

#: Upper limit of numbers in a log, below which integers are exact.
_LIMIT = 2.0**53

#: Characters of numbers. Python would also accept underscores and digits of all scripts.
_PLAIN = re.compile(r"[-+.0-9a-zA-Z]+")
_HEADER_FIELD = re.compile(r";\s*(\w+):(?:\s+(.*))?$")


class _Field(IntEnum):
    """Indices, from 0, of the used fields; the definition of the format counts from 1."""

    SUBMIT = 1
    RUN = 3
    PROCESSORS = 4
    MEMORY = 6
    REQUESTED_PROCESSORS = 7
    REQUESTED_MEMORY = 9
    STATUS = 10
    USER = 11
    GROUP = 12
    QUEUE = 14


#: Fields that can be the tenant of a job.
TENANTS = ("user", "group", "queue")


@dataclass(frozen=True, eq=False)
class SwfLog:
    """Jobs of a log in Standard Workload Format, in order of submission.

    Args:
        name: name of the file, for display.
        submit_s: float64 [num_jobs], submit time, s, ascending.
        run_s: float64 [num_jobs], run time, s, above 0.
        processors: int64 [num_jobs], allocated processors, or requested ones if unknown; at least 1.
        memory_kb: float64 [num_jobs], memory on all processors of a job, KB: used, or requested if unknown; NaN if both
            are unknown.
        header: description of the machine, field -> value; the first value of a repeated field.
        dropped: number of dropped lines by reason.
        num_unsorted: number of jobs that were submitted before the job of the previous line.
        status: float64 [num_jobs], 1 for a completed job, 0 for a failed one; empty if unknown.
        user: float64 [num_jobs], number of the user, -1 if unknown; empty if unknown for all jobs.
        group: float64 [num_jobs], number of the user's group, -1 if unknown; empty if unknown for all jobs.
        queue: float64 [num_jobs], number of the queue, -1 if unknown; empty if unknown for all jobs.

    Raises:
        WorkloadError: there are no jobs, arrays have different lengths, or a value is out of range.
    """

    name: str
    submit_s: NDArray[np.float64]
    run_s: NDArray[np.float64]
    processors: NDArray[np.int64]
    memory_kb: NDArray[np.float64]
    header: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    num_unsorted: int = 0
    status: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    user: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    group: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    queue: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.submit_s):
            raise WorkloadError(f"{self.name}: a log needs at least one job")
        for name in ("status", *TENANTS):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.submit_s), -1.0))
        for name in ("submit_s", "run_s", "processors", "memory_kb", "status", *TENANTS):
            column = np.array(getattr(self, name), dtype=np.int64 if name == "processors" else np.float64)
            if column.shape != (len(self.submit_s),):
                expected = f"expected {name} of {len(self.submit_s)} jobs"
                raise WorkloadError(f"{self.name}: {expected}, got shape {column.shape}")
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        for wrong, expected in (
            (~np.isfinite(self.submit_s), "a finite submit time"),
            (np.diff(self.submit_s, prepend=-np.inf) < 0, "submit times that ascend"),
            (~(np.isfinite(self.run_s) & (self.run_s > 0)), "a run time above 0"),
            (self.processors < 1, "at least one processor"),
            (np.isinf(self.memory_kb) | (self.memory_kb < 0), "memory of at least 0 or NaN"),
        ):
            if wrong.any():
                raise WorkloadError(f"{self.name}: job {np.flatnonzero(wrong)[0]}: expected {expected}")

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def max_processors(self) -> int:
        """Processors of the machine: ``MaxProcs`` of the header, else ``MaxNodes``, else those of the largest job."""
        for name in ("MaxProcs", "MaxNodes"):
            match = re.match("[0-9]{1,15}", self.header.get(name, ""))
            if match and int(match[0]):
                return int(match[0])
        return int(self.processors.max())

    def summary(self) -> str:
        """Return a summary in one line: number of jobs, and dropped or reordered lines."""
        parts = [f"{self.name}: {len(self)} jobs on {self.max_processors} processors"]
        if self.dropped:
            parts.append(f"dropped {reasons(self.dropped)}")
        if self.num_unsorted:
            parts.append(f"{self.num_unsorted} submit times out of order, now sorted")
        return "; ".join(parts)


def read_swf(path: str | Path) -> SwfLog:
    """Read a job log in Standard Workload Format, plain text or gzipped (``.gz``).

    Jobs that cannot be run again are dropped: those whose submit time, run time or number of processors is unknown
    (negative, or 0 processors), that ran for less than half a second (run time 0), or that are partial executions
    (status 2, 3 or 4; another line describes the whole job). Fields after the 18th are ignored. Jobs are sorted stably
    by submit time.

    Raises:
        WorkloadError: the file cannot be read, a line has fewer than 18 fields or a field that is not a number, or no
            job is left. The message names file and line.
    """
    path = check_path(path, "path", WorkloadError)
    try:
        state = path.stat()
    except OSError as error:
        raise unreadable(path, error, _EXPECTED) from None
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, modified_ns: int, size: int) -> SwfLog:
    """Read a log; the result is cached until the file changes."""
    header: dict[str, str] = {}
    values = array("d")
    lines = array("q")
    for line_number, line in _lines(path):
        if line.startswith(";"):
            if match := _HEADER_FIELD.match(line):
                header.setdefault(match[1], match[2] or "")
            continue
        fields = line.split(None, _NUM_FIELDS)[:_NUM_FIELDS]
        if len(fields) < _NUM_FIELDS:
            raise WorkloadError(
                f"{path}: line {line_number}: expected {_NUM_FIELDS} fields, got {len(fields)}"
            )
        try:
            if not _PLAIN.fullmatch("".join(fields)):
                raise ValueError
            values.extend(map(float, fields))
        except ValueError:
            column = next(column for column, text in enumerate(fields) if math.isnan(number_in(text)))
            raise _malformed(path, line_number, column, fields[column]) from None
        lines.append(line_number)
        if len(lines) > _MOST_JOBS:
            raise WorkloadError(f"{path}: line {line_number}: expected at most {_MOST_JOBS:,} jobs")
    if not lines:
        raise WorkloadError(f"{path}: expected at least one job, a line of {_NUM_FIELDS} numbers")
    table = np.frombuffer(values).reshape(-1, _NUM_FIELDS)
    if not (table.min() > -_LIMIT and table.max() < _LIMIT):  # also if a number is NaN
        row, column = np.argwhere(~(np.abs(table) < _LIMIT))[0]
        raise _malformed(path, lines[row], column, str(table[row, column]))
    return _build_log(path, table, header)


def swf_jobs(
    log: SwfLog,
    *,
    load: float,
    sets: int,
    steps: int = 50,
    slots: int = 10,
    max_duration: int = 15,
    step_s: float | None = None,
    machine_memory_kb: float | None = None,
    seed: int,
) -> JobSets:
    """Draw sets of jobs from a log, for a grid of two resources: processors and memory.

    A set has consecutive jobs from a random place in the log, as many as are needed to reach the load on the busier
    resource. Their submit times are scaled to steps, from step 0 for the first job to the last step for the last job,
    so that arrivals are as uneven as in the log; many jobs may enter in one step.

    Demands are fractions of the machine, in units, rounded up: at least 1 and at most ``slots``; unknown memory is 1
    unit. Durations are run times in steps, rounded up, at most ``max_duration``. The load is computed from the rounded
    jobs. A set depends on the seed and its number, not on the number of sets.

    Args:
        load: minimum load of a set on the busier resource, as a fraction of its units over all steps.
        steps: number of steps in which jobs enter: 0 .. ``steps`` - 1.
        slots: units of each resource of the grid.
        max_duration: maximum duration of a job, steps.
        step_s: duration of a step, s; by default ``max_duration`` steps are the 95th percentile of run times.
        machine_memory_kb: memory of the machine, KB; by default the memory of the job with the most.

    Raises:
        WorkloadError: an argument is out of range, or the log is too short for the load.
    """
    for name, count in (("sets", sets), ("steps", steps), ("slots", slots), ("max_duration", max_duration)):
        check_whole(count, name, WorkloadError, 1)
    if step_s is None:
        step_s = float(np.percentile(log.run_s, 95)) / max_duration
    memory = np.nan_to_num(log.memory_kb, nan=0.0)
    if machine_memory_kb is None:
        machine_memory_kb = float(memory.max()) or 1.0  # any value, if no job's memory is known
    for name, value in (("load", load), ("step_s", step_s), ("machine_memory_kb", machine_memory_kb)):
        if not 0 < check_number(value, name, WorkloadError) < math.inf:
            raise WorkloadError(f"{name} must be above 0 and finite, got {value}")

    duration = _rounded_up(log.run_s / step_s, max_duration)
    need = np.stack([log.processors, memory], axis=1)
    demand = _rounded_up(need * slots / (log.max_processors, machine_memory_kb), slots)
    stops = _stops(duration[:, None] * demand, load * slots * steps)
    if not stops.size:
        offered = (duration @ demand).max() / (slots * steps)
        raise WorkloadError(f"{log.name}: all its jobs have a load of {offered:.4g}, too few for {load}")

    runs = []
    for index in range(sets):
        start = random_stream(seed, RandomStream.ARRIVALS, index).integers(len(stops))
        runs.append(np.arange(start, stops[start]))
    num_jobs = np.array([len(jobs) for jobs in runs])
    enter = np.concatenate([_stretched(log.submit_s[jobs], steps) for jobs in runs])
    taken = np.concatenate(runs)
    return JobSets.padded(num_jobs, enter, duration[taken], demand[taken], steps)


def read_swf_workload(
    path: str | Path,
    excerpt: Excerpt | None = None,
    executor: tuple[float, float] | None = None,
    gang: bool = False,
    tenants: Literal["user", "group", "queue"] | None = None,
) -> Workload:
    """Read a log as jobs for a cluster of executors; see the description of the module.

    Args:
        path: the log, plain text or gzipped (``.gz``).
        excerpt: selection of jobs; by default all. Its clock starts with the first job.
        executor: size of an executor, processors and GiB of memory, of which demands are fractions. Without it,
            demands are in processors, and memory is left out.
        gang: make each job one task that needs all its processors at once.
        tenants: field that becomes the tenant of a job, such as user-7; by default jobs have no tenant.

    Returns:
        The sequence of the selected jobs, and one profile for equal jobs. ``about`` lists dropped lines and
        assumptions.

    Raises:
        WorkloadError: see ``read_swf``; or no job is left, or more than ``workloads.excerpt.MOST_JOBS``.
    """
    path, excerpt = check_path(path, "path", WorkloadError), excerpt or Excerpt()
    check_executor(executor, "processors")
    if tenants is not None:
        check_one_of(tenants, TENANTS, "tenants", WorkloadError)
    log = read_swf(path)
    arrival_s = log.submit_s - log.submit_s[0]
    chosen = choose_jobs(path, excerpt, arrival_s)
    memory_kb = np.nan_to_num(log.memory_kb / log.processors, nan=0.0)
    profiles: dict[tuple[Any, ...], JobProfile] = {}
    sequence = []
    for job in chosen.tolist():
        size, run_s = excerpt.num_tasks(int(log.processors[job])), float(log.run_s[job])
        memory = 0.0 if executor is None else float(memory_kb[job]) / _KB_IN_GIB / executor[1]
        alike = size, run_s, memory
        if alike not in profiles:
            processors, tasks = (size, 1) if gang else (1, size)
            cpu = processors / (1.0 if executor is None else executor[0])
            stage = StageProfile(tasks, TaskDurations.constant(1000 * run_s), "job", cpu, processors * memory)
            name = f"{len(profiles) + 1}: {size} x {run_s:g} s"
            profiles[alike] = JobProfile(name, (stage,), np.zeros((0, 2), dtype=np.int64))
        sequence.append(profiles[alike])
    about = {
        "source": "a job log in Standard Workload Format",
        "log": log.summary(),
        "jobs": "one task on all processors at once" if gang else "a task for each processor",
        "demands": "in processors, memory left out"
        if executor is None
        else "shares of {:g} processors and {:g} GiB".format(*executor),
        "excerpt": excerpt.about,
    }
    workload_name = path.name.split(".")[0]
    num_tasks = np.ones_like(log.processors) if gang else log.processors
    failures = task_failures(log.status == 0, log.status == 1, num_tasks)
    arrivals = excerpt.sequence(sequence, arrival_s[chosen])
    if tenants is not None:
        submitters = getattr(log, tenants)[chosen].astype(np.int64).tolist()
        names = (f"{tenants}-{submitter}" if submitter >= 0 else DEFAULT_TENANT for submitter in submitters)
        arrivals = replace(arrivals, attributes=tuple(JobAttributes(tenant=name) for name in names))
    return Workload(tuple(profiles.values()), arrivals, workload_name, about, failures)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    # Names in comments have unknown encodings; digits are the same in all encodings.
    with (
        opened(path, _EXPECTED, _LARGEST) as file,
        TextIOWrapper(file, encoding="utf-8", errors="replace") as text,
    ):
        line_number = blank = 0
        while line := text.readline(_LONGEST_LINE):
            line_number += 1
            if stripped := line.strip():
                yield line_number, stripped
            blank += not stripped
            if len(line) == _LONGEST_LINE or blank > _MOST_BLANK:
                problem = "nothing but blank lines" if blank > _MOST_BLANK else f"{len(line)} characters"
                raise WorkloadError(
                    f"{path}: line {line_number}: expected {_NUM_FIELDS} fields, got {problem}"
                )


def _malformed(path: Path, line: int, column: int, text: str) -> WorkloadError:
    return WorkloadError(f"{path}: line {line}: field {column + 1}: expected a number, got {text[:40]!r}")


def _build_log(path: Path, table: NDArray[np.float64], header: Mapping[str, str]) -> SwfLog:
    submit_s, run_s, status = (table[:, field] for field in (_Field.SUBMIT, _Field.RUN, _Field.STATUS))
    processors = _first_known(table, _Field.PROCESSORS, _Field.REQUESTED_PROCESSORS)
    memory_kb = _first_known(table, _Field.MEMORY, _Field.REQUESTED_MEMORY) * processors
    kept = np.ones(len(table), dtype=bool)
    dropped = {}
    for why, wrong in (
        ("status 2, 3 or 4", (status >= 2) & (status <= 4)),
        ("unknown submit time", submit_s < 0),
        ("unknown run time", run_s < 0),
        ("run time 0", run_s == 0),
        ("unknown number of processors", np.isnan(processors)),
    ):
        if count := int(np.count_nonzero(kept & wrong)):
            dropped[why] = count
        kept &= ~wrong
    jobs = np.flatnonzero(kept)
    if not jobs.size:
        raise WorkloadError(f"{path}: expected at least one job that can be run, got {reasons(dropped)}")
    num_unsorted = int(np.count_nonzero(np.diff(submit_s[jobs]) < 0))
    jobs = jobs[np.argsort(submit_s[jobs], kind="stable")]
    return SwfLog(
        name=path.name,
        submit_s=submit_s[jobs],
        run_s=run_s[jobs],
        processors=np.ceil(processors[jobs]).astype(np.int64),
        memory_kb=memory_kb[jobs],
        header=header,
        dropped=dropped,
        num_unsorted=num_unsorted,
        status=status[jobs],
        user=table[jobs, _Field.USER],
        group=table[jobs, _Field.GROUP],
        queue=table[jobs, _Field.QUEUE],
    )


def _first_known(table: NDArray[np.float64], first: _Field, second: _Field) -> NDArray[np.float64]:
    """Return a field of each job; a second field where the first is unknown; NaN where both are."""
    values = np.where(table[:, first] > 0, table[:, first], table[:, second])
    return np.where(values > 0, values, np.nan)


def _rounded_up(numbers: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    return np.asarray(np.clip(np.ceil(numbers), 1, most), dtype=np.int64)


def _stops(work: NDArray[np.int64], wanted: float) -> NDArray[np.int64]:
    """Return the end (exclusive) of the set that starts at each job, int64 [starts]; too late jobs start no set.

    Args:
        work: int64 [num_jobs, R], units of each resource x steps.
        wanted: work that a set must reach on some resource.
    """
    before = np.concatenate([np.zeros((1, work.shape[1]), dtype=np.int64), np.cumsum(work, axis=0)])
    # First end, for each resource, of a set that reaches the load.
    of_each = [np.searchsorted(processors, processors[:-1] + wanted) for processors in before.T]
    stops: NDArray[np.int64] = np.min(of_each, axis=0)
    return stops[stops <= len(work)]


def _stretched(submit_s: NDArray[np.float64], steps: int) -> NDArray[np.int64]:
    """Scale submit times (ascending) to steps; equal times fall into one step, the first into step 0."""
    since = submit_s - submit_s[0]
    return np.asarray(np.minimum(since * steps / (since[-1] or 1.0), steps - 1)).astype(np.int64)
