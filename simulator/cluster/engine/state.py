"""State of a cluster that compiled code changes and Python reads: tables of records, one table for each kind of object.

Stages are numbered over the whole sequence, job by job; so are tasks. A pool is an ordered set of idle executors of one
class. The pool of a job has the number job * classes + class; the common pools come after all pools of jobs. A source
of commitments is a pool, or the executors of one class on a stage, number pools + stage * classes + class. -1 means
"none".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.engine.profiles import BELIEF, ESTIMATE, LEVEL, STAGE, block_starts, pack
from simulator.cluster.engine.tables import define, pointer_to
from simulator.cluster.observation import JOB as JOB_ROW
from simulator.cluster.observation import STAGE as STAGE_ROW
from simulator.compiled import inner, record
from workloads.arrivals import JobSequence

if TYPE_CHECKING:
    from simulator.cluster.estimates import Estimate

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)

#: The cluster as a whole: one record.
CLUSTER = record(
    ("next_order", _INT),  # insertion number of the next event
    ("num_running", _INT),  # running tasks, in the heap
    ("next_opened", _INT),  # least "open_order" of the stages that become ready next
    ("num_live", _INT),  # live jobs
    ("num_rows", _INT),  # stages of the live jobs
    ("num_moves", _INT),  # moves that have begun, in `moves`
    ("num_moved", _INT),  # moves that have ended: the first ones
    ("departure_order", _INT),  # insertion number of the arrival that executors departing now share
    ("num_arrived", _INT),  # jobs that have arrived: the first ones of the sequence
    ("num_arriving", _INT),  # jobs that have arrived or will arrive
    ("num_prepared", _INT),  # jobs whose tasks have noise: the first ones of the sequence
    ("arrival_order", _INT),  # insertion number of the arrival of job 0; other jobs follow
    ("num_changes", _INT),  # arrivals and ends of jobs, in `changes`
    ("free_commitment", _INT),  # first unused record of the commitments
    ("num_classes", _INT),
    ("num_executors", _INT),  # executors in the cluster now
    ("num_lost", _INT),  # lost task runs that Python has not read yet
    ("now", _FLOAT),  # time of the last change of the pools, ms
    ("idle_ms", _FLOAT),  # sum of times when executors left pools, minus times when they entered a pool
    # The tables, see `State`.
    ("start", _INT, (23,)),  # their starts in the block, and its end, bytes
    ("length", _INT, (22,)),  # their numbers of records
    ("values_at", _INT),  # address of `values`, which is not in the block
    ("num_values", _INT),
    ("moves_at", _INT),
    ("most_moves", _INT),
    # The open round.
    ("offered", _INT),  # executors still to be committed; 0: no round is open
    ("offered_class", _INT),  # class of the offered executors
    ("source_job", _INT),  # job whose executors are offered, or were offered last
    ("num_acting", _INT),  # executors that act when the round closes: one on a stage, or all in a pool
    ("first_acting", _INT),  # the first of them
    ("last_acting", _INT),
    # What is offered after the round: pools of a job, then free executors.
    ("next_job", _INT),  # the job; -1 for the common pools
    ("next_class", _INT),  # the class whose pool comes first
    ("next_pool", _INT),  # number of pools that were already offered
    ("next_place", _INT),  # where to look for free executors; -1: these are not offered
    # The configuration.
    ("offer_idle_executors", _INT),  # switches of `Semantics`
    ("nearest_level", _INT),
    ("waiting_keeps_jvm", _INT),
    ("release_misfits", _INT),
    ("ready_stages_only", _INT),
    ("offer_after_tasks", _INT),
    ("lost_output", _INT),
    ("task_failures", _FLOAT),
    ("straggler_share", _FLOAT),
    ("straggler_factor", _FLOAT),
    ("warmup_ms", _FLOAT),
    ("moving_ms", _FLOAT),
    ("speculation_quantile", _FLOAT),
    ("speculation_multiplier", _FLOAT),
)

_CLUSTER_BYTES = CLUSTER.itemsize

#: An executor class.
CLASS = record(
    ("free", _INT),  # executors in pools
    ("wanted", _INT),  # 1 if some stage could use one of these, see `find_wanted`
)

#: An executor.
EXECUTOR = record(
    ("class_id", _INT),
    ("job", _INT),  # job that the executor is attached to
    ("stage", _INT),  # stage of the executor's task, until it is placed elsewhere
    ("warm_stage", _INT),  # stage of the last task that the JVM ran; -1 for a new JVM
    ("target", _INT),  # stage that the executor moves to
    ("arrival", _INT),  # insertion number of the end of the last move
    ("task", _INT),  # task that the executor started last
    ("start", _FLOAT),  # time when that task started, ms; -1 if it has ended
    ("pool", _INT),  # pool that the executor is in
    ("next", _INT),  # neighbours in the pool
    ("previous", _INT),
)

#: A move of an executor to another job. As all moves take equally long, executors arrive in the order of this log.
MOVE = record(
    ("time", _FLOAT),  # time of the departure, ms
    ("order", _INT),  # insertion number of the arrival; consecutive departures share it
    ("executor", _INT),
    ("stage", _INT),  # target
)

#: An arrival or an end of a job.
CHANGE = record(
    ("job", _INT),  # the job that arrives, or -1 - job that ends
    ("time", _FLOAT),  # ms
    ("idle_ms", _FLOAT),  # total time of executors in pools until then
)

#: A commitment in the linked list of its source, or an unused record.
COMMITMENT = record(
    ("target", _INT),  # a stage; -1: the executors stay idle
    ("count", _INT),  # number of executors
    ("next", _INT),
)

#: A running task in the binary heap; the first one finishes next.
RUNNING = record(
    ("time", _FLOAT),  # finish time, ms
    ("order", _INT),  # insertion number: simultaneous events happen in this order
    ("executor", _INT),
)

#: A job.
JOB = record(
    ("attached", _INT),  # executors at the job: on its stages or in its pools
    ("executors", _INT),  # executors attached, moving to the job, or committed to it from outside
    ("unsaturated", _INT),  # stages that are not saturated
    ("incomplete", _INT),  # stages that are not complete
    ("place", _INT),  # place among the live jobs; -1 when the job has ended
    ("first_row", _INT),  # place of the job's first stage among the stages of live jobs
    ("version", _INT),  # grows with each change of a value that observations show
    ("learned", _INT),  # version up to which the job's estimates are updated
    ("dirty", _INT),  # 1 if `awaited` and `first_open` of the job's pools are out of date
    ("first_stage", _INT),
    ("end_stage", _INT),
    ("key", _INT),  # key of the random numbers of tasks, see `simulator.cluster.draws`
    ("arrival_ms", _FLOAT),
    ("completion_ms", _FLOAT),  # NaN until the job is complete
    ("first_work_ms", _FLOAT),  # work as estimated at the arrival
    ("weight", _FLOAT),
    ("deadline_ms", _FLOAT),
    ("tenant", _INT),
)

#: A pair of one stage and one executor class, number stage * classes + class.
PAIR = record(
    ("running", _INT),  # executors of the class on the stage
    ("fits", _INT),  # 1 if an executor of the class covers the demand of a task
)

#: A pool: its executors are a linked list in order of entry. Further columns are for pools of jobs.
POOL = record(
    ("first", _INT),
    ("last", _INT),
    ("members", _INT),
    ("first_open", _INT),  # cached: the job's first stage that is schedulable for the class, outside rounds
    ("awaited", _INT),  # cached: unclaimed tasks of the job's stages that are schedulable and not ready
    ("stay_decisions", _INT),  # cached: decisions by which all executors stay, see `rounds.stay`; 0: unknown
    ("row_version", _INT),  # version of the job that the rows of the class show
    ("num_schedulable", _INT),  # the job's schedulable stages in these rows
)

#: Commitments of a source, a linked list in order of insertion.
SOURCE = record(("first", _INT), ("last", _INT))

#: Uniform random numbers of a task, drawn when its job arrives, see `task_noise`.
NOISE = record(
    ("level", np.float32),  # chooses between two parallelism levels
    ("duration", np.float32),  # chooses a duration of that level
)

#: A task and its last run. Without faults it is only a log, unless running tasks are redrawn in a fork.
TASK = record(
    ("start", _FLOAT),  # ms; NaN until the task starts
    ("finish", _FLOAT),
    ("executor", np.int32),
    ("parallelism", np.int32),  # executors attached to the job when the task started
    ("wave", np.int8),
    ("failures", np.int8),  # number of failed runs
    ("attempt", np.int16),  # number of lost runs, including failed ones
    ("next", np.int32),  # next in the linked list of returned tasks; or `lost.FINISHED` and so on
)

_NO_MOVES = np.empty(0, dtype=MOVE)
_MOVE_BYTES = np.dtype((np.void, MOVE.itemsize))

_NOT_STARTED = np.array([(np.nan, np.nan, -1, 0, -1, 0, 0, -1)], dtype=TASK)
#: A task's record as raw bytes, which NumPy copies nine times as fast as field by field.
_TASK_BYTES = np.dtype((np.void, TASK.itemsize))

#: A lost task run.
LOST = record(
    ("task", _INT),
    ("start", _FLOAT),  # ms
    ("finish", _FLOAT),
    ("executor", np.int32),
    ("parallelism", np.int32),
    ("wave", np.int32),
    ("outcome", np.int32),  # an `Outcome`
)


class State(NamedTuple):
    """The tables, with record type and size."""

    cluster: NDArray[np.void]  # CLUSTER [1]
    classes: NDArray[np.void]  # CLASS [classes]
    executors: NDArray[np.void]  # EXECUTOR [executors]
    commitments: NDArray[np.void]  # COMMITMENT [executors]
    heap: NDArray[np.void]  # RUNNING [executors], first `num_running`
    jobs: NDArray[np.void]  # JOB [jobs]
    live: NDArray[np.int64]  # [jobs], first `num_live`: live jobs in order of arrival
    stages: NDArray[np.void]  # STAGE [stages]
    pairs: NDArray[np.void]  # PAIR [stages * classes]
    pools: NDArray[np.void]  # POOL [(jobs + 1) * classes]
    sources: NDArray[np.void]  # SOURCE [pools + stages * classes]
    children: NDArray[np.int64]  # [edges]
    levels: NDArray[np.void]  # LEVEL, of the distinct profiles
    beliefs: NDArray[np.void]  # BELIEF [jobs]; empty if estimates are exact
    estimates: NDArray[np.void]  # ESTIMATE [stages]; empty if estimates are exact
    seen_jobs: NDArray[np.void]  # observation.JOB [classes * jobs]: rows by class, live jobs first
    seen_stages: NDArray[np.void]  # observation.STAGE [classes * stages]: rows by class, live jobs first
    noise: NDArray[np.void]  # NOISE [tasks]
    tasks: NDArray[np.void]  # TASK [tasks]
    lost: NDArray[np.void]  # LOST [tasks + 4 * executors], see also `lost.run_of`; may be empty
    changes: NDArray[np.void]  # CHANGE [2 * jobs], first `num_changes`
    late_ms: NDArray[
        np.float64
    ]  # [stages], run time after which a task is copied, ms; empty without speculation
    values: NDArray[np.float64]  # durations of the distinct profiles, ms
    moves: NDArray[np.void]  # MOVE, first `num_moves`; the table grows


#: Argument of compiled functions: all tables of fixed size in one block of bytes, the durations, and the moves.
#: Passing three arrays from Python costs 0.5 µs, passing a ``State`` 3 to 5 µs.
Memory = tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.void]]


#: Record types of the tables in the block, in the order of ``State``.
TABLES: tuple[np.dtype[Any], ...] = (
    CLUSTER, CLASS, EXECUTOR, COMMITMENT, RUNNING, JOB, _INT, STAGE, PAIR, POOL, SOURCE, _INT, LEVEL, BELIEF,
    ESTIMATE, JOB_ROW, STAGE_ROW, NOISE, TASK, LOST, CHANGE, _FLOAT,
)  # fmt: skip


def state_of(memory: Memory) -> State:
    """Return views of the tables in ``Memory``."""
    records, values, moves = memory
    start = records[:_CLUSTER_BYTES].view(CLUSTER)[0].start
    tables = [records[start[index] : start[index + 1]].view(dtype) for index, dtype in enumerate(TABLES)]
    return State._make([*tables, values, moves])


def _define_tables() -> None:
    """Tell compiled code where the cluster's record has the starts and lengths of the tables."""
    assert CLUSTER.fields
    offset = {name: field[1] for name, field in CLUSTER.fields.items()}
    tables = {}
    for index, (name, dtype) in enumerate(zip(State._fields, TABLES, strict=False)):
        tables[name] = dtype, offset["start"] + 8 * index, offset["length"] + 8 * index, False
    tables["values"] = _FLOAT, offset["values_at"], offset["num_values"], True
    tables["moves"] = MOVE, offset["moves_at"], offset["most_moves"], True
    define(tables)


