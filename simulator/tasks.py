"""Compiled: running tasks in bulk, and the bookkeeping of stages that goes with it.

Rules are those of the published simulator. Saturated: ``started + claimed >= num_tasks``. Schedulable: not chosen
in this round, not saturated, and all parents saturated. Ready: all parents complete and not all tasks started.
"""

from __future__ import annotations

import numba
import numpy as np

from simulator.durations import draw_duration
from simulator.state import views
from workloads.job import Wave

__all__ = [
    "advance",
    "claim",
    "first_ready",
    "first_schedulable",
    "is_schedulable",
    "observe",
    "start_task",
]

_FRESH, _FIRST, _REST = int(Wave.FRESH), int(Wave.FIRST), int(Wave.REST)


@numba.njit(cache=True, inline="always")
def _adjust(view, stage, started, claimed):  # type: ignore[no-untyped-def]
    """Change a stage's counts; where that saturates it or ends its saturation, tell its children and its job."""
    before = view.num_tasks[stage] - view.started[stage] - view.claimed[stage]
    view.started[stage] += started
    view.claimed[stage] += claimed
    after = before - started - claimed
    if (before > 0) == (after > 0):
        return
    change = 1 if after > 0 else -1
    view.job_unsaturated[view.stage_job[stage]] += change
    first = view.first_child[stage]
    for child in view.children[first : first + view.num_children[stage]]:
        view.open_parents[child] += change


@numba.njit(cache=True)
def claim(integers, stage, count):  # type: ignore[no-untyped-def]
    """``count`` more executors (fewer if negative) are committed to the stage or moving to it."""
    _adjust(views(integers), stage, 0, count)


@numba.njit(cache=True, inline="always")
def _run(view, task_time, task_run, noise, values, executor, stage, now, nearest, warmup_ms):  # type: ignore[no-untyped-def]
    """Hand the stage's next task to an executor on it; returns when it will be finished, ms."""
    task = view.first_task[stage] + view.started[stage]
    memory = view.executor_memory[executor]
    wave = _FRESH if memory < 0 else _REST if memory == stage else _FIRST
    parallelism = view.job_attached[view.stage_job[stage]]
    finish = now + draw_duration(
        values,
        view.levels,
        view.cells,
        view.first_level[stage],
        view.last_level[stage],
        wave,
        parallelism,
        noise[0, task],
        noise[1, task],
        nearest,
        warmup_ms,
    )
    view.executor_memory[executor] = stage
    view.executor_task[executor] = task
    task_time[0, task] = now
    task_time[1, task] = finish
    task_run[0, task] = executor
    task_run[1, task] = wave
    task_run[2, task] = parallelism
    return finish


@numba.njit(cache=True)
def start_task(  # type: ignore[no-untyped-def]
    integers, heap_time, task_time, task_run, noise, values, executor, stage, claimed, now, nearest, warmup_ms
):
    """An executor of the stage's job begins to work on the stage; ``claimed`` is 1 if a claim is used up by it."""
    view = views(integers)
    kind = view.executor_class[executor]
    old = view.executor_stage[executor]
    finish = _run(view, task_time, task_run, noise, values, executor, stage, now, nearest, warmup_ms)
    if old >= 0:
        view.running[kind, old] -= 1
    view.running[kind, stage] += 1
    view.executor_stage[executor] = stage
    _adjust(view, stage, 1, -claimed)
    order = view.next_order[0]
    view.next_order[0] += 1
    _push(view, heap_time, finish, order, executor)


@numba.njit(cache=True)
def advance(  # type: ignore[no-untyped-def]
    integers, heap_time, task_time, task_run, noise, values, limit_ms, limit_order, nearest, warmup_ms
):
    """Run tasks up to (``limit_ms``, ``limit_order``) or until an executor finds its stage dry.

    Returns:
        (time in ms, that executor or -1, whether its stage completed and thereby opened another).
    """
    view = views(integers)
    while view.heap_size[0] > 0:
        now = heap_time[0]
        if now > limit_ms or (now == limit_ms and view.heap_order[0] > limit_order):
            break
        executor = view.heap_executor[0]
        stage = view.executor_stage[executor]
        view.finished[stage] += 1
        if view.started[stage] == view.num_tasks[stage]:
            _pop(view, heap_time)
            opened = view.finished[stage] == view.num_tasks[stage] and _complete(view, stage)
            return now, executor, opened
        finish = _run(view, task_time, task_run, noise, values, executor, stage, now, nearest, warmup_ms)
        _adjust(view, stage, 1, 0)
        order = view.next_order[0]
        view.next_order[0] += 1
        _sift_down(view, heap_time, finish, order, executor)
    return np.inf, -1, False


@numba.njit(cache=True)
def _complete(view, stage):  # type: ignore[no-untyped-def]
    """All tasks of the stage are finished: open its children; returns whether there were any to open."""
    view.job_incomplete[view.stage_job[stage]] -= 1
    opened = False
    first = view.first_child[stage]
    for child in view.children[first : first + view.num_children[stage]]:
        view.incomplete_parents[child] -= 1
        if view.incomplete_parents[child] == 0:
            view.open_order[child] = view.num_opened[0]
            view.num_opened[0] += 1
            opened = True
    return opened


