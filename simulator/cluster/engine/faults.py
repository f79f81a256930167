"""Compiled: functions that Python calls when executors are lost or join, a task run fails, or a copied task ends.

Copies of tasks that run long are speculation, like Spark's. A task is copied when it has run long and an executor waits
in the pool of its job, after all other events of that time. The first of the two runs to finish wins, and the other is
killed. Clusters without speculation run none of this code.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.cluster.engine import ends, executors, tasks
from simulator.cluster.engine.draws import (
    COPY,
    FAILS,
    chance,
    copy_noise,
    delay_factor,
    draw_duration,
    run_of,
)
from simulator.cluster.engine.state import view
from simulator.cluster.engine.tasks import COPIED, FINISHED, OUTPUT_LOST
from simulator.compiled import compiled, inner

#: A task that has run for less time is not copied (Spark's ``spark.speculation.minTaskRuntime``), ms.
MIN_LATE_MS = 100.0


@compiled
def run_tasks(memory, late_ms, now, limit_ms, limit_order):
    """Run tasks from ``now``, ms, like ``commands.run_tasks``, and copy tasks that run long.

    The ends of copied tasks are returned as failures.

    Args:
        late_ms: float64 [stages], run time after which a task is copied, ms; 0 if not known yet; filled in.
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
        if runner.start < 0 or stage < 0:
            continue
        done, num_tasks = state.stages[stage].finished, state.stages[stage].num_tasks
        enough = max(math.floor(state.cluster[0].speculation_quantile * num_tasks), 1)
        if state.stages[stage].started < num_tasks or done < enough:
            continue
        if late_ms[stage] == 0:
            late_ms[stage] = _find_late_ms(state, state.stages[stage])
        time_ms = max(runner.start + late_ms[stage], now)
        if time_ms < next_ms and state.tasks[runner.task].next != COPIED and _waiting(state, stage) >= 0:
            next_ms, late = time_ms, executor
    return next_ms, late


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


@compiled
def join(memory, joining, now):
    """Put executors ``joining``, int64, which join the cluster, into the common pools."""
    state = view(memory)
    state.cluster[0].now = now
    for executor in joining:
        executors.go_to_common_pool(state, executor)


@compiled
def lose(memory, lost, now):
    """Remove executors ``lost``, int64, from the cluster; cancel their tasks, claims and commitments."""
    state = view(memory)
    state.cluster[0].now = now
    for executor in lost:
        _lose(state, executor, now)
        if state.cluster[0].lost_output == 1:
            for place in range(state.cluster[0].num_live):
                _lose_outputs(state, state.live[place], executor)
                _recover(state, state.live[place], now)


@inner
def _lose(state, executor, now):
    runner = state.executors[executor]
    if runner.target >= 0:  # the executor is moving
        _unclaim(state, -1, runner.target, 1)
        runner.target = -1
    elif runner.stage >= 0:
        source = executors.source_of(state, executor)
        left = state.pairs[tasks.pair_of(state, runner.stage, runner.class_id)].running - 1
        job = runner.job
        tasks.remove(state, executor)
        ends.lose_run(state, executor, now, ends.RUN_EXECUTOR_LOST)
        executors.detach(state, executor)
        if _num_committed(state, source) > left:
            _drop_newest(state, source, job)
    else:
        executors.leave_pool(state, executor)
        executors.detach(state, executor)


# Claims and commitments.


@inner
def _unclaim(state, job, target, count):
    """Cancel claims on a target by executors that ``job`` (-1: no job) holds."""
    if _is_void(state, target) or target == executors.IDLE:
        return
    tasks.adjust(state, target, 0, -count)
    if state.stages[target].job != job:
        state.jobs[state.stages[target].job].executors -= count


@inner
def _is_void(state, target):
    return target != executors.IDLE and executors.has_ended(state, state.stages[target].job)


@inner
def _num_committed(state, source):
    """Return the number of executors of a source that are committed to live jobs or to stay idle."""
    total, number = 0, state.sources[source].first
    while number >= 0:
        if not _is_void(state, state.commitments[number].target):
            total += state.commitments[number].count
        number = state.commitments[number].next
    return total


@inner
def _drop_newest(state, source, job):
    """Cancel the commitment of one executor: the newest commitment of a source of ``job`` that is not void."""
    commitments, origin = state.commitments, state.sources[source]
    newest, before_newest, before, number = -1, -1, -1, origin.first
    while number >= 0:
        if not _is_void(state, commitments[number].target):
            newest, before_newest = number, before
        before, number = number, commitments[number].next
    commitment = commitments[newest]
    _unclaim(state, job, commitment.target, 1)
    commitment.count -= 1
    if commitment.count > 0:
        return
    if before_newest < 0:
        executors.drop(state, source)
        return
    commitments[before_newest].next = commitment.next
    if origin.last == newest:
        origin.last = before_newest
    commitment.next = state.cluster[0].free_commitment
    state.cluster[0].free_commitment = newest


