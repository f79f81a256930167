"""Random numbers of faults, derived from the seed of the sequence.

All schedulers meet the same faults (common random numbers). Outages of an executor depend on (seed, executor) only.
Failure, delay and noise of a task attempt depend on (seed, job, stage, task, attempt) only, not on when and where a
scheduler starts the task.
"""

from __future__ import annotations

import math
from enum import IntEnum

from simulator.cluster.faults import Faults
from workloads.arrivals import RandomStream, random_stream

__all__ = ["COPY", "Purpose", "chance", "executor_keys", "job_key", "outage_ms"]

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
    for number in path:
        key = (key + (number + 1) * 0x9E3779B1) & _WORD
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
