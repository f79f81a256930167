"""Compiled: what Python calls. Each function is handed the cluster's ``Memory`` and does one step in bulk."""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import executors, tasks
from simulator.cluster.engine.state import view
from simulator.compiled import compiled, inner

__all__ = [
    "IDLE",
    "add_job",
    "commit",
    "end_job",
    "end_moves",
    "fill_common_pools",
    "next_free_executors",
    "observe",
    "run_tasks",
    "take_departures",
    "waiting_in",
]

IDLE = executors.IDLE

# What `run_tasks` says about the executor that ran dry, as bits.
NEEDS_DECISION = 1
"""Nothing is committed for it: a round opens."""
OPENED = 2
"""Its stage completed, and opened another."""
JOB_COMPLETE = 4
"""Its job completed."""
DEPARTED = 8
"""Executors have left, perhaps earlier ones; their arrivals must be scheduled."""
QUIET = 16
"""No task is running any more."""


@compiled
def fill_common_pools(memory):
    """All executors wait in the common pools, in order of their numbers."""
    state = view(memory)
    for executor in range(len(state.executors)):
        executors.go_to_common_pool(state, executor)


@compiled
def add_job(memory, job, level_luck, luck):
    """A job arrives, and its parentless stages are ready; with the noise of its tasks, float32 [tasks] each."""
    state = view(memory)
    state.live[state.cluster[0].num_live] = job
    state.cluster[0].num_live += 1
    for stage in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        if state.stages[stage].incomplete_parents == 0:
            tasks.make_ready(state, stage)
    first = state.stages[state.jobs[job].first_stage].first_task
    for task in range(len(luck)):
        state.tasks[first + task].level_luck = level_luck[task]
        state.tasks[first + task].luck = luck[task]


@compiled
def run_tasks(memory, limit_ms, limit_order):
    """Run tasks until something happens that Python must see, at most up to (``limit_ms``, ``limit_order``).

    The limit comes nearer when executors leave: they may arrive before it.

    Returns:
        (time in ms, bits, executor that ran dry, its stage, executors of its class that were on the stage); no bits
        if nothing happened, and no executor if it concerns none in particular.
    """
    return _run_tasks(view(memory), limit_ms, limit_order)


@inner
def _run_tasks(state, limit_ms, limit_order):
    cluster, first, departed = state.cluster[0], state.heap[0], state.departures[0]
    departed_ms = 0.0
    while cluster.num_running > 0:
        now, executor = first.time, first.executor
        if now > limit_ms or (now == limit_ms and first.order > limit_order):
            break
        stage = state.executors[executor].stage
        state.stages[stage].finished += 1
        if state.stages[stage].started < state.stages[stage].num_tasks:
            tasks.next_task(state, stage, now)
            continue
        running = state.staff[tasks.staff_of(state, stage, state.executors[executor].kind)].running
        happened = _run_dry(state, executor, stage, now)
        if happened:
            return now, happened | (DEPARTED if cluster.num_departures > 0 else 0), executor, stage, running
        if cluster.num_departures > 0:
            departed_ms = now
            arrival_ms = departed.time + cluster.moving_ms
            if arrival_ms < limit_ms or (arrival_ms == limit_ms and departed.order < limit_order):
                limit_ms, limit_order = arrival_ms, departed.order
        elif cluster.num_running == 0:
            return now, QUIET, -1, -1, 0
    return departed_ms, DEPARTED if cluster.num_departures > 0 else 0, -1, -1, 0


@inner
def _run_dry(state, executor, stage, now):
    """An executor is done with a task, and its stage has no more to hand out; returns bits."""
    tasks.pop(state)
    state.cluster[0].departure_order = -1
    job = state.executors[executor].job
    happened = 0
    if state.stages[stage].finished == state.stages[stage].num_tasks and tasks.complete_stage(state, stage):
        happened |= OPENED
    source = executors.source_of(state, executor)
    if state.sources[source].first >= 0:
        executors.carry_out_next(state, source, executor, now)
    elif happened & OPENED:
        executors.wait(state, executor)
    else:
        happened |= NEEDS_DECISION
    if state.jobs[job].incomplete == 0:
        happened |= JOB_COMPLETE
    return happened


@compiled
def commit(memory, turn, budget, target, count, now):
    """Commit executors of the open round to a stage (at most its unclaimed tasks) or to idleness.

    When that was the last of the budget, the executors in turn carry out the commitments of their source.

    Args:
        memory: the cluster.
        turn: int64, the executors that act when the round closes; they are of one source.
        budget: executors still to be committed.
        target: a stage, or ``IDLE``.
        count: executors wanted, from 1 to ``budget``.
        now: ms.

    Returns:
        The budget that is left.
    """
    return _commit(view(memory), turn, budget, target, count, now)


