"""Compiled: a job alone, stage by stage, without drawing a duration or counting through its tasks.

Executors form groups that become free together; a stage hands whole rounds of tasks to groups. Functions are handed
records and record arrays: a tuple of arrays would be counted at each call, which takes longer than to serve a stage.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.cluster.engine.durations import level_above
from simulator.compiled import compiled, inner
from workloads.job import Wave

__all__ = ["LEVEL", "STAGE", "estimate", "fill_levels"]

#: Groups of executors that are told apart between two stages.
MOST_GROUPS = 4

_FRESH, _FIRST, _REST = int(Wave.FRESH), int(Wave.FIRST), int(Wave.REST)

#: What compiled code knows of a stage.
STAGE = np.dtype(
    (
        np.record,
        [
            ("num_tasks", np.int64),
            ("seats", np.int64),  # executors that cover its demand
            ("num_parents", np.int64),
            ("first_child", np.int64),  # in `children`
            ("end_child", np.int64),
            ("first_level", np.int64),  # in `levels`
            ("end_level", np.int64),
        ],
    )
)

#: One parallelism level of one stage. Of each wave: what tasks take, warm-up included.
LEVEL = np.dtype(
    (np.record, [("level", np.int64), ("mean_ms", np.float64, (3,)), ("variance", np.float64, (3,))])
)

#: Executors that become free at the same time.
GROUP = np.dtype(
    (
        np.record,
        [
            ("free_ms", np.float64),
            ("count", np.int64),
            ("cold", np.int64),  # 1 if they have not worked yet
            ("begun", np.int64),  # 1 if they work on the stage that is being served
        ],
    )
)


@compiled
def fill_levels(levels, cells, values, warmup_ms):
    """Fill ``levels`` with the moments of a profile's ``DurationTables``."""
    for number in range(len(levels)):
        levels[number].level = cells[number].level
        for wave in range(3):
            first = cells[number].first[wave]
            cell = values[first : first + cells[number].count[wave]]
            levels[number].mean_ms[wave] = cell.mean() + cells[number].cold[wave] * warmup_ms
            levels[number].variance[wave] = cell.var()


@inner(arrays=True)
def _task(stage, levels, wave, parallelism, nearest):
    """What a task takes: mean and variance, ms and ms²."""
    above, chance_of_low = level_above(levels, stage.first_level, stage.end_level, parallelism, nearest)
    mean_ms, variance = levels[above].mean_ms[wave], levels[above].variance[wave]
    if chance_of_low > 0:
        apart_ms = levels[above - 1].mean_ms[wave] - mean_ms
        mean_ms += chance_of_low * apart_ms
        variance += chance_of_low * (levels[above - 1].variance[wave] - variance)
        variance += chance_of_low * (1 - chance_of_low) * apart_ms * apart_ms
    return mean_ms, variance


@inner(arrays=True)
def _largest_normal(count):
    """The expected largest of so many standard normal numbers, within 0.07."""
    return math.sqrt(2 * math.log(count)) - 0.6 if count > 1 else 0.0


@compiled
def estimate(times, work, limits, stages, children, levels, moving_ms, nearest, keeps_jvm):
    """Estimate how long a job takes alone with each limit, and how long executors work on each of its stages.

    Args:
        times: float64 [limits], ms; filled.
        work: float64 [limits, stages], executor time, ms; filled.
        limits: int64, executors.
        stages: ``STAGE``.
        children: int64, of all stages.
        levels: ``LEVEL``, of all stages.
        moving_ms: how long executors are on their way.
        nearest, keeps_jvm: switches of ``Semantics``.
    """
    num_stages = len(stages)
    crew = np.empty(MOST_GROUPS + 2, GROUP)  # serving a stage splits two groups at most
    open_parents, open_ms = np.empty(num_stages, np.int64), np.empty(num_stages)
    ready = np.empty(num_stages, np.int64)  # stages in the order in which they open
    for number in range(len(limits)):
        executors, num_ready = 0, 0
        open_ms[:] = 0.0
        for stage in range(num_stages):
            executors = min(executors + stages[stage].num_tasks, limits[number])
            open_parents[stage] = stages[stage].num_parents
            if open_parents[stage] == 0:
                ready[num_ready] = stage
                num_ready += 1
        crew[0].free_ms, crew[0].count, crew[0].cold = moving_ms, executors, 1
        groups = 1
        for served in range(num_stages):
            stage = ready[served]
            now = open_ms[stage]
            groups, end_ms, work[number, stage] = _serve(
                stages[stage], levels, now, crew, groups, executors, nearest, keeps_jvm
            )
            groups = _regroup(crew, groups)
            times[number] = max(times[number], end_ms)
            for edge in range(stages[stage].first_child, stages[stage].end_child):
                child = children[edge]
                open_parents[child] -= 1
                open_ms[child] = max(open_ms[child], end_ms)
                if open_parents[child] == 0:
                    place = num_ready
                    while place > served + 1 and open_ms[ready[place - 1]] > open_ms[child]:
                        ready[place] = ready[place - 1]
                        place -= 1
                    ready[place] = child
                    num_ready += 1


