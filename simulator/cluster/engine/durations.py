"""Compiled: draw task durations, as in ``simulator.cluster.durations``, from tables in flat arrays."""

from __future__ import annotations

from simulator.compiled import inner

__all__ = ["draw_duration", "draw_longer", "level_above"]


@inner
def level_above(levels, first, end, parallelism, nearest):  # type: ignore[no-untyped-def]
    """Choose the parallelism level for ``parallelism`` executors from ``levels[first:end]``, the levels of a stage.

    Returns:
        Index of the level in ``levels``; probability that the next lower level is used instead.
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
def draw_duration(  # type: ignore[no-untyped-def]
    values, levels, first, end, wave, parallelism, level_noise, value_noise, nearest, warmup_ms
):
    """Draw the duration of a task, ms, from the cell (level for ``parallelism`` executors, wave)."""
    above, chance_of_low = level_above(levels, first, end, parallelism, nearest)
    level = levels[above - 1 if level_noise < chance_of_low else above]
    return values[level.first[wave] + int(value_noise * level.count[wave])] + level.cold[wave] * warmup_ms


@inner
def draw_longer(  # type: ignore[no-untyped-def]
    values,
    levels,
    first,
    end,
    wave,
    parallelism,
    level_noise,
    value_noise,
    nearest,
    warmup_ms,
    start_ms,
    now_ms,
):
    """Draw the duration, ms, of a task that started at ``start_ms`` and ends after ``now_ms``; 0 if none is so long."""
    above, chance_of_low = level_above(levels, first, end, parallelism, nearest)
    high, low = levels[above], levels[max(above - 1, first)]
    num_high = _count_longer(values, high, wave, warmup_ms, start_ms, now_ms)
    num_low = _count_longer(values, low, wave, warmup_ms, start_ms, now_ms)
    weight_low = chance_of_low * num_low / low.count[wave]
    weight = weight_low + (1.0 - chance_of_low) * num_high / high.count[wave]
    if weight == 0:
        return 0.0
    if level_noise * weight < weight_low:
        return _longer(values, low, wave, warmup_ms, start_ms, now_ms, int(value_noise * num_low))
    return _longer(values, high, wave, warmup_ms, start_ms, now_ms, int(value_noise * num_high))


@inner
def _count_longer(values, level, wave, warmup_ms, start_ms, now_ms):  # type: ignore[no-untyped-def]
    """Return the number of durations of a level with which a task ends after ``now_ms``."""
    longer = 0
    for place in range(level.first[wave], level.first[wave] + level.count[wave]):
        longer += start_ms + (values[place] + level.cold[wave] * warmup_ms) > now_ms
    return longer


@inner
def _longer(values, level, wave, warmup_ms, start_ms, now_ms, number):  # type: ignore[no-untyped-def]
    """Return duration ``number``, ms, of those in a level with which a task ends after ``now_ms``."""
    for place in range(level.first[wave], level.first[wave] + level.count[wave]):
        task_ms = values[place] + level.cold[wave] * warmup_ms
        if start_ms + task_ms > now_ms:
            if number == 0:
                return task_ms
            number -= 1
    return 0.0
