"""Spark's standalone mode: the master grants executors to applications, and drivers assign tasks to them."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation

__all__ = ["SparkStandalone"]


class SparkStandalone(Scheduler):
    """Applications in order of arrival, each with a constant number of executors until its end.

    An application (job) may hold ``executors_max`` executors (``spark.cores.max``). If this is the whole cluster,
    applications run one after the other, first in, first out; otherwise they share the cluster. Granted executors stay
    with the application, idle or not. A free executor takes a task of the ready stage with the lowest number.

    Executors without cores are driver threads, which profiles of `workloads.spark.profiles` need. Each application
    has driver threads from its arrival, even while it waits for executors.

    Args:
        executors_max: maximum number of executors of an application, at least 1.

    Raises:
        ValueError: ``executors_max`` is below 1.
    """

    def __init__(self, executors_max: int):
        if executors_max < 1:
            raise ValueError(f"an application needs at least one executor, got {executors_max}")
        self.executors_max = executors_max
        self._driver_threads: dict[int, int] = {}
        self._arrived_ms: dict[int, float] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode without applications."""
        self._driver_threads = {}
        self._arrived_ms = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Keep executors with their application, and grant free executors in order of arrival."""
        if observation.source >= 0:
            stage = _first_stage(observation, observation.source, ready=True)
            return None if stage is None else all_offered(observation, stage)
        if observation.classes["cpu"][observation.executor_class] == 0:
            return self._start_driver(observation)
        return self._grant(observation)

    def _start_driver(self, observation: Observation) -> Decision | None:
        """Give a new application the driver threads of its first stage.

        Driver tasks that wait for the end of planning are claimed immediately, else executors could not start before.
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
    """Return a live job's first schedulable stage, ready stages first; with ``ready``, only a ready stage."""
    stages = observation.stages_of(job)
    schedulable = observation.schedulable[stages]
    is_ready = schedulable & (observation.ready_rank[stages] >= 0)
    found = np.flatnonzero(is_ready if ready or is_ready.any() else schedulable)
    return stages.start + int(found[0]) if found.size else None
