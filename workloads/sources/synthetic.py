"""Synthetic jobs that resemble the TPC-H jobs of Decima's experiments, without any measured data.

The jobs have the properties that make scheduling hard: DAGs of varied shape; total work with a heavy tail; slow first
tasks of an executor in a job and in a stage; and *work inflation*: tasks take longer if their job holds more executors,
differently in each stage, so that every job has a parallelism beyond which more executors hardly help.

Sources: Decima (SIGCOMM 2019), section 2 (figures 2 and 3), section 6.2, section 7.2 and appendix F. With the
numbers below, jobs that arrive every 25 s on average keep 50 executors about 80% busy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import RandomStream, random_stream
from workloads.errors import check_instance, check_whole
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError

__all__ = ["random_dag", "synthetic_profiles"]

#: Parallelism levels at which durations are given, as in the published profiles.
LEVELS = np.array([5, 10, 20, 40, 50, 60, 80, 100])

#: Input sizes, GB; number and duration of tasks grow with the size.
_SIZES = (2, 5, 10, 20, 50, 100)

#: Level whose mean duration schedulers see: jobs that share a cluster seldom hold many more executors.
_KNOWN_LEVEL = 10

#: Number of durations per wave and level of a stage. All have the same relative spread.
_NUM_SAMPLES = 12


def synthetic_profiles(num_profiles: int = 100, seed: int = 0) -> tuple[JobProfile, ...]:
    """Generate the first ``num_profiles`` jobs, of 2 to 18 stages, of the infinite list of jobs of a seed.

    Raises:
        WorkloadError: ``num_profiles`` is below 1, or the seed is negative.
    """
    check_whole(num_profiles, "num_profiles", WorkloadError, 1)
    return tuple(_job(index, seed) for index in range(num_profiles))


def random_dag(num_stages: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw a random DAG: a chain, a tree, diamonds, forks and joins, or a mixture.

    Stages are numbered in topological order. In most DAGs the last stage is the only one without children.

    Returns:
        Edges, int64 [num_edges, 2], (parent, child), ascending, without duplicates.
    """
    check_whole(num_stages, "num_stages", WorkloadError, 1)
    check_instance(random, np.random.Generator, "random", WorkloadError)
    # Probabilities that a stage reads only input, reads two stages, and reads a stage that others may read, too. One
    # DAG in ten is a chain; the others are trees or, if the last probability is high, have diamonds.
    limits = (0.0, 0.0, 0.0) if random.random() < 0.1 else (0.5, 0.8, 0.3)
    source, join, reread = random.uniform(0.0, limits)
    edges: list[tuple[int, int]] = []
    unread: list[int] = [0]
    for stage in range(1, num_stages):
        parents: set[int] = set()
        if stage == num_stages - 1 and random.random() < 0.9:
            parents.update(unread)
        elif random.random() >= source:
            parents.add(_choice(unread, random))
            if random.random() < join:
                parents.add(_choice(unread, random))
            if random.random() < reread:
                parents.add(int(random.integers(stage)))
        edges.extend((parent, stage) for parent in parents)
        unread = [other for other in unread if other not in parents] + [stage]
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


def _choice(stages: list[int], random: np.random.Generator) -> int:
    return stages[int(random.integers(len(stages)))]


def _job(index: int, seed: int) -> JobProfile:
    random = random_stream(seed, RandomStream.GENERATOR, index)
    num_stages = 2 + int(random.binomial(16, random.beta(2.0, 2.4)))
    edges = random_dag(num_stages, random)
    size = random.choice(_SIZES) * random.lognormal(0.0, 0.5)
    return JobProfile(f"synthetic-{index}", tuple(_stage(size, random) for _ in range(num_stages)), edges)


def _stage(size: float, random: np.random.Generator) -> StageProfile:
    num_tasks = int(np.clip(random.lognormal(np.log(2.8 * size**0.6), 1.2), 1, 500))
    typical_ms = random.lognormal(np.log(330.0 * size**0.4), 0.65)
    return StageProfile(num_tasks, _durations(typical_ms, random))


def _durations(typical_ms: float, random: np.random.Generator) -> TaskDurations:
    """Draw durations in whole ms around ``typical_ms``, the duration in later waves at the lowest level."""
    noise = random.lognormal(0.0, random.uniform(0.1, 0.5), size=_NUM_SAMPLES)
    inflation = 1.0 + random.lognormal(np.log(0.012), 0.6) * (LEVELS - LEVELS[0])
    durations = np.empty((len(Wave), len(LEVELS), _NUM_SAMPLES))
    durations[Wave.REST] = typical_ms * np.outer(inflation, noise)
    durations[Wave.FIRST] = durations[Wave.REST] * random.uniform(1.2, 2.0)
    durations[Wave.FRESH] = durations[Wave.FIRST] + random.uniform(500.0, 1500.0)
    durations = np.maximum(1.0, np.rint(durations))
    stops = np.arange(1, len(Wave) * len(LEVELS) + 1).reshape(len(Wave), len(LEVELS)) * _NUM_SAMPLES
    cells = np.stack((stops - _NUM_SAMPLES, stops), axis=-1)
    known_ms = float(durations[:, LEVELS == _KNOWN_LEVEL].mean())
    return TaskDurations(LEVELS, durations.ravel(), cells, known_ms)
