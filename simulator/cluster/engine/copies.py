"""Compiled: copies of tasks that run long (speculation), like Spark's.

A task is copied when it has run long and an executor waits in the pool of its job, after all other events of that time.
The first of the two runs to finish wins, and the other is killed.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.cluster.engine import executors, failures, lost, tasks
from simulator.cluster.engine.draws import COPY, DURATION, LEVEL, chance, delay_factor, draw_duration
from simulator.compiled import inner

#: A task that has run for less time is not copied (Spark's ``spark.speculation.minTaskRuntime``), ms.
MIN_LATE_MS = 100.0


@inner
def run_tasks(state, now, limit_ms, limit_order):
    """Run tasks from ``now``, ms, like ``failures.run_tasks``, and copy tasks that run long.

    The ends of copied tasks are returned as failures.
    """
    cluster, first = state.cluster[0], state.heap[0]
    while cluster.num_running > 0:
        if now < min(first.time, limit_ms):
            copy_ms, late = _next_copy(state, now)
            if copy_ms < min(first.time, limit_ms):
                now = copy_ms
                _copy(state, _waiting(state, state.executors[late].stage), late, now)
                continue
        if tasks.is_before(limit_ms, limit_order, first):
            break
        now, executor = first.time, first.executor
        if state.tasks[state.executors[executor].task].next == lost.COPIED:
            return now, executors.FAILED, executor, state.executors[executor].job, 0
        result = failures.run_tasks(state, now, first.order)
        if result[2] >= 0:
            return result
    return limit_ms, 0, -1, -1, 0


@inner(arrays=True)
def _next_copy(state, now):
    """Return the time of the next copy, ms, and the executor whose task is copied; infinity and -1 if none is due."""
    late_ms, next_ms, late = state.late_ms, math.inf, -1
    for index in range(state.cluster[0].num_running):
        executor = state.heap[index].executor
        runner, stage = state.executors[executor], state.executors[executor].stage
        done, num_tasks = state.stages[stage].finished, state.stages[stage].num_tasks
        enough = max(math.floor(state.cluster[0].speculation_quantile * num_tasks), 1)
        if state.stages[stage].started < num_tasks or done < enough:
            continue
        if late_ms[stage] == 0:
            late_ms[stage] = _find_late_ms(state, state.stages[stage])
        time_ms = max(runner.start + late_ms[stage], now)
        if (
            (time_ms < next_ms or (time_ms == next_ms and executor < late))
            and state.tasks[runner.task].next != lost.COPIED
            and _waiting(state, stage) >= 0
        ):
            next_ms, late = time_ms, executor
    return next_ms, late


@inner(arrays=True)
def _find_late_ms(state, stage):
    """Return the run time after which a stage's task is copied, ms, from the median of the finished tasks."""
    finished_ms, size = np.empty(stage.num_tasks), 0
    for number in range(stage.first_task, stage.first_task + stage.num_tasks):
        task = state.tasks[number]
        if task.next == lost.FINISHED or task.next == lost.OUTPUT_LOST:
            finished_ms[size] = task.finish - task.start
            size += 1
    return max(state.cluster[0].speculation_multiplier * np.median(finished_ms[:size]), MIN_LATE_MS)


@inner
def _waiting(state, stage_id):
    """Return the first executor in a pool of a stage's job that covers the stage's demand; -1 if none waits."""
    for class_id in range(state.cluster[0].num_classes):
        pool = state.pools[executors.pool_of(state, state.stages[stage_id].job, class_id)]
        if pool.first >= 0 and state.pairs[tasks.pair_of(state, stage_id, class_id)].fits == 1:
            return pool.first
    return -1


@inner
def _copy(state, executor, late, now):
    """Start a copy of the task of executor ``late`` on ``executor``, which is in the pool of the task's job."""
    state.cluster[0].now = now
    executors.leave_pool(state, executor)
    task, stage_id = state.executors[late].task, state.executors[late].stage
    cluster, stage = state.cluster[0], state.stages[stage_id]
    runner, run = state.executors[executor], lost.run_of(state, executor)
    state.tasks[task].next = lost.COPIED
    wave = tasks.wave_of(runner, stage_id)
    runner.stage, runner.task, runner.start, runner.warm_stage = stage_id, task, now, stage_id
    run.outcome, run.wave, run.parallelism = COPY, wave, state.jobs[stage.job].attached
    level, duration = copy_noise(state, stage.job, task)
    task_ms = draw_duration(state, stage, wave, run.parallelism, level, duration)
    if cluster.straggler_share > 0:
        task_ms *= delay_factor(state, stage.job, task, COPY)
    run.finish = now + task_ms
    state.pairs[tasks.pair_of(state, stage_id, runner.class_id)].running += 1
    stage.running += 1
    tasks.change(state, stage.job)
    cluster.departure_order = -1
    tasks.push(state, run.finish, tasks.next_order(state), executor)


@inner
def copy_noise(state, job, task):
    """Return the noise of the copy of the current attempt at a task."""
    level, duration = chance(state, job, task, LEVEL + COPY), chance(state, job, task, DURATION + COPY)
    return level, duration
