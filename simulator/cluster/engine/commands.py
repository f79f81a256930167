"""Compiled: functions that Python calls. Each takes the cluster's ``Memory`` and does one step."""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import executors, posterior, rounds, rows, tasks
from simulator.cluster.engine.attempts import fails
from simulator.cluster.engine.losses import retry
from simulator.cluster.engine.state import FINISHED, view
from simulator.compiled import compiled, inner

__all__ = [
    "IDLE",
    "add_job",
    "after_task",
    "commit",
    "end_moves",
    "is_wanted",
    "observe",
    "offer_free",
    "offer_pools",
    "open_next",
    "run_tasks",
    "take_departures",
]

IDLE = executors.IDLE

# What happened when a task ended, as bits.
NEEDS_DECISION = 1  # the executor has neither a task nor a commitment: a round opens
OPENED = 2  # the stage is complete, and a child of it became ready
JOB_COMPLETE = 4
DEPARTED = 8  # executors left, now or before; their arrivals must be scheduled
QUIET = 16  # no task is running any more
FAILED = 32  # the task failed, or was copied; the caller handles it
JOB_FAILED = 64  # the task failed for the last time, and so did its job
FREED = 128  # another executor that ran the same task waits in the pool of its job


@compiled
def add_job(memory, job, level_noise, noise):
    """Add a job that arrives, with the noise of its tasks, float32 [tasks] each, see ``task_noise``."""
    state = view(memory)
    cluster, arriving = state.cluster[0], state.jobs[job]
    state.live[cluster.num_live] = job
    arriving.place, arriving.first_row = cluster.num_live, cluster.num_rows
    arriving.dirty = 1
    cluster.num_live += 1
    cluster.num_rows += arriving.end_stage - arriving.first_stage
    tasks.change(state, job)
    for stage_id in range(arriving.first_stage, arriving.end_stage):
        if state.stages[stage_id].incomplete_parents == 0:
            tasks.make_ready(state, stage_id)
    rows.add(state, job)
    first = state.stages[arriving.first_stage].first_task
    for task in range(len(noise)):
        state.noise[first + task].level = level_noise[task]
        state.noise[first + task].duration = noise[task]


@compiled
def run_tasks(memory, limit_ms, limit_order):
    """Run tasks until something happens that Python must see, at most up to (``limit_ms``, ``limit_order``).

    Departures move the limit to the first arrival that they cause.

    Returns:
        (time in ms, bits, executor whose task ended, its stage, executors that a round of the stage would offer: those
        of the class on the stage, or 1 if each is offered after its task). Bits are 0 if nothing happened; the executor
        is -1 if the event is not the end of a task.
    """
    return _run_tasks(view(memory), limit_ms, limit_order)


@inner
def _run_tasks(state, limit_ms, limit_order):
    cluster, first, departed = state.cluster[0], state.heap[0], state.departures[0]
    departed_ms = 0.0
    while cluster.num_running > 0:
        now, executor = first.time, first.executor
        if now > limit_ms or (now == limit_ms and first.order > limit_order):
            break
        stage = state.executors[executor].stage
        if cluster.has_faults:
            if fails(state, executor):
                if retry(state, executor, now):
                    continue
                return now, FAILED, executor, stage, 0
            state.tasks[state.executors[executor].task].next = FINISHED
        state.stages[stage].finished += 1
        state.stages[stage].finished_ms += now - state.executors[executor].start
        if goes_on(cluster, state.stages[stage]):
            tasks.next_task(state, stage, now)
            continue
        pair = tasks.pair_of(state, stage, state.executors[executor].class_id)
        running = state.pairs[pair].running if cluster.offer_after_tasks == 0 else 1
        happened = _become_idle(state, executor, stage, now)
        if happened:
            return now, happened | (DEPARTED if cluster.num_departures > 0 else 0), executor, stage, running
        if cluster.num_departures > 0:
            departed_ms = now
            arrival_ms = departed.time + cluster.moving_ms
            if arrival_ms < limit_ms or (arrival_ms == limit_ms and departed.order < limit_order):
                limit_ms, limit_order = arrival_ms, departed.order
        elif cluster.num_running == 0:
            return now, QUIET, -1, -1, 0
    return departed_ms, DEPARTED if cluster.num_departures > 0 else 0, -1, -1, 0


@inner
def goes_on(cluster, stage):
    """Return whether an executor whose task of a stage (record) ended takes the next one."""
    return (
        stage.started < stage.num_tasks and cluster.offer_after_tasks == 0 and stage.incomplete_parents == 0
    )


@inner
def _become_idle(state, executor, stage, now):
    """A task ended, and its executor does not take the next one of the stage; returns bits."""
    tasks.pop(state)
    state.cluster[0].departure_order = -1
    state.executors[executor].start = -1.0
    job = state.executors[executor].job
    tasks.change(state, job)
    happened = 0
    if state.stages[stage].finished == state.stages[stage].num_tasks and tasks.complete_stage(state, stage):
        happened |= OPENED
    source = executors.source_of(state, executor)
    if executors.is_committed(state, source):
        executors.carry_out_next(state, source, executor, now)
    elif happened & OPENED:
        executors.wait(state, executor)
    else:
        happened |= NEEDS_DECISION
    if state.jobs[job].incomplete == 0:
        happened |= JOB_COMPLETE
    return happened


@compiled
def after_task(memory, happened, executor, stage, offered, keeps, now):
    """Go on after the end of a task that concerns other executors: the job may end, and rounds open.

    Args:
        memory: the cluster.
        happened, executor, stage, offered: what ``run_tasks`` returned.
        keeps: whether executors stay with their job, see ``BaseCluster.keeps_executors``.
        now: ms.

    Returns:
        Number of decisions taken on the scheduler's behalf; place of the job among the live jobs if it ended, else -1.
    """
    state = view(memory)
    return _after_task(state, happened, executor, state.stages[stage].job, offered, keeps, now)


