"""Compiled: ends of task runs. A run completes its task or is lost; its executor starts a task or becomes idle."""

from __future__ import annotations

import math

import numpy as np

from simulator.cluster.engine import executors, lost, tasks
from simulator.cluster.engine.draws import (
    COPY,
    FAILS,
    chance,
    copy_noise,
    delay_factor,
    draw_duration,
    fails,
    run_of,
)
from simulator.compiled import inner

#: Number of failures of a task after which its job fails.
MOST_FAILURES = 4
#: A task that has run for less time is not copied (Spark's ``spark.speculation.minTaskRuntime``), ms.
MIN_LATE_MS = 100.0


@inner
def run_tasks(state, limit_ms, limit_order):
    """Run tasks until an executor leaves its stage or a task fails, at most up to a point in the order of events.

    Args:
        limit_ms: time of this point, ms.
        limit_order: insertion number of this point.

    Returns:
        Time in ms; event bits; executor whose task ended, or -1 at the limit; job of the task; number of executors that
        a round of the stage would offer: executors of the class on the stage, or 1 if each is offered after its task.
    """
    cluster, first = state.cluster[0], state.heap[0]
    while cluster.num_running > 0 and not tasks.is_before(limit_ms, limit_order, first):
        now, executor = first.time, first.executor
        stage = state.executors[executor].stage
        if cluster.has_faults:
            if fails(state, executor):
                if retry(state, executor, now):
                    continue
                return now, executors.FAILED, executor, state.stages[stage].job, 0
            state.tasks[state.executors[executor].task].next = tasks.FINISHED
        state.stages[stage].finished += 1
        state.stages[stage].finished_ms += now - state.executors[executor].start
        if goes_on(cluster, state.stages[stage]):
            tasks.next_task(state, stage, now)
            continue
        pair = tasks.pair_of(state, stage, state.executors[executor].class_id)
        offered = state.pairs[pair].running if cluster.offer_after_tasks == 0 else 1
        cluster.now = now
        return now, become_idle(state, executor, stage, now), executor, state.stages[stage].job, offered
    return limit_ms, 0, -1, -1, 0


@inner
def goes_on(cluster, stage):
    """Return whether an executor whose task has ended takes the next task of its stage (a record)."""
    return (
        stage.started < stage.num_tasks and cluster.offer_after_tasks == 0 and stage.incomplete_parents == 0
    )


@inner
def become_idle(state, executor, stage, now):
    """Place an executor whose task has ended and which does not take the stage's next task; return event bits."""
    tasks.pop(state)
    state.cluster[0].departure_order = -1
    state.executors[executor].start = -1.0
    job = state.executors[executor].job
    tasks.change(state, job)
    happened = 0
    if state.stages[stage].finished == state.stages[stage].num_tasks and tasks.complete_stage(state, stage):
        happened |= executors.OPENED
    source = executors.source_of(state, executor)
    if executors.is_committed(state, source):
        executors.carry_out_next(state, source, executor, now)
    elif happened & executors.OPENED:
        executors.wait(state, executor)
    else:
        happened |= executors.NEEDS_DECISION
    if state.jobs[job].incomplete == 0:
        happened |= executors.JOB_COMPLETE
    return happened


# Failures, and ends of copied tasks.


@inner
def retry(state, executor, now):
    """Start the next task after a failed run on the executor at the top of the heap, if no other executor is concerned.

    Returns whether a task has started.
    """
    cluster, task, stage = state.cluster[0], state.executors[executor].task, state.executors[executor].stage
    if (
        state.tasks[task].failures + 1 == MOST_FAILURES
        or cluster.offer_after_tasks == 1
        or cluster.lost_output == 1
        or cluster.num_lost >= len(state.executors)
    ):
        return False
    state.tasks[task].failures += 1
    lost.requeue(state, task, stage, now, lost.RUN_FAILED)
    tasks.next_task(state, stage, now)
    return True


