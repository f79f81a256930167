"""Job logs in Standard Workload Format as jobs for a cluster of executors; ``workloads.sources.swf`` reads the logs.

A job that ran on n processors for t seconds becomes a job of one stage:

* by default of n tasks of t seconds, each for an executor of its own. Executors need not start together, so a
  scheduler may run the job on fewer of them, and it takes longer then. This is what Spark does with work that can be
  cut into pieces.
* as a **gang**, of one task of t seconds that demands n times the cpu of a processor. An executor is then a machine
  of a cluster of classes (``--classes 4x64:1`` are 4 machines of 64 processors), and a job runs on a single one of
  them, all of its processors at once. A job that is larger than every machine is refused when the cluster begins: the
  simulator has no tasks that start together on several executors. Nor do two jobs share a machine: an executor runs
  one task at a time.

A task takes what the job took: the log knows one time. Jobs arrive when they were submitted.

Demands are in processors, and memory is left out, unless the size of an executor is given: then both are shares of
it, and memory that the log does not know is none.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import check_path
from workloads.excerpt import Excerpt, choose_jobs
from workloads.imperfections import task_failures
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError
from workloads.sources.swf import read_swf
from workloads.sources.workload_file import Workload

__all__ = ["read_swf_workload"]

_KB_IN_GIB = 2**20


def read_swf_workload(
    path: str | Path,
    excerpt: Excerpt | None = None,
    executor: tuple[float, float] | None = None,
    gang: bool = False,
) -> Workload:
    """Read the jobs of a log, see the module's text.

    Args:
        path: the log, plain or gzipped (``.gz``).
        excerpt: which jobs, and how; by default all as they were. Its clock starts with the first job.
        executor: what demands are shares of: processors, and GiB of memory; without it they are in processors, and
            memory is left out.
        gang: whether a job is one task that needs all its processors at once.

    Returns:
        The sequence of the jobs that are chosen, and a profile for all jobs among them that are alike. ``about`` tells
        what was dropped and assumed.

    Raises:
        WorkloadError: as ``read_swf``; or no job is left, or more than fit into memory.
    """
    path, excerpt = check_path(path, "path", WorkloadError), excerpt or Excerpt()
    if executor is not None and not all(0 < size < math.inf for size in executor):
        raise WorkloadError(f"an executor's processors and memory must be above 0 and finite, got {executor}")
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
    return Workload(tuple(profiles.values()), arrivals, workload_name, about, failures)
