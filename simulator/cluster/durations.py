"""From a wave and the number of executors to the duration of a task, with common random numbers.

The noise of a task is two uniform numbers that depend on the sequence's seed and on (job, stage, task) only, never
on when or where a scheduler starts the task: one chooses between two parallelism levels, one the duration within
the cell (wave, level). Two schedulers on the same sequence therefore meet the same luck.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from workloads.arrivals import RandomStream, random_stream
from workloads.job import TaskDurations, Wave

__all__ = ["duration_ms", "task_noise"]


def task_noise(seed: int, job: int, num_tasks: int) -> NDArray[np.float32]:
    """The luck of a job's tasks, stage by stage: float32 [2, num_tasks], uniform on [0, 1).

    The first row chooses the parallelism level, the second the duration.
    """
    return random_stream(seed, RandomStream.TASK_DURATIONS, job).random((2, num_tasks), dtype=np.float32)


def duration_ms(
    config: ClusterConfig,
    durations: TaskDurations,
    wave: Wave,
    parallelism: int,
    level_luck: float,
    luck: float,
) -> float:
    """How long a task takes, ms, that starts while its job has ``parallelism`` executors."""
    levels: list[int] = durations.levels.tolist()
    column = min(bisect_left(levels, parallelism), len(levels) - 1)
    if column > 0 and levels[column] > parallelism:
        low, high = levels[column - 1], levels[column]
        # The published simulator has this probability upside-down.
        distance = high - parallelism if config.semantics.nearest_level else parallelism - low
        column -= level_luck < distance / (high - low)
    cells = durations.cells[:, column].tolist()
    # An empty cell takes its durations from the nearest wave, of two the earlier one.
    source = min(
        (each for each in Wave if cells[each][0] < cells[each][1]), key=lambda each: abs(each - wave)
    )
    start, stop = cells[source]
    warmup_ms = config.warmup_delay_ms if wave == Wave.FRESH != source else 0.0
    return float(durations.values[start + int(luck * (stop - start))]) + warmup_ms
