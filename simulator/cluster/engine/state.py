"""The cluster's numbers, which compiled code changes and Python reads: one record array for each kind of thing.

Stages are numbered over the whole sequence, job by job; so are tasks. A pool is an ordered set of free executors
of one class: that of a job is number job * classes + class, and the common pools come after those of all jobs.
A source of commitments is a pool, or the executors of one class on a stage, numbered
pools + stage * classes + class. -1 stands for "none" everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig, check_demands
from simulator.cluster.engine.durations import LEVEL, DurationTables
from simulator.compiled import compiled
from workloads.arrivals import JobSequence
from workloads.job import JobProfile

__all__ = ["Memory", "Packed", "State", "allocate", "pack", "state_of", "view"]

_INT, _FLOAT = np.int64, np.float64

#: The one record of the cluster as a whole.
CLUSTER = np.dtype(
    [
        ("next_order", _INT),  # insertion number of the next event
        ("heap_size", _INT),  # running tasks
        ("num_opened", _INT),  # how many stages became ready: the next "open_order"
        ("num_live", _INT),  # jobs in the system
        ("num_departing", _INT),  # executors that left and whose arrival is not scheduled yet
        ("departure_order", _INT),  # insertion number of the arrival that executors leaving now share
        ("free_entry", _INT),  # first unused entry of the commitments
        ("num_classes", _INT),
        ("end", _INT, (10,)),  # where this and the other record arrays end in `Memory`, bytes
        ("nearest_level", _INT),  # switches of `Semantics`
        ("waiting_keeps_jvm", _INT),
        ("warmup_ms", _FLOAT),
        ("moving_ms", _FLOAT),
    ]
)

_CLUSTER_BYTES = CLUSTER.itemsize

#: One executor; and, as many as there are executors, one place in the list of departing executors and one entry of
#: a source's linked list of commitments.
EXECUTOR = np.dtype(
    [
        ("kind", _INT),  # its class
        ("job", _INT),  # the job it is attached to
        ("stage", _INT),  # the stage it is on: running a task, or just done with one and not placed yet
        ("memory", _INT),  # the last stage, as far as it warms the next task; -1 for a cold JVM
        ("target", _INT),  # the stage it moves to
        ("pool", _INT),  # the pool it waits in
        ("next", _INT),  # its neighbours there
        ("previous", _INT),
        ("departing", _INT),  # the executor
        ("departing_order", _INT),  # insertion number of its arrival
        ("departing_time", _FLOAT),  # when it left, ms
        ("entry_target", _INT),  # a stage, or -1 for idleness
        ("entry_count", _INT),  # executors committed
        ("entry_next", _INT),  # the next entry of the source, or the next unused one
    ]
)

#: One place in the binary heap of running tasks; the first is the next to finish.
RUNNING = np.dtype(
    [
        ("time", _FLOAT),  # when it finishes, ms
        ("order", _INT),  # insertion number: simultaneous events happen in this order
        ("executor", _INT),
    ]
)

JOB = np.dtype(
    [
        ("live", _INT),  # the i-th job in the system, in order of arrival
        ("attached", _INT),  # executors at the job: running, or waiting in its pool
        ("executors", _INT),  # attached, plus moving to the job, plus committed to it from outside
        ("unsaturated", _INT),  # its stages that are not saturated
        ("incomplete", _INT),  # its stages that are not complete
        ("first_stage", _INT),
        ("end_stage", _INT),
        ("arrival_ms", _FLOAT),
    ]
)

#: One class of executors on one stage, numbered stage * classes + class.
STAFF = np.dtype([("running", _INT), ("fits", _INT)])  # executors on it; 1 if they cover its demand

STAGE = np.dtype(
    [
        ("job", _INT),
        ("num_tasks", _INT),
        ("started", _INT),  # tasks handed out so far
        ("finished", _INT),
        ("claimed", _INT),  # executors committed to the stage or moving to it
        ("selected", _INT),  # 1 if chosen in the open round
        ("open_parents", _INT),  # parents that are not saturated
        ("incomplete_parents", _INT),  # parents that are not complete
        ("open_order", _INT),  # rank in which stages became ready (all parents complete)
        ("first_task", _INT),
        ("first_child", _INT),  # its children, ascending, in `children`
        ("end_child", _INT),
        ("first_level", _INT),  # in `levels`; jobs of one profile share them
        ("end_level", _INT),
        ("mean_task_ms", _FLOAT),
        ("cpu", _FLOAT),  # what a task needs
        ("memory", _FLOAT),
    ]
)

#: A pool, or the executors of one class on a stage.
SOURCE = np.dtype(
    [
        ("first_entry", _INT),  # its commitments
        ("last_entry", _INT),
        ("first_executor", _INT),  # who waits there, if it is a pool
        ("last_executor", _INT),
    ]
)

TASK = np.dtype(
    [
        ("start", _FLOAT),  # ms; NaN until it starts
        ("finish", _FLOAT),
        ("executor", np.int32),
        ("parallelism", np.int32),  # executors attached to the job when it started
        ("wave", np.int32),
        ("level_luck", np.float32),  # see `task_noise`; drawn when the job arrives
        ("luck", np.float32),
        ("unused", np.int32),  # keeps records aligned
    ]
)


_NOT_STARTED = np.array((np.nan, np.nan, -1, 0, -1, 0.0, 0.0, 0), dtype=TASK)


class State(NamedTuple):
    """All numbers of the cluster; record arrays, whose fields are described at their dtypes."""

    cluster: NDArray[np.void]
    """[1]"""
    executors: NDArray[np.void]
    heap: NDArray[np.void]
    """[executors]"""
    jobs: NDArray[np.void]
    stages: NDArray[np.void]
    staff: NDArray[np.void]
    """[stages * classes]"""
    sources: NDArray[np.void]
    """[pools + stages * classes]"""
    children: NDArray[np.int64]
    """[edges]"""
    levels: NDArray[np.void]
    """Of the distinct profiles."""
    tasks: NDArray[np.void]
    values: NDArray[np.float64]
    """Durations of the distinct profiles, ms."""


#: All records in one block, and the durations. Compiled functions are handed this: they pay for each array at every
#: call, and more for a tuple with names.
Memory = tuple[NDArray[np.uint8], NDArray[np.float64]]


def state_of(memory: Memory) -> State:
    """The ``State`` that lies in ``Memory``."""
    records, values = memory
    cluster = records[:_CLUSTER_BYTES].view(CLUSTER)
    end = cluster[0]["end"]
    return State(
        cluster,
        records[end[0] : end[1]].view(EXECUTOR),
        records[end[1] : end[2]].view(RUNNING),
        records[end[2] : end[3]].view(JOB),
        records[end[3] : end[4]].view(STAGE),
        records[end[4] : end[5]].view(STAFF),
        records[end[5] : end[6]].view(SOURCE),
        records[end[6] : end[7]].view(np.int64),
        records[end[7] : end[8]].view(LEVEL),
        records[end[8] : end[9]].view(TASK),
        values,
    )


#: The same for compiled code.
view = compiled(state_of)


class Packed(NamedTuple):
    """What a profile contributes, computed once: int64 [stages] unless said otherwise."""

    num_tasks: NDArray[np.int64]
    num_parents: NDArray[np.int64]
    num_children: NDArray[np.int64]
    children: NDArray[np.int64]
    """[edges]"""
    mean_task_ms: NDArray[np.float64]
    """[stages]"""
    demands: NDArray[np.float64]
    """[stages, 2] cpu and memory."""
    tables: DurationTables


@lru_cache(maxsize=4096)
def pack(profile: JobProfile) -> Packed:
    """What a profile contributes."""
    return Packed(
        np.array([stage.num_tasks for stage in profile.stages], dtype=np.int64),
        np.array([len(parents) for parents in profile.parents], dtype=np.int64),
        np.array([len(children) for children in profile.children], dtype=np.int64),
        np.array([child for children in profile.children for child in children], dtype=np.int64),
        np.array([stage.durations.mean_ms for stage in profile.stages], dtype=np.float64),
        np.array([(stage.cpu, stage.memory) for stage in profile.stages], dtype=np.float64),
        DurationTables.of_profile(profile),
    )


def allocate(config: ClusterConfig, sequence: JobSequence) -> Memory:
    """The state before time 0: executors are nowhere, no job has arrived.

    Raises:
        ConfigError: a stage that no executor class can run.
    """
    packed = [pack(profile) for profile in sequence.profiles]
    fits = _fits(config, sequence, packed)
    distinct = {profile: number for number, profile in enumerate(dict.fromkeys(sequence.profiles))}
    tables = DurationTables.join([pack(profile).tables for profile in distinct])
    first_twin = _starts([profile.num_stages for profile in distinct])
    twins = [first_twin[distinct[profile]] + np.arange(profile.num_stages) for profile in sequence.profiles]
    tables_of = np.concatenate(twins)

    jobs = np.zeros(len(packed), dtype=JOB)
    num_stages = np.array([len(job.num_tasks) for job in packed])
    jobs["unsaturated"] = jobs["incomplete"] = num_stages
    jobs["first_stage"] = _starts(num_stages)
    jobs["end_stage"] = jobs["first_stage"] + num_stages
    jobs["arrival_ms"] = sequence.arrival_ms

    stages = np.zeros(len(fits), dtype=STAGE)
    stages["job"] = np.repeat(np.arange(len(packed)), num_stages)
    stages["num_tasks"] = np.concatenate([job.num_tasks for job in packed])
    stages["open_parents"] = np.concatenate([job.num_parents for job in packed])
    stages["incomplete_parents"] = stages["open_parents"]
    stages["open_order"] = -1
    stages["first_task"] = _starts(stages["num_tasks"])
    num_children = np.concatenate([job.num_children for job in packed])
    stages["first_child"] = _starts(num_children)
    stages["end_child"] = stages["first_child"] + num_children
    stages["first_level"] = tables.first_level[tables_of]
    stages["end_level"] = tables.first_level[tables_of + 1]
    stages["mean_task_ms"] = np.concatenate([job.mean_task_ms for job in packed])
    stages["cpu"], stages["memory"] = np.concatenate([job.demands for job in packed]).T
    children = np.concatenate([job.children for job in packed])
    children += np.repeat(jobs["first_stage"], [len(job.children) for job in packed])

    num_classes = len(config.executor_classes)
    staff = np.zeros(fits.size, dtype=STAFF)
    staff["fits"] = fits.ravel()
    sources = np.full((len(jobs) + 1) * num_classes + staff.size, -1, dtype=SOURCE)
    executors = np.full(config.num_executors, -1, dtype=EXECUTOR)
    executors["kind"] = np.repeat(np.arange(num_classes), [kind.count for kind in config.executor_classes])
    executors["entry_next"][:-1] = np.arange(1, len(executors))

    cluster = np.zeros(1, dtype=CLUSTER)
    cluster["departure_order"] = -1
    cluster["num_classes"] = num_classes
    cluster["nearest_level"] = config.semantics.nearest_level
    cluster["waiting_keeps_jvm"] = config.semantics.waiting_keeps_jvm
    cluster["warmup_ms"] = config.warmup_delay_ms
    cluster["moving_ms"] = config.moving_delay_ms

    heap = np.zeros(len(executors), dtype=RUNNING)
    parts = (cluster, executors, heap, jobs, stages, staff, sources, children, tables.levels)
    num_tasks = int(stages["num_tasks"].sum())
    cluster["end"] = np.cumsum([part.nbytes for part in (*parts, np.broadcast_to(_NOT_STARTED, num_tasks))])
    records = np.empty(cluster["end"][0, -1], dtype=np.uint8)
    np.concatenate([part.view(np.uint8) for part in parts], out=records[: cluster["end"][0, -2]])
    # By far the largest part is filled where it lies.
    records[cluster["end"][0, -2] :].view(TASK)[:] = _NOT_STARTED
    return records, tables.values


def _starts(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of consecutive blocks begins: int64 [len(counts)]."""
    return np.cumsum(counts, dtype=np.int64) - np.asarray(counts, dtype=np.int64)


def _fits(config: ClusterConfig, sequence: JobSequence, packed: Sequence[Packed]) -> NDArray[np.bool_]:
    """Whether a class covers a stage's demand: bool [stages, classes]."""
    capacity = np.array([(kind.cpu, kind.memory) for kind in config.executor_classes])
    fits = [np.all(job.demands[:, None] <= capacity, axis=-1) for job in packed]
    if not all(fit.any(axis=1).all() for fit in fits):
        check_demands(config, sequence)
    return np.concatenate(fits)