# Failures, and ends of copied tasks.


@compiled
def end_run(memory, now):
    """End the task run that ends next, which fails or whose task was copied.

    After a failure the task must run again, or its job fails. Returns event bits and number of executors, see
    ``commands.run_tasks``, and whether the run failed. No bits mean that no other executor is concerned.
    """
    state = view(memory)
    state.cluster[0].now = now
    executor = state.heap[0].executor
    runner = state.executors[executor]
    stage_id, number = runner.stage, runner.task
    stage, task, freed = state.stages[stage_id], state.tasks[number], 0
    purpose = FAILS + run_of(state, executor).outcome
    failed = chance(state, runner.job, number, purpose) < state.cluster[0].task_failures
    if failed:
        task.failures += 1
        ends.lose_run(state, executor, now, ends.RUN_FAILED)
        if task.failures == ends.MOST_FAILURES:
            tasks.pop(state)
            executors.go_to_common_pool(state, executor)
            _abort(state, stage.job, now)
            return executors.JOB_FAILED, 0, True
        if state.cluster[0].lost_output == 1:
            _recover(state, stage.job, now)
    else:
        freed = _finish(state, executor, now)
    if ends.goes_on(state.cluster[0], stage):
        tasks.next_task(state, stage_id, now)
        return 0, 0, failed
    running = state.pairs[tasks.pair_of(state, stage_id, runner.class_id)].running
    if state.cluster[0].offer_after_tasks == 1:
        running = 1
    return ends.become_idle(state, executor, stage_id, now) | freed, running, failed


@inner
def _finish(state, executor, now):
    """Finish a copied task, and kill its other run; return ``FREED`` if that leaves an executor idle, else 0."""
    runner = state.executors[executor]
    stage, other = state.stages[runner.stage], ends.other_run(state, executor)
    if other >= 0:
        ends.lose_run(state, other, now, ends.RUN_KILLED)
    state.tasks[runner.task].next = tasks.FINISHED
    run_of(state, executor).outcome = 0
    stage.finished += 1
    stage.finished_ms += now - runner.start
    if other < 0:
        return 0
    tasks.remove(state, other)
    state.executors[other].start = -1.0
    state.cluster[0].departure_order = -1
    if ends.goes_on(state.cluster[0], stage):
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
            ends.lose_run(state, executor, now, ends.RUN_JOB_FAILED)
            executors.go_to_common_pool(state, executor)
    first_source = executors.pool_of(state, -1, 0) + state.cluster[0].num_classes
    for stage in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        for class_id in range(state.cluster[0].num_classes):
            source = first_source + tasks.pair_of(state, stage, class_id)
            while state.sources[source].first >= 0:
                commitment = state.commitments[state.sources[source].first]
                _unclaim(state, job, commitment.target, commitment.count)
                executors.drop(state, source)


# Lost outputs.


@inner
def _lose_outputs(state, job, executor):
    """Mark finished tasks of a job whose output was on a lost executor."""
    for stage_id in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        stage = state.stages[stage_id]
        if stage.first_child < stage.end_child:
            for number in range(stage.first_task, stage.first_task + stage.num_tasks):
                task = state.tasks[number]
                if task.next == tasks.FINISHED and task.executor == executor:
                    task.next = tasks.OUTPUT_LOST
                    stage.lost_outputs += 1


@inner
def _recover(state, job, now):
    """Rerun finished tasks whose output is lost and is needed by a child with unstarted tasks."""
    again = True
    while again:
        again = False
        for stage_id in range(state.jobs[job].end_stage - 1, state.jobs[job].first_stage - 1, -1):
            if state.stages[stage_id].lost_outputs > 0 and _is_needed(state, stage_id):
                _rerun(state, stage_id, now)
                again = True


@inner
def _is_needed(state, stage_id):
    for edge in range(state.stages[stage_id].first_child, state.stages[stage_id].end_child):
        child = state.stages[state.children[edge]]
        if child.started < child.num_tasks:
            return True
    return False


@inner
def _rerun(state, stage_id, now):
    stage = state.stages[stage_id]
    if stage.finished == stage.num_tasks:
        state.jobs[stage.job].incomplete += 1
        for edge in range(stage.first_child, stage.end_child):
            child = state.stages[state.children[edge]]
            child.incomplete_parents += 1
            if child.started < child.num_tasks:
                tasks.make_unready(state, child)
    for number in range(stage.first_task, stage.first_task + stage.num_tasks):
        task = state.tasks[number]
        if task.next == tasks.OUTPUT_LOST:
            stage.finished -= 1
            stage.finished_ms -= task.finish - task.start
            ends.requeue(state, number, stage_id, now, ends.RUN_OUTPUT_LOST)
    stage.lost_outputs = 0
