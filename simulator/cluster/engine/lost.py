"""Compiled: lost task runs and lost outputs. The tasks must run again."""

from __future__ import annotations

from simulator.cluster.engine import executors, tasks
from simulator.cluster.engine.draws import DURATION, LEVEL, chance
from simulator.compiled import inner

# Outcomes of task runs, see `simulator.cluster.outcome.Outcome`.
RUN_FAILED, RUN_EXECUTOR_LOST, RUN_OUTPUT_LOST, RUN_JOB_FAILED, RUN_KILLED = 1, 2, 3, 4, 5

#: Values of ``next`` for a finished task, a finished task whose output is lost, and a running task that was copied.
FINISHED, OUTPUT_LOST, COPIED = -2, -3, -4


@inner
def run_of(state, executor):
    """Return the record of an executor's run, ``LOST``; used if its task was copied and ``TASK`` has the other run.

    ``outcome`` is ``COPY`` if the run began as a copy, else 0. These records are the last ones of the table ``lost``.
    """
    return state.lost[len(state.lost) - len(state.executors) + executor]


@inner
def draw_noise(state, job, task):
    """Draw the noise of the current attempt at a task; the first attempt has the noise of ``task_noise``."""
    state.noise[task].level = chance(state, job, task, LEVEL)
    state.noise[task].duration = chance(state, job, task, DURATION)


@inner
def lose_run(state, executor, now, outcome):
    """Log the lost run of an executor; the task must run again unless another executor runs it."""
    runner, other = state.executors[executor], other_run(state, executor)
    run_of(state, executor).outcome = 0
    if other < 0:
        requeue(state, runner.task, runner.stage, now, outcome)
        return
    task, run = state.tasks[runner.task], run_of(state, executor)
    if task.executor == executor:  # the log of the other run takes its place
        kept = run_of(state, other)
        run.wave, run.parallelism = task.wave, task.parallelism
        task.start, task.finish, task.executor = state.executors[other].start, kept.finish, other
        task.wave, task.parallelism = kept.wave, kept.parallelism
    lost = state.lost[state.cluster[0].num_lost]
    state.cluster[0].num_lost += 1
    lost.task, lost.start, lost.finish, lost.executor = runner.task, runner.start, now, executor
    lost.parallelism, lost.wave, lost.outcome = run.parallelism, run.wave, outcome


@inner
def other_run(state, executor):
    """Return the other executor that runs the same task; -1 if there is none."""
    runner = state.executors[executor]
    if state.tasks[runner.task].next == COPIED:
        for number in range(len(state.executors)):
            other = state.executors[number]
            same_task = other.stage == runner.stage and other.task == runner.task
            if number != executor and same_task and other.start >= 0:
                return number
    return -1


@inner
def requeue(state, number, stage_id, now, outcome):
    """Log a lost run of a task, and queue the task to run again with new noise."""
    cluster, task, stage = state.cluster[0], state.tasks[number], state.stages[stage_id]
    lost = state.lost[cluster.num_lost]
    cluster.num_lost += 1
    lost.task, lost.start, lost.finish = number, task.start, min(task.finish, now)
    lost.executor, lost.parallelism = task.executor, task.parallelism
    lost.wave, lost.outcome = task.wave, outcome
    task.start = task.finish = float("nan")
    task.executor = task.wave = -1
    task.parallelism = 0
    task.attempt += 1
    draw_noise(state, stage.job, number)
    task.next = stage.returned
    stage.returned = number
    tasks.adjust(state, stage_id, -1, 0)
    if stage.incomplete_parents > 0:
        _make_unready(state, stage)


@inner
def _make_unready(state, stage):
    """Make a stage (a record) not ready, as a parent must run tasks again."""
    stage.open_order = -1
    if state.cluster[0].ready_stages_only == 1:
        stage.open_parents = 1
    state.jobs[stage.job].dirty = 1


@inner
def stop(state, executor):
    """Remove the task of an executor from the heap: entries above it move down, then the first is removed."""
    heap, index = state.heap, 0
    while heap[index].executor != executor:
        index += 1
    while index > 0:
        parent = heap[(index - 1) >> 1]
        tasks.put(heap[index], parent.time, parent.order, parent.executor)
        index = (index - 1) >> 1
    tasks.pop(state)


# Lost outputs.


@inner
def lose_outputs(state, job, executor):
    """Mark finished tasks of a job whose output was on a lost executor."""
    for stage_id in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        stage = state.stages[stage_id]
        if stage.first_child < stage.end_child:
            for number in range(stage.first_task, stage.first_task + stage.num_tasks):
                task = state.tasks[number]
                if task.next == FINISHED and task.executor == executor:
                    task.next = OUTPUT_LOST
                    stage.lost_outputs += 1


@inner
def recover(state, job, now):
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
                _make_unready(state, child)
    for number in range(stage.first_task, stage.first_task + stage.num_tasks):
        task = state.tasks[number]
        if task.next == OUTPUT_LOST:
            stage.finished -= 1
            stage.finished_ms -= task.finish - task.start
            requeue(state, number, stage_id, now, RUN_OUTPUT_LOST)
    stage.lost_outputs = 0


# Claims on tasks.


@inner
def unclaim(state, job, target, count):
    """Cancel claims on a target by executors that ``job`` (-1: no job) holds."""
    if is_void(state, target) or target == executors.IDLE:
        return
    tasks.adjust(state, target, 0, -count)
    if state.stages[target].job != job:
        state.jobs[state.stages[target].job].executors -= count


@inner
def is_void(state, target):
    """Return whether a target belongs to a job that has ended."""
    return target != executors.IDLE and executors.has_ended(state, state.stages[target].job)
