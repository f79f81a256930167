"""Random numbers of an episode, derived from the seed of its sequence, and task durations drawn from them.

All schedulers meet the same noise and the same faults on the same sequence (common random numbers). Outages of an
executor depend on (seed, executor) only. Failure, delay and noise of a task attempt depend on (seed, job, stage, task,
attempt) only, not on when and where a scheduler starts the task.

The noise of a task is two uniform random numbers: one chooses between two parallelism levels, the other chooses a
duration in the cell (wave, level). ``engine/draws.py`` has the compiled versions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.faults import Faults
from workloads.arrivals import RandomStream, random_stream
from workloads.job import TaskDurations, Wave

_WORD = 0xFFFFFFFF
#: Added to the purpose of a random number for the speculative copy of a task.
COPY = 4


class Purpose(IntEnum):
    """Purpose of a random number of a task attempt."""

    FAILS = 0
    STRAGGLES = 1
    LEVEL = 2
    DURATION = 3


def chance(key: int, *path: int) -> float:
    """Return a uniform random number on [0, 1), a multiple of 2^-24: a hash of ``key`` and ``path``."""
    for part in path:
        key = (key + (part + 1) * 0x9E3779B1) & _WORD
        key = ((key >> 16) ^ key) * 0x45D9F3B & _WORD
        key = ((key >> 16) ^ key) * 0x45D9F3B & _WORD
        key = (key >> 16) ^ key
    return (key >> 8) / 2**24


def executor_keys(seed: int, num_executors: int) -> list[int]:
    """Return the hash key of each executor's outages, which does not depend on the number of executors."""
    keys: list[int] = random_stream(seed, RandomStream.FAULTS).integers(2**32, size=num_executors).tolist()
    return keys


def job_key(seed: int, job: int) -> int:
    """Return the hash key of the random numbers of a job's tasks."""
    return int(random_stream(seed, RandomStream.FAULTS, job).integers(2**32))


def outage_ms(faults: Faults, key: int, number: int) -> float:
    """Return the time from change ``number`` - 1 of an executor to change ``number``, ms; infinite if none comes.

    Args:
        faults: mean times until an executor is lost, and until it returns.
        key: hash key of the executor, from ``executor_keys``.
        number: number of the change: even for a loss, odd for a return.
    """
    mean_ms = faults.executor_return_ms if number % 2 else faults.executor_lifetime_ms
    return -mean_ms * math.log(1 - chance(key, number)) if math.isfinite(mean_ms) else math.inf


def duration_ms(
    config: ClusterConfig,
    durations: TaskDurations,
    wave: Wave,
    parallelism: int,
    level_noise: float,
    value_noise: float,
) -> float:
    """Return the duration of a task, ms.

    Args:
        durations: measured durations of the task's stage.
        parallelism: number of executors of the job when the task starts.
        level_noise: random number that chooses the parallelism level, in [0, 1).
        value_noise: random number that chooses a duration of the cell (wave, level), in [0, 1).
    """
    column, chance_of_low = _level(config, durations, parallelism)
    cell = _cell(config, durations, wave, column - (level_noise < chance_of_low))
    return float(cell[int(value_noise * len(cell))])


def longer_ms(
    config: ClusterConfig,
    durations: TaskDurations,
    wave: Wave,
    parallelism: int,
    noise: tuple[float, float],
    start_ms: float,
    now_ms: float,
) -> float | None:
    """Return the duration, ms, of a task that started at ``start_ms``, given that it ends after ``now_ms``.

    None if no measured duration is long enough. For the other arguments see ``duration_ms``.
    """
    level_noise, value_noise = noise
    column, chance_of_low = _level(config, durations, parallelism)
    high, low = (_cell(config, durations, wave, level) for level in (column, max(column - 1, 0)))
    long_high, long_low = (cell[start_ms + cell > now_ms] for cell in (high, low))
    weight_low = chance_of_low * len(long_low) / len(low)
    weight = weight_low + (1.0 - chance_of_low) * len(long_high) / len(high)
    if weight == 0:
        return None
    cell = long_low if level_noise * weight < weight_low else long_high
    return float(cell[int(value_noise * len(cell))])


def _level(config: ClusterConfig, durations: TaskDurations, parallelism: int) -> tuple[int, float]:
    """Return the column of the level for ``parallelism`` executors, and the probability of the next lower one."""
    levels: list[int] = durations.levels.tolist()
    column = min(bisect_left(levels, parallelism), len(levels) - 1)
    if column == 0 or levels[column] <= parallelism:
        return column, 0.0
    low, high = levels[column - 1], levels[column]
    # The published simulator swaps the probabilities of the two levels.
    distance = high - parallelism if config.semantics.nearest_level else parallelism - low
    return column, distance / (high - low)


def _cell(config: ClusterConfig, durations: TaskDurations, wave: Wave, column: int) -> NDArray[np.float64]:
    """Return the durations of a wave at a parallelism level, float64 [durations], ms."""
    cells = durations.cells[:, column].tolist()
    # An empty cell takes its durations from the nearest wave; of two equally near, from the earlier one.
    source = min(
        (candidate for candidate in Wave if cells[candidate][0] < cells[candidate][1]),
        key=lambda candidate: abs(candidate - wave),
    )
    warmup_ms = config.warmup_delay_ms if wave == Wave.FRESH != source else 0.0
    return durations.values[slice(*cells[source])] + warmup_ms
