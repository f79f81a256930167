"""Compiled: functions that Python calls. Each takes the cluster's ``Memory`` and makes one step of the simulation.

``now`` is the current time, ms.
"""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import events, executors, posterior, rounds, rows, tasks
from simulator.cluster.engine.draws import draw_noise
from simulator.cluster.engine.state import NOISE, TASK, State, view
from simulator.cluster.observation import JOB, STAGE
from simulator.compiled import compiled, inner

JOB_BYTES, STAGE_BYTES, NOISE_BYTES, TASK_BYTES = (row.itemsize for row in (JOB, STAGE, NOISE, TASK))
#: Indices of tables in ``cluster.start``.
SEEN_JOBS, SEEN_STAGES, NOISES, TASKS = (
    State._fields.index(name) for name in ("seen_jobs", "seen_stages", "noise", "tasks")
)

#: Actions of ``advance``.
BEGIN, DECIDE, OFFER_FREE, GO_ON = range(4)


@compiled
def advance(memory, action, target, count, keeps, now, limit_ms, limit_order, address, constants):
    """Carry out an action; after a decision or ``GO_ON``, process events until a round opens, see ``events.advance``.

    Args:
        action: ``BEGIN``: add jobs that arrive at time 0, and offer the common pools. ``DECIDE``: commit executors.
            ``OFFER_FREE``: offer all free executors that some stage could use. ``GO_ON``: no action.
        target: of a decision: a schedulable stage, or ``IDLE``.
        count: of a decision: number of executors, from 1 to the number offered; clipped to the stage's unclaimed tasks.

    Returns:
        See ``events.advance``; its other arguments are explained there, too.
    """
    state = view(memory)
    cluster, decisions = state.cluster[0], 0
    cluster.now = now
    if action == BEGIN:
        while cluster.num_arrived < cluster.num_arriving and state.jobs[cluster.num_arrived].arrival_ms == 0:
            events.add_job(state, now)
        cluster.arrival_order = cluster.next_order - cluster.num_arrived
        cluster.next_order += cluster.num_arriving - cluster.num_arrived
        cluster.next_pool = 0  # capacity changes at time 0 have advanced it
        return now, events.LIMIT, rounds.open_next(state, keeps, now)
    if action == OFFER_FREE:
        return now, events.LIMIT, rounds.offer_free(state, keeps, now)
    if action == DECIDE:
        rounds.commit(state, target, count, now)
        decisions = rounds.open_next(state, keeps, now)
    now, reached, more = events.advance(state, keeps, now, limit_ms, limit_order, address, constants)
    return now, reached, decisions + more


@compiled
def next_event(memory):
    """See ``events.next_event``."""
    return events.next_event(view(memory))


@compiled
def is_wanted(memory):
    """Return whether some stage could use an executor that is in a pool; no round is open."""
    return executors.find_wanted(view(memory))


@compiled
def observe(memory, seen_classes, now):
    """Update the rows of the offered executor class that a scheduler sees, see ``Observation``.

    Args:
        seen_classes: ``CLASS`` [classes]; ``free`` is filled in.

    Returns:
        Index of the source job among the live jobs, or -1; number of schedulable stages; whether the scale of a
        profile that schedulers see has changed.
    """
    state = view(memory)
    is_rescaled = len(state.beliefs) > 0 and _learn(state, now)
    for class_id in range(len(seen_classes)):
        seen_classes[class_id].free = state.classes[class_id].free
    job = state.cluster[0].source_job
    source = state.jobs[job].place if job >= 0 else -1
    return source, rows.update(state, state.cluster[0].offered_class), is_rescaled


@inner
def _learn(state, now):
    """Update the estimates of live jobs from tasks observed until ``now``, ms; return whether a scale has changed."""
    beliefs, estimates = state.beliefs, state.estimates
    for index in range(state.cluster[0].num_live):
        job = state.jobs[state.live[index]]
        if job.learned != job.version:
            job.learned = job.version
            for stage in range(job.first_stage, job.end_stage):
                done, estimate = state.stages[stage], estimates[stage]
                if estimate.finished != done.finished or estimate.finished_ms != done.finished_ms:
                    estimate.finished, estimate.finished_ms = done.finished, done.finished_ms
                    beliefs[state.live[index]].is_old = 1
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0:
            estimates[runner.stage].running += 1
            estimates[runner.stage].running_ms += now - runner.start
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0 and posterior.is_late(estimates[runner.stage]):
            beliefs[runner.job].is_old = 1
    is_rescaled = False
    for index in range(state.cluster[0].num_live):
        job = state.live[index]
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


@compiled
def copy_without_log(memory, copy):
    """Copy the records of ``memory`` to ``copy``, except parts of large tables that are not read.

    These parts are rows of jobs that are not live, noise of jobs that have ended or are not prepared, and the log of
    tasks that are not running.
    """
    state, records, copy = view(memory), memory[0].view(np.int64), copy.view(np.int64)
    cluster, start, num_classes = state.cluster[0], state.cluster[0].start, state.cluster[0].num_classes
    _copy(records, copy, 0, start[SEEN_JOBS])
    for class_id in range(num_classes):
        first = start[SEEN_JOBS] + class_id * len(state.jobs) * JOB_BYTES
        _copy(records, copy, first, cluster.num_live * JOB_BYTES)
        first = start[SEEN_STAGES] + class_id * len(state.stages) * STAGE_BYTES
        _copy(records, copy, first, cluster.num_rows * STAGE_BYTES)
    for index in range(cluster.num_live):
        _copy_noise(state, records, copy, state.live[index])
    for job in range(cluster.num_arrived, cluster.num_prepared):
        _copy_noise(state, records, copy, job)
    for index in range(cluster.num_running):
        task = state.executors[state.heap[index].executor].task
        _copy(records, copy, start[TASKS] + task * TASK_BYTES, TASK_BYTES)


@inner
def _copy_noise(state, source, target, job):
    first, last = state.stages[state.jobs[job].first_stage], state.stages[state.jobs[job].end_stage - 1]
    num_tasks = last.first_task + last.num_tasks - first.first_task
    start = state.cluster[0].start[NOISES] + first.first_task * NOISE_BYTES
    _copy(source, target, start, num_tasks * NOISE_BYTES)


@inner
def _copy(source, target, first, size):
    """Copy ``size`` bytes from position ``first``; all records consist of words of 8 bytes."""
    for index in range(first // 8, (first + size) // 8):
        target[index] = source[index]


@compiled
def redraw_running(memory, now):
    """Redraw the finish times of running tasks, from their noise; the time is ``now``, ms."""
    tasks.redraw_running(view(memory), now)


@compiled
def renew_noise(memory, job):
    """Redraw the noise of a job's tasks that have lost runs, from the new key of the job."""
    state = view(memory)
    first, last = state.stages[state.jobs[job].first_stage], state.stages[state.jobs[job].end_stage - 1]
    for task in range(first.first_task, last.first_task + last.num_tasks):
        if state.tasks[task].attempt > 0:
            draw_noise(state, job, task)
