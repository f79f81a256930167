"""Compiled: where executors are, and the commitments that say where they go next.

An executor is on a stage, or waits in a pool, or moves to a stage. A pool is a linked list in order of entry.
The commitments of a source are a linked list, in order of insertion.
"""

from __future__ import annotations

from simulator.cluster.engine.tasks import (
    adjust,
    change,
    first_ready,
    first_schedulable,
    leave_stage,
    next_order,
    refresh,
    staff_of,
    start,
)
from simulator.compiled import inner

__all__ = [
    "IDLE",
    "arrive",
    "carry_out_next",
    "commit",
    "detach",
    "drop",
    "end_job",
    "enter_pool",
    "find_wanted",
    "go_to_common_pool",
    "has_ended",
    "is_committed",
    "is_free",
    "leave_pool",
    "pool_of",
    "source_of",
    "wait",
]

#: Target of a commitment to idleness.
IDLE = -1


@inner
def source_of(state, executor):
    """The source whose commitments an executor carries out: its stage, else its job's pool, else the common pool."""
    runner = state.executors[executor]
    if runner.stage >= 0:
        return (
            pool_of(state, -1, 0) + state.cluster[0].num_classes + staff_of(state, runner.stage, runner.kind)
        )
    return pool_of(state, runner.job, runner.kind)


@inner
def pool_of(state, job, kind):
    """The pool of a job, or the common pool if ``job`` is -1."""
    return (job if job >= 0 else len(state.jobs)) * state.cluster[0].num_classes + kind


# Pools.


@inner
def enter_pool(state, executor, pool):
    """Go to the end of a pool."""
    members, waiting = state.executors, state.pools[pool]
    entering = members[executor]
    entering.pool = pool
    entering.previous = waiting.last
    entering.next = -1
    if waiting.last >= 0:
        members[waiting.last].next = executor
    else:
        waiting.first = executor
    waiting.last = executor
    waiting.members += 1
    waiting.settled = 0
    state.kinds[entering.kind].free += 1


@inner
def leave_pool(state, executor):
    """Leave the pool, if the executor is in any."""
    members = state.executors
    leaving = members[executor]
    if leaving.pool < 0:
        return
    waiting = state.pools[leaving.pool]
    if leaving.previous >= 0:
        members[leaving.previous].next = leaving.next
    else:
        waiting.first = leaving.next
    if leaving.next >= 0:
        members[leaving.next].previous = leaving.previous
    else:
        waiting.last = leaving.previous
    waiting.members -= 1
    waiting.settled = 0
    leaving.pool = -1
    state.kinds[leaving.kind].free -= 1


@inner
def detach(state, executor):
    """Leave stage and job; the JVM is gone."""
    leave_stage(state, executor)
    state.executors[executor].warm_stage = -1
    job = state.executors[executor].job
    if job >= 0:
        change(state, job)
        state.jobs[job].attached -= 1
        state.jobs[job].executors -= 1
        state.executors[executor].job = -1


@inner
def is_free(state, job, kind):
    """Whether the pool of a job, or the common one (-1), has executors that could be used now. No round is open.

    Executors that wait for a stage of their own job, all of whose parents' tasks are running, are not free: they
    will be offered when it opens. Only where they are more than its tasks, some must be.
    """
    pool = state.pools[pool_of(state, job, kind)]
    if pool.members == 0:
        return False
    if job >= 0:
        refresh(state, job)
        if pool.members <= pool.awaited:
            return False
        if pool.open >= 0:
            return True
    return first_schedulable(state, kind) >= 0


@inner
def find_wanted(state):
    """Mark classes with executors in pools that could be used; returns whether there are any. No round is open."""
    found = False
    for kind in range(state.cluster[0].num_classes):
        wanted = state.kinds[kind].free > 0 and first_schedulable(state, kind) >= 0
        state.kinds[kind].wanted = wanted
        found |= wanted
    return found


@inner
def wait(state, executor):
    """Enter the pool of the executor's own job."""
    leave_stage(state, executor)
    runner = state.executors[executor]
    if state.cluster[0].waiting_keeps_jvm == 0:
        runner.warm_stage = -1
    enter_pool(state, executor, pool_of(state, runner.job, runner.kind))


@inner
def go_to_common_pool(state, executor):
    """Leave the job and wait for another."""
    detach(state, executor)
    enter_pool(state, executor, pool_of(state, -1, state.executors[executor].kind))


# Moves.


@inner
def _leave_for(state, executor, target, now):
    """Begin a move. Executors that leave in a row share an arrival; simultaneous events keep their order."""
    detach(state, executor)
    state.executors[executor].target = target
    cluster = state.cluster[0]
    if cluster.departure_order < 0:
        cluster.departure_order = next_order(state)
    state.executors[executor].arrival = cluster.departure_order
    departure = state.departures[cluster.num_departures]
    departure.executor = executor
    departure.order = cluster.departure_order
    departure.time = now
    cluster.num_departures += 1