@inner
def end_run(state, now):
    """End the task run that ends next, which fails or whose task was copied.

    After a failure the task must run again, or its job fails. Returns event bits and number of executors, see
    ``run_tasks``, and whether the run failed. No bits mean that no other executor is concerned.
    """
    state.cluster[0].now = now
    executor = state.heap[0].executor
    runner = state.executors[executor]
    stage_id, number = runner.stage, runner.task
    stage, task, freed = state.stages[stage_id], state.tasks[number], 0
    purpose = FAILS + run_of(state, executor).outcome
    failed = chance(state, runner.job, number, purpose) < state.cluster[0].task_failures
    if failed:
        task.failures += 1
        lost.lose_run(state, executor, now, lost.RUN_FAILED)
        if task.failures == MOST_FAILURES:
            tasks.pop(state)
            executors.go_to_common_pool(state, executor)
            _abort(state, stage.job, now)
            return executors.JOB_FAILED, 0, True
        if state.cluster[0].lost_output == 1:
            lost.recover(state, stage.job, now)
    else:
        freed = _finish(state, executor, now)
    if goes_on(state.cluster[0], stage):
        tasks.next_task(state, stage_id, now)
        return 0, 0, failed
    running = state.pairs[tasks.pair_of(state, stage_id, runner.class_id)].running
    if state.cluster[0].offer_after_tasks == 1:
        running = 1
    return become_idle(state, executor, stage_id, now) | freed, running, failed


@inner
def _finish(state, executor, now):
    """Finish a copied task, and kill its other run; return ``FREED`` if that leaves an executor idle, else 0."""
    runner = state.executors[executor]
    stage, other = state.stages[runner.stage], lost.other_run(state, executor)
    if other >= 0:
        lost.lose_run(state, other, now, lost.RUN_KILLED)
    state.tasks[runner.task].next = tasks.FINISHED
    run_of(state, executor).outcome = 0
    stage.finished += 1
    stage.finished_ms += now - runner.start
    if other < 0:
        return 0
    tasks.remove(state, other)
    state.executors[other].start = -1.0
    state.cluster[0].departure_order = -1
    if goes_on(state.cluster[0], stage):
        tasks.start(state, other, runner.stage, 0, now)
        return 0
    source = executors.source_of(state, other)
    if executors.is_committed(state, source):
        executors.carry_out_next(state, source, other, now)
        return 0
    executors.wait(state, other)
    return executors.FREED


@inner
def _abort(state, job, now):
    """Stop the executors of a job that has failed, and cancel their commitments."""
    for executor in range(len(state.executors)):
        runner = state.executors[executor]
        if runner.job == job and runner.stage >= 0:
            tasks.remove(state, executor)
            lost.lose_run(state, executor, now, lost.RUN_JOB_FAILED)
            executors.go_to_common_pool(state, executor)
    first_source = executors.pool_of(state, -1, 0) + state.cluster[0].num_classes
    for stage in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        for class_id in range(state.cluster[0].num_classes):
            source = first_source + tasks.pair_of(state, stage, class_id)
            while state.sources[source].first >= 0:
                commitment = state.commitments[state.sources[source].first]
                executors.unclaim(state, job, commitment.target, commitment.count)
                executors.drop(state, source)


# Copies of tasks that run long: speculation, like Spark's. A task is copied when it has run long and an executor waits
# in the pool of its job, after all other events of that time. The first of the two runs to finish wins, and the other
# is killed.


@inner
def run_and_copy_tasks(state, now, limit_ms, limit_order):
    """Run tasks from ``now``, ms, like ``run_tasks``, and copy tasks that run long.

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
        if state.tasks[state.executors[executor].task].next == tasks.COPIED:
            return now, executors.FAILED, executor, state.executors[executor].job, 0
        result = run_tasks(state, now, first.order)
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
            and state.tasks[runner.task].next != tasks.COPIED
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
        if task.next == tasks.FINISHED or task.next == tasks.OUTPUT_LOST:
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
    runner, run = state.executors[executor], run_of(state, executor)
    state.tasks[task].next = tasks.COPIED
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
