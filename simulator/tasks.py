"""Compiled: stages and their tasks. Handing out tasks, the queue of running ones, what is schedulable.

Rules are those of the published simulator. Saturated: ``started + claimed >= num_tasks``. Schedulable: not chosen
in this round, not saturated, all parents saturated, and the executor class covers the demand. Ready: all parents
complete and not all tasks started.
"""

from __future__ import annotations

import numba

from simulator.durations import draw_duration
from workloads.job import Wave

__all__ = ["adjust", "complete_stage", "first_ready", "first_schedulable", "is_schedulable", "leave_stage", "next_order", "next_task", "pop", "staff_of", "start"]

_FRESH, _FIRST, _REST = int(Wave.FRESH), int(Wave.FIRST), int(Wave.REST)


@numba.njit(cache=True)
def adjust(state, stage, started, claimed):  # type: ignore[no-untyped-def]
    """Change a stage's counts; where that saturates it, or ends its saturation, tell its children and its job."""
    before = state.stages[stage].num_tasks - state.stages[stage].started - state.stages[stage].claimed
    state.stages[stage].started += started
    state.stages[stage].claimed += claimed
    after = before - started - claimed
    if (before > 0) == (after > 0):
        return
    change = 1 if after > 0 else -1
    state.jobs[state.stages[stage].job].unsaturated += change
    for edge in range(state.stages[stage].first_child, state.stages[stage].end_child):
        child = state.children[edge]
        state.stages[child].open_parents += change


@numba.njit(cache=True)
def _run(state, executor, stage, now):  # type: ignore[no-untyped-def]
    """Hand the stage's next task to an executor; returns when it will be finished, ms."""
    task = state.stages[stage].first_task + state.stages[stage].started
    memory = state.executors[executor].memory
    wave = _FRESH if memory < 0 else _REST if memory == stage else _FIRST
    parallelism = state.jobs[state.stages[stage].job].attached
    finish = now + draw_duration(
        state.values,
        state.levels,
        state.stages[stage].first_level,
        state.stages[stage].end_level,
        wave,
        parallelism,
        state.tasks[task].level_luck,
        state.tasks[task].luck,
        state.cluster[0].nearest_level == 1,
        state.cluster[0].warmup_ms,
    )
    state.executors[executor].memory = stage
    state.tasks[task].start = now
    state.tasks[task].finish = finish
    state.tasks[task].executor = executor
    state.tasks[task].wave = wave
    state.tasks[task].parallelism = parallelism
    return finish


@numba.njit(cache=True)
def next_order(state):  # type: ignore[no-untyped-def]
    """The insertion number of an event; simultaneous events happen in this order."""
    order = state.cluster[0].next_order
    state.cluster[0].next_order += 1
    return order


@numba.njit(cache=True)
def staff_of(state, stage, kind):  # type: ignore[no-untyped-def]
    """Number of the executors of one class on a stage."""
    return stage * state.cluster[0].num_classes + kind


@numba.njit(cache=True)
def leave_stage(state, executor):  # type: ignore[no-untyped-def]
    """An executor is not on its stage any more, if it was on any."""
    stage = state.executors[executor].stage
    if stage >= 0:
        state.staff[staff_of(state, stage, state.executors[executor].kind)].running -= 1
        state.executors[executor].stage = -1


@numba.njit(cache=True)
def start(state, executor, stage, claimed, now):  # type: ignore[no-untyped-def]
    """An executor of the stage's job begins to work on the stage; ``claimed`` is 1 if that uses up a claim."""
    finish = _run(state, executor, stage, now)
    leave_stage(state, executor)
    state.executors[executor].stage = stage
    state.staff[staff_of(state, stage, state.executors[executor].kind)].running += 1
    adjust(state, stage, 1, -claimed)
    state.cluster[0].departure_order = -1
    _push(state, finish, next_order(state), executor)


@numba.njit(cache=True)
def next_task(state, stage, now):  # type: ignore[no-untyped-def]
    """The executor at the top of the heap is done with a task of the stage and takes the next one."""
    executor = state.executors[0].heap_executor
    finish = _run(state, executor, stage, now)
    adjust(state, stage, 1, 0)
    _sift_down(state, finish, next_order(state), executor)


