"""Scientific workflows in WfFormat 1.5, the JSON format of WfCommons (wfcommons.org), such as WfInstances.

The keys that are read::

    {"schemaVersion": "1.5",
     "createdAt": "2020-12-30T02:25:22",
     "workflow": {
       "specification": {
         "tasks": [{"id": "split_1", "name": "split", "parents": [], "children": ["merge_2"]}, ..]},
       "execution": {
         "executedAt": "2020-12-27T18:23:37+00:00",
         "tasks": [{"id": "split_1", "runtimeInSeconds": 2.87, "coreCount": 1, "memoryInBytes": 9000000}, ..]}}}

A workflow becomes a job. Tasks that run the same program (whose names differ only in their number) and have the same
parents and children become the tasks of one stage: a task that waits for one of them waits for all, so no task starts
earlier or later than in the workflow. Every other task is a stage of its own. The tasks of a stage draw their durations
from the measured durations of all of them.

A job arrives at the time when it ran (``executedAt``). If this time is missing or malformed in a file, all jobs arrive
at the times when their files were written (``createdAt``), or else all at once. Times without a zone are UTC.

The demand of a stage is the largest demand among its tasks, as a fraction of an executor if the executor's size is
given. Otherwise, and where demands are unknown, a stage has the default demand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads.errors import check_paths
from workloads.excerpt import Excerpt, check_executor
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError
from workloads.reading import read_document
from workloads.sources.workload_file import Workload
from workloads.validation import first_error

__all__ = ["read_wfcommons"]

_BYTES_IN_GIB = 2**30


class _FileModel(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class _Task(_FileModel):
    id: str
    name: str
    parents: Annotated[list[str], Field(fail_fast=True)]
    children: Annotated[list[str], Field(fail_fast=True)]


class _Specification(_FileModel):
    tasks: Annotated[list[_Task], Field(min_length=1, fail_fast=True)]


class _Measured(_FileModel):
    id: str
    runtime_s: float = Field(alias="runtimeInSeconds", ge=0)
    cores: float | None = Field(None, alias="coreCount", ge=0)
    memory: float | None = Field(None, alias="memoryInBytes", ge=0)


class _Execution(_FileModel):
    tasks: Annotated[list[_Measured], Field(fail_fast=True)]
    executed_at: str = Field("", alias="executedAt")


class _Workflow(_FileModel):
    specification: _Specification
    execution: _Execution


class _File(_FileModel):
    schema_version: Literal["1.5"] = Field(alias="schemaVersion")
    workflow: _Workflow
    created_at: str = Field("", alias="createdAt")


def read_wfcommons(
    paths: Sequence[str | Path], excerpt: Excerpt | None = None, executor: tuple[float, float] | None = None
) -> Workload:
    """Read workflows as jobs; see the description of the module.

    Args:
        paths: one file per workflow, ``.json`` or ``.json.gz``.
        excerpt: selection of workflows; by default all. Its clock starts with the first workflow.
        executor: size of an executor, cores and GiB of memory, of which demands are fractions. Without it, demands are
            left out.

    Returns:
        A profile for each selected workflow, named after its file, in order of arrival, and their sequence.

    Raises:
        WorkloadError: a file cannot be read or is malformed (the message names the place), or no job is left.
    """
    excerpt = excerpt or Excerpt()
    check_executor(executor)
    files = [(path, _read(path)) for path in check_paths(paths, "paths", WorkloadError)]
    if not files:
        raise WorkloadError("expected at least one file in WfFormat")
    clock, arrival_s = _arrivals([file for _, file in files])
    chosen = excerpt.choose(arrival_s)
    chosen_files = [files[index] for index in chosen.tolist()]
    profiles = tuple(_profile(path, file, excerpt, executor) for path, file in chosen_files)
    about = {
        "source": "workflows in WfFormat 1.5",
        "arrivals": clock,
        "demands": "left out" if executor is None else "shares of {:g} cores and {:g} GiB".format(*executor),
        "excerpt": excerpt.about,
    }
    sequence = excerpt.sequence(profiles, np.array(arrival_s)[chosen])
    return Workload(profiles, sequence, "wfcommons", about)


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(read_document(path, "a workflow in WfFormat 1.5"))
    except ValidationError as error:
        raise WorkloadError(f"{path}: {first_error(error)}") from None


def _arrivals(files: Sequence[_File]) -> tuple[str, list[float]]:
    """Return the name of the clock that all files have, and the arrival time of each file, s after the first."""
    for clock, texts in (
        ("executedAt", [file.workflow.execution.executed_at for file in files]),
        ("createdAt", [file.created_at for file in files]),
    ):
        times = [_time_s(text) for text in texts]
        if not any(map(math.isnan, times)):
            return clock, [time - min(times) for time in times]
    return "all at once", [0.0] * len(files)


def _time_s(text: str) -> float:
    """Parse a time to seconds since 1970; NaN if invalid. Pegasus writes some times as month-day-year."""
    for parse in (datetime.fromisoformat, lambda text: datetime.strptime(text, "%m-%d-%yT%H:%M:%S%z")):
        with suppress(ValueError):
            time = parse(text)
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return math.nan


def _profile(path: Path, file: _File, excerpt: Excerpt, executor: tuple[float, float] | None) -> JobProfile:
    tasks = file.workflow.specification.tasks
    index_of = {task.id: index for index, task in enumerate(tasks)}
    if len(index_of) < len(tasks):
        repeated = next(index for index, task in enumerate(tasks) if index_of[task.id] != index)
        raise WorkloadError(f"{path}: workflow.specification.tasks[{repeated}].id: another task has this id")
    measured = {task.id: task for task in file.workflow.execution.tasks}
    parents: list[set[int]] = [set() for _ in tasks]
    children: list[set[int]] = [set() for _ in tasks]
    for place, task in enumerate(tasks):
        where = f"{path}: workflow.specification.tasks[{place}]"
        if task.id not in measured:
            raise WorkloadError(f"{where}: workflow.execution.tasks has no runtime of {task.id!r:.60}")
        for kind, named in (("parents", task.parents), ("children", task.children)):
            for index, other in enumerate(named):
                if other not in index_of:
                    raise WorkloadError(
                        f"{where}.{kind}[{index}]: expected the id of a task, got {other!r:.60}"
                    )
                parent, child = (index_of[other], place) if kind == "parents" else (place, index_of[other])
                parents[child].add(parent)
                children[parent].add(child)

    alike: dict[tuple[str, frozenset[int], frozenset[int]], list[int]] = {}
    for place, task in enumerate(tasks):
        program = re.sub(r"_?(ID)?[0-9]+$", "", task.name) or task.name  # such as individuals_ID0000042
        key = program, frozenset(parents[place]), frozenset(children[place])
        alike.setdefault(key, []).append(place)
    stage_of = {index: stage for stage, group in enumerate(alike.values()) for index in group}
    edges = {(stage_of[parent], stage_of[child]) for child in stage_of for parent in parents[child]}
    try:
        stages = tuple(
            _stage(program, [measured[tasks[index].id] for index in group], excerpt, executor)
            for (program, _, _), group in alike.items()
        )
        return JobProfile(path.name.split(".json")[0], stages, np.array(sorted(edges)).reshape(-1, 2))
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None


def _stage(
    program: str, tasks: Sequence[_Measured], excerpt: Excerpt, executor: tuple[float, float] | None
) -> StageProfile:
    runtimes = [task.runtime_s * 1000 for task in tasks]
    durations = (
        TaskDurations.constant(runtimes[0]) if len(set(runtimes)) == 1 else TaskDurations.sampled(runtimes)
    )
    cpu, memory = 1.0, 0.0
    if executor is not None:
        cpu = max((task.cores / executor[0] for task in tasks if task.cores is not None), default=cpu)
        memory = max(
            (task.memory / executor[1] / _BYTES_IN_GIB for task in tasks if task.memory is not None),
            default=memory,
        )
    return StageProfile(excerpt.num_tasks(len(tasks)), durations, program, cpu, memory)
