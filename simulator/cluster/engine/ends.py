"""Compiled: ends of task runs. The executor starts the next task of its stage, or becomes idle.

Runs that fail and runs of copied tasks are in ``failures.py`` and ``copies.py``, only for clusters with faults.
"""

from __future__ import annotations

from simulator.cluster.engine import executors, tasks
from simulator.compiled import inner


@inner
def run_tasks(state, limit_ms, limit_order):
    """Run tasks until an executor leaves its stage, at most up to a point in the order of events.

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
        job = state.executors[executor].job
        happened, offered = end_task(state, executor, now)
        if offered > 0:
            return now, happened, executor, job, offered
    return limit_ms, 0, -1, -1, 0


@inner
def end_task(state, executor, now):
    """Finish the task that ends next, and start the next task of its stage or place its executor.

    Returns event bits and number of executors, see ``run_tasks``; 0 executors if the next task has started.
    """
    cluster, stage = state.cluster[0], state.executors[executor].stage
    state.stages[stage].finished += 1
    state.stages[stage].finished_ms += now - state.executors[executor].start
    if goes_on(cluster, state.stages[stage]):
        tasks.next_task(state, stage, now)
        return 0, 0
    pair = tasks.pair_of(state, stage, state.executors[executor].class_id)
    offered = state.pairs[pair].running if cluster.offer_after_tasks == 0 else 1
    cluster.now = now
    return become_idle(state, executor, stage, now), offered


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
