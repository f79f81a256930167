"""Compiled: estimate a job's time alone stage by stage, from means and variances of its task durations.

Executors form groups that become free together. A group takes whole rounds of tasks of a stage, so that the cost does
not depend on the number of tasks. Arguments are records and record arrays: counting references to a tuple of arrays at
each call would take longer than serving a stage.
"""

from __future__ import annotations

import math

import numpy as np

from simulator.cluster.engine.draws import level_above
from simulator.compiled import compiled, inner, record
from workloads.job import Wave

#: Largest number of executor groups between two stages.
MOST_GROUPS = 4

_FRESH, _FIRST, _REST = int(Wave.FRESH), int(Wave.FIRST), int(Wave.REST)

#: One parallelism level of one stage: moments of the durations of each wave, warm-up included.
LEVEL = record(("level", np.int64), ("mean_ms", np.float64, (3,)), ("variance", np.float64, (3,)))

#: A group: executors that become free at the same time.
GROUP = record(
    ("free_ms", np.float64),
    ("count", np.int64),
    ("cold", np.int64),  # 1 if the executors have not run a task yet
    ("begun", np.int64),  # 1 if the executors have run a task of the current stage
)


@compiled
def fill_levels(levels, cells, values, warmup_ms):
    """Fill ``levels`` with means and variances of durations; ``cells`` and ``values`` are of a ``Packed`` profile."""
    for index in range(len(levels)):
        levels[index].level = cells[index].level
        for wave in range(3):
            first = cells[index].first[wave]
            cell = values[first : first + cells[index].count[wave]]
            levels[index].mean_ms[wave] = cell.mean() + cells[index].cold[wave] * warmup_ms
            levels[index].variance[wave] = cell.var()


@inner(arrays=True)
def _task(stage, levels, wave, parallelism, nearest):
    """Return mean, ms, and variance, ms², of the duration of a stage's task."""
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
    """Return the expected maximum of ``count`` standard normal random numbers, within 0.07."""
    return math.sqrt(2 * math.log(count)) - 0.6 if count > 1 else 0.0


@compiled
def estimate(times, work, limits, stages, turn, seats, children, levels, moving_ms, nearest, keeps_jvm):
    """Estimate the completion time of a job alone with each limit, and the executor time of each stage.

    Args:
        times: float64 [limits], ms; filled in.
        work: float64 [limits, stages], executor time, ms; filled in.
        limits: int64 [limits], numbers of executors.
        stages: ``profiles.STAGE`` [stages].
        turn: int64 [stages], order of stages that become ready at the same time.
        seats: int64 [stages], executors of the cluster that cover the demand of a task.
        children: int64 [edges], children of all stages.
        levels: ``LEVEL``, levels of all stages.
        moving_ms: moving delay of executors, ms.
        nearest, keeps_jvm: switches of ``Semantics``.
    """
    num_stages = len(stages)
    groups = np.empty(MOST_GROUPS + 2, GROUP)  # serving a stage splits two groups at most
    open_parents, open_ms = np.empty(num_stages, np.int64), np.empty(num_stages)
    ready = np.empty(num_stages, np.int64)  # stages in the order in which they become ready
    by_turn = np.empty(num_stages, np.int64)
    by_turn[turn] = np.arange(num_stages)
    for index in range(len(limits)):
        executors, num_ready = 0, 0
        open_ms[:] = 0.0
        for stage in by_turn:
            executors = min(executors + stages[stage].num_tasks, limits[index])
            open_parents[stage] = stages[stage].open_parents
            if open_parents[stage] == 0:
                ready[num_ready] = stage
                num_ready += 1
        groups[0].free_ms, groups[0].count, groups[0].cold = moving_ms, executors, 1
        num_groups = 1
        for served in range(num_stages):
            stage = ready[served]
            now = open_ms[stage]
            num_groups, end_ms, work[index, stage] = _serve(
                stages[stage], seats[stage], levels, now, groups, num_groups, executors, nearest, keeps_jvm
            )
            num_groups = _regroup(groups, num_groups)
            times[index] = max(times[index], end_ms)
            for edge in range(stages[stage].first_child, stages[stage].end_child):
                child = children[edge]
                open_parents[child] -= 1
                open_ms[child] = max(open_ms[child], end_ms)
                if open_parents[child] == 0:
                    position = num_ready
                    while position > served + 1 and (
                        open_ms[ready[position - 1]] > open_ms[child]
                        or (
                            open_ms[ready[position - 1]] == open_ms[child]
                            and turn[ready[position - 1]] > turn[child]
                        )
                    ):
                        ready[position] = ready[position - 1]
                        position -= 1
                    ready[position] = child
                    num_ready += 1


