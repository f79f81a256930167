"""Compiled: executors on stages, in pools and moving, and commitments of sources.

A pool is a linked list of executors in order of entry. The commitments of a source are a linked list in order of
insertion.
"""

from __future__ import annotations

from simulator.cluster.engine import tasks
from simulator.compiled import inner

#: Target of a commitment that leaves executors idle.
IDLE = -1

# Event bits: what happened when a task ended.
NEEDS_DECISION = 1  # the executor has neither a task nor a commitment: a round opens
OPENED = 2  # the stage is complete, and a child became ready
JOB_COMPLETE = 4
FAILED = 8  # the task failed, or was copied; the caller handles this
JOB_FAILED = 16  # the task failed for the last time, and the job with it
FREED = 32  # another executor that ran the same task now waits in the pool of its job


@inner
def source_of(state, executor):
    """Return the source that an executor is in: its class on its stage, the pool of its job, or the common pool."""
    runner = state.executors[executor]
    if runner.stage >= 0:
        first = pool_of(state, -1, 0) + state.cluster[0].num_classes
        return first + tasks.pair_of(state, runner.stage, runner.class_id)
    return pool_of(state, runner.job, runner.class_id)


@inner
def pool_of(state, job, class_id):
    """Return the number of the pool of ``job`` (-1: of the common pool) for an executor class."""
    return (job if job >= 0 else len(state.jobs)) * state.cluster[0].num_classes + class_id


# Pools.


@inner
def enter_pool(state, executor, pool):
    """Put an executor at the end of a pool."""
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
    waiting.stay_decisions = 0
    state.classes[entering.class_id].free += 1
    state.cluster[0].idle_ms -= state.cluster[0].now


@inner
def leave_pool(state, executor):
    """Take an executor out of its pool, if it is in one."""
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
    waiting.stay_decisions = 0
    leaving.pool = -1
    state.classes[leaving.class_id].free -= 1
    state.cluster[0].idle_ms += state.cluster[0].now


@inner
def detach(state, executor):
    """Take an executor off its stage and out of its job; its JVM ends."""
    tasks.leave_stage(state, executor)
    state.executors[executor].warm_stage = -1
    job = state.executors[executor].job
    if job >= 0:
        tasks.change(state, job)
        state.jobs[job].attached -= 1
        state.jobs[job].executors -= 1
        state.executors[executor].job = -1


@inner
def is_free(state, job, class_id):
    """Return whether the pool of ``job`` (-1: common pool) has free executors that some stage could use.

    No round is open. Executors that wait for stages of their own job with running parents are free only if these stages
    have fewer tasks: they are offered when a stage becomes ready.
    """
    pool = state.pools[pool_of(state, job, class_id)]
    if pool.members == 0:
        return False
    if job >= 0:
        tasks.refresh(state, job)
        if pool.members <= pool.awaited:
            return False
        if pool.first_open >= 0:
            return True
    return tasks.first_schedulable(state, class_id) >= 0


@inner
def find_wanted(state):
    """Mark classes whose idle executors some stage could use; return whether there are any. No round is open."""
    is_found = False
    for class_id in range(state.cluster[0].num_classes):
        wanted = state.classes[class_id].free > 0 and tasks.first_schedulable(state, class_id) >= 0
        state.classes[class_id].wanted = wanted
        is_found |= wanted
    return is_found


@inner
def wait(state, executor):
    """Put an executor into the pool of its own job."""
    tasks.leave_stage(state, executor)
    runner = state.executors[executor]
    if state.cluster[0].waiting_keeps_jvm == 0:
        runner.warm_stage = -1
    enter_pool(state, executor, pool_of(state, runner.job, runner.class_id))


@inner
def go_to_common_pool(state, executor):
    """Take an executor out of its job, and put it into the common pool."""
    detach(state, executor)
    enter_pool(state, executor, pool_of(state, -1, state.executors[executor].class_id))


# Moves.


@inner
def _leave_for(state, executor, target, now):
    """Start moving an executor to a stage. Consecutive departures share one arrival event, which keeps their order."""
    detach(state, executor)
    state.executors[executor].target = target
    cluster = state.cluster[0]
    if cluster.departure_order < 0:
        cluster.departure_order = tasks.next_order(state)
    state.executors[executor].arrival = cluster.departure_order
    move = state.moves[cluster.num_moves]
    move.time, move.order, move.executor, move.stage = now, cluster.departure_order, executor, target
    cluster.num_moves += 1


@inner
def arrive(state, executor, now):
    """End the move of an executor."""
    target = state.executors[executor].target
    state.executors[executor].target = -1
    job = state.stages[target].job
    if has_ended(state, job):  # the job ended during the move
        _find_work(state, executor, now)
        return
    state.executors[executor].job = job
    state.jobs[job].attached += 1
    _take_up(state, executor, target, now)


@inner
def _take_up(state, executor, target, now):
    """Use the claim of an executor that is in its target's job: start the target stage if ready, else wait."""
    stage = state.stages[target]
    if stage.started == stage.num_tasks:
        tasks.adjust(state, target, 0, -1)
        _find_work(state, executor, now)
    elif stage.incomplete_parents == 0:
        tasks.start(state, executor, target, 1, now)
    else:
        tasks.adjust(state, target, 0, -1)
        wait(state, executor)