@inner
def _commit(state, turn, budget, target, count, now):
    source = executors.source_of(state, turn[0])
    if target != IDLE:
        stage = state.stages[target]
        count = min(count, stage.num_tasks - stage.started - stage.claimed)
    executors.commit(state, source, state.executors[turn[0]].job, target, count)
    if count < budget:
        return budget - count
    number = state.sources[source].first
    while number >= 0:
        commitment = state.commitments[number]
        if commitment.target != IDLE:
            state.stages[commitment.target].selected = 0
        number = commitment.next
    state.cluster[0].departure_order = -1
    for executor in turn:
        if state.sources[source].first < 0:
            break
        executors.carry_out_next(state, source, executor, now)
    return 0


@compiled
def take_departures(memory):
    """Executors that left since the last call, in order.

    Returns:
        (int64 [3, executors]: executor, target, insertion number of the arrival; float64 [executors]: when, ms).
    """
    state = view(memory)
    size = state.cluster[0].num_departures
    state.cluster[0].num_departures = 0
    moved = np.empty((3, size), dtype=np.int64)
    left_ms = np.empty(size)
    for number in range(size):
        departure = state.departures[number]
        moved[0, number] = departure.executor
        moved[1, number] = state.executors[departure.executor].target
        moved[2, number] = departure.order
        left_ms[number] = departure.time
    return moved, left_ms


@compiled
def end_moves(memory, moved, now):
    """Executors (int64) come to the end of their moves."""
    state = view(memory)
    state.cluster[0].departure_order = -1
    for executor in moved:
        executors.arrive(state, executor, now)


@compiled
def end_job(memory, job, last_executor):
    """A job is complete; ``last_executor`` finished its last task."""
    state = view(memory)
    executors.end_job(state, job, last_executor)


@compiled
def waiting_in(memory, number):
    """The executors in a pool, in order: int64."""
    return _members(view(memory), number)


@compiled
def _members(state, number):
    members = np.empty(len(state.executors), dtype=np.int64)
    size = 0
    executor = state.pools[number].first
    while executor >= 0:
        members[size] = executor
        size += 1
        executor = state.executors[executor].next
    return members[:size]


@compiled
def next_free_executors(memory, place):
    """The next free executors that could be used: in the common pools, then in those of the live jobs.

    Returns:
        (executors, job or -1, place to go on from); no executors if there are no more.
    """
    state = view(memory)
    num_classes = state.cluster[0].num_classes
    while place < (1 + state.cluster[0].num_live) * num_classes:
        number, kind = divmod(place, num_classes)
        job = state.live[number - 1] if number > 0 else -1
        place += 1
        source = executors.pool_of(state, job, kind)
        if executors.is_free(state, source, job, kind):
            return _members(state, source), job, place
    return np.empty(0, dtype=np.int64), -1, place


@compiled
def observe(memory, kind, source_job, seen_classes, seen_jobs, seen_stages):
    """Fill in what a scheduler may see of the live jobs and their stages, as many as there are, see ``Observation``.

    Of the classes: how many executors are free.

    Returns:
        The place of ``source_job`` among the live jobs or -1, and the number of schedulable stages.
    """
    state = view(memory)
    for number in range(len(seen_classes)):
        seen_classes[number].free = state.kinds[number].free
    return _observe(state, kind, source_job, seen_jobs, seen_stages)


@inner
def _observe(state, kind, source_job, seen_jobs, seen_stages):
    num_classes = state.cluster[0].num_classes
    source, num_schedulable, column = -1, 0, 0
    all_stages, staff = state.stages, state.staff
    for number in range(len(seen_jobs)):
        job_id = state.live[number]
        job = state.jobs[job_id]
        if job_id == source_job:
            source = number
        next_stage, next_rank = -1, -1
        seen_job = seen_jobs[number]
        seen_job.id = job_id
        seen_job.first_stage = column
        seen_job.executors = job.executors
        seen_job.unsaturated_stages = job.unsaturated
        seen_job.incomplete_stages = job.incomplete
        seen_job.arrival_ms = job.arrival_ms
        for stage_id in range(job.first_stage, job.end_stage):
            stage = all_stages[stage_id]
            left = stage.num_tasks - stage.started
            rank = stage.open_order if left > 0 else -1
            running = 0
            for other in range(num_classes):
                running += staff[stage_id * num_classes + other].running
            schedulable = tasks.is_schedulable(stage, staff[stage_id * num_classes + kind])
            # Ready stages come first, in the order in which they became ready; then the others.
            if schedulable and (next_stage < 0 or (rank >= 0 and (next_rank < 0 or rank < next_rank))):
                next_stage, next_rank = column, rank
            seen = seen_stages[column]
            seen.job = number
            seen.num_tasks = stage.num_tasks
            seen.remaining_tasks = left
            seen.unclaimed_tasks = max(left - stage.claimed, 0)
            seen.running_executors = running
            seen.finished_tasks = stage.finished
            seen.ready_rank = rank
            seen.schedulable = schedulable
            seen.mean_task_ms = stage.mean_task_ms
            seen.cpu = stage.cpu
            seen.memory = stage.memory
            num_schedulable += schedulable
            column += 1
        seen_job.next_stage = next_stage
    return source, num_schedulable