@inner(arrays=True)
def _serve(stage, levels, open_ms, crew, groups, executors, nearest, keeps_jvm):
    """Hand out all tasks of a stage.

    Returns:
        The number of groups, when the stage is complete, and what its tasks take together, ms.
    """
    rest_ms, rest_variance = _task(stage, levels, _REST, executors, nearest)
    first_ms, first_variance = 0.0, 0.0
    left, working, end_ms, work_ms = stage.num_tasks, 0, 0.0, 0.0
    cold = 0
    for place in range(groups):
        crew[place].begun = 0
        cold += crew[place].count * crew[place].cold
    while left > 0:
        earliest = _earliest(crew, groups, open_ms, stage.seats > working)
        group = crew[earliest]
        if group.begun:
            done = _advance(crew, groups, group.free_ms, open_ms, rest_ms, left, stage.seats > working)
            work_ms += done * rest_ms
            left -= done
        most = left if group.begun else min(left, stage.seats - working)
        if group.count > most:
            other = crew[groups]
            other.free_ms, other.cold, other.begun = group.free_ms, group.cold, group.begun
            other.count, group.count = group.count - most, most
            groups += 1
        if group.begun:
            group.free_ms += rest_ms
            work_ms += group.count * rest_ms
        else:
            waited = group.free_ms < open_ms and not keeps_jvm
            wave = _FRESH if group.cold or waited else _FIRST
            first_ms, first_variance = _task(stage, levels, wave, executors, nearest)
            if group.cold and open_ms == 0:
                # They arrive one after the other, and count as parallelism from then on.
                first_ms = 0.0
                for _ in range(group.count):
                    cold -= 1
                    first_ms += _task(stage, levels, _FRESH, executors - cold, nearest)[0] / group.count
            group.free_ms = max(group.free_ms, open_ms) + first_ms
            work_ms += group.count * first_ms
            working += group.count
            group.begun, group.cold = 1, 0
        left -= group.count
        end_ms = max(end_ms, group.free_ms)
    late = 0
    for place in range(groups):
        if crew[place].begun and crew[place].free_ms >= end_ms - rest_ms / 2:
            late += crew[place].count
    # Chance: executors get out of step, by half a task at most, and the last tasks take longer than others.
    rounds, apart_ms, last_variance = stage.num_tasks / working - 1, 0.0, first_variance
    if rounds > 0:
        spread = math.sqrt(first_variance + max(rounds - 1, 0.0) * rest_variance)
        apart_ms, last_variance = min(spread * _largest_normal(working), rest_ms / 2), rest_variance
    last_ms = math.sqrt(last_variance) * _largest_normal(late)
    share = late / working
    return groups, end_ms - apart_ms * (1 - share) + math.hypot(apart_ms * share, last_ms), work_ms


@inner(arrays=True)
def _earliest(crew, groups, open_ms, seats_left):
    """The group that takes the stage's next task: a place in ``crew``."""
    earliest, now = -1, math.inf
    for place in range(groups):
        if (crew[place].begun or seats_left) and max(crew[place].free_ms, open_ms) < now:
            earliest, now = place, max(crew[place].free_ms, open_ms)
    return earliest


@inner(arrays=True)
def _advance(crew, groups, now, open_ms, rest_ms, left, seats_left):
    """Let executors in step run whole rounds of tasks until others arrive; returns the number of tasks."""
    in_step, until_ms = 0, math.inf
    for place in range(groups):
        if crew[place].begun and crew[place].free_ms <= now + rest_ms:
            in_step += crew[place].count
        elif crew[place].begun or seats_left:
            until_ms = min(until_ms, max(crew[place].free_ms, open_ms))
    rounds = max(left // in_step - 1, 0)
    if rounds * rest_ms > until_ms - now:
        rounds = int((until_ms - now) / rest_ms)
    for place in range(groups):
        if crew[place].begun and crew[place].free_ms <= now + rest_ms:
            crew[place].free_ms += rounds * rest_ms
    return rounds * in_step


@inner(arrays=True)
def _regroup(crew, groups):
    """Sort the groups, and join the nearest while there are too many; returns their number."""
    for place in range(1, groups):
        while place > 0 and crew[place].free_ms < crew[place - 1].free_ms:
            one, other = crew[place - 1], crew[place]
            one.free_ms, other.free_ms = other.free_ms, one.free_ms
            one.count, other.count = other.count, one.count
            one.cold, other.cold = other.cold, one.cold
            place -= 1
    while True:
        first, gap_ms = -1, math.inf if groups > MOST_GROUPS else 0.0
        for place in range(groups - 1):
            apart_ms = crew[place + 1].free_ms - crew[place].free_ms
            if apart_ms <= gap_ms and crew[place].cold == crew[place + 1].cold:
                first, gap_ms = place, apart_ms
        if first < 0:
            return groups
        joined, later = crew[first], crew[first + 1]
        joined.count += later.count
        joined.free_ms += gap_ms * later.count / joined.count
        for place in range(first + 1, groups - 1):
            crew[place].free_ms, crew[place].count = crew[place + 1].free_ms, crew[place + 1].count
            crew[place].cold = crew[place + 1].cold
        groups -= 1
