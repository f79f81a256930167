"""Compiled: events of clusters with faults, and executors that are lost. Other clusters do not load this module."""

from __future__ import annotations

import math

from simulator.cluster.engine import commands, copies, events, executors, failures, lost, rounds, tasks
from simulator.cluster.engine.state import view
from simulator.compiled import compiled, inner


@compiled
def advance(memory, action, target, count, keeps, now, limit_ms, limit_order, address, constants):
    """Carry out an action and process events, like ``commands.advance``, where task runs may fail or be copied."""
    state = view(memory)
    decisions = commands.act(state, action, target, count, keeps, now)
    if action in (commands.BEGIN, commands.OFFER_FREE):
        return now, events.LIMIT, decisions
    now, reached, more = _advance(state, keeps, now, limit_ms, limit_order, address, constants)
    return now, reached, decisions + more


@inner
def _advance(state, keeps, now, limit_ms, limit_order, address, constants):
    """Process events until a round opens, see ``events.advance``."""
    cluster, decisions, any_event = state.cluster[0], 0, False
    while True:
        if cluster.offered > 0:
            decided = events.decide(state, keeps, now, address, constants) if address != 0 else 0
            if decided == 0:
                return now, events.ROUND, decisions
            decisions += decided
            continue
        if not events.is_prepared(state):
            return now, events.UNPREPARED, decisions
        next_ms, next_order, kind = events.next_arrival(state, limit_ms, limit_order)
        if cluster.speculation_quantile > 0:
            end = copies.run_tasks(state, now, next_ms, next_order)
        else:
            end = failures.run_tasks(state, next_ms, next_order)
        time_ms, happened, executor, job, offered = end
        if executor < 0 and kind == events.NO_ARRIVAL:
            break
        now, any_event = time_ms, True
        if executor < 0:
            decisions += events.arrive(state, kind, next_order, keeps, now)
        elif happened & executors.FAILED:
            decisions += _end_run(state, executor, job, keeps, now)
        else:
            decisions += events.end_task(state, happened, executor, job, offered, keeps, now)
    if any_event and events.next_event(state)[0] == math.inf:
        return now, events.QUIET, decisions
    return now, events.LIMIT, decisions


@inner
def _end_run(state, executor, job, keeps, now):
    """End a run that fails or whose task was copied; return the number of decisions taken."""
    happened, offered, failed = failures.end_run(state, now)
    if happened == 0 and failed and state.cluster[0].lost_output == 1:
        return rounds.offer_free(state, keeps, now)  # tasks with lost outputs may have to run again
    decisions = events.end_task(state, happened, executor, job, offered, keeps, now)
    if happened & executors.JOB_FAILED:
        state.jobs[job].completion_ms = float("nan")
    return decisions


@compiled
def lose(memory, leaving, now):
    """Remove executors ``leaving``, int64, from the cluster; cancel their tasks, claims and commitments."""
    state = view(memory)
    state.cluster[0].now = now
    for executor in leaving:
        _lose(state, executor, now)
        if state.cluster[0].lost_output == 1:
            for index in range(state.cluster[0].num_live):
                lost.lose_outputs(state, state.live[index], executor)
                lost.recover(state, state.live[index], now)


@inner
def _lose(state, executor, now):
    runner = state.executors[executor]
    if runner.target >= 0:  # the executor is moving
        lost.unclaim(state, -1, runner.target, 1)
        runner.target = -1
    elif runner.stage >= 0:
        source = executors.source_of(state, executor)
        left = state.pairs[tasks.pair_of(state, runner.stage, runner.class_id)].running - 1
        job = runner.job
        lost.stop(state, executor)
        lost.lose_run(state, executor, now, lost.RUN_EXECUTOR_LOST)
        executors.detach(state, executor)
        if _num_committed(state, source) > left:
            _drop_newest(state, source, job)
    else:
        executors.leave_pool(state, executor)
        executors.detach(state, executor)


@inner
def _num_committed(state, source):
    """Return the number of executors of a source that are committed to live jobs or to stay idle."""
    total, commitment = 0, state.sources[source].first
    while commitment >= 0:
        if not lost.is_void(state, state.commitments[commitment].target):
            total += state.commitments[commitment].count
        commitment = state.commitments[commitment].next
    return total


@inner
def _drop_newest(state, source, job):
    """Cancel the commitment of one executor: the newest commitment of a source of ``job`` that is not void."""
    commitments, origin = state.commitments, state.sources[source]
    newest, before_newest, before, number = -1, -1, -1, origin.first
    while number >= 0:
        if not lost.is_void(state, commitments[number].target):
            newest, before_newest = number, before
        before, number = number, commitments[number].next
    commitment = commitments[newest]
    lost.unclaim(state, job, commitment.target, 1)
    commitment.count -= 1
    if commitment.count > 0:
        return
    if before_newest < 0:
        executors.drop(state, source)
        return
    commitments[before_newest].next = commitment.next
    if origin.last == newest:
        origin.last = before_newest
    commitment.next = state.cluster[0].free_commitment
    state.cluster[0].free_commitment = newest
