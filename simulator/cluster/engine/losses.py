"""Compiled: lost runs of tasks."""

from __future__ import annotations

from simulator.cluster.engine import tasks
from simulator.cluster.engine.attempts import draw_noise, run_of
from simulator.cluster.engine.state import COPIED
from simulator.compiled import inner

__all__ = [
    "MOST_FAILURES",
    "RUN_EXECUTOR_LOST",
    "RUN_FAILED",
    "RUN_JOB_FAILED",
    "RUN_KILLED",
    "RUN_OUTPUT_LOST",
    "give_back",
    "lose_run",
    "other_run",
    "retry",
]

#: A job fails when one of its tasks has failed so many times.
MOST_FAILURES = 4
# How a run ended, see `simulator.cluster.faults.Outcome`.
RUN_FAILED, RUN_EXECUTOR_LOST, RUN_OUTPUT_LOST, RUN_JOB_FAILED, RUN_KILLED = 1, 2, 3, 4, 5


@inner
def lose_run(state, executor, now, outcome):
    """Log the lost run of an executor; its task waits for another run unless another executor runs it."""
    runner, other = state.executors[executor], other_run(state, executor)
    run_of(state, executor).outcome = 0
    if other < 0:
        give_back(state, runner.task, runner.stage, now, outcome)
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
    """Return the other executor that runs an executor's task; -1 for none."""
    runner = state.executors[executor]
    if state.tasks[runner.task].next == COPIED:
        for number in range(len(state.executors)):
            other = state.executors[number]
            if (
                number != executor
                and other.stage == runner.stage
                and other.task == runner.task
                and other.start >= 0
            ):
                return number
    return -1


@inner
def give_back(state, number, stage_id, now, outcome):
    """Log a lost run of a task, and let the task wait for another run with new noise."""
    cluster, task, stage = state.cluster[0], state.tasks[number], state.stages[stage_id]
    lost = state.lost[cluster.num_lost]
    cluster.num_lost += 1
    lost.task, lost.start, lost.finish = number, task.start, min(task.finish, now)
    lost.executor, lost.parallelism, lost.wave, lost.outcome = (
        task.executor,
        task.parallelism,
        task.wave,
        outcome,
    )
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

    Returns:
        Whether it has started. Otherwise Python must see the failure, or the log is full.
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
    give_back(state, number, stage, now, RUN_FAILED)
    tasks.next_task(state, stage, now)
    return True
