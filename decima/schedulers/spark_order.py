"""Spark's own scheduling inside one application, from its event log: FIFO's order of stages, FAIR's pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decima.schedulers.base import Scheduler, all_offered
from decima.schedulers.spark_fair import SparkFair
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation

__all__ = ["SparkFifo", "SparkPools"]


class SparkFifo(Scheduler):
    """Stages in the order of their Spark jobs, as Spark's FIFO mode serves them.

    With adaptive execution a query is several Spark jobs, one a stage, each submitted when its parents end. So later
    stages queue behind the first stages of later queries. Without it a query is one Spark job, and all its stages have
    the place of the first.

    Meant for ``SPARK`` semantics, where executors are offered after each task.

    Source: Spark 3.5, ``FIFOSchedulingAlgorithm``: by the number of the Spark job, then of the stage.

    Args:
        adaptive: for each job of the sequence, whether its stages are Spark jobs of their own.
    """

    def __init__(self, adaptive: Sequence[bool]) -> None:
        self._adaptive = adaptive
        self._first: dict[int, int] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Drop the order of arrivals of the last episode."""
        self._first = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Return the ready stage whose Spark job was submitted first, with all executors offered."""
        ranks = observation.ready_rank
        best, chosen = (0, 0), -1
        for stage in np.flatnonzero(observation.schedulable & (ranks >= 0)).tolist():
            job, rank = int(observation.job_id[observation.stage_job[stage]]), int(ranks[stage])
            first = self._first.setdefault(job, rank)
            key = (rank if self._adaptive[job] else first, rank)
            if chosen < 0 or key < best:
                best, chosen = key, stage
        return all_offered(observation, chosen) if chosen >= 0 else None


class SparkPools(SparkFair):
    """Spark's FAIR mode with the names that the jobs' pools had.

    Args:
        names: for each job of the sequence; they should differ.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def pool(self, job: int) -> str:
        """Return the name of a job's pool."""
        return self._names[job]
