"""Compiled placement of tasks in a space of resources and time.

A space stores the free resources as a step function over unbounded time: ``free[i]`` from ``times[i]`` until
``times[i + 1]``. Placement is forward only; to place tasks backward, mirror the DAG and the space.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled, inner

__all__ = ["ROUNDING", "Dag", "list_schedule", "mirrored", "serial_schedule", "surrounded"]

#: Allowed relative excess over the capacity, for rounding errors of sums.
ROUNDING = 1e-9


class Dag(NamedTuple):
    """Stages of a project and their edges as arrays; see ``Project``.

    Stage s has the tasks ``first[s]`` to ``first[s + 1] - 1`` and the parents ``parents[parents_from[s] :
    parents_from[s + 1]]``. Arrays of children have the same form.
    """

    durations: NDArray[np.float64]
    demands: NDArray[np.float64]
    capacity: NDArray[np.float64]
    first: NDArray[np.int64]
    parents_from: NDArray[np.int64]
    parents: NDArray[np.int64]
    children_from: NDArray[np.int64]
    children: NDArray[np.int64]


class Space(NamedTuple):
    """Free resources over time; start and finish of placed tasks [N]; each stage's number of placed tasks [n]."""

    times: NDArray[np.float64]
    free: NDArray[np.float64]
    size: NDArray[np.int64]
    start: NDArray[np.float64]
    finish: NDArray[np.float64]
    placed: NDArray[np.int64]


def mirrored(dag: Dag) -> Dag:
    """Return the DAG with reversed edges, for time that runs backward."""
    return dag._replace(
        parents_from=dag.children_from,
        parents=dag.children,
        children_from=dag.parents_from,
        children=dag.parents,
    )


@compiled
def serial_schedule(dag, sequence):
    """Place tasks one by one, each as early as possible (serial schedule generation).

    Args:
        dag: the DAG of the tasks.
        sequence: stages of the tasks in this order, parents first, int64 [N].

    Returns:
        Start times, float64 [N].
    """
    space = _empty(dag)
    for stage in sequence:
        _place(dag, space, stage, 0.0)
    return space.start


@compiled
def surrounded(dag, mirror, sets, passes):
    """Place sets of stages in sequence, forward or backward, around the tasks that are already placed.

    Args:
        dag: the DAG of the stages.
        mirror: the mirrored DAG.
        sets: set number of each stage, int64 [n].
        passes: sets to place in this order, int64 [., 2]: number of the set; 1 for backward, 0 for forward.

    Returns:
        Start times, float64 [N], at least 0; NaN for tasks of sets that are not placed.
    """
    space = _empty(dag)
    for row in range(len(passes)):
        if passes[row, 1]:
            _turn(space)
            _place_set(mirror, space, sets == passes[row, 0])
            _turn(space)
        else:
            _place_set(dag, space, sets == passes[row, 0])
    return space.start - np.nanmin(space.start)


@compiled
def list_schedule(dag, priority, aligned):
    """Plan by list scheduling: at each event, start ready tasks that fit, highest priority first.

    Args:
        dag: the DAG of the tasks.
        priority: priority of each task, float64 [N]; tasks of a stage start in order of their numbers.
        aligned: whether the priority is the demand's alignment with the free resources instead, as in Tetris.

    Returns:
        Start times, float64 [N].
    """
    count = len(priority)
    stages = len(dag.durations)
    start, finish = np.full(count, np.inf), np.full(count, np.inf)
    free = dag.capacity * (1 + ROUNDING)
    begun, ended = np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    waits = dag.parents_from[1:] - dag.parents_from[:-1]
    stage_of = np.empty(count, np.int64)
    for stage in range(stages):
        stage_of[dag.first[stage] : dag.first[stage + 1]] = stage
    running = np.empty(count, np.int64)
    num_running, num_ended, now = 0, 0, 0.0
    while num_ended < count:
        while True:
            best, best_score = -1, -np.inf
            for stage in range(stages):
                task = dag.first[stage] + begun[stage]
                if waits[stage] or task == dag.first[stage + 1] or not _fits(dag.demands[stage], free):
                    continue
                score = _alignment(dag, stage, free) if aligned else priority[task]
                if score > best_score + ROUNDING:
                    best, best_score = stage, score
            if best < 0:
                break
            task = dag.first[best] + begun[best]
            begun[best] += 1
            start[task], finish[task] = now, now + dag.durations[best]
            free -= dag.demands[best]
            running[num_running] = task
            num_running += 1
        now = np.inf
        for index in range(num_running):
            now = min(now, finish[running[index]])
        kept = 0
        for index in range(num_running):
            task = running[index]
            if finish[task] > now:
                running[kept] = task
                kept += 1
                continue
            stage = stage_of[task]
            free += dag.demands[stage]
            num_ended += 1
            ended[stage] += 1
            if ended[stage] == dag.first[stage + 1] - dag.first[stage]:
                for child in dag.children[dag.children_from[stage] : dag.children_from[stage + 1]]:
                    waits[child] -= 1
        num_running = kept
    return start


