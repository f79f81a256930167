"""Spark's standalone mode: the master grants executors to applications, drivers hand out tasks."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation

__all__ = ["SparkStandalone"]


class SparkStandalone(Scheduler):
    """Applications in order of arrival, each with the same number of executors until it ends.

    An application (job) may hold ``executors_max`` executors (``spark.cores.max``): with all of the cluster
    they run one after the other, first in, first out; with fewer they share it. What the master has granted
    stays with the application, idle or not. A free executor takes a task of the ready stage with the lowest number.

    Executors without cores are driver threads, which the profiles of `workloads.spark.profiles` ask for. Every
    application has some from its arrival on, whether it was granted executors or waits.

    Args:
        executors_max: at least 1.
    """

    def __init__(self, executors_max: int):
        if executors_max < 1:
            raise ValueError(f"an application needs at least one executor, got {executors_max}")
        self.executors_max = executors_max
        self._driver_threads: dict[int, int] = {}
        self._arrived_ms: dict[int, float] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Drop the drivers of the last episode."""
        self._driver_threads = {}
        self._arrived_ms = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Keep an application's executors with it, and grant free ones in order of arrival."""
        if observation.source >= 0:
            stage = _first_stage(observation, observation.source, ready=True)
            return None if stage is None else all_offered(observation, stage)
        if observation.classes["cpu"][observation.executor_class] == 0:
            return self._start_driver(observation)
        return self._grant(observation)

    def _start_driver(self, observation: Observation) -> Decision | None:
        """Give a new application's driver the threads of its first stage.

        Tasks that wait for the planning are claimed at once, else executors could not be sent before it is over.
        """
        for job, number in enumerate(observation.job_id.tolist()):
            arrived_ms = self._arrived_ms.setdefault(number, observation.time_ms)
            stage = _first_stage(observation, job, ready=False)
            if stage is not None and observation.time_ms == arrived_ms:
                threads = min(int(observation.unclaimed_tasks[stage]), observation.offered)
                self._driver_threads[number] = self._driver_threads.get(number, 0) + threads
                return Decision(stage, observation.held(job) + threads)
        return None

    def _grant(self, observation: Observation) -> Decision | None:
        left = int(observation.classes["executors"][observation.classes["cpu"] > 0].sum())
        for job, number in enumerate(observation.job_id.tolist()):
            granted = min(self.executors_max, left)
            left -= granted
            held = observation.held(job) - self._driver_threads.get(number, 0)
            # Executors start whether or not a stage is ready.
            stage = _first_stage(observation, job, ready=False)
            if held < granted and stage is not None:
                return Decision(stage, observation.held(job) + granted - held)
        return None


def _first_stage(observation: Observation, job: int, ready: bool) -> int | None:
    """Return a live job's first schedulable stage, ready stages first; with ``ready`` only ready ones."""
    stages = observation.stages_of(job)
    schedulable = observation.schedulable[stages]
    is_ready = schedulable & (observation.ready_rank[stages] >= 0)
    found = np.flatnonzero(is_ready if ready or is_ready.any() else schedulable)
    return stages.start + int(found[0]) if found.size else None