@numba.njit(cache=True, inline="always")
def _before(time, order, other_time, other_order):  # type: ignore[no-untyped-def]
    return time < other_time or (time == other_time and order < other_order)


@numba.njit(cache=True)
def _push(view, heap_time, time, order, executor):  # type: ignore[no-untyped-def]
    place = view.heap_size[0]
    view.heap_size[0] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if not _before(time, order, heap_time[parent], view.heap_order[parent]):
            break
        heap_time[place] = heap_time[parent]
        view.heap_order[place] = view.heap_order[parent]
        view.heap_executor[place] = view.heap_executor[parent]
        place = parent
    heap_time[place] = time
    view.heap_order[place] = order
    view.heap_executor[place] = executor


@numba.njit(cache=True)
def _pop(view, heap_time):  # type: ignore[no-untyped-def]
    view.heap_size[0] -= 1
    last = view.heap_size[0]
    if last > 0:
        _sift_down(view, heap_time, heap_time[last], view.heap_order[last], view.heap_executor[last])


@numba.njit(cache=True)
def _sift_down(view, heap_time, time, order, executor):  # type: ignore[no-untyped-def]
    """Replace the heap's first entry."""
    size = view.heap_size[0]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        right = child + 1
        if right < size and _before(
            heap_time[right], view.heap_order[right], heap_time[child], view.heap_order[child]
        ):
            child = right
        if not _before(heap_time[child], view.heap_order[child], time, order):
            break
        heap_time[place] = heap_time[child]
        view.heap_order[place] = view.heap_order[child]
        view.heap_executor[place] = view.heap_executor[child]
        place = child
    heap_time[place] = time
    view.heap_order[place] = order
    view.heap_executor[place] = executor


@numba.njit(cache=True, inline="always")
def _schedulable(view, kind, stage):  # type: ignore[no-untyped-def]
    return (
        view.num_tasks[stage] > view.started[stage] + view.claimed[stage]
        and view.open_parents[stage] == 0
        and view.selected[stage] == 0
        and view.fits[kind, stage] == 1
    )


@numba.njit(cache=True)
def is_schedulable(integers, kind, stage):  # type: ignore[no-untyped-def]
    """Whether executors of the class may be committed to the stage, if its job is live."""
    return _schedulable(views(integers), kind, stage)


@numba.njit(cache=True)
def first_ready(integers, job, kind):  # type: ignore[no-untyped-def]
    """The job's first stage, in the order in which they became ready, that is not saturated; -1 if none."""
    view = views(integers)
    best = -1
    for stage in range(view.job_first_stage[job], view.job_first_stage[job] + view.job_num_stages[job]):
        if (
            view.open_order[stage] >= 0
            and view.num_tasks[stage] > view.started[stage] + view.claimed[stage]
            and view.fits[kind, stage] == 1
            and (best < 0 or view.open_order[stage] < view.open_order[best])
        ):
            best = stage
    return best


@numba.njit(cache=True)
def first_schedulable(integers, live, kind):  # type: ignore[no-untyped-def]
    """The first schedulable stage over the live jobs (int64 [jobs]) in order; -1 if none."""
    view = views(integers)
    for job in live:
        for stage in range(view.job_first_stage[job], view.job_first_stage[job] + view.job_num_stages[job]):
            if _schedulable(view, kind, stage):
                return stage
    return -1


@numba.njit(cache=True)
def observe(integers, live, kind):  # type: ignore[no-untyped-def]
    """What a scheduler may see of the live jobs (int64 [jobs]), as two int64 arrays; rows as in ``Observation``."""
    view = views(integers)
    total = 0
    for job in live:
        total += view.job_num_stages[job]
    jobs = np.empty((5, len(live)), dtype=np.int64)
    stages = np.empty((9, total), dtype=np.int64)
    column = 0
    for number in range(len(live)):
        job = live[number]
        jobs[0, number] = job
        jobs[1, number] = column
        jobs[2, number] = view.job_executors[job]
        jobs[3, number] = view.job_unsaturated[job]
        jobs[4, number] = view.job_incomplete[job]
        for stage in range(view.job_first_stage[job], view.job_first_stage[job] + view.job_num_stages[job]):
            left = view.num_tasks[stage] - view.started[stage]
            stages[0, column] = stage
            stages[1, column] = number
            stages[2, column] = view.num_tasks[stage]
            stages[3, column] = left
            stages[4, column] = max(left - view.claimed[stage], 0)
            stages[5, column] = 0
            for other in range(len(view.running)):
                stages[5, column] += view.running[other, stage]
            stages[6, column] = view.finished[stage]
            stages[7, column] = view.open_order[stage] if left > 0 else -1
            stages[8, column] = _schedulable(view, kind, stage)
            column += 1
    return jobs, stages
