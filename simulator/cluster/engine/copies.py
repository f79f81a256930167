"""Compiled: speculation, that is, copies of tasks that run long, like Spark's.

A task is copied when it has run long and an executor waits in the pool of its job, after all other events of that time.
The first of the two runs to finish wins, and the other is killed. Clusters without speculation run none of this code.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.cluster.engine import ends, executors, tasks
from simulator.cluster.engine.draws import (
    COPY,
    copy_noise,
    delay_factor,
    draw_duration,
    run_of,
)
from simulator.cluster.engine.state import view
from simulator.cluster.engine.tasks import COPIED, FINISHED, OUTPUT_LOST
from simulator.compiled import compiled, inner

__all__ = ["MIN_LATE_MS", "run_tasks"]

#: A task that has run for less time is not copied (Spark's ``spark.speculation.minTaskRuntime``), ms.
MIN_LATE_MS = 100.0


@compiled
def run_tasks(memory, late_ms, now, limit_ms, limit_order):
    """Run tasks from ``now``, ms, like ``commands.run_tasks``, and copy tasks that run long.

    The ends of copied tasks are returned as failures.

    Args:
        memory: the cluster.
        late_ms: float64 [stages], run time after which a task is copied, ms; 0 if not known yet; filled in.
        now, limit_ms: ms.
        limit_order: see ``commands.run_tasks``.

    Returns:
        See ``commands.run_tasks``.
    """
    state = view(memory)
    cluster, first = state.cluster[0], state.heap[0]
    while cluster.num_running > 0:
        if now < min(first.time, limit_ms):
            copy_ms, late = _next_copy(state, late_ms, now)
            if copy_ms < min(first.time, limit_ms):
                now = copy_ms
                _copy(state, _waiting(state, state.executors[late].stage), late, now)
                continue
        if first.time > limit_ms or (first.time == limit_ms and first.order > limit_order):
            break
        now, executor = first.time, first.executor
        if state.tasks[state.executors[executor].task].next == COPIED:
            return now, executors.FAILED, executor, state.executors[executor].stage, 0
        result = ends.run_tasks(state, now, first.order)
        if result[1] != 0:
            return result
    return 0.0, 0, -1, -1, 0


@inner(arrays=True)
def _next_copy(state, late_ms, now):
    """Return the time of the next copy, ms, and the executor whose task is copied; infinity and -1 if none is due."""
    next_ms, late = math.inf, -1
    for executor in range(len(state.executors)):
        runner, stage = state.executors[executor], state.executors[executor].stage
        if runner.start < 0 or stage < 0 or not _has_enough(state.cluster[0], state.stages[stage]):
            continue
        if late_ms[stage] == 0:
            late_ms[stage] = _find_late_ms(state, state.stages[stage])
        time_ms = max(runner.start + late_ms[stage], now)
        if time_ms < next_ms and state.tasks[runner.task].next != COPIED and _waiting(state, stage) >= 0:
            next_ms, late = time_ms, executor
    return next_ms, late


@inner
def _has_enough(cluster, stage):
    """Return whether all tasks of a stage (a record) have started, and enough of them have finished."""
    enough = max(math.floor(cluster.speculation_quantile * stage.num_tasks), 1)
    return stage.started == stage.num_tasks and stage.finished >= enough


@inner(arrays=True)
def _find_late_ms(state, stage):
    """Return the run time after which a stage's task is copied, ms, from the median of the finished tasks."""
    finished_ms, size = np.empty(stage.num_tasks), 0
    for number in range(stage.first_task, stage.first_task + stage.num_tasks):
        task = state.tasks[number]
        if task.next == FINISHED or task.next == OUTPUT_LOST:
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
    number, stage_id = state.executors[late].task, state.executors[late].stage
    cluster, stage = state.cluster[0], state.stages[stage_id]
    runner, run = state.executors[executor], run_of(state, executor)
    state.tasks[number].next = COPIED
    wave = tasks.wave_of(runner, stage_id)
    runner.stage, runner.task, runner.start, runner.warm_stage = stage_id, number, now, stage_id
    run.outcome, run.wave, run.parallelism = COPY, wave, state.jobs[stage.job].attached
    level, duration = copy_noise(state, stage.job, number)
    task_ms = draw_duration(state, stage, wave, run.parallelism, level, duration)
    if cluster.straggler_share > 0:
        task_ms *= delay_factor(state, stage.job, number, COPY)
    run.finish = now + task_ms
    state.pairs[tasks.pair_of(state, stage_id, runner.class_id)].running += 1
    stage.running += 1
    tasks.change(state, stage.job)
    cluster.departure_order = -1
    tasks.push(state, run.finish, tasks.next_order(state), executor)
