"""Compiled: executors that are lost."""

from __future__ import annotations

from simulator.cluster.engine import executors, lost, tasks
from simulator.cluster.engine.state import view
from simulator.compiled import compiled, inner


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
        executors.unclaim(state, -1, runner.target, 1)
        runner.target = -1
    elif runner.stage >= 0:
        source = executors.source_of(state, executor)
        left = state.pairs[tasks.pair_of(state, runner.stage, runner.class_id)].running - 1
        job = runner.job
        tasks.remove(state, executor)
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
        if not executors.is_void(state, state.commitments[commitment].target):
            total += state.commitments[commitment].count
        commitment = state.commitments[commitment].next
    return total


@inner
def _drop_newest(state, source, job):
    """Cancel the commitment of one executor: the newest commitment of a source of ``job`` that is not void."""
    commitments, origin = state.commitments, state.sources[source]
    newest, before_newest, before, number = -1, -1, -1, origin.first
    while number >= 0:
        if not executors.is_void(state, commitments[number].target):
            newest, before_newest = number, before
        before, number = number, commitments[number].next
    commitment = commitments[newest]
    executors.unclaim(state, job, commitment.target, 1)
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
