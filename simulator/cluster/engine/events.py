"""Compiled: the events of a cluster in their order: ends of tasks, arrivals of executors and arrivals of jobs.

Simultaneous events happen in the order of their insertion numbers, which SimPy's events share, see ``clock.py``. All
moves take equally long and jobs are sorted by arrival, so that only ends of tasks need a heap.
"""

from __future__ import annotations

import math

from simulator.cluster.engine import ends, executors, rounds, rows, rule, tasks
from simulator.compiled import inner

#: Where ``advance`` stops: at the limit; in a round of offers; when no event is pending any more; and when Python must
#: prepare the next event (see ``is_prepared``).
LIMIT, ROUND, QUIET, UNPREPARED = range(4)

#: Kinds of the next arrival, see ``next_arrival``.
NO_ARRIVAL, _MOVE, _JOB = range(3)


@inner
def advance(state, keeps, now, limit_ms, limit_order, address, constants):
    """Process events from ``now``, ms, until a round opens, at most up to a point in the order of events.

    This is for clusters without faults; ``faults.py`` has the same loop for the others.

    A rule decides in rounds, if there is any and some stage is schedulable.

    Args:
        keeps: whether executors stay with their job, see ``BaseCluster.keeps_executors``.
        limit_ms: time of this point, ms.
        limit_order: insertion number of this point.
        address, constants: the rule, see ``rule.CompiledRule``.

    Returns:
        Time of the last event, ms; where the function stops, see ``LIMIT``; number of decisions taken on the
        scheduler's behalf.
    """
    cluster, decisions, any_event = state.cluster[0], 0, False
    while True:
        if cluster.offered > 0:
            decided = decide(state, keeps, now, address, constants) if address != 0 else 0
            if decided == 0:
                return now, ROUND, decisions
            decisions += decided
            continue
        if not is_prepared(state):
            return now, UNPREPARED, decisions
        next_ms, next_order, kind = next_arrival(state, limit_ms, limit_order)
        time_ms, happened, executor, job, offered = ends.run_tasks(state, next_ms, next_order)
        if executor < 0 and kind == NO_ARRIVAL:
            break
        now, any_event = time_ms, True
        if executor < 0:
            decisions += arrive(state, kind, next_order, keeps, now)
        else:
            decisions += end_task(state, happened, executor, job, offered, keeps, now)
    if any_event and next_event(state)[0] == math.inf:
        return now, QUIET, decisions
    return now, LIMIT, decisions


@inner
def decide(state, keeps, now, address, constants):
    """Let a rule decide in the open round; return the number of decisions, 0 if its decision is not valid."""
    cluster, target, count = state.cluster[0], executors.IDLE, state.cluster[0].offered
    source = state.jobs[cluster.source_job].place if cluster.source_job >= 0 else -1
    if rows.update(state, cluster.offered_class) > 0:
        first_job, first_row = (
            cluster.offered_class * len(state.jobs),
            cluster.offered_class * len(state.stages),
        )
        jobs = state.seen_jobs[first_job : first_job + cluster.num_live]
        stages = state.seen_stages[first_row : first_row + cluster.num_rows]
        row, limit = rule.call(
            address, jobs, stages, source, cluster.offered, cluster.num_executors, constants
        )
        if row != -1:
            if row < 0 or row >= cluster.num_rows or stages[row].schedulable == 0:
                return 0
            job_row = stages[row].job
            held = jobs[job_row].executors - (cluster.offered if job_row == source else 0)
            if limit <= held:
                return 0
            chosen = state.jobs[state.live[job_row]]
            target, count = chosen.first_stage + row - chosen.first_row, min(limit - held, cluster.offered)
    rounds.commit(state, target, count, now)
    return 1 + rounds.open_next(state, keeps, now)


@inner
def next_arrival(state, limit_ms, limit_order):
    """Return time (ms), insertion number and kind of the next arrival of executors or of a job, or of the limit."""
    cluster, kind = state.cluster[0], NO_ARRIVAL
    if cluster.num_moved < cluster.num_moves:
        move = state.moves[cluster.num_moved]
        arrival_ms = move.time + cluster.moving_ms
        if arrival_ms < limit_ms or (arrival_ms == limit_ms and move.order < limit_order):
            limit_ms, limit_order, kind = arrival_ms, move.order, _MOVE
    if cluster.num_arrived < cluster.num_arriving:
        arrival_ms = state.jobs[cluster.num_arrived].arrival_ms
        order = cluster.arrival_order + cluster.num_arrived
        if arrival_ms < limit_ms or (arrival_ms == limit_ms and order < limit_order):
            limit_ms, limit_order, kind = arrival_ms, order, _JOB
    return limit_ms, limit_order, kind


@inner
def arrive(state, kind, order, keeps, now):
    """Process an arrival, see ``next_arrival``; return the number of decisions taken on the scheduler's behalf."""
    if kind == _MOVE:
        executors.end_moves(state, order, now)
        return 0
    state.cluster[0].now = now
    add_job(state, now)
    return rounds.offer_pools(state, -1, 0, keeps, now)


@inner
def next_event(state):
    """Return time (ms) and insertion number of the next event; infinite time if none is pending."""
    next_ms, next_order, _ = next_arrival(state, math.inf, 0)
    if state.cluster[0].num_running > 0 and not tasks.is_before(next_ms, next_order, state.heap[0]):
        return state.heap[0].time, state.heap[0].order
    return next_ms, next_order


@inner
def is_prepared(state):
    """Return whether the tables have room for the next event, and the next job has noise."""
    cluster = state.cluster[0]
    return (
        cluster.num_moves + len(state.executors) <= len(state.moves)
        and cluster.num_lost < len(state.executors)
        and (cluster.num_arrived < cluster.num_prepared or cluster.num_arrived == cluster.num_arriving)
    )


@inner
def add_job(state, now):
    """Add the next job, which arrives."""
    job = state.cluster[0].num_arrived
    state.cluster[0].num_arrived += 1
    rounds.add_job(state, job)
    _log_change(state, job, now)


@inner
def _log_change(state, job, now):
    """Log that a job arrives, or that a job has ended (-1 - job)."""
    cluster = state.cluster[0]
    change, free = state.changes[cluster.num_changes], 0
    for class_id in range(cluster.num_classes):
        free += state.classes[class_id].free
    change.job, change.time, change.idle_ms = job, now, cluster.idle_ms + free * now
    cluster.num_changes += 1


@inner
def end_task(state, happened, executor, job, offered, keeps, now):
    """Continue after the end of a task, see ``ends.run_tasks``; return the number of decisions taken."""
    if happened == 0:  # no other executor is concerned
        return 0
    decisions = rounds.after_task(state, happened, executor, job, offered, keeps, now)
    if happened & (executors.JOB_COMPLETE | executors.JOB_FAILED):
        _log_change(state, -1 - job, now)
    return decisions
