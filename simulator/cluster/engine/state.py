"""The cluster's numbers, which compiled code changes and Python reads: a table of records for each kind of thing.

Stages are numbered over the whole sequence, job by job; so are tasks. A pool is an ordered set of free executors
of one class: that of a job is number job * classes + class, and the common pools come after those of all jobs.
A source of commitments is a pool, or the executors of one class on a stage, numbered
pools + stage * classes + class. -1 stands for "none" everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from simulator.cluster.config import ClusterConfig, check_demands
from simulator.cluster.engine.durations import LEVEL, DurationTables
from simulator.cluster.engine.posterior import BELIEF, ESTIMATE, records
from simulator.cluster.observation import JOB as JOB_ROW
from simulator.cluster.observation import STAGE as STAGE_ROW
from simulator.compiled import compiled
from workloads.arrivals import JobSequence
from workloads.job import JobProfile

if TYPE_CHECKING:
    from simulator.cluster.estimates import Estimate

__all__ = ["Memory", "Packed", "State", "allocate", "pack", "state_of", "view"]

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)


def _record(*fields: tuple[str, DTypeLike] | tuple[str, DTypeLike, tuple[int, ...]]) -> np.dtype[np.void]:
    """Rows have attributes, whether or not the code that reads them is compiled."""
    return np.dtype((np.record, list(fields)))


#: The one record of the cluster as a whole.
CLUSTER = _record(
    ("next_order", _INT),  # insertion number of the next event
    ("num_running", _INT),  # tasks, in the heap
    ("num_opened", _INT),  # how many stages became ready: the next "open_order"
    ("num_live", _INT),  # jobs in the system
    ("num_rows", _INT),  # their stages
    ("num_changed", _INT),  # jobs of which an observation could tell something new
    ("num_departures", _INT),  # executors that left and whose arrival is not scheduled yet
    ("departure_order", _INT),  # insertion number of the arrival that executors leaving now share
    ("free_commitment", _INT),  # first unused place in the commitments
    ("num_classes", _INT),
    ("num_lost", _INT),  # runs of tasks in `lost` that Python has not taken yet
    ("end", _INT, (23,)),  # where the tables end in `Memory`, bytes
    ("nearest_level", _INT),  # switches of `Semantics`
    ("waiting_keeps_jvm", _INT),
    ("release_misfits", _INT),
    ("ready_stages_only", _INT),
    ("offer_after_tasks", _INT),
    ("has_faults", _INT),  # 1 if an end of a task may be special
    ("lost_output", _INT),
    ("task_failures", _FLOAT),
    ("straggler_share", _FLOAT),
    ("straggler_factor", _FLOAT),
    ("warmup_ms", _FLOAT),
    ("moving_ms", _FLOAT),
)

_CLUSTER_BYTES = CLUSTER.itemsize

#: A class of executors.
KIND = _record(
    ("free", _INT),  # how many are in pools
    ("num_stale", _INT),  # jobs whose rows for it are not up to date
    ("num_schedulable", _INT),  # stages, as the rows say
)

EXECUTOR = _record(
    ("kind", _INT),  # its class
    ("job", _INT),  # the job it is attached to
    ("stage", _INT),  # the stage it is on: running a task, or just done with one and not placed yet
    ("warm_stage", _INT),  # the last stage, as far as it warms the next task; -1 for a cold JVM
    ("target", _INT),  # the stage it moves to
    ("arrival", _INT),  # insertion number of the end of its last move
    ("task", _INT),  # the task that it started last
    ("start", _FLOAT),  # when that started, ms; -1 if it is done
    ("pool", _INT),  # the pool it waits in
    ("next", _INT),  # its neighbours there
    ("previous", _INT),
)

#: An executor that began to move.
DEPARTURE = _record(
    ("executor", _INT),
    ("order", _INT),  # insertion number of its arrival
    ("time", _FLOAT),  # when it left, ms
)

#: One of a source's linked list, or of that of unused ones.
COMMITMENT = _record(
    ("target", _INT),  # a stage, or -1 for idleness
    ("count", _INT),  # executors
    ("next", _INT),
)

#: One place in the binary heap of running tasks; the first is the next to finish.
RUNNING = _record(
    ("time", _FLOAT),  # when it finishes, ms
    ("order", _INT),  # insertion number: simultaneous events happen in this order
    ("executor", _INT),
)

JOB = _record(
    ("attached", _INT),  # executors at the job: running, or waiting in its pool
    ("executors", _INT),  # attached, plus moving to the job, plus committed to it from outside
    ("unsaturated", _INT),  # its stages that are not saturated
    ("incomplete", _INT),  # its stages that are not complete
    ("place", _INT),  # among the live jobs; -1 when it has ended
    ("first_row", _INT),  # of its stages, among those of the live jobs
    ("changed", _INT),  # 1 if it is one of `changed`
    ("moved_on", _INT),  # 1 if `awaited` and `open` of its pools are not up to date
    ("first_stage", _INT),
    ("end_stage", _INT),
    ("key", _INT),  # names what happens to its tasks, see `simulator.cluster.faults`
    ("arrival_ms", _FLOAT),
    ("completion_ms", _FLOAT),  # NaN until the job is complete
    ("first_work_ms", _FLOAT),  # as estimated when it arrived
)

STAGE = _record(
    ("job", _INT),
    ("num_tasks", _INT),
    ("started", _INT),  # tasks handed out and not given back
    ("finished", _INT),
    ("running", _INT),  # executors on it
    ("claimed", _INT),  # executors committed to the stage or moving to it
    ("selected", _INT),  # 1 if chosen in the open round
    ("open_parents", _INT),  # parents that must still be saturated, or complete if a switch has it
    ("incomplete_parents", _INT),  # parents that are not complete
    ("open_order", _INT),  # rank in which stages became ready (all parents complete)
    ("first_task", _INT),
    ("returned", _INT),  # the task that was given back last, the first of a linked list
    ("lost_outputs", _INT),  # finished tasks whose output is lost
    ("first_child", _INT),  # its children, ascending, in `children`
    ("end_child", _INT),
    ("first_level", _INT),  # in `levels`; jobs of one profile share them
    ("end_level", _INT),
    ("mean_task_ms", _FLOAT),
    ("finished_ms", _FLOAT),  # executor time of its finished tasks
    ("cpu", _FLOAT),  # demand
    ("memory", _FLOAT),
)

#: One class of executors on one stage, numbered stage * classes + class.
STAFF = _record(
    ("running", _INT),  # executors on it
    ("fits", _INT),  # 1 if they cover its demand
)

#: A pool: who waits there, a linked list in order of entry. For a job's, what its class can do for the job.
POOL = _record(
    ("first", _INT),
    ("last", _INT),
    ("members", _INT),
    ("open", _INT),  # the job's first schedulable stage, outside rounds
    ("awaited", _INT),  # unclaimed tasks of its stages that are schedulable and not ready
    (
        "settled",
        _INT,
    ),  # in how many decisions it leaves all executors where they are, see `stay`; 0: not known
    ("stale", _INT),  # 1 if the job is one of `stale`
    ("num_schedulable", _INT),  # the job's stages, as its rows say
)

#: A source: its commitments, a linked list in order of insertion.
SOURCE = _record(("first", _INT), ("last", _INT))

#: Uniform random numbers of a task, drawn when its job arrives, see `task_noise`.
NOISE = _record(
    ("level", np.float32),  # chooses between two parallelism levels
    ("duration", np.float32),  # chooses a duration of that level
)

#: A task and the log of its last run. Without faults nothing that happens later depends on it, unless running tasks are
#: drawn anew.
TASK = _record(
    ("start", _FLOAT),  # ms; NaN until it starts
    ("finish", _FLOAT),
    ("executor", np.int32),
    ("parallelism", np.int32),  # executors attached to the job when it started
    ("wave", np.int8),
    ("failures", np.int8),  # runs that failed
    ("attempt", np.int16),  # runs that were lost, for whatever reason
    (
        "next",
        np.int32,
    ),  # the next in the list of those given back; or, where outputs can be lost, one of the below
)

#: ``next`` of a task that has finished, and of one whose output is lost.
FINISHED, OUTPUT_LOST = -2, -3

_NOT_STARTED = np.array((np.nan, np.nan, -1, 0, -1, 0, 0, -1), dtype=TASK)

#: The log of a run that was lost.
LOST = _record(
    ("task", _INT),
    ("start", _FLOAT),  # ms
    ("finish", _FLOAT),
    ("executor", np.int32),
    ("parallelism", np.int32),
    ("wave", np.int32),
    ("outcome", np.int32),  # an `Outcome`
)


class State(NamedTuple):
    """All numbers of the cluster; what the fields of records are is said at their types."""

    cluster: NDArray[np.void]
    """``CLUSTER`` [1]"""
    kinds: NDArray[np.void]
    """``KIND`` [classes]"""
    executors: NDArray[np.void]
    """``EXECUTOR`` [executors]"""
    departures: NDArray[np.void]
    """``DEPARTURE`` [executors]; the first ``num_departures`` of them."""
    commitments: NDArray[np.void]
    """``COMMITMENT`` [executors]"""
    heap: NDArray[np.void]
    """``RUNNING`` [executors]; the first ``num_running`` of them."""
    jobs: NDArray[np.void]
    """``JOB`` [jobs]"""
    live: NDArray[np.int64]
    """[jobs] the jobs in the system, in order of arrival; the first ``num_live`` of them."""
    stages: NDArray[np.void]
    """``STAGE`` [stages]"""
    staff: NDArray[np.void]
    """``STAFF`` [stages * classes]"""
    pools: NDArray[np.void]
    """``POOL`` [(jobs + 1) * classes]"""
    changed: NDArray[np.int64]
    """[jobs] the jobs of which an observation could tell something new; the first ``num_changed`` of them."""
    stale: NDArray[np.int64]
    """[classes * jobs] of each class, the jobs whose rows are not up to date; the first ``num_stale`` of them."""
    sources: NDArray[np.void]
    """``SOURCE`` [pools + stages * classes]"""
    children: NDArray[np.int64]
    """[edges]"""
    levels: NDArray[np.void]
    """``LEVEL``, of the distinct profiles."""
    beliefs: NDArray[np.void]
    """``BELIEF`` [jobs]; empty if schedulers know the truth."""
    estimates: NDArray[np.void]
    """``ESTIMATE`` [stages]; empty if schedulers know the truth."""
    seen_jobs: NDArray[np.void]
    """Rows of observations, ``JOB`` [classes * jobs]: of each class, first those of the live jobs."""
    seen_stages: NDArray[np.void]
    """Rows of observations, ``STAGE`` [classes * stages]: of each class, first those of the live jobs."""
    noise: NDArray[np.void]
    """``NOISE`` [tasks]"""
    tasks: NDArray[np.void]
    """``TASK`` [tasks]"""
    lost: NDArray[np.void]
    """``LOST`` [tasks + 3 * executors], nothing without faults; the first ``num_lost`` of them."""
    values: NDArray[np.float64]
    """Durations of the distinct profiles, ms."""


#: All tables in one block of bytes, and the durations. This is what compiled functions are handed: a call pays for
#: each of its arrays, 0.3 µs for these two and 3 to 5 µs for a ``State``, which is more than most calls take.
Memory = tuple[NDArray[np.uint8], NDArray[np.float64]]


def state_of(memory: Memory) -> State:
    """The ``State`` that lies in ``Memory``."""
    records, values = memory
    cluster = records[:_CLUSTER_BYTES].view(CLUSTER)
    end = cluster[0].end
    return State(
        cluster,
        records[end[0] : end[1]].view(KIND),
        records[end[1] : end[2]].view(EXECUTOR),
        records[end[2] : end[3]].view(DEPARTURE),
        records[end[3] : end[4]].view(COMMITMENT),
        records[end[4] : end[5]].view(RUNNING),
        records[end[5] : end[6]].view(JOB),
        records[end[6] : end[7]].view(np.int64),
        records[end[7] : end[8]].view(STAGE),
        records[end[8] : end[9]].view(STAFF),
        records[end[9] : end[10]].view(POOL),
        records[end[10] : end[11]].view(np.int64),
        records[end[11] : end[12]].view(np.int64),
        records[end[12] : end[13]].view(SOURCE),
        records[end[13] : end[14]].view(np.int64),
        records[end[14] : end[15]].view(LEVEL),
        records[end[15] : end[16]].view(BELIEF),
        records[end[16] : end[17]].view(ESTIMATE),
        records[end[17] : end[18]].view(JOB_ROW),
        records[end[18] : end[19]].view(STAGE_ROW),
        records[end[19] : end[20]].view(NOISE),
        records[end[20] : end[21]].view(TASK),
        records[end[21] : end[22]].view(LOST),
        values,
    )


#: The same for compiled code.
view = compiled(state_of)


class Packed(NamedTuple):
    """What a profile contributes, computed once."""

    stages: NDArray[np.void]
    """``STAGE``; tasks, children and levels are counted from the first of the job's."""
    num_tasks: int
    children: NDArray[np.int64]
    """[edges] counted from the first stage of the job."""
    durations: DurationTables