@inner
def arrive(state, executor, now):
    """The end of a move."""
    target = state.executors[executor].target
    state.executors[executor].target = -1
    job = state.stages[target].job
    if has_ended(state, job):  # while it was on the way
        _find_work(state, executor, now)
        return
    state.executors[executor].job = job
    state.jobs[job].attached += 1
    _take_up(state, executor, target, now)


@inner
def _take_up(state, executor, target, now):
    """An executor is in the job of its target and gives up its claim: it starts, if the stage is ready."""
    stage = state.stages[target]
    if stage.started == stage.num_tasks:
        adjust(state, target, 0, -1)
        _find_work(state, executor, now)
    elif stage.incomplete_parents == 0:
        start(state, executor, target, 1, now)
    else:
        adjust(state, target, 0, -1)
        wait(state, executor)


@inner
def _find_work(state, executor, now):
    """The target of an executor turned out to be full, or its job to have ended: it helps itself."""
    job, kind = state.executors[executor].job, state.executors[executor].kind
    if job >= 0:
        stage = first_ready(state, job, kind)
        if stage >= 0:
            start(state, executor, stage, 0, now)
            return
    stage = first_schedulable(state, kind)
    if stage >= 0:
        adjust(state, stage, 0, 1)
        state.jobs[state.stages[stage].job].executors += 1
        _leave_for(state, executor, stage, now)
    elif job >= 0:
        wait(state, executor)
    else:
        go_to_common_pool(state, executor)


# Commitments.


@inner
def commit(state, source, job, target, count):
    """Commit executors of a source, which belongs to ``job`` (-1 for none), to a stage or to idleness.

    A source has no commitments when its round opens, and a stage is chosen once in a round: no target comes twice.
    """
    if target != IDLE:
        adjust(state, target, 0, count)
        if state.stages[target].job != job:
            state.jobs[state.stages[target].job].executors += count
        state.stages[target].selected = 1
    commitments, origin = state.commitments, state.sources[source]
    number = state.cluster[0].free_commitment
    if number < 0:
        raise RuntimeError("more commitments than executors")
    new = commitments[number]
    state.cluster[0].free_commitment = new.next
    new.target = target
    new.count = count
    new.next = -1
    if origin.first < 0:
        origin.first = number
    else:
        commitments[origin.last].next = number
    origin.last = number


@inner
def drop(state, source):
    """Take the oldest commitment out of its source's list."""
    origin = state.sources[source]
    number = origin.first
    dropped = state.commitments[number]
    origin.first = dropped.next
    if origin.last == number:
        origin.last = -1
    dropped.next = state.cluster[0].free_commitment
    state.cluster[0].free_commitment = number


@inner
def is_committed(state, source):
    """Whether a source has commitments; those to jobs that have ended are dropped where they are the oldest."""
    while state.sources[source].first >= 0:
        target = state.commitments[state.sources[source].first].target
        if target == IDLE or not has_ended(state, state.stages[target].job):
            return True
        drop(state, source)
    return False


@inner
def carry_out_next(state, source, executor, now):
    """An executor carries out the oldest commitment of its source."""
    commitment = state.commitments[state.sources[source].first]
    target = commitment.target
    commitment.count -= 1
    if commitment.count == 0:
        drop(state, source)
    leave_pool(state, executor)
    job = state.executors[executor].job
    if target == IDLE:
        if job >= 0 and _could_use(state, job, state.executors[executor].kind):
            wait(state, executor)
        else:
            go_to_common_pool(state, executor)
        return
    stage = state.stages[target]
    if stage.job == job:
        _take_up(state, executor, target, now)
    elif stage.started == stage.num_tasks:
        adjust(state, target, 0, -1)
        state.jobs[stage.job].executors -= 1
        _find_work(state, executor, now)
    else:  # the claim on the stage goes along
        _leave_for(state, executor, target, now)


@inner
def _could_use(state, job, kind):
    """Whether a job has tasks to start, now or later; with the paper's semantics, some that fit a class."""
    any_stage = state.cluster[0].release_misfits == 0
    for stage_id in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        stage = state.stages[stage_id]
        fits = any_stage or state.staff[staff_of(state, stage_id, kind)].fits
        if stage.started < stage.num_tasks and fits:
            return True
    return False


# The end of a job.


@inner
def has_ended(state, job):
    """Whether a job is complete and gone: commitments and moves to it are void."""
    return state.jobs[job].place < 0


@inner
def end_job(state, job, last_executor):
    """A job is complete: its executors are free. ``last_executor`` just finished its last task."""
    if state.executors[last_executor].stage >= 0 and state.executors[last_executor].job == job:
        detach(state, last_executor)
    for kind in range(state.cluster[0].num_classes):
        pool = pool_of(state, job, kind)
        while state.pools[pool].first >= 0:
            executor = state.pools[pool].first
            leave_pool(state, executor)
            go_to_common_pool(state, executor)