@numba.njit(cache=True)
def complete_stage(state, stage):  # type: ignore[no-untyped-def]
    """All tasks of the stage are finished: its children may become ready; returns whether any did."""
    state.jobs[state.stages[stage].job].incomplete -= 1
    opened = False
    for edge in range(state.stages[stage].first_child, state.stages[stage].end_child):
        child = state.children[edge]
        state.stages[child].incomplete_parents -= 1
        if state.stages[child].incomplete_parents == 0:
            state.stages[child].open_order = state.cluster[0].num_opened
            state.cluster[0].num_opened += 1
            opened = True
    return opened


@numba.njit(cache=True)
def is_schedulable(state, kind, stage):  # type: ignore[no-untyped-def]
    """Whether executors of the class may be committed to a stage of a live job."""
    return (
        state.stages[stage].num_tasks > state.stages[stage].started + state.stages[stage].claimed
        and state.stages[stage].open_parents == 0
        and state.stages[stage].selected == 0
        and state.staff[staff_of(state, stage, kind)].fits == 1
    )


@numba.njit(cache=True)
def first_ready(state, job, kind):  # type: ignore[no-untyped-def]
    """The job's first stage, in the order in which they became ready, that is not saturated; -1 if none."""
    best = -1
    for stage in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        if (
            state.stages[stage].open_order >= 0
            and state.stages[stage].num_tasks > state.stages[stage].started + state.stages[stage].claimed
            and state.staff[staff_of(state, stage, kind)].fits == 1
            and (best < 0 or state.stages[stage].open_order < state.stages[best].open_order)
        ):
            best = stage
    return best


@numba.njit(cache=True)
def first_schedulable(state, kind):  # type: ignore[no-untyped-def]
    """The first schedulable stage over the live jobs in order of arrival; -1 if none."""
    for place in range(state.cluster[0].num_live):
        job = state.jobs[place].live
        if state.jobs[job].unsaturated > 0:
            for stage in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
                if is_schedulable(state, kind, stage):
                    return stage
    return -1


@numba.njit(cache=True, inline="always")
def _before(time, order, other_time, other_order):  # type: ignore[no-untyped-def]
    return time < other_time or (time == other_time and order < other_order)


@numba.njit(cache=True, inline="always")
def _put(state, place, time, order, executor):  # type: ignore[no-untyped-def]
    state.executors[place].heap_time = time
    state.executors[place].heap_order = order
    state.executors[place].heap_executor = executor


@numba.njit(cache=True)
def _push(state, time, order, executor):  # type: ignore[no-untyped-def]
    place = state.cluster[0].heap_size
    state.cluster[0].heap_size += 1
    while place > 0:
        parent = (place - 1) >> 1
        if not _before(time, order, state.executors[parent].heap_time, state.executors[parent].heap_order):
            break
        _put(state, place, state.executors[parent].heap_time, state.executors[parent].heap_order, state.executors[parent].heap_executor)
        place = parent
    _put(state, place, time, order, executor)


@numba.njit(cache=True)
def pop(state):  # type: ignore[no-untyped-def]
    """Take the first entry off the heap of running tasks."""
    state.cluster[0].heap_size -= 1
    last = state.cluster[0].heap_size
    if last > 0:
        _sift_down(state, state.executors[last].heap_time, state.executors[last].heap_order, state.executors[last].heap_executor)


@numba.njit(cache=True)
def _sift_down(state, time, order, executor):  # type: ignore[no-untyped-def]
    """Replace the heap's first entry."""
    size = state.cluster[0].heap_size
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _before(
            state.executors[child + 1].heap_time,
            state.executors[child + 1].heap_order,
            state.executors[child].heap_time,
            state.executors[child].heap_order,
        ):
            child += 1
        if not _before(state.executors[child].heap_time, state.executors[child].heap_order, time, order):
            break
        _put(state, place, state.executors[child].heap_time, state.executors[child].heap_order, state.executors[child].heap_executor)
        place = child
    _put(state, place, time, order, executor)