@inner
def _find_work(state, executor, now):
    """Find other work for an executor whose target has no task left, or whose target's job has ended."""
    job, class_id = state.executors[executor].job, state.executors[executor].class_id
    if job >= 0:
        stage = tasks.first_ready(state, job, class_id)
        if stage >= 0:
            tasks.start(state, executor, stage, 0, now)
            return
    stage = tasks.first_schedulable(state, class_id)
    if stage >= 0:
        tasks.adjust(state, stage, 0, 1)
        state.jobs[state.stages[stage].job].executors += 1
        _leave_for(state, executor, stage, now)
    elif job >= 0:
        wait(state, executor)
    else:
        go_to_common_pool(state, executor)


@inner
def end_moves(state, order, now):
    """End the moves of executors that arrive in event ``order``, except executors that were lost meanwhile."""
    cluster = state.cluster[0]
    cluster.now = now
    cluster.departure_order = -1
    while cluster.num_moved < cluster.num_moves and state.moves[cluster.num_moved].order == order:
        executor = state.moves[cluster.num_moved].executor
        cluster.num_moved += 1
        if state.executors[executor].target >= 0 and state.executors[executor].arrival == order:
            arrive(state, executor, now)


# Commitments.


@inner
def commit(state, source, job, target, count):
    """Commit ``count`` executors of a source of ``job`` (-1: no job) to a stage or to ``IDLE``.

    A source has no commitments when its round opens, and a stage is chosen once in a round, so that targets differ.
    """
    if target != IDLE:
        tasks.adjust(state, target, 0, count)
        if state.stages[target].job != job:
            state.jobs[state.stages[target].job].executors += count
        state.stages[target].selected = 1
    commitments, origin = state.commitments, state.sources[source]
    commitment = state.cluster[0].free_commitment
    if commitment < 0:
        raise RuntimeError("more commitments than executors")
    new = commitments[commitment]
    state.cluster[0].free_commitment = new.next
    new.target = target
    new.count = count
    new.next = -1
    if origin.first < 0:
        origin.first = commitment
    else:
        commitments[origin.last].next = commitment
    origin.last = commitment


@inner
def drop(state, source):
    """Remove the oldest commitment of a source."""
    origin = state.sources[source]
    commitment = origin.first
    dropped = state.commitments[commitment]
    origin.first = dropped.next
    if origin.last == commitment:
        origin.last = -1
    dropped.next = state.cluster[0].free_commitment
    state.cluster[0].free_commitment = commitment


@inner
def is_committed(state, source):
    """Return whether a source has commitments, after dropping the oldest ones if their jobs have ended."""
    while state.sources[source].first >= 0:
        target = state.commitments[state.sources[source].first].target
        if target == IDLE or not has_ended(state, state.stages[target].job):
            return True
        drop(state, source)
    return False


@inner
def carry_out_next(state, source, executor, now):
    """Carry out the oldest commitment of a source with one of its executors."""
    commitment = state.commitments[state.sources[source].first]
    target = commitment.target
    commitment.count -= 1
    if commitment.count == 0:
        drop(state, source)
    leave_pool(state, executor)
    job = state.executors[executor].job
    if target == IDLE:
        if job >= 0 and _could_use(state, job, state.executors[executor].class_id):
            wait(state, executor)
        else:
            go_to_common_pool(state, executor)
        return
    stage = state.stages[target]
    if stage.job == job:
        _take_up(state, executor, target, now)
    elif stage.started == stage.num_tasks:
        tasks.adjust(state, target, 0, -1)
        state.jobs[stage.job].executors -= 1
        _find_work(state, executor, now)
    else:  # the executor keeps its claim on the stage
        _leave_for(state, executor, target, now)


@inner
def stay_in_pool(state, source, first, last):
    """Leave executors ``first`` to ``last`` of a pool idle, if that is their commitment and they stay in this pool.

    They move to the end of the pool together, as if each entered it again. Returns whether they stay.
    """
    members, pool, job = state.executors, state.executors[first].pool, state.executors[first].job
    if pool < 0 or state.commitments[state.sources[source].first].target != IDLE:
        return False
    if job >= 0 and not _could_use(state, job, members[first].class_id):
        return False
    drop(state, source)
    waiting = state.pools[pool]
    waiting.stay_decisions = 0
    if waiting.last != last:  # others have entered meanwhile
        before, after = members[first].previous, members[last].next
        members[after].previous = before
        if before >= 0:
            members[before].next = after
        else:
            waiting.first = after
        members[waiting.last].next, members[first].previous = first, waiting.last
        members[last].next, waiting.last = -1, last
    return True


@inner
def _could_use(state, job, class_id):
    """Return whether a job has unstarted tasks; with the paper's semantics, tasks that the class can run."""
    any_stage = state.cluster[0].release_misfits == 0
    for stage_id in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        stage = state.stages[stage_id]
        fits = any_stage or state.pairs[tasks.pair_of(state, stage_id, class_id)].fits
        if stage.started < stage.num_tasks and fits:
            return True
    return False


@inner
def has_ended(state, job):
    """Return whether a job has ended, so that commitments and moves to it are void."""
    return state.jobs[job].place < 0


@inner
def end_job(state, job, last_executor):
    """Free the executors of a job that ends; ``last_executor`` ran its last task."""
    if state.executors[last_executor].stage >= 0 and state.executors[last_executor].job == job:
        detach(state, last_executor)
    for class_id in range(state.cluster[0].num_classes):
        pool = pool_of(state, job, class_id)
        while state.pools[pool].first >= 0:
            executor = state.pools[pool].first
            leave_pool(state, executor)
            go_to_common_pool(state, executor)
