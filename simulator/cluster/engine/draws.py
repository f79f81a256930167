"""Compiled: random numbers of one attempt at a task, and durations drawn from them.

They are those of ``simulator.cluster.draws``. Durations come from tables in flat arrays.
"""

from __future__ import annotations

from simulator.compiled import inner

# Purposes of random numbers, see `simulator.cluster.draws.Purpose`.
FAILS, STRAGGLES, LEVEL, DURATION = 0, 1, 2, 3
#: Added to the purpose for the speculative copy of a task.
COPY = 4


@inner
def _mix(key, number):
    key = (key + (int(number) + 1) * 0x9E3779B1) & 0xFFFFFFFF
    key = ((key >> 16) ^ key) * 0x45D9F3B & 0xFFFFFFFF
    key = ((key >> 16) ^ key) * 0x45D9F3B & 0xFFFFFFFF
    return (key >> 16) ^ key


@inner
def chance(state, job, task, purpose):
    """Return the uniform random number for a purpose and the current attempt at a task of a job."""
    owner = state.jobs[job]
    task_number = task - state.stages[owner.first_stage].first_task
    return (_mix(_mix(_mix(owner.key, task_number), state.tasks[task].attempt), purpose) >> 8) / 16777216.0


@inner
def delay_factor(state, job, task, copy):
    """Return the straggler factor of the current attempt at a task (``copy`` 0), or of its copy (``copy`` COPY)."""
    cluster = state.cluster[0]
    drawn = chance(state, job, task, STRAGGLES + copy)
    return cluster.straggler_factor if drawn < cluster.straggler_share else 1.0


@inner
def level_above(levels, first, end, parallelism, nearest):
    """Choose the parallelism level for ``parallelism`` executors from ``levels[first:end]``, the levels of a stage.

    Returns its index in ``levels``, and the probability that the next lower level is used instead.
    """
    above = first
    while above < end - 1 and levels[above].level < parallelism:
        above += 1
    high = levels[above].level
    if above == first or high <= parallelism:
        return above, 0.0
    low = levels[above - 1].level
    # The published simulator swaps the probabilities of the two levels.
    return above, (high - parallelism if nearest else parallelism - low) / (high - low)


@inner
def draw_duration(state, stage, wave, parallelism, level_noise, value_noise):
    """Draw the duration of a task of a stage (a record), ms, from the cell (level for ``parallelism``, wave)."""
    cluster, levels = state.cluster[0], state.levels
    above, chance_of_low = level_above(
        levels, stage.first_level, stage.end_level, parallelism, cluster.nearest_level == 1
    )
    level = levels[above - 1 if level_noise < chance_of_low else above]
    task_ms = state.values[level.first[wave] + int(value_noise * level.count[wave])]
    return (task_ms + level.cold[wave] * cluster.warmup_ms) * stage.factor