@inner(arrays=True)
def _alignment(dag, stage, free):
    """Return the dot product of a task's demand and the free resources, as shares of the capacity."""
    total = 0.0
    for resource in range(len(free)):
        total += dag.demands[stage, resource] * free[resource] / dag.capacity[resource] ** 2
    return total


@inner(arrays=True)
def _empty(dag):
    """Return an empty space."""
    count = dag.first[-1]
    times = np.empty(2 * count + 2)
    free = np.empty((2 * count + 2, len(dag.capacity)))
    times[0] = -np.inf
    free[0] = dag.capacity * (1 + ROUNDING)
    size = np.ones(1, np.int64)
    start, finish = np.full(count, np.nan), np.full(count, np.nan)
    return Space(times, free, size, start, finish, np.zeros(len(dag.durations), np.int64))


@inner(arrays=True)
def _turn(space):
    """Reverse the time of a space in place."""
    size = space.size[0]
    space.times[1:size] = -space.times[1:size][::-1].copy()
    space.free[:size] = space.free[:size][::-1].copy()
    start = space.start.copy()
    space.start[:] = -space.finish
    space.finish[:] = -start


@inner(arrays=True)
def _place_set(dag, space, chosen):
    """Place a set of stages as early as possible; among stages without a parent in the set, the longest task first.

    Stages without placed parents start no earlier than the first placed task.
    """
    earliest = 0.0 if np.isnan(space.start).all() else np.nanmin(space.start)
    for _ in range(chosen.sum()):
        best = -1
        for stage in range(len(chosen)):
            if chosen[stage] and (best < 0 or dag.durations[stage] > dag.durations[best]):
                waits = False
                for parent in dag.parents[dag.parents_from[stage] : dag.parents_from[stage + 1]]:
                    waits |= chosen[parent]
                if not waits:
                    best = stage
        chosen[best] = False
        for _ in range(dag.first[best + 1] - dag.first[best]):
            _place(dag, space, best, earliest)


@inner(arrays=True)
def _place(dag, space, stage, earliest):
    """Place the next task of a stage in the first gap that is large enough."""
    duration, demand = dag.durations[stage], dag.demands[stage]
    task = dag.first[stage] + space.placed[stage]
    # Gaps only shrink: a gap too small for the stage's previous task is too small for the next one.
    start = space.start[task - 1] if space.placed[stage] else _ready(dag, space, stage, earliest)
    if duration > 0:
        here = np.searchsorted(space.times[: space.size[0]], start, side="right") - 1
        while here < space.size[0] and space.times[here] < start + duration:
            if not _fits(demand, space.free[here]):
                start = space.times[here + 1]
            here += 1
        for gap in range(_cut(space, start), _cut(space, start + duration)):
            space.free[gap] -= demand
    space.start[task], space.finish[task] = start, start + duration
    space.placed[stage] += 1


@inner(arrays=True)
def _ready(dag, space, stage, earliest):
    """Return the earliest start of a stage: the end of its placed parents, or ``earliest`` if that is later."""
    for parent in dag.parents[dag.parents_from[stage] : dag.parents_from[stage + 1]]:
        for task in range(dag.first[parent], dag.first[parent] + space.placed[parent]):
            earliest = max(earliest, space.finish[task])
    return earliest


@inner(arrays=True)
def _fits(demand, free):
    fits = True
    for resource in range(len(free)):
        fits &= demand[resource] <= free[resource]
    return fits


@inner(arrays=True)
def _cut(space, time):
    """Split the space at a time and return the index of the gap that starts at this time."""
    size = space.size[0]
    index = np.searchsorted(space.times[:size], time)
    if index == size or space.times[index] > time:
        for other in range(size, index, -1):
            space.times[other] = space.times[other - 1]
            space.free[other] = space.free[other - 1]
        space.times[index] = time
        space.free[index] = space.free[index - 1]
        space.size[0] += 1
    return index
