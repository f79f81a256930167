"""The cluster's numbers: what compiled code changes and Python reads, in a few flat arrays.

A compiled function pays for each array that it is handed, so all integers lie in one array and the views of it,
one per quantity, are made inside (:func:`views`). Python holds the same views and reads single numbers
through ``memoryview``, which costs a fraction of indexing an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from simulator.config import ClusterConfig, ConfigError
from simulator.durations import DurationTables
from workloads.arrivals import JobSequence
from workloads.job import JobProfile

__all__ = ["Arrays", "Views", "allocate", "views"]

# The integer array begins with the six sizes that `views` needs.
_SIZES = 6


class Views(NamedTuple):
    """Views of the integer array, all int64: N executors, J jobs, S stages, K executor classes, L levels.

    Stages are numbered over the whole sequence, job by job; so are tasks.
    """

    next_order: NDArray[np.int64]
    """[1] next insertion number of the event queue."""
    heap_size: NDArray[np.int64]
    """[1] running tasks."""
    num_opened: NDArray[np.int64]
    """[1] how many times a stage became ready: the next ``open_order``."""
    heap_executor: NDArray[np.int64]
    """[N] binary heap of running tasks, by finish time and insertion number: the executor."""
    heap_order: NDArray[np.int64]
    """[N] the insertion number."""
    executor_class: NDArray[np.int64]
    """[N]"""
    executor_stage: NDArray[np.int64]
    """[N] the stage it is on: running a task of it, or just done with one and not placed yet; -1 for none."""
    executor_memory: NDArray[np.int64]
    """[N] the last stage, as far as it warms the next task; -1 for a cold JVM."""
    executor_task: NDArray[np.int64]
    """[N] the task it runs or last ran."""
    job_attached: NDArray[np.int64]
    """[J] executors at the job: running, or waiting in its pool."""
    job_executors: NDArray[np.int64]
    """[J] attached, plus moving to the job, plus committed to it from outside."""
    job_unsaturated: NDArray[np.int64]
    """[J] its stages that are not saturated."""
    job_incomplete: NDArray[np.int64]
    """[J] its stages that are not complete."""
    job_first_stage: NDArray[np.int64]
    """[J]"""
    job_num_stages: NDArray[np.int64]
    """[J]"""
    stage_job: NDArray[np.int64]
    """[S]"""
    num_tasks: NDArray[np.int64]
    """[S]"""
    started: NDArray[np.int64]
    """[S] tasks handed out so far."""
    finished: NDArray[np.int64]
    """[S]"""
    claimed: NDArray[np.int64]
    """[S] executors committed to the stage or moving to it."""
    selected: NDArray[np.int64]
    """[S] 1 if chosen in the current round."""
    open_parents: NDArray[np.int64]
    """[S] parents that are not saturated."""
    incomplete_parents: NDArray[np.int64]
    """[S] parents that are not complete."""
    open_order: NDArray[np.int64]
    """[S] rank in which stages became ready (all parents complete); -1 if they did not."""
    first_task: NDArray[np.int64]
    """[S]"""
    first_child: NDArray[np.int64]
    """[S] where its children begin in ``children``."""
    num_children: NDArray[np.int64]
    """[S]"""
    first_level: NDArray[np.int64]
    """[S] where its levels begin in ``levels`` and ``cells``; jobs of one profile share them."""
    last_level: NDArray[np.int64]
    """[S] where they end."""
    running: NDArray[np.int64]
    """[K, S] executors on the stage, by class."""
    fits: NDArray[np.int64]
    """[K, S] 1 if the class covers the stage's demand."""
    children: NDArray[np.int64]
    """[edges] each stage's children, ascending."""
    levels: NDArray[np.int64]
    """[L] parallelism levels."""
    cells: NDArray[np.int64]
    """[L, 3, 3] see ``DurationTables``."""


class Arrays(NamedTuple):
    """What compiled functions are handed. T tasks over the whole sequence, V durations."""

    integers: NDArray[np.int64]
    """Everything in ``Views``."""
    heap_time: NDArray[np.float64]
    """[N] finish times of the running tasks, ms."""
    task_time: NDArray[np.float64]
    """[2, T] start and finish, ms."""
    task_run: NDArray[np.int32]
    """[3, T] executor, wave, executors attached to the job at the start."""
    noise: NDArray[np.float32]
    """[2, T] see ``task_noise``; drawn when the job arrives."""
    values: NDArray[np.float64]
    """[V] durations, ms."""


@numba.njit(cache=True, inline="always")
def views(integers):  # type: ignore[no-untyped-def]
    """The views of the integer array."""
    n, j, s, k, edges, levels = integers[0], integers[1], integers[2], integers[3], integers[4], integers[5]
    counters = _SIZES
    executors = counters + 3
    jobs = executors + 6 * n
    stages = jobs + 6 * j
    by_class = stages + 14 * s
    child = by_class + 2 * k * s
    level = child + edges
    cell = level + levels
    end = cell + 9 * levels
    executor = integers[executors:jobs].reshape(6, n)
    job = integers[jobs:stages].reshape(6, j)
    stage = integers[stages:by_class].reshape(14, s)
    both = integers[by_class:child].reshape(2, k, s)
    return Views(
        integers[counters : counters + 1],
        integers[counters + 1 : counters + 2],
        integers[counters + 2 : counters + 3],
        executor[0],
        executor[1],
        executor[2],
        executor[3],
        executor[4],
        executor[5],
        job[0],
        job[1],
        job[2],
        job[3],
        job[4],
        job[5],
        stage[0],
        stage[1],
        stage[2],
        stage[3],
        stage[4],
        stage[5],
        stage[6],
        stage[7],
        stage[8],
        stage[9],
        stage[10],
        stage[11],
        stage[12],
        stage[13],
        both[0],
        both[1],
        integers[child:level],
        integers[level:cell],
        integers[cell:end].reshape(levels, 3, 3),
    )