@inner
def _after_task(state, happened, executor, job, offered, keeps, now):
    cluster, place = state.cluster[0], -1
    if happened & NEEDS_DECISION:
        rounds.offer_of_stage(state, executor, job, offered)
    if happened & (JOB_COMPLETE | JOB_FAILED):
        place = _end_job(state, job, executor, now)
    decisions = rounds.stay(state, now) if keeps else 0
    if happened & (OPENED | FREED):
        decisions += rounds.offer_pools(state, job, state.executors[executor].class_id, keeps, now)
    elif cluster.offer_idle_executors:
        decisions += rounds.offer_free(state, keeps, now)
    return decisions, place


@inner
def _end_job(state, job, last_executor, now):
    """Take a job that is complete or has failed out of the live jobs; returns its place among them."""
    executors.end_job(state, job, last_executor)
    cluster, ending = state.cluster[0], state.jobs[job]
    ending.completion_ms = now
    num_stages = ending.end_stage - ending.first_stage
    cluster.num_live -= 1
    cluster.num_rows -= num_stages
    first = ending.place
    for place in range(first, cluster.num_live):
        later = state.live[place + 1]
        state.live[place] = later
        state.jobs[later].place = place
        state.jobs[later].first_row -= num_stages
    rows.remove(state, job)
    ending.place = -1
    return first


@compiled
def commit(memory, target, count, keeps, now):
    """Commit offered executors to a stage (at most its unclaimed tasks) or to ``IDLE``; perhaps the next round opens.

    Args:
        memory: the cluster.
        target: a stage that may be chosen, or ``IDLE``.
        count: executors, from 1 to those offered.
        keeps: as in ``after_task``.
        now: ms.

    Returns:
        Number of decisions taken on the scheduler's behalf.
    """
    state = view(memory)
    rounds.commit(state, target, count, now)
    return rounds.open_next(state, keeps, now)


@compiled
def open_next(memory, keeps, now):
    """See ``rounds.open_next``."""
    return rounds.open_next(view(memory), keeps, now)


@compiled
def offer_pools(memory, job, keeps, now):
    """See ``rounds.offer_pools``."""
    return rounds.offer_pools(view(memory), job, 0, keeps, now)


@compiled
def offer_free(memory, keeps, now):
    """See ``rounds.offer_free``."""
    return rounds.offer_free(view(memory), keeps, now)


@compiled
def is_wanted(memory):
    """Return whether some executor in a pool could be used; no round is open."""
    return executors.find_wanted(view(memory))


@compiled
def take_departures(memory):
    """Return the executors that left since the last call, in order.

    Returns:
        int64 [3, executors]: executor, target, insertion number of the arrival; float64 [executors]: time, ms.
    """
    state = view(memory)
    size = state.cluster[0].num_departures
    state.cluster[0].num_departures = 0
    moved = np.empty((3, size), dtype=np.int64)
    left_ms = np.empty(size)
    for number in range(size):
        departure = state.departures[number]
        moved[0, number] = departure.executor
        moved[1, number] = state.executors[departure.executor].target
        moved[2, number] = departure.order
        left_ms[number] = departure.time
    return moved, left_ms


@compiled
def end_moves(memory, moved, order, now):
    """End the moves of executors, int64, with this insertion number, unless they were lost on the way."""
    state = view(memory)
    state.cluster[0].departure_order = -1
    for executor in moved:
        if state.executors[executor].target >= 0 and state.executors[executor].arrival == order:
            executors.arrive(state, executor, now)


@compiled
def observe(memory, seen_classes, now):
    """Update the rows that a scheduler sees of the class that is offered, see ``Observation``.

    Args:
        memory: the cluster.
        seen_classes: ``CLASS`` [classes]; ``free`` is filled in.
        now: ms.

    Returns:
        The place of the source job among the live jobs or -1, the number of schedulable stages, and whether the scale
        of a profile that schedulers see has changed.
    """
    state = view(memory)
    is_rescaled = len(state.beliefs) > 0 and _learn(state, now)
    for number in range(len(seen_classes)):
        seen_classes[number].free = state.classes[number].free
    job = state.cluster[0].source_job
    place = state.jobs[job].place if job >= 0 else -1
    return place, rows.update(state, state.cluster[0].offered_class), is_rescaled


@inner
def _learn(state, now):
    """Update the estimates of the live jobs by their tasks until ``now``, ms; return whether a scale changed."""
    beliefs, estimates = state.beliefs, state.estimates
    for place in range(state.cluster[0].num_live):
        job = state.jobs[state.live[place]]
        if job.learned != job.version:
            job.learned = job.version
            for stage in range(job.first_stage, job.end_stage):
                done, known = state.stages[stage], estimates[stage]
                if known.finished != done.finished or known.finished_ms != done.finished_ms:
                    known.finished, known.finished_ms = done.finished, done.finished_ms
                    beliefs[state.live[place]].is_old = 1
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0:
            estimates[runner.stage].running += 1
            estimates[runner.stage].running_ms += now - runner.start
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0 and posterior.is_late(estimates[runner.stage]):
            beliefs[runner.job].is_old = 1
    is_rescaled = False
    for place in range(state.cluster[0].num_live):
        job = state.live[place]
        belief, scale = beliefs[job], beliefs[job].scale
        if belief.is_old or belief.is_late:
            posterior.update(belief, estimates, state.jobs[job].first_stage, state.jobs[job].end_stage)
            is_rescaled |= belief.scale != scale
            tasks.change(state, job)
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0:
            estimates[runner.stage].running = 0
            estimates[runner.stage].running_ms = 0.0
    return is_rescaled
