"""Compiled: copies of a cluster, and tasks that are redrawn in them."""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import lost, tasks
from simulator.cluster.engine.copies import copy_noise
from simulator.cluster.engine.draws import COPY, delay_factor, level_above
from simulator.cluster.engine.state import NOISE, TASK, State, view
from simulator.cluster.observation import JOB, STAGE
from simulator.compiled import compiled, inner

JOB_BYTES, STAGE_BYTES, NOISE_BYTES, TASK_BYTES = (row.itemsize for row in (JOB, STAGE, NOISE, TASK))
#: Indices of tables in ``cluster.start``.
SEEN_JOBS, SEEN_STAGES, NOISES, TASKS = (
    State._fields.index(name) for name in ("seen_jobs", "seen_stages", "noise", "tasks")
)


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
    """Redraw the durations of running tasks, given how long they have run; the time is ``now``, ms."""
    state = view(memory)
    size = state.cluster[0].num_running
    state.cluster[0].num_running = 0
    for index in range(size):
        running = state.heap[index]
        executor, order, finish = running.executor, running.order, running.time
        if finish > now:
            finish = _redraw(state, executor, finish, now)
        tasks.push(state, finish, order, executor)


@inner
def _redraw(state, executor, finish, now):
    """Redraw the duration of an executor's running task; return the time at which it finishes, ms."""
    cluster, runner = state.cluster[0], state.executors[executor]
    number, start = runner.task, runner.start
    stage, task, noise = state.stages[runner.stage], state.tasks[number], state.noise[number]
    level, duration, delay = noise.level, noise.duration, 1.0
    if cluster.straggler_share > 0:
        delay = delay_factor(state, stage.job, number, 0)
    wave, parallelism = int(task.wave), int(task.parallelism)
    if cluster.speculation_quantile > 0:
        run = lost.run_of(state, executor)
        if run.outcome == COPY:
            level, duration = copy_noise(state, stage.job, number)
            if cluster.straggler_share > 0:
                delay = delay_factor(state, stage.job, number, COPY)
        if task.executor != executor:
            wave, parallelism = run.wave, run.parallelism
    factor = stage.factor * delay
    since = start + (now - start) / factor if factor != 1 else now
    task_ms = draw_longer(state, stage, wave, parallelism, level, duration, start, since)
    if task_ms > 0 and start + task_ms * factor > now:
        finish = start + task_ms * factor
        if task.executor == executor:
            task.finish = finish
        else:
            lost.run_of(state, executor).finish = finish
    return finish


@inner
def draw_longer(state, stage, wave, parallelism, level_noise, value_noise, start_ms, now_ms):
    """Draw the duration, ms, of a task that started at ``start_ms`` and ends after ``now_ms``; 0 if none is so long."""
    cluster, levels = state.cluster[0], state.levels
    above, chance_of_low = level_above(
        levels, stage.first_level, stage.end_level, parallelism, cluster.nearest_level == 1
    )
    since_ms, warmup_ms = (start_ms, now_ms), cluster.warmup_ms
    high, low = levels[above], levels[max(above - 1, stage.first_level)]
    num_high, _ = _longer(state.values, high, wave, warmup_ms, since_ms, -1)
    num_low, _ = _longer(state.values, low, wave, warmup_ms, since_ms, -1)
    weight_low = chance_of_low * num_low / low.count[wave]
    weight = weight_low + (1.0 - chance_of_low) * num_high / high.count[wave]
    if weight == 0:
        return 0.0
    if level_noise * weight < weight_low:
        return _longer(state.values, low, wave, warmup_ms, since_ms, int(value_noise * num_low))[1]
    return _longer(state.values, high, wave, warmup_ms, since_ms, int(value_noise * num_high))[1]


@inner
def _longer(values, level, wave, warmup_ms, since_ms, number):
    """Find the durations of a level with which a task that started at ``since_ms[0]`` ends after ``since_ms[1]``.

    Returns their number; and duration ``number`` of them, ms, or 0 if there is none.
    """
    longer, found_ms = 0, 0.0
    for index in range(level.first[wave], level.first[wave] + level.count[wave]):
        task_ms = values[index] + level.cold[wave] * warmup_ms
        if since_ms[0] + task_ms > since_ms[1]:
            if longer == number:
                found_ms = task_ms
            longer += 1
    return longer, found_ms


@compiled
def renew_noise(memory, job):
    """Redraw the noise of a job's tasks that have lost runs, from the new key of the job."""
    state = view(memory)
    first, last = state.stages[state.jobs[job].first_stage], state.stages[state.jobs[job].end_stage - 1]
    for task in range(first.first_task, last.first_task + last.num_tasks):
        if state.tasks[task].attempt > 0:
            lost.draw_noise(state, job, task)
