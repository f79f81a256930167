"""Compiled: lost runs of tasks."""

from __future__ import annotations

from simulator.cluster.engine import tasks
from simulator.cluster.engine.attempts import draw_noise
from simulator.compiled import inner

__all__ = [
    "MOST_FAILURES",
    "RUN_EXECUTOR_LOST",
    "RUN_FAILED",
    "RUN_JOB_FAILED",
    "RUN_OUTPUT_LOST",
    "give_back",
    "retry",
]

#: A job fails when one of its tasks has failed so many times.
MOST_FAILURES = 4
# How a run ended, see `simulator.cluster.faults.Outcome`.
RUN_FAILED, RUN_EXECUTOR_LOST, RUN_OUTPUT_LOST, RUN_JOB_FAILED = 1, 2, 3, 4


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
