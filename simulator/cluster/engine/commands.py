"""Compiled: what Python calls. Each function is handed the cluster's ``Memory`` and does one step in bulk."""

from __future__ import annotations

import numpy as np

from simulator.cluster.engine import executors, posterior, rows, tasks
from simulator.cluster.engine.attempts import fails
from simulator.cluster.engine.losses import retry
from simulator.cluster.engine.state import FINISHED, view
from simulator.compiled import compiled, inner

__all__ = [
    "IDLE",
    "add_job",
    "commit",
    "end_job",
    "end_moves",
    "fill_common_pools",
    "is_wanted",
    "learn",
    "next_free_executors",
    "observe",
    "run_tasks",
    "stay",
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
FAILED = 32
"""Its task failed; the caller handles the failure."""
JOB_FAILED = 64
"""Its task failed for the last time, so its job failed."""


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
    cluster, arriving = state.cluster[0], state.jobs[job]
    state.live[cluster.num_live] = job
    arriving.place, arriving.first_row = cluster.num_live, cluster.num_rows
    arriving.moved_on = 1
    cluster.num_live += 1
    cluster.num_rows += arriving.end_stage - arriving.first_stage
    tasks.change(state, job)
    for stage_id in range(arriving.first_stage, arriving.end_stage):
        if state.stages[stage_id].incomplete_parents == 0:
            tasks.make_ready(state, stage_id)
    rows.add(state, job)
    first = state.stages[arriving.first_stage].first_task
    for task in range(len(luck)):
        state.noise[first + task].level = level_luck[task]
        state.noise[first + task].duration = luck[task]


@compiled
def run_tasks(memory, limit_ms, limit_order):
    """Run tasks until something happens that Python must see, at most up to (``limit_ms``, ``limit_order``).

    The limit comes nearer when executors leave: they may arrive before it.

    Returns:
        (time in ms, bits, executor that ran dry, its stage, executors to be committed: those of its class that were on
        the stage, or itself alone where all are offered after each task); no bits if nothing happened, and no executor
        if it concerns none in particular.
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
        if cluster.has_faults:
            if fails(state, executor):
                if retry(state, executor, now):
                    continue
                return now, FAILED, executor, stage, 0
            state.tasks[state.executors[executor].task].next = FINISHED
        state.stages[stage].finished += 1
        state.stages[stage].finished_ms += now - state.executors[executor].start
        if goes_on(state, state.stages[stage]):
            tasks.next_task(state, stage, now)
            continue
        staff = tasks.staff_of(state, stage, state.executors[executor].kind)
        running = state.staff[staff].running if cluster.offer_after_tasks == 0 else 1
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
def goes_on(state, stage):
    """Return whether an executor that is done with a task of a stage (record) takes the next one."""
    return (
        stage.started < stage.num_tasks
        and state.cluster[0].offer_after_tasks == 0
        and stage.incomplete_parents == 0
    )


@inner
def _run_dry(state, executor, stage, now):
    """An executor is done with a task, and gets no other of its stage for that; returns bits."""
    tasks.pop(state)
    state.cluster[0].departure_order = -1
    state.executors[executor].start = -1.0
    job = state.executors[executor].job
    tasks.change(state, job)
    happened = 0
    if state.stages[stage].finished == state.stages[stage].num_tasks and tasks.complete_stage(state, stage):
        happened |= OPENED
    source = executors.source_of(state, executor)
    if executors.is_committed(state, source):
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
    if count == budget:
        _close(state, turn, source, now)
    return budget - count


@inner
def _close(state, turn, source, now):
    """All executors of the open round are committed."""
    number = state.sources[source].first
    while number >= 0:
        commitment = state.commitments[number]
        if commitment.target != IDLE:
            state.stages[commitment.target].selected = 0
            tasks.change(state, state.stages[commitment.target].job)
        number = commitment.next
    state.cluster[0].departure_order = -1
    for executor in turn:
        if not executors.is_committed(state, source):
            break
        executors.carry_out_next(state, source, executor, now)


@compiled
def stay(memory, turn, budget, now):
    """Executors of the open round stay with their job, as long as it has a next stage for them.

    Args:
        memory: the cluster.
        turn: int64, the executors that act when the round closes.
        budget: executors still to be committed.
        now: ms.

    Returns:
        The budget that is left, and how many decisions were taken; none if they have no live job.
    """
    return _stay(view(memory), turn, budget, now)


@inner
def _stay(state, turn, budget, now):
    first = state.executors[turn[0]]
    job = first.job
    if job < 0:
        return budget, 0
    if first.pool >= 0:
        tasks.refresh(state, job)
    source = executors.source_of(state, turn[0])
    decisions, starts = 0, False
    while budget > 0:
        target = tasks.next_of_job(state, job, first.kind)
        if target < 0:
            break
        stage = state.stages[target]
        count = min(budget, stage.num_tasks - stage.started - stage.claimed)
        executors.commit(state, source, job, target, count)
        budget -= count
        decisions += 1
        starts |= stage.incomplete_parents == 0
    if budget == 0:
        if starts or first.pool < 0:
            _close(state, turn, source, now)
        else:
            _settle(state, source, job, first.pool, decisions)
    return budget, decisions


@inner
def _settle(state, source, job, pool, decisions):
    """All executors in a job's pool are to go on waiting there: nothing has changed, nor will it until the job does."""
    while state.sources[source].first >= 0:
        commitment = state.commitments[state.sources[source].first]
        state.stages[commitment.target].selected = 0
        tasks.adjust(state, commitment.target, 0, -commitment.count)
        executors.drop(state, source)
    state.jobs[job].moved_on = 0
    state.pools[pool].settled = decisions


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
def end_moves(memory, moved, order, now):
    """Executors (int64) come to the end of moves of this insertion number, unless they were lost on the way."""
    state = view(memory)
    state.cluster[0].departure_order = -1
    for executor in moved:
        if state.executors[executor].target >= 0 and state.executors[executor].arrival == order:
            executors.arrive(state, executor, now)


@compiled
def end_job(memory, job, last_executor, now):
    """End a job that is complete, and whose last task ``last_executor`` finished.

    Returns:
        The place that it had among the live jobs.
    """
    state = view(memory)
    executors.end_job(state, job, last_executor)
    cluster, ending = state.cluster[0], state.jobs[job]
    ending.completion_ms = now
    num_stages = ending.end_stage - ending.first_stage
    cluster.num_live -= 1
    cluster.num_rows -= num_stages
    first = ending.place
    for place in range(first, cluster.num_live):
        later = state.live[place + 1]
        state.live[place] = later
        state.jobs[later].place = place
        state.jobs[later].first_row -= num_stages
    rows.remove(state, job)
    ending.place = -1
    return first


@compiled
def waiting_in(memory, number):
    """The executors in a pool, in order: int64."""
    return _members(view(memory), number)


@inner(arrays=True)
def _members(state, number):
    members = np.empty(state.pools[number].members, dtype=np.int64)
    executor = state.pools[number].first
    for place in range(len(members)):
        members[place] = executor
        executor = state.executors[executor].next
    return members


@compiled
def is_wanted(memory):
    """Return whether some executor in a pool could be used; no round is open."""
    state = view(memory)
    return executors.find_wanted(state, np.empty(state.cluster[0].num_classes, dtype=np.bool_))


@compiled
def next_free_executors(memory, place, stays, now):
    """The next free executors that could be used: in the common pools, then in those of the live jobs.

    Args:
        memory: the cluster.
        place: where to go on from.
        stays: whether they first :func:`stay`; then only those are told that their job has no use for.
        now: ms.

    Returns:
        (executors in turn, how many of them are to be committed, job or -1, place to go on from, decisions taken);
        no executors if there are no more.
    """
    state = view(memory)
    num_classes = state.cluster[0].num_classes
    decisions = 0
    first_kind = place % num_classes
    wanted = np.empty(num_classes, dtype=np.bool_)
    # Most often no executor is wanted, and the live jobs are many.
    if not executors.find_wanted(state, wanted):
        return np.empty(0, dtype=np.int64), 0, -1, place, decisions
    for number in range(place // num_classes, 1 + state.cluster[0].num_live):
        job = state.live[number - 1] if number > 0 else -1
        for kind in range(first_kind, num_classes):
            if not (wanted[kind] and executors.is_free(state, job, kind)):
                continue
            pool = executors.pool_of(state, job, kind)
            if stays and state.pools[pool].settled > 0:
                decisions += state.pools[pool].settled
                continue
            turn = _members(state, pool)
            budget = len(turn)
            if stays:
                budget, more = _stay(state, turn, budget, now)
                decisions += more
                executors.find_wanted(state, wanted)
            if budget > 0:
                return turn, budget, job, number * num_classes + kind + 1, decisions
        first_kind = 0
    return np.empty(0, dtype=np.int64), 0, -1, place, decisions


@compiled
def observe(memory, kind, source_job, seen_classes):
    """Bring the rows that a scheduler sees while executors of a class are offered up to date, see ``Observation``.

    Args:
        memory: the cluster. Only rows of this class and of jobs that changed are written.
        kind: the class.
        source_job: whose executors are offered, or -1.
        seen_classes: ``CLASS`` [classes]; here it is told how many executors are free.

    Returns:
        The place of ``source_job`` among the live jobs or -1, and the number of schedulable stages.
    """
    state = view(memory)
    for number in range(len(seen_classes)):
        seen_classes[number].free = state.kinds[number].free
    rows.look(state, kind)
    is_live = source_job >= 0 and not executors.has_ended(state, source_job)
    return state.jobs[source_job].place if is_live else -1, state.kinds[kind].num_schedulable


@compiled
def learn(memory, now):
    """Update estimates of the live jobs by what has been observed until ``now``, ms, since they were last updated.

    Returns:
        Whether a profile that schedulers see has another scale.
    """
    state = view(memory)
    beliefs, estimates = state.beliefs, state.estimates
    for number in range(state.cluster[0].num_changed):
        job = state.jobs[state.changed[number]]
        for stage in range(job.first_stage, job.end_stage):
            if (
                estimates[stage].finished != state.stages[stage].finished
                or estimates[stage].finished_ms != state.stages[stage].finished_ms
            ):
                estimates[stage].finished = state.stages[stage].finished
                estimates[stage].finished_ms = state.stages[stage].finished_ms
                beliefs[state.changed[number]].is_old = 1
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0:
            estimates[runner.stage].running += 1
            estimates[runner.stage].running_ms += now - runner.start
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0 and posterior.is_late(estimates[runner.stage]):
            beliefs[runner.job].is_old = 1
    is_rescaled = False
    for place in range(state.cluster[0].num_live):
        job = state.live[place]
        belief, scale = beliefs[job], beliefs[job].scale
        if belief.is_old or belief.is_late:
            posterior.update(belief, estimates, state.jobs[job].first_stage, state.jobs[job].end_stage)
            is_rescaled |= belief.scale != scale
            tasks.change(state, job)
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0:
            estimates[runner.stage].running = 0
            estimates[runner.stage].running_ms = 0.0
    return is_rescaled