_define_tables()


@inner(arrays=True)
def _view(memory):  # type: ignore[no-untyped-def]
    """Return a pointer to the tables, which has the same attributes as ``State``."""
    records, values, moves = memory
    state = pointer_to(records)
    cluster = state.cluster[0]
    cluster.values_at, cluster.num_values = values.ctypes.data, len(values)
    cluster.moves_at, cluster.most_moves = moves.ctypes.data, len(moves)
    return state


#: Function for compiled code that returns the tables in ``Memory``.
view = state_of if numba.config.DISABLE_JIT else _view  # type: ignore[attr-defined]


def allocate(
    config: ClusterConfig,
    sequence: JobSequence,
    estimates: Sequence[Estimate] = (),
    deadline_ms: ArrayLike = np.inf,
) -> Memory:
    """Return the state before time 0: no executor is in a pool, and no job has arrived.

    Args:
        estimates: an estimate for each job; empty if schedulers know the exact values.
        deadline_ms: deadline of each job, float [jobs], ms.

    Raises:
        ConfigError: no executor class can run some stage.
    """
    packed = [pack(profile) for profile in sequence.profiles]
    distinct = {profile: pack(profile) for profile in sequence.profiles}
    num_stages = np.array([len(job.stages) for job in packed])
    num_edges = np.array([len(job.children) for job in packed])
    num_tasks = np.array([job.stages["num_tasks"].sum() for job in packed])
    num_executors, num_classes = config.num_executors, len(config.executor_classes)
    num_pools, num_pairs = (len(packed) + 1) * num_classes, num_stages.sum() * num_classes
    lengths = [
        1,
        num_classes,
        *[num_executors] * 3,
        *[len(packed)] * 2,
        num_stages.sum(),
        num_pairs,
        num_pools,
        num_pools + num_pairs,
        num_edges.sum(),
        sum(len(job.levels) for job in distinct.values()),
        len(estimates),
        num_stages.sum() if estimates else 0,
        num_classes * len(packed),
        num_classes * num_stages.sum(),
        *[num_tasks.sum()] * 2,
        num_tasks.sum() + 4 * num_executors if config.faults.active else 0,
        2 * len(packed),
        num_stages.sum() if config.faults.speculation else 0,
    ]
    start = np.cumsum([0, *(dtype.itemsize * size for dtype, size in zip(TABLES, lengths, strict=True))])
    block = np.zeros(start[-1], dtype=np.uint8)
    block[:_CLUSTER_BYTES].view(CLUSTER)["start"] = start
    block[:_CLUSTER_BYTES].view(CLUSTER)["length"] = lengths
    values = np.concatenate([job.values for job in distinct.values()])
    memory = block, values, moves_table(config)
    state = state_of(memory)

    cluster = state.cluster
    for name in ("departure_order", "source_job", "next_job", "next_place"):
        cluster[name] = -1  # the common pools are offered first
    cluster["num_classes"], cluster["num_arriving"] = num_classes, len(packed)
    cluster["num_executors"] = num_executors
    for name, value in (vars(config.semantics) | vars(config.faults)).items():
        if name in (CLUSTER.names or ()):
            cluster[name] = value
    cluster["straggler_share"], cluster["straggler_factor"] = config.faults.stragglers
    if config.faults.speculation:
        cluster["speculation_quantile"], cluster["speculation_multiplier"] = config.faults.speculation
    cluster["warmup_ms"] = config.warmup_delay_ms
    cluster["moving_ms"] = config.moving_delay_ms

    state.executors[:] = -1
    counts = [executor_class.count for executor_class in config.executor_classes]
    state.executors["class_id"] = np.repeat(np.arange(num_classes), counts)
    state.commitments["next"] = [*range(1, num_executors), -1]  # all unused
    state.pools["first"] = state.pools["last"] = -1
    state.sources[:] = -1

    jobs = state.jobs
    jobs["unsaturated"] = jobs["incomplete"] = num_stages
    jobs["first_stage"] = block_starts(num_stages)
    jobs["end_stage"] = jobs["first_stage"] + num_stages
    jobs["arrival_ms"], jobs["completion_ms"] = sequence.arrival_ms, np.nan
    jobs["first_work_ms"] = [job.work_ms for job in sequence.profiles]
    jobs["weight"], jobs["tenant"], jobs["deadline_ms"] = sequence.weight, sequence.tenant, deadline_ms
    if estimates:
        from simulator.cluster.engine.posterior import records

        jobs["first_work_ms"] = [job.first_work_ms for job in estimates]
        beliefs, of_stages = zip(*map(records, estimates), strict=True)
        np.concatenate(beliefs, out=state.beliefs)
        np.concatenate(of_stages, out=state.estimates)

    num_levels = [len(job.levels) for job in distinct.values()]
    num_values = [len(job.values) for job in distinct.values()]
    np.concatenate([job.levels for job in distinct.values()], out=state.levels)
    state.levels["first"] += np.repeat(block_starts(num_values), num_levels)[:, None]
    first_level = dict(zip(distinct, block_starts(num_levels), strict=True))
    stages = np.concatenate([job.stages for job in packed], out=state.stages)
    stages["job"] = np.repeat(np.arange(len(packed)), num_stages)
    level_starts = np.array([first_level[profile] for profile in sequence.profiles])
    edge_starts = block_starts(num_edges)
    for name, starts in (
        ("first_task", block_starts(num_tasks)),
        ("first_child", edge_starts),
        ("end_child", edge_starts),
        ("first_level", level_starts),
        ("end_level", level_starts),
    ):
        stages[name] += np.repeat(starts, num_stages)
    if not config.semantics.longest_path_first:
        stages["path_rank"] = np.concatenate([np.arange(count) for count in num_stages])
    elif estimates:
        stages["path_rank"] = np.concatenate([job.profile.path_rank for job in estimates])
    np.concatenate([job.children for job in packed], out=state.children)
    state.children[:] += np.repeat(jobs["first_stage"], num_edges)
    state.pairs["fits"] = _fits(config, sequence, stages).ravel()
    state.tasks.view(_TASK_BYTES)[:] = _NOT_STARTED.view(_TASK_BYTES)
    return memory


def moves_table(config: ClusterConfig, known: NDArray[np.void] = _NO_MOVES) -> NDArray[np.void]:
    """Return a table that begins with ``known`` moves and has room for as many others, at least for two an executor."""
    table = np.empty(2 * (len(known) + config.num_executors) + 1000, dtype=MOVE)
    table.view(_MOVE_BYTES)[: len(known)] = known.view(_MOVE_BYTES)
    return table


def _fits(config: ClusterConfig, sequence: JobSequence, stages: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return whether an executor of each class covers the demand of each stage, bool [stages, classes]."""
    cpu, memory = np.array(
        [(executor_class.cpu, executor_class.memory) for executor_class in config.executor_classes]
    ).T
    fits: NDArray[np.bool_] = (stages["cpu"][:, None] <= cpu) & (stages["memory"][:, None] <= memory)
    if not fits.any(axis=1).all():
        from simulator.cluster.demands import check_demands

        check_demands(config, sequence)  # raises
    return fits