@inner(arrays=True)
def _serve(stage, seats, levels, open_ms, groups, num_groups, executors, nearest, keeps_jvm):
    """Advance the groups over all tasks of a stage that opens at ``open_ms``.

    Returns the number of groups; the stage's completion time, ms; and the total executor time of its tasks, ms.
    """
    rest_ms, rest_variance = _task(stage, levels, _REST, executors, nearest)
    first_ms, first_variance = 0.0, 0.0
    left, working, end_ms, work_ms = stage.num_tasks, 0, 0.0, 0.0
    cold = 0
    for index in range(num_groups):
        groups[index].begun = 0
        cold += groups[index].count * groups[index].cold
    while left > 0:
        earliest = _earliest(groups, num_groups, open_ms, seats > working)
        group = groups[earliest]
        if group.begun:
            done = _advance(groups, num_groups, group.free_ms, open_ms, rest_ms, left, seats > working)
            work_ms += done * rest_ms
            left -= done
        most = left if group.begun else min(left, seats - working)
        if group.count > most:
            other = groups[num_groups]
            other.free_ms, other.cold, other.begun = group.free_ms, group.cold, group.begun
            other.count, group.count = group.count - most, most
            num_groups += 1
        if group.begun:
            group.free_ms += rest_ms
            work_ms += group.count * rest_ms
        else:
            waited = group.free_ms < open_ms and not keeps_jvm
            wave = _FRESH if group.cold or waited else _FIRST
            first_ms, first_variance = _task(stage, levels, wave, executors, nearest)
            if group.cold and open_ms == 0:
                # Executors arrive one after another, and raise the parallelism of later tasks.
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
    for index in range(num_groups):
        if groups[index].begun and groups[index].free_ms >= end_ms - rest_ms / 2:
            late += groups[index].count
    # Noise: executors get out of step, by half a task at most, and the last tasks take longer than other tasks.
    rounds, apart_ms, last_variance = stage.num_tasks / working - 1, 0.0, first_variance
    if rounds > 0:
        spread = math.sqrt(first_variance + max(rounds - 1, 0.0) * rest_variance)
        apart_ms, last_variance = min(spread * _largest_normal(working), rest_ms / 2), rest_variance
    last_ms = math.sqrt(last_variance) * _largest_normal(late)
    share = late / working
    return num_groups, end_ms - apart_ms * (1 - share) + math.hypot(apart_ms * share, last_ms), work_ms


@inner(arrays=True)
def _earliest(groups, num_groups, open_ms, seats_left):
    """Return the index of the group that takes the next task of the stage."""
    earliest, now = -1, math.inf
    for index in range(num_groups):
        if (groups[index].begun or seats_left) and max(groups[index].free_ms, open_ms) < now:
            earliest, now = index, max(groups[index].free_ms, open_ms)
    return earliest


@inner(arrays=True)
def _advance(groups, num_groups, now, open_ms, rest_ms, left, seats_left):
    """Run whole rounds of tasks on executors in step, until others become free; return the number of tasks."""
    in_step, until_ms = 0, math.inf
    for index in range(num_groups):
        if groups[index].begun and groups[index].free_ms <= now + rest_ms:
            in_step += groups[index].count
        elif groups[index].begun or seats_left:
            until_ms = min(until_ms, max(groups[index].free_ms, open_ms))
    rounds = max(left // in_step - 1, 0)
    if rounds * rest_ms > until_ms - now:
        rounds = int((until_ms - now) / rest_ms)
    for index in range(num_groups):
        if groups[index].begun and groups[index].free_ms <= now + rest_ms:
            groups[index].free_ms += rounds * rest_ms
    return rounds * in_step


@inner(arrays=True)
def _regroup(groups, num_groups):
    """Sort the groups by time, and join the nearest ones while there are too many; return the number of groups."""
    for index in range(1, num_groups):
        while index > 0 and groups[index].free_ms < groups[index - 1].free_ms:
            one, other = groups[index - 1], groups[index]
            one.free_ms, other.free_ms = other.free_ms, one.free_ms
            one.count, other.count = other.count, one.count
            one.cold, other.cold = other.cold, one.cold
            index -= 1
    while True:
        first, gap_ms = -1, math.inf if num_groups > MOST_GROUPS else 0.0
        for index in range(num_groups - 1):
            apart_ms = groups[index + 1].free_ms - groups[index].free_ms
            if apart_ms <= gap_ms and groups[index].cold == groups[index + 1].cold:
                first, gap_ms = index, apart_ms
        if first < 0:
            return num_groups
        joined, later = groups[first], groups[first + 1]
        joined.count += later.count
        joined.free_ms += gap_ms * later.count / joined.count
        for index in range(first + 1, num_groups - 1):
            groups[index].free_ms = groups[index + 1].free_ms
            groups[index].count = groups[index + 1].count
            groups[index].cold = groups[index + 1].cold
        num_groups -= 1
