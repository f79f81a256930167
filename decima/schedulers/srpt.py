"""Shortest remaining work first, with no more executors for a job than it uses well, and no moves for a few tasks."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["STAYING", "CappedSrpt", "ProfiledSrpt", "lasting_executors"]

#: Work in units of this, ms.
UNIT_MS = 100_000.0
FEWEST = 4
#: Work that must be left for an executor of another job, and for a free one, moving delays.
WORTH_LEAVING, WORTH_MOVING = 8.0, 3.0
#: How much the work of the job whose executors are offered counts, beside that of others.
STAYING = 0.6


class _LimitedSrpt(Scheduler):
    """Shortest remaining work (tasks times their mean duration) first, below limits.

    A job may always have its share of the cluster. Executors that are left when every job has reached its limit go
    to the shortest one all the same. But they move only to where each finds work for some time, or to a job that
    has no executor at all; else they stay idle where they are.
    """

    def decide(self, observation: Observation) -> Decision | None:
        """The shortest job below its limit, else the shortest one."""
        jobs, most = observation.job_executors.size, observation.num_executors
        work = observation.work_ms(observation.remaining_tasks)
        limit = np.clip(self.limits(observation, work), max(1, most // jobs), most).astype(np.int64)
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
        """Executors that each live job uses well, [J]; ``work`` is what is left of them, float64 [J], ms."""


def lasting_executors(observation: Observation) -> NDArray[np.float64]:
    """Return how many offered executors find work worth a move at each live job, at least 1, float64 [J]."""
    lasting = np.full(observation.job_executors.size, float(observation.num_executors))
    # Idle executors must be offered again later, which the published simulator does not do.
    if not observation.config.semantics.offer_idle_executors or not observation.config.moving_delay_ms:
        return lasting
    from_job = observation.source >= 0
    worth_ms = (WORTH_LEAVING if from_job else WORTH_MOVING) * observation.config.moving_delay_ms
    offered = observation.classes[observation.executor_class]
    fits = (observation.stages["cpu"] <= offered["cpu"]) & (observation.stages["memory"] <= offered["memory"])
    found = observation.work_ms(observation.unclaimed_tasks * fits) / worth_ms
    if from_job:
        found[observation.source] = lasting[observation.source]  # to stay is no move
    return np.maximum(found, 1.0)


class CappedSrpt(_LimitedSrpt):
    """Shortest remaining work first; the more work a job has left, the more executors it may have.

    Tasks take longer the more executors their job holds, so a job is limited to ``coefficient`` times the root of
    its remaining work, but at least to 4 executors and to its share of the cluster, while other jobs want more.

    Args:
        coefficient: executors for a job with 100 s of work left.
    """

    def __init__(self, coefficient: float = 5.0) -> None:
        if not coefficient >= 0:
            raise ValueError(f"the coefficient must not be negative, got {coefficient:g}")
        self.coefficient = coefficient

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Proportional to the root of the work."""
        return np.maximum(self.coefficient * np.sqrt(work / UNIT_MS), FEWEST)


class ProfiledSrpt(_LimitedSrpt):
    """Shortest remaining work first; each job is limited to what its profile uses well, or to its share.

    When a job arrives, ``simulator.cluster.alone`` says how many that are. So this scheduler knows more than others do:
    the durations of tasks at every parallelism.

    Args:
        thrift: how much the executors that a job occupies count, beside the time that it takes.
    """

    def __init__(self, thrift: float = 2.5) -> None:
        if not thrift > 0:
            raise ValueError(f"the thrift must be positive, got {thrift:g}")
        self.thrift = thrift
        self._used_well: PerJob[NDArray[np.float64]] = PerJob(self._best, np.array)

    def _best(self, profile: JobProfile, config: ClusterConfig) -> float:
        return float(useful_executors(profile, config, self.thrift))

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Those of the profiles."""
        return self._used_well(observation)
