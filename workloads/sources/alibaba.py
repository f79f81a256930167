"""Alibaba's cluster trace of 2018: jobs from its table ``batch_task``, some 14 million tasks in eight days.

The table is a CSV file without a header, as it is published (github.com/alibaba/clusterdata, cluster-trace-v2018), or
with a line of column names, which may then be in any order and among others::

    task_name      the task and those before it: R3_1_2 is task 3, which starts when tasks 1 and 2 are complete
    instance_num   its instances, which run in parallel
    job_name       its job
    task_type
    status         Terminated if it ended well
    start_time     s since the trace began; 0 or empty if it is not known
    end_time       s
    plan_cpu       for each instance; 100 is a core
    plan_mem       for each instance, percent of a machine's memory (normalised)

A task becomes a stage, and its instances the stage's tasks. In a name, letters before the first number and words that
are no numbers (``R2_1_Stg1``) mean nothing; a name without a number there (``task_Nzg3``, ``MergeTask``) is a task that
waits for none. The trace cuts names at 50 characters: a number at the end that may be a piece of another is no parent
then, so such a stage may start earlier than it did. The tasks of a job may be anywhere in the file.

A job arrives when its first task started. What the trace does not say is assumed here:

* **Durations**: an instance takes as long as its task, from start to end, as if all of them ran at once. Where they
  ran in several waves, that is too long. Times are whole seconds; what took 0 s takes 0.5 s.
* **Demands** are shares of an executor, by default one with the 96 cores and all the memory of a machine of the trace,
  so that they fit executors of size 1, the default of clusters. Unknown ones are one core and no memory.

Jobs that cannot be run again are dropped, and counted under the first reason that holds: a task that is unfinished,
without instances, without times, or ends before its start; that is its own parent; whose parent is not there; whose
number another task of the job has; or parents in a cycle.

Memory: some 110 bytes for each task of the file, and some kilobytes for each job that is chosen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.errors import check_path
from workloads.excerpt import Excerpt, choose_jobs
from workloads.imperfections import task_failures
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError
from workloads.sources.alibaba_table import Table, read_table
from workloads.sources.files import reasons
from workloads.sources.workload_file import Workload

__all__ = ["MACHINE", "read_alibaba"]

#: Cores of a machine of the trace, and its memory in percent.
MACHINE = (96.0, 100.0)

_CUT_AT = 50
_SHORTEST_MS = 500.0

_NUMBERED = re.compile(r"[^_]*?[A-Za-z]([0-9]{1,9})(?:_(.*))?", re.DOTALL)
#: Numbers of a task without a number, and of a parent that no task can be.
_NO_NUMBER, _NO_TASK = 2**32 - 1, 2**32 - 2

#: The part of a key that is the job; the rest is the task's number.
_JOB = ~(2**32 - 1)

_Places = NDArray[np.int32]


def read_alibaba(
    path: str | Path, excerpt: Excerpt | None = None, executor: tuple[float, float] = MACHINE
) -> Workload:
    """Read jobs of the trace, see the module's text.

    Args:
        path: the table, plain or gzipped (``.gz``).
        excerpt: which jobs, and how; by default all as they were.
        executor: what demands are shares of: cores, and percent of a machine's memory.

    Returns:
        A profile for each job that is chosen, by arrival, and the sequence of them. ``about`` tells what was assumed
        and what was dropped.

    Raises:
        WorkloadError: the file is missing, not gzip where it should be, or malformed, with the line; no job is left,
            or more than fit into memory.
    """
    path, excerpt = check_path(path, "path", WorkloadError), excerpt or Excerpt()
    if not all(0 < size < math.inf for size in executor):
        raise WorkloadError(f"an executor's cores and memory must be above 0 and finite, got {executor}")
    tasks = _Tasks(read_table(path, _shortened))
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
    return Workload(profiles, sequence, path.name.split(".")[0], about, failures)


# Names


def _shortened(name: str) -> str:
    """Shorten a task name to its kind if it has no number."""
    return name if _NUMBERED.fullmatch(name) else name.partition("_")[0]


def _meaning(name: str) -> tuple[int, list[int]]:
    """Return the number in a task name and the numbers of its parents."""
    found = _NUMBERED.fullmatch(name)
    if not found:
        return _NO_NUMBER, []
    words = [word for word in (found[2] or "").split("_") if re.fullmatch("[0-9]+", word)]
    parents = [int(word) if len(word) <= 9 else _NO_TASK for word in words]
    # Parents ascend, unless the last one is a piece of a number.
    if len(name) == _CUT_AT and name[-1].isdigit() and parents[-2:] != sorted(set(parents[-2:])):
        parents.pop()
    return int(found[1]), list(dict.fromkeys(parents))


# Tasks

#: Why jobs are dropped; in this order.
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
    """All tasks of a table, sorted by job and number; a task's place is its index in this order."""

    def __init__(self, table: Table) -> None:
        meanings = [_meaning(name) for name in table.names]
        number = np.array([number for number, _ in meanings], dtype=np.int64)
        key = (table.job.astype(np.int64) << 32) + number[table.name]
        self.table = table
        #: Of each place, the row in the table.
        self.row = np.argsort(key, kind="stable").astype(np.int32)
        #: Of each place, the job and the number; ascending.
        self.key = key[self.row]
        self.num_jobs = len(table.jobs)
        #: Of each job, its first place; behind the last job, the number of tasks.
        self.first = np.searchsorted(self.key, np.arange(self.num_jobs + 1) << 32)
        self.arrival_s = np.minimum.reduceat(table.start_s[self.row], self.first[:-1])
        self.num_cut = int(np.array([len(name) == _CUT_AT for name in table.names])[table.name].sum())
        self.parent, self.child = self._edges([parents for _, parents in meanings])
        self.first_edge = np.searchsorted(self.child, self.first.astype(np.int32))

    def _edges(self, parents: Sequence[Sequence[int]]) -> tuple[_Places, _Places]:
        """Return the edges as places of parents and children, sorted by child; -1 for a parent that is missing.

        Args:
            parents: numbers of the parents, for each task name.
        """
        count = np.array([len(each) for each in parents], dtype=np.int32)
        flat = np.array([number for each in parents for number in each], dtype=np.int64)
        first = np.cumsum(count, dtype=np.int32) - count
        name = self.table.name[self.row]
        num_parents = count[name]
        child = np.repeat(np.arange(len(name), dtype=np.int32), num_parents)
        # The place of each edge in the names' list of parents: the first one of its task's, and so on.
        place = np.arange(len(child), dtype=np.int32)
        place += np.repeat(first[name] - np.cumsum(num_parents, dtype=np.int32) + num_parents, num_parents)
        wanted = (self.key[child] & _JOB) + flat[place]
        parent = np.searchsorted(self.key, wanted).astype(np.int32)
        there = self.key[np.minimum(parent, len(name) - 1)] == wanted
        return np.where(there, parent, np.int32(-1)), child

    def dropped(self) -> NDArray[np.int64]:
        """Return for each job 0, or the reason for dropping it: an index in ``_WHY`` from 1."""
        why = np.zeros(self.num_jobs, dtype=np.int64)
        for number, jobs in enumerate(self._jobs_to_drop(), 1):
            why[jobs[why[jobs] == 0]] = number
        return why

    def _jobs_to_drop(self) -> Iterator[NDArray[np.signedinteger[Any]]]:
        """Yield for each reason in ``_WHY`` the jobs that it applies to, with repetition."""
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
    """Return a number as in the table, which has at most six decimal places; ``default`` for NaN."""
    return default if np.isnan(number) else round(float(number), 6)


def _in_cycles(parent: _Places, child: _Places, num_tasks: int) -> _Places:
    """Return tasks in or behind a cycle: remove tasks without parents until every remaining task has one."""
    while True:
        waits = np.zeros(num_tasks, dtype=bool)
        waits[child] = True
        left = waits[parent]
        if left.all():
            return child
        parent, child = parent[left], child[left]
