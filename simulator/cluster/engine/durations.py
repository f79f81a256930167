"""Compiled: durations of tasks as in ``simulator.cluster.durations``, from tables in flat arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import inner
from workloads.job import JobProfile, Wave

__all__ = ["LEVEL", "draw_duration", "draw_longer", "duration_tables", "level_above"]

# Waves whose durations an empty cell takes, in order of preference.
_FALLBACK = {
    Wave.FRESH: (Wave.FRESH, Wave.FIRST, Wave.REST),
    Wave.FIRST: (Wave.FIRST, Wave.FRESH, Wave.REST),
    Wave.REST: (Wave.REST, Wave.FIRST, Wave.FRESH),
}


#: One parallelism level of one stage. For each wave: place of its first duration, number of durations, and 1 if the
#: warm-up delay is added.
LEVEL = np.dtype(
    (
        np.record,
        [
            ("level", np.int64),
            ("first", np.int64, (3,)),
            ("count", np.int64, (3,)),
            ("cold", np.int64, (3,)),
        ],
    )
)


def duration_tables(profile: JobProfile) -> tuple[NDArray[np.float64], NDArray[np.void], NDArray[np.int64]]:
    """Return the durations of a job's stages as flat arrays, with values for empty cells.

    Returns:
        Durations, float64, ms; ``LEVEL`` of all stages; number of levels of each stage, int64 [num_stages].
    """
    stages = [stage.durations for stage in profile.stages]
    values_before = np.cumsum([0, *(stage.values.size for stage in stages)])
    num_levels = np.array([stage.levels.size for stage in stages])
    cells = np.concatenate([stage.cells for stage in stages], axis=1)
    cells += np.repeat(values_before[:-1], num_levels)[:, None]
    start, stop = cells[..., 0].T, cells[..., 1].T
    every = np.arange(len(start))
    levels = np.zeros(len(start), dtype=LEVEL)
    levels["level"] = np.concatenate([stage.levels for stage in stages])
    for wave, sources in _FALLBACK.items():
        source = np.array(sources)[np.argmax((stop > start)[:, sources], axis=1)]
        levels["first"][:, wave] = start[every, source]
        levels["count"][:, wave] = (stop - start)[every, source]
        levels["cold"][:, wave] = (wave == Wave.FRESH) & (source != Wave.FRESH)
    return np.concatenate([stage.values for stage in stages]), levels, num_levels


@inner
def level_above(levels, first, end, parallelism, nearest):  # type: ignore[no-untyped-def]
    """Choose the level for ``parallelism`` executors among those of a stage, ``levels[first:end]``.

    Returns:
        Place of the level, and probability that the level below it is used instead.
    """
    above = first
    while above < end - 1 and levels[above].level < parallelism:
        above += 1
    high = levels[above].level
    if above == first or high <= parallelism:
        return above, 0.0
    low = levels[above - 1].level
    # The published simulator has this probability upside-down.
    return above, (high - parallelism if nearest else parallelism - low) / (high - low)


@inner
def draw_duration(  # type: ignore[no-untyped-def]
    values, levels, first, end, wave, parallelism, level_noise, value_noise, nearest, warmup_ms
):
    """Return the duration of a task, ms: a value of the cell (level for ``parallelism`` executors, wave)."""
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
    """Return the duration of a task that started at ``start_ms``, ms, if it ends after ``now_ms``; 0 for none."""
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
    """Count the durations of a level that end after ``now_ms``."""
    longer = 0
    for place in range(level.first[wave], level.first[wave] + level.count[wave]):
        longer += start_ms + (values[place] + level.cold[wave] * warmup_ms) > now_ms
    return longer


@inner
def _longer(values, level, wave, warmup_ms, start_ms, now_ms, number):  # type: ignore[no-untyped-def]
    """Return duration ``number``, ms, among those of a level that end after ``now_ms``."""
    for place in range(level.first[wave], level.first[wave] + level.count[wave]):
        task_ms = values[place] + level.cold[wave] * warmup_ms
        if start_ms + task_ms > now_ms:
            if number == 0:
                return task_ms
            number -= 1
    return 0.0
