"""Compiled: task runs that fail, and ends of runs of copied tasks."""

from __future__ import annotations

from simulator.cluster.engine import ends, executors, lost, tasks
from simulator.cluster.engine.draws import FAILS, chance
from simulator.compiled import inner

#: Number of failures of a task after which its job fails.
MOST_FAILURES = 4


@inner
def run_tasks(state, limit_ms, limit_order):
    """Run tasks like ``ends.run_tasks``, also until a run fails and concerns other executors: ``executors.FAILED``."""
    cluster, first = state.cluster[0], state.heap[0]
    while cluster.num_running > 0 and not tasks.is_before(limit_ms, limit_order, first):
        now, executor = first.time, first.executor
        job = state.executors[executor].job
        if _fails(state, executor):
            if _retry(state, executor, now):
                continue
            return now, executors.FAILED, executor, job, 0
        state.tasks[state.executors[executor].task].next = lost.FINISHED
        happened, offered = ends.end_task(state, executor, now)
        if offered > 0:
            return now, happened, executor, job, offered
    return limit_ms, 0, -1, -1, 0


@inner
def _fails(state, executor):
    """Return whether the task run that ends on an executor has failed."""
    runner, share = state.executors[executor], state.cluster[0].task_failures
    return share > 0 and chance(state, runner.job, runner.task, FAILS) < share


@inner
def _retry(state, executor, now):
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
    purpose = FAILS + lost.run_of(state, executor).outcome
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
    stage, other = state.stages[runner.stage], lost.other_run(state, executor)
    if other >= 0:
        lost.lose_run(state, other, now, lost.RUN_KILLED)
    state.tasks[runner.task].next = lost.FINISHED
    lost.run_of(state, executor).outcome = 0
    stage.finished += 1
    stage.finished_ms += now - runner.start
    if other < 0:
        return 0
    lost.stop(state, other)
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
            lost.stop(state, executor)
            lost.lose_run(state, executor, now, lost.RUN_JOB_FAILED)
            executors.go_to_common_pool(state, executor)
    first_source = executors.pool_of(state, -1, 0) + state.cluster[0].num_classes
    for stage in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        for class_id in range(state.cluster[0].num_classes):
            source = first_source + tasks.pair_of(state, stage, class_id)
            while state.sources[source].first >= 0:
                commitment = state.commitments[state.sources[source].first]
                lost.unclaim(state, job, commitment.target, commitment.count)
                executors.drop(state, source)
