"""Shortest remaining work first, with no more executors for a job than it uses well, and no moves for a few tasks."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import (
    STAYING,
    WORTH_LEAVING,
    WORTH_MOVING,
    Scheduler,
    all_offered,
    check_positive,
)
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = [
    "STAYING",
    "WORTH_LEAVING",
    "WORTH_MOVING",
    "CappedSrpt",
    "LimitedSrpt",
    "ProfiledSrpt",
    "at_least_share",
    "check_positive",
    "lasting_executors",
]

#: Work in units of this, ms.
UNIT_MS = 100_000.0
FEWEST = 4


class LimitedSrpt(Scheduler):
    """Shortest remaining work (tasks times their mean duration) first, below limits.

    When every job has reached its limit, the remaining executors go to the shortest job. An executor moves only if it
    finds enough work there, or if the job has no executor; else it stays idle.
    """

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the shortest job below its limit, else the shortest job."""
        jobs, most = observation.job_executors.size, observation.num_executors
        work = observation.work_ms(observation.remaining_tasks)
        limit = np.minimum(self.limits(observation, work), most).astype(np.int64)
        held, order = observation.job_executors.copy(), work.copy()
        if observation.source >= 0:
            held[observation.source] -= observation.offered
            order[observation.source] *= STAYING
        lasting, ready = lasting_executors(observation), observation.next_stage >= 0
        for bound in (limit, np.full(jobs, most)):
            bound = np.minimum(bound, lasting).astype(np.int64)
            chosen = np.flatnonzero(ready & (held < bound))
            if chosen.size:
                job = chosen[np.argmin(order[chosen])]
                return Decision(int(observation.next_stage[job]), int(bound[job]))
        # The last offer before a standstill: executors of a class too small for their job count in its limit.
        return (
            all_offered(observation, int(observation.schedulable.argmax())) if observation.last_call else None
        )

    @abstractmethod
    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many executors each live job may hold, [J], at least 1; ``work``: remaining, float64 [J], ms."""


def at_least_share(observation: Observation, limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raise limits to an equal share of the cluster, and to 1."""
    return np.maximum(limits, max(1, observation.num_executors // limits.size))


def lasting_executors(
    observation: Observation, worth_leaving: float = WORTH_LEAVING, worth_moving: float = WORTH_MOVING
) -> NDArray[np.float64]:
    """Return how many offered executors find work worth a move at each live job, at least 1, float64 [J].

    Args:
        observation: state of the cluster.
        worth_leaving: least remaining work that is worth a move of another job's executor, in moving delays.
        worth_moving: the same of a free executor.
    """
    lasting = np.full(observation.job_executors.size, float(observation.num_executors))
    # Idle executors must be offered again later, which the published simulator does not do.
    if not observation.config.semantics.offer_idle_executors or not observation.config.moving_delay_ms:
        return lasting
    from_job = observation.source >= 0
    worth_ms = (worth_leaving if from_job else worth_moving) * observation.config.moving_delay_ms
    offered = observation.classes[observation.executor_class]
    fits = (observation.stages["cpu"] <= offered["cpu"]) & (observation.stages["memory"] <= offered["memory"])
    found = observation.work_ms(observation.unclaimed_tasks * fits) / worth_ms
    if from_job:
        found[observation.source] = lasting[observation.source]  # to stay is no move
    return np.maximum(found, 1.0)


class CappedSrpt(LimitedSrpt):
    """Shortest remaining work first, with limits that grow with the root of the remaining work.

    Tasks take longer the more executors their job holds. While other jobs want executors, a job is limited to
    ``coefficient`` times the root of its remaining work, but not below 4 executors or its equal share.

    Args:
        coefficient: executors for a job with 100 s of work left.
    """

    def __init__(self, coefficient: float = 5.0) -> None:
        if not coefficient >= 0:
            raise ValueError(f"the coefficient must not be negative, got {coefficient:g}")
        self.coefficient = coefficient

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return limits proportional to the root of the work."""
        return at_least_share(observation, np.maximum(self.coefficient * np.sqrt(work / UNIT_MS), FEWEST))


class ProfiledSrpt(LimitedSrpt):
    """Shortest remaining work first; each job is limited to its useful parallelism, or to its equal share.

    ``simulator.cluster.alone`` estimates the useful parallelism when a job arrives. So this scheduler uses more
    knowledge than others: task durations at every parallelism level.

    Args:
        thrift: cost exponent of executors, see ``simulator.cluster.alone.useful_executors``.
    """

    def __init__(self, thrift: float = 2.5) -> None:
        check_positive(thrift=thrift)
        self.thrift = thrift
        self._used_well: PerJob[NDArray[np.float64]] = PerJob(self._best, np.array)

    def _best(self, profile: JobProfile, config: ClusterConfig) -> float:
        return float(useful_executors(profile, config, self.thrift))

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the useful parallelism of the profiles."""
        return at_least_share(observation, self._used_well(observation))
