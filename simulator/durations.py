"""From a stage, a wave and the number of executors to the duration of a task, with common random numbers.

The noise of a task is two uniform numbers that depend on the sequence's seed and on (job, stage, task) only, never
on when or where a scheduler starts the task: one chooses between two parallelism levels, one the duration within
the cell (wave, level). Two schedulers on the same sequence therefore meet the same luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import RandomStream, random_stream
from workloads.job import TaskDurations, Wave

__all__ = ["DurationTables", "draw_duration", "task_noise"]

# Where an empty cell takes its durations from, in order.
_FALLBACK = {
    Wave.FRESH: (Wave.FRESH, Wave.FIRST, Wave.REST),
    Wave.FIRST: (Wave.FIRST, Wave.FRESH, Wave.REST),
    Wave.REST: (Wave.REST, Wave.FIRST, Wave.FRESH),
}


@dataclass(frozen=True, eq=False)
class DurationTables:
    """Durations of many stages in flat arrays that compiled code reads. L levels over all stages, V values.

    Attributes:
        values: float64 [V], ms.
        levels: int64 [L], parallelism levels, stage by stage.
        first_level: int64 [num_stages + 1], where a stage's levels begin.
        cells: int64 [L, 3, 3]: of each (level, wave) the first value, the number of values, and whether the
            warm-up delay is added.
    """

    values: NDArray[np.float64]
    levels: NDArray[np.int64]
    first_level: NDArray[np.int64]
    cells: NDArray[np.int64]

    @classmethod
    def join(cls, tables: Sequence[DurationTables]) -> DurationTables:
        """One table after the other."""
        values_before = np.cumsum([0, *(len(table.values) for table in tables)])
        levels_before = np.cumsum([0, *(len(table.levels) for table in tables)])
        cells = np.concatenate([table.cells for table in tables])
        cells[:, :, 0] += np.repeat(values_before[:-1], np.diff(levels_before))[:, None]
        return cls(
            np.concatenate([table.values for table in tables]),
            np.concatenate([table.levels for table in tables]),
            np.concatenate(
                [table.first_level[:-1] + before for table, before in zip(tables, levels_before, strict=False)]
                + [levels_before[-1:]]
            ),
            cells,
        )

    @classmethod
    def of_stage(cls, durations: TaskDurations) -> DurationTables:
        """The tables of one stage, with empty cells resolved."""
        start, stop = durations.cells[..., 0].T, durations.cells[..., 1].T
        length = stop - start
        cells = np.zeros((len(durations.levels), 3, 3), dtype=np.int64)
        for wave, sources in _FALLBACK.items():
            source = np.array(sources)[np.argmax(length[:, sources] > 0, axis=1)]
            level = np.arange(len(durations.levels))
            cells[:, wave, 0] = start[level, source]
            cells[:, wave, 1] = length[level, source]
            cells[:, wave, 2] = (wave == Wave.FRESH) & (source != Wave.FRESH)
        return cls(durations.values, durations.levels, np.array([0, len(durations.levels)]), cells)


def task_noise(seed: int, job: int, num_tasks: int) -> NDArray[np.float32]:
    """The luck of a job's tasks, stage by stage: float32 [2, num_tasks], uniform on [0, 1).

    The first row chooses the parallelism level, the second the duration.
    """
    return random_stream(seed, RandomStream.TASK_DURATIONS, job).random((2, num_tasks), dtype=np.float32)


@numba.njit(cache=True, inline="always")
def _level_index(levels, first, last, parallelism, luck, nearest):  # type: ignore[no-untyped-def]
    """Index of the level to use for ``parallelism`` executors; ``levels[first:last]`` are the stage's."""
    above = first
    while above < last and levels[above] < parallelism:
        above += 1
    if above == last:
        return last - 1
    if above == first or levels[above] == parallelism:
        return above
    low, high = levels[above - 1], levels[above]
    # The published simulator has this probability upside-down.
    chance_of_low = (high - parallelism if nearest else parallelism - low) / (high - low)
    return above - 1 if luck < chance_of_low else above


@numba.njit(cache=True, inline="always")
def draw_duration(  # type: ignore[no-untyped-def]
    values, levels, cells, first, last, wave, parallelism, level_luck, luck, nearest, warmup_ms
):
    """Duration of a task, ms: the level for ``parallelism`` executors, then a value of the cell (level, wave)."""
    level = _level_index(levels, first, last, parallelism, level_luck, nearest)
    cell = cells[level, wave]
    return values[cell[0] + int(luck * cell[1])] + cell[2] * warmup_ms