class _Packed(NamedTuple):
    """What a profile contributes, computed once: int64 [stages] unless said otherwise."""

    num_tasks: NDArray[np.int64]
    num_parents: NDArray[np.int64]
    num_children: NDArray[np.int64]
    children: NDArray[np.int64]
    """[edges]"""
    demands: NDArray[np.float64]
    """[stages, 2] cpu and memory."""
    tables: DurationTables


@lru_cache(maxsize=4096)
def _pack(profile: JobProfile) -> _Packed:
    return _Packed(
        np.array([stage.num_tasks for stage in profile.stages], dtype=np.int64),
        np.array([len(parents) for parents in profile.parents], dtype=np.int64),
        np.array([len(children) for children in profile.children], dtype=np.int64),
        np.array([child for children in profile.children for child in children], dtype=np.int64),
        np.array([(stage.cpu, stage.memory) for stage in profile.stages], dtype=np.float64),
        DurationTables.join([DurationTables.of_stage(stage.durations) for stage in profile.stages]),
    )


def allocate(config: ClusterConfig, sequence: JobSequence) -> tuple[Arrays, Views]:
    """The arrays at time 0: nothing runs, parentless stages are ready, no job has any executor.

    Raises:
        ConfigError: a stage that no executor class can run.
    """
    jobs = [_pack(profile) for profile in sequence.profiles]
    fits = _fits(config, sequence, jobs)
    num_stages = np.array([len(job.num_tasks) for job in jobs], dtype=np.int64)
    first_stage = _starts(num_stages)
    children = np.concatenate([job.children for job in jobs])
    children += np.repeat(first_stage, [len(job.children) for job in jobs])

    distinct = {profile: number for number, profile in enumerate(dict.fromkeys(sequence.profiles))}
    tables = DurationTables.join([_pack(profile).tables for profile in distinct])
    before = _starts([profile.num_stages for profile in distinct])
    twin = [before[distinct[profile]] + np.arange(profile.num_stages) for profile in sequence.profiles]
    tables_of = np.concatenate(twin)

    n, j, s, k = config.num_executors, len(jobs), int(num_stages.sum()), len(config.executor_classes)
    sizes = (n, j, s, k, len(children), len(tables.levels))
    integers = np.zeros(_SIZES + 3 + 6 * n + 6 * j + (14 + 2 * k) * s + sizes[4] + 10 * sizes[5], dtype=np.int64)
    integers[:_SIZES] = sizes
    view = views(integers)
    view.num_opened[0] = s
    view.executor_class[:] = np.repeat(np.arange(k), [kind.count for kind in config.executor_classes])
    view.executor_stage[:] = -1
    view.executor_memory[:] = -1
    view.job_unsaturated[:] = num_stages
    view.job_incomplete[:] = num_stages
    view.job_first_stage[:] = first_stage
    view.job_num_stages[:] = num_stages
    view.stage_job[:] = np.repeat(np.arange(j), num_stages)
    view.num_tasks[:] = np.concatenate([job.num_tasks for job in jobs])
    view.open_parents[:] = np.concatenate([job.num_parents for job in jobs])
    view.incomplete_parents[:] = view.open_parents
    view.open_order[:] = np.where(view.open_parents == 0, np.arange(s), -1)
    view.first_task[:] = _starts(view.num_tasks)
    view.num_children[:] = np.concatenate([job.num_children for job in jobs])
    view.first_child[:] = _starts(view.num_children)
    view.first_level[:] = tables.first_level[tables_of]
    view.last_level[:] = tables.first_level[tables_of + 1]
    view.fits[:] = fits
    view.children[:] = children
    view.levels[:] = tables.levels
    view.cells[:] = tables.cells
    num_tasks = int(view.num_tasks.sum())
    arrays = Arrays(
        integers,
        np.zeros(n),
        np.full((2, num_tasks), np.nan),
        np.full((3, num_tasks), -1, dtype=np.int32),
        np.empty((2, num_tasks), dtype=np.float32),
        tables.values,
    )
    return arrays, view


def _starts(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of consecutive blocks begins: int64 [len(counts)]."""
    return np.cumsum(counts, dtype=np.int64) - np.asarray(counts, dtype=np.int64)


def _fits(config: ClusterConfig, sequence: JobSequence, jobs: Sequence[_Packed]) -> NDArray[np.bool_]:
    """Whether a class covers a stage's demand: bool [K, S]."""
    capacity = np.array([(kind.cpu, kind.memory) for kind in config.executor_classes])
    fits = [(job.demands[None] <= capacity[:, None]).all(axis=-1) for job in jobs]
    for number, (profile, fit) in enumerate(zip(sequence.profiles, fits, strict=True)):
        if not fit.any(axis=0).all():
            stage = int(np.argmin(fit.any(axis=0)))
            raise ConfigError(
                f"no executor class can run stage {stage} of job {number} ({profile.name}), which needs"
                f" cpu {profile.stages[stage].cpu:g} and memory {profile.stages[stage].memory:g}"
            )
    return np.concatenate(fits, axis=1)