@lru_cache(maxsize=4096)
def pack(profile: JobProfile) -> Packed:
    """What a profile contributes."""
    durations = DurationTables.of_profile(profile)
    num_children = [len(children) for children in profile.children]
    stages = np.zeros(profile.num_stages, dtype=STAGE)
    stages["num_tasks"] = [stage.num_tasks for stage in profile.stages]
    stages["open_parents"] = stages["incomplete_parents"] = [len(parents) for parents in profile.parents]
    stages["open_order"] = stages["returned"] = -1
    stages["first_task"] = _starts(stages["num_tasks"])
    stages["first_child"] = _starts(num_children)
    stages["end_child"] = stages["first_child"] + num_children
    stages["first_level"] = durations.first_level[:-1]
    stages["end_level"] = durations.first_level[1:]
    stages["mean_task_ms"] = [stage.durations.mean_ms for stage in profile.stages]
    stages["cpu"] = [stage.cpu for stage in profile.stages]
    stages["memory"] = [stage.memory for stage in profile.stages]
    children = np.array([child for children in profile.children for child in children], dtype=np.int64)
    return Packed(stages, int(stages["num_tasks"].sum()), children, durations)


def allocate(config: ClusterConfig, sequence: JobSequence, estimates: Sequence[Estimate] = ()) -> Memory:
    """The state before time 0: executors are nowhere, no job has arrived.

    Args:
        config: the cluster.
        sequence: the jobs.
        estimates: what schedulers are told of the jobs; none if they know the truth.

    Raises:
        ConfigError: a stage that no executor class can run.
    """
    packed = [pack(profile) for profile in sequence.profiles]
    distinct = {profile: pack(profile).durations for profile in sequence.profiles}
    durations = DurationTables.join(list(distinct.values()))
    num_stages = np.array([len(job.stages) for job in packed])
    num_edges = np.array([len(job.children) for job in packed])
    num_tasks = np.array([job.num_tasks for job in packed])
    num_executors, num_classes = config.num_executors, len(config.executor_classes)
    num_pools, num_staff = (len(packed) + 1) * num_classes, num_stages.sum() * num_classes
    memory = (
        _reserve(
            (CLUSTER, 1),
            (KIND, num_classes),
            (EXECUTOR, num_executors),
            (DEPARTURE, num_executors),
            (COMMITMENT, num_executors),
            (RUNNING, num_executors),
            (JOB, len(packed)),
            (_INT, len(packed)),
            (STAGE, num_stages.sum()),
            (STAFF, num_staff),
            (POOL, num_pools),
            (_INT, len(packed)),
            (_INT, num_classes * len(packed)),
            (SOURCE, num_pools + num_staff),
            (_INT, num_edges.sum()),
            (LEVEL, len(durations.levels)),
            (BELIEF, len(estimates)),
            (ESTIMATE, num_stages.sum() if estimates else 0),
            (JOB_ROW, num_classes * len(packed)),
            (STAGE_ROW, num_classes * num_stages.sum()),
            (NOISE, num_tasks.sum()),
            (TASK, num_tasks.sum()),
            (LOST, num_tasks.sum() + 3 * num_executors if config.faults.active else 0),
        ),
        durations.values,
    )
    state = state_of(memory)

    cluster = state.cluster
    cluster["departure_order"] = -1
    cluster["num_classes"] = num_classes
    cluster["nearest_level"] = config.semantics.nearest_level
    cluster["waiting_keeps_jvm"] = config.semantics.waiting_keeps_jvm
    cluster["release_misfits"] = config.semantics.release_misfits
    cluster["ready_stages_only"] = config.semantics.ready_stages_only
    cluster["offer_after_tasks"] = config.semantics.offer_after_tasks
    cluster["has_faults"] = config.faults.active
    cluster["lost_output"] = config.faults.lost_output
    cluster["task_failures"] = config.faults.task_failures
    cluster["straggler_share"], cluster["straggler_factor"] = config.faults.stragglers
    cluster["warmup_ms"] = config.warmup_delay_ms
    cluster["moving_ms"] = config.moving_delay_ms

    state.executors[:] = -1
    state.executors["kind"] = np.repeat(
        np.arange(num_classes), [kind.count for kind in config.executor_classes]
    )
    state.commitments["next"] = [*range(1, num_executors), -1]  # all unused
    state.pools["first"] = state.pools["last"] = -1
    state.sources[:] = -1

    jobs = state.jobs
    jobs["unsaturated"] = jobs["incomplete"] = num_stages
    jobs["first_stage"] = _starts(num_stages)
    jobs["end_stage"] = jobs["first_stage"] + num_stages
    jobs["arrival_ms"], jobs["completion_ms"] = sequence.arrival_ms, np.nan
    jobs["first_work_ms"] = [job.work_ms for job in sequence.profiles]
    if estimates:
        jobs["first_work_ms"] = [job.first_work_ms for job in estimates]
        told = [records(job) for job in estimates]
        np.concatenate([belief for belief, _ in told], out=state.beliefs)
        np.concatenate([each for _, each in told], out=state.estimates)

    def of_stages(value_of_job: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.repeat(value_of_job, num_stages)

    num_levels = [len(tables.levels) for tables in distinct.values()]
    first_level = dict(zip(distinct, _starts(num_levels), strict=True))
    stages = np.concatenate([job.stages for job in packed], out=state.stages)
    stages["job"] = of_stages(np.arange(len(packed)))
    stages["first_task"] += of_stages(_starts(num_tasks))
    stages["first_child"] += of_stages(_starts(num_edges))
    stages["end_child"] += of_stages(_starts(num_edges))
    stages["first_level"] += of_stages(np.array([first_level[profile] for profile in sequence.profiles]))
    stages["end_level"] += of_stages(np.array([first_level[profile] for profile in sequence.profiles]))
    np.concatenate([job.children for job in packed], out=state.children)
    state.children[:] += np.repeat(jobs["first_stage"], num_edges)
    state.staff["fits"] = _fits(config, sequence, stages).ravel()
    state.levels[:] = durations.levels
    state.tasks[:] = _NOT_STARTED
    return memory


def _reserve(*tables: tuple[np.dtype[Any], int]) -> NDArray[np.uint8]:
    """A block for tables of so many records, as ``state_of`` finds them there."""
    end = np.cumsum([dtype.itemsize * size for dtype, size in tables])
    records = np.zeros(end[-1], dtype=np.uint8)
    records[:_CLUSTER_BYTES].view(CLUSTER)["end"] = end
    return records


def _starts(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of consecutive blocks begins: int64 [len(counts)]."""
    return np.cumsum(counts, dtype=np.int64) - np.asarray(counts, dtype=np.int64)


def _fits(config: ClusterConfig, sequence: JobSequence, stages: NDArray[np.void]) -> NDArray[np.bool_]:
    """Whether a class covers a stage's demand: bool [stages, classes]."""
    cpu, memory = np.array([(kind.cpu, kind.memory) for kind in config.executor_classes]).T
    fits: NDArray[np.bool_] = (stages["cpu"][:, None] <= cpu) & (stages["memory"][:, None] <= memory)
    if not fits.any(axis=1).all():
        check_demands(config, sequence)
    return fits
