"""Compiled: functions that Python calls. Each takes the cluster's ``Memory`` and makes one step of the simulation.

``now`` is the current time, ms.
"""

from __future__ import annotations

from simulator.cluster.engine import events, executors, rounds, rows
from simulator.cluster.engine.state import view
from simulator.compiled import compiled, inner

#: Actions of ``advance``.
BEGIN, DECIDE, OFFER_FREE, GO_ON = range(4)


@compiled
def advance(memory, action, target, count, keeps, now, limit_ms, limit_order, address, constants):
    """Carry out an action; after a decision or ``GO_ON``, process events until a round opens, see ``events.advance``.

    This is for clusters without faults; the others have ``faults.advance``.

    Args:
        action: ``BEGIN``: add jobs that arrive at time 0, and offer the common pools. ``DECIDE``: commit executors.
            ``OFFER_FREE``: offer all free executors that some stage could use. ``GO_ON``: no action.
        target: of a decision: a schedulable stage, or ``IDLE``.
        count: of a decision: number of executors, from 1 to the number offered; clipped to the stage's unclaimed tasks.

    Returns:
        See ``events.advance``; its other arguments are explained there, too.
    """
    state = view(memory)
    decisions = act(state, action, target, count, keeps, now)
    if action in (BEGIN, OFFER_FREE):
        return now, events.LIMIT, decisions
    now, reached, more = events.advance(state, keeps, now, limit_ms, limit_order, address, constants)
    return now, reached, decisions + more


@inner
def act(state, action, target, count, keeps, now):
    """Carry out an action, see ``advance``; return the number of decisions taken on the scheduler's behalf."""
    cluster = state.cluster[0]
    cluster.now = now
    if action == BEGIN:
        while cluster.num_arrived < cluster.num_arriving and state.jobs[cluster.num_arrived].arrival_ms == 0:
            events.add_job(state, now)
        cluster.arrival_order = cluster.next_order - cluster.num_arrived
        cluster.next_order += cluster.num_arriving - cluster.num_arrived
        cluster.next_pool = 0  # capacity changes at time 0 have advanced it
        return rounds.open_next(state, keeps, now)
    if action == OFFER_FREE:
        return rounds.offer_free(state, keeps, now)
    if action == DECIDE:
        rounds.commit(state, target, count, now)
        return rounds.open_next(state, keeps, now)
    return 0


@compiled
def join(memory, joining, now):
    """Put executors ``joining``, int64, which join the cluster, into the common pools."""
    state = view(memory)
    state.cluster[0].now = now
    for executor in joining:
        executors.go_to_common_pool(state, executor)


@compiled
def next_event(memory):
    """See ``events.next_event``."""
    return events.next_event(view(memory))


@compiled
def is_wanted(memory):
    """Return whether some stage could use an executor that is in a pool; no round is open."""
    return executors.find_wanted(view(memory))


@compiled
def observe(memory, seen_classes):
    """Update the rows of the offered executor class that a scheduler sees, see ``Observation``.

    Args:
        seen_classes: ``CLASS`` [classes]; ``free`` is filled in.

    Returns:
        Index of the source job among the live jobs, or -1; number of schedulable stages.
    """
    state = view(memory)
    for class_id in range(len(seen_classes)):
        seen_classes[class_id].free = state.classes[class_id].free
    job = state.cluster[0].source_job
    source = state.jobs[job].place if job >= 0 else -1
    return source, rows.update(state, state.cluster[0].offered_class)
