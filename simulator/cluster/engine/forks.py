"""Compiled: what Python calls for a fork of a cluster."""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import tasks
from simulator.cluster.engine.attempts import draw_noise
from simulator.cluster.engine.state import NOISE, TASK, view
from simulator.cluster.observation import JOB, STAGE
from simulator.compiled import compiled, inner

__all__ = ["copy_without_log", "redraw_running", "renew_noise"]

JOB_BYTES, STAGE_BYTES, NOISE_BYTES, TASK_BYTES = (row.itemsize for row in (JOB, STAGE, NOISE, TASK))


@compiled
def copy_without_log(memory, copy):
    """Fill ``copy``, of the size of the first array of ``memory``, without the tables that would take longest.

    Their parts that nothing reads stay undefined: rows of observations and noise of jobs that are not live, for which
    noise is drawn when they arrive, and the log but for running tasks.
    """
    state, records, copy = view(memory), memory[0].view(np.int64), copy.view(np.int64)
    cluster, end, num_classes = state.cluster[0], state.cluster[0].end, state.cluster[0].num_classes
    _copy(records, copy, 0, end[17])
    for kind in range(num_classes):
        _copy(records, copy, end[17] + kind * len(state.jobs) * JOB_BYTES, cluster.num_live * JOB_BYTES)
        first = end[18] + kind * len(state.stages) * STAGE_BYTES
        _copy(records, copy, first, cluster.num_rows * STAGE_BYTES)
    for place in range(cluster.num_live):
        job = state.jobs[state.live[place]]
        last = state.stages[job.end_stage - 1]
        first_task, end_task = state.stages[job.first_stage].first_task, last.first_task + last.num_tasks
        _copy(records, copy, end[19] + first_task * NOISE_BYTES, (end_task - first_task) * NOISE_BYTES)
    for place in range(cluster.num_running):
        task = state.executors[state.heap[place].executor].task
        _copy(records, copy, end[20] + task * TASK_BYTES, TASK_BYTES)


@inner
def _copy(source, target, first, size):
    """Copy bytes; all rows are made of words of eight."""
    for place in range(first // 8, (first + size) // 8):
        target[place] = source[place]


@compiled
def redraw_running(memory, now):
    """Draw anew when running tasks finish, with the noise that is there; the clock shows ``now``, ms."""
    tasks.redraw_running(view(memory), now)


@compiled
def renew_noise(memory, job):
    """Draw the noise of tasks again that have been lost, with the job's new key."""
    state = view(memory)
    first, last = state.stages[state.jobs[job].first_stage], state.stages[state.jobs[job].end_stage - 1]
    for task in range(first.first_task, last.first_task + last.num_tasks):
        if state.tasks[task].attempt > 0:
            draw_noise(state, job, task)
