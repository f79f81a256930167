"""Compiled: functions that Python calls to fork a cluster (copy its state, redraw task noise)."""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import tasks
from simulator.cluster.engine.attempts import draw_noise
from simulator.cluster.engine.state import NOISE, TASK, State, view
from simulator.cluster.observation import JOB, STAGE
from simulator.compiled import compiled, inner

__all__ = ["copy_without_log", "redraw_running", "renew_noise"]

JOB_BYTES, STAGE_BYTES, NOISE_BYTES, TASK_BYTES = (row.itemsize for row in (JOB, STAGE, NOISE, TASK))
#: Indices in ``cluster.end`` of the ends of the preceding tables, where these tables begin.
SEEN_JOBS, SEEN_STAGES, NOISES, TASKS = (
    State._fields.index(name) - 1 for name in ("seen_jobs", "seen_stages", "noise", "tasks")
)


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
