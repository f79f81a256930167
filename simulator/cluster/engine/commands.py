"""Compiled: functions that Python calls. Each takes the cluster's ``Memory`` and makes one step of the simulation.

``now`` is the current time, ms.
"""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import ends, executors, posterior, rounds, rows, tasks
from simulator.cluster.engine.draws import draw_noise
from simulator.cluster.engine.state import NOISE, TASK, State, view
from simulator.cluster.observation import JOB, STAGE
from simulator.compiled import compiled, inner

JOB_BYTES, STAGE_BYTES, NOISE_BYTES, TASK_BYTES = (row.itemsize for row in (JOB, STAGE, NOISE, TASK))
#: Indices in ``cluster.end`` of the ends of the preceding tables, where these tables begin.
SEEN_JOBS, SEEN_STAGES, NOISES, TASKS = (
    State._fields.index(name) - 1 for name in ("seen_jobs", "seen_stages", "noise", "tasks")
)


@compiled
def add_job(memory, job, level_noise, noise):
    """Add a job that arrives, with the noise of its tasks (float32 [tasks] each), see ``task_noise``."""
    rounds.add_job(view(memory), job, level_noise, noise)


@compiled
def run_tasks(memory, limit_ms, limit_order):
    """Run tasks until an event that Python must handle, at most up to (``limit_ms``, ``limit_order``).

    Departures move the limit to the first arrival that they cause.

    Returns:
        Time in ms; event bits (0 if nothing happened); executor whose task ended (-1 if the event is not the end of a
        task); its stage; number of executors that a round of the stage would offer: executors of the class on the
        stage, or 1 if each is offered after its task.
    """
    return ends.run_tasks(view(memory), limit_ms, limit_order)


@compiled
def after_task(memory, happened, executor, stage, offered, keeps, now):
    """Continue after the end of a task that concerns other executors: the job may end, and rounds may open.

    Args:
        happened, executor, stage, offered: values that ``run_tasks`` returned.
        keeps: see ``commit``.

    Returns:
        Number of decisions taken on the scheduler's behalf; place of the job among the live jobs if it ended, else -1.
    """
    state = view(memory)
    state.cluster[0].now = now
    return rounds.after_task(state, happened, executor, state.stages[stage].job, offered, keeps, now)


@compiled
def commit(memory, target, count, keeps, now):
    """Commit offered executors to a stage (at most its unclaimed tasks) or to ``IDLE``; the next round may open.

    Args:
        target: a schedulable stage, or ``IDLE``.
        count: number of executors, from 1 to the number offered.
        keeps: whether executors stay with their job, see ``BaseCluster.keeps_executors``.

    Returns:
        Number of decisions taken on the scheduler's behalf.
    """
    state = view(memory)
    state.cluster[0].now = now
    rounds.commit(state, target, count, now)
    return rounds.open_next(state, keeps, now)


@compiled
def open_next(memory, keeps, now):
    """See ``rounds.open_next``."""
    state = view(memory)
    state.cluster[0].now = now
    return rounds.open_next(state, keeps, now)


@compiled
def offer_pools(memory, job, keeps, now):
    """See ``rounds.offer_pools``."""
    state = view(memory)
    state.cluster[0].now = now
    return rounds.offer_pools(state, job, 0, keeps, now)


@compiled
def offer_free(memory, keeps, now):
    """See ``rounds.offer_free``."""
    state = view(memory)
    state.cluster[0].now = now
    return rounds.offer_free(state, keeps, now)


@compiled
def is_wanted(memory):
    """Return whether some stage could use an executor that is in a pool; no round is open."""
    return executors.find_wanted(view(memory))


@compiled
def take_departures(memory):
    """Return the executors that have departed since the last call, in order.

    int64 [3, n]: executor, target stage, insertion number of the arrival; float64 [n]: time of departure, ms.
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
    """End the moves of executors ``moved``, int64, that arrive in event ``order``, unless they were lost meanwhile."""
    state = view(memory)
    state.cluster[0].now = now
    state.cluster[0].departure_order = -1
    for executor in moved:
        if state.executors[executor].target >= 0 and state.executors[executor].arrival == order:
            executors.arrive(state, executor, now)


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
    for number in range(len(seen_classes)):
        seen_classes[number].free = state.classes[number].free
    job = state.cluster[0].source_job
    place = state.jobs[job].place if job >= 0 else -1
    return place, rows.update(state, state.cluster[0].offered_class), is_rescaled


@inner
def _learn(state, now):
    """Update the estimates of live jobs from tasks observed until ``now``, ms; return whether a scale has changed."""
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


@compiled
def copy_without_log(memory, copy):
    """Copy the records of ``memory`` to ``copy``, except parts of large tables that are not read.

    These parts are rows and noise of jobs that are not live (noise is drawn when a job arrives), and the log of tasks
    that are not running.
    """
    state, records, copy = view(memory), memory[0].view(np.int64), copy.view(np.int64)
    cluster, end, num_classes = state.cluster[0], state.cluster[0].end, state.cluster[0].num_classes
    _copy(records, copy, 0, end[SEEN_JOBS])
    for class_id in range(num_classes):
        first = end[SEEN_JOBS] + class_id * len(state.jobs) * JOB_BYTES
        _copy(records, copy, first, cluster.num_live * JOB_BYTES)
        first = end[SEEN_STAGES] + class_id * len(state.stages) * STAGE_BYTES
        _copy(records, copy, first, cluster.num_rows * STAGE_BYTES)
    for place in range(cluster.num_live):
        job = state.jobs[state.live[place]]
        last = state.stages[job.end_stage - 1]
        first_task, end_task = state.stages[job.first_stage].first_task, last.first_task + last.num_tasks
        _copy(records, copy, end[NOISES] + first_task * NOISE_BYTES, (end_task - first_task) * NOISE_BYTES)
    for place in range(cluster.num_running):
        task = state.executors[state.heap[place].executor].task
        _copy(records, copy, end[TASKS] + task * TASK_BYTES, TASK_BYTES)


@inner
def _copy(source, target, first, size):
    """Copy ``size`` bytes from position ``first``; all records consist of words of 8 bytes."""
    for place in range(first // 8, (first + size) // 8):
        target[place] = source[place]


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
