"""Compiled: lost task runs and lost outputs. The tasks must run again."""

from __future__ import annotations

from simulator.cluster.engine import tasks
from simulator.cluster.engine.draws import draw_noise, run_of
from simulator.compiled import inner

# Outcomes of task runs, see `simulator.cluster.faults.Outcome`.
RUN_FAILED, RUN_EXECUTOR_LOST, RUN_OUTPUT_LOST, RUN_JOB_FAILED, RUN_KILLED = 1, 2, 3, 4, 5


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
    if state.tasks[runner.task].next == tasks.COPIED:
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
        tasks.make_unready(state, stage)


# Lost outputs.


@inner
def lose_outputs(state, job, executor):
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
                tasks.make_unready(state, child)
    for number in range(stage.first_task, stage.first_task + stage.num_tasks):
        task = state.tasks[number]
        if task.next == tasks.OUTPUT_LOST:
            stage.finished -= 1
            stage.finished_ms -= task.finish - task.start
            requeue(state, number, stage_id, now, RUN_OUTPUT_LOST)
    stage.lost_outputs = 0
