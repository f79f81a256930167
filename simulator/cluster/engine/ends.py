"""Compiled: ends of task runs. A run completes its task or is lost; its executor starts a task or becomes idle."""

from __future__ import annotations

from simulator.cluster.engine import executors, tasks
from simulator.cluster.engine.draws import draw_noise, fails, run_of
from simulator.compiled import inner

#: Number of failures of a task after which its job fails.
MOST_FAILURES = 4
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


@inner
def retry(state, executor, now):
    """Start the next task after a failed run on the executor at the top of the heap, if no other executor is concerned.

    Returns whether a task has started. Otherwise Python must handle the failure, or the log is full.
    """
    cluster, number, stage = state.cluster[0], state.executors[executor].task, state.executors[executor].stage
    if (
        state.tasks[number].failures + 1 == MOST_FAILURES
        or cluster.offer_after_tasks == 1
        or cluster.lost_output == 1
        or cluster.num_lost >= len(state.executors)
    ):
        return False
    state.tasks[number].failures += 1
    requeue(state, number, stage, now, RUN_FAILED)
    tasks.next_task(state, stage, now)
    return True


@inner
def run_tasks(state, limit_ms, limit_order):
    """See ``commands.run_tasks``."""
    cluster, first, departed = state.cluster[0], state.heap[0], state.departures[0]
    departed_ms = 0.0
    while cluster.num_running > 0:
        now, executor = first.time, first.executor
        if now > limit_ms or (now == limit_ms and first.order > limit_order):
            break
        stage = state.executors[executor].stage
        if cluster.has_faults:
            if fails(state, executor):
                if retry(state, executor, now):
                    continue
                return now, executors.FAILED, executor, stage, 0
            state.tasks[state.executors[executor].task].next = tasks.FINISHED
        state.stages[stage].finished += 1
        state.stages[stage].finished_ms += now - state.executors[executor].start
        if goes_on(cluster, state.stages[stage]):
            tasks.next_task(state, stage, now)
            continue
        pair = tasks.pair_of(state, stage, state.executors[executor].class_id)
        running = state.pairs[pair].running if cluster.offer_after_tasks == 0 else 1
        cluster.now = now
        happened = become_idle(state, executor, stage, now)
        if happened:
            happened |= executors.DEPARTED if cluster.num_departures > 0 else 0
            return now, happened, executor, stage, running
        if cluster.num_departures > 0:
            departed_ms = now
            arrival_ms = departed.time + cluster.moving_ms
            if arrival_ms < limit_ms or (arrival_ms == limit_ms and departed.order < limit_order):
                limit_ms, limit_order = arrival_ms, departed.order
        elif cluster.num_running == 0:
            return now, executors.QUIET, -1, -1, 0
    return departed_ms, executors.DEPARTED if cluster.num_departures > 0 else 0, -1, -1, 0


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
