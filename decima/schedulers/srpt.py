"""Shortest remaining work first, with parallelism limits, and without moves of executors for a few tasks."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import (
    STAYING,
    WORTH_LEAVING,
    WORTH_MOVING,
    Scheduler,
    check_positive,
    last_resort,
    move_cost_ms,
)
from simulator.cluster.alone import useful_executors
from simulator.cluster.observation import Decision, Observation, PerJob

__all__ = [
    "STAYING", "WORTH_LEAVING", "WORTH_MOVING", "CappedSrpt", "LimitedSrpt", "ProfiledSrpt",
    "at_least_share", "check_positive", "lasting_executors",
]  # fmt: skip

#: Unit of work of ``CappedSrpt``, ms.
UNIT_MS = 100_000.0
#: Minimum limit of ``CappedSrpt``, executors.
FEWEST = 4


class LimitedSrpt(Scheduler):
    """Base class: shortest remaining work (tasks times mean duration) first, with a parallelism limit for each job.

    When all jobs have reached their limits, the remaining executors go to the shortest job. An executor moves only to
    a job with enough work, or to a job without executors; otherwise it stays idle.
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
        return last_resort(observation)

    @abstractmethod
    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the parallelism limits of live jobs, [J], at least 1; ``work``: remaining work, float64 [J], ms."""


def at_least_share(observation: Observation, limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return limits raised to at least an equal share of the cluster, and at least 1."""
    return np.maximum(limits, max(1, observation.num_executors // limits.size))


def lasting_executors(
    observation: Observation, worth_leaving: float = WORTH_LEAVING, worth_moving: float = WORTH_MOVING
) -> NDArray[np.float64]:
    """Return the number of offered executors whose move to each live job is justified, at least 1, float64 [J].

    Args:
        observation: state of the cluster.
        worth_leaving: minimum work that justifies moving another job's executor, in moving delays.
        worth_moving: minimum work that justifies moving a free executor, in moving delays.
    """
    lasting = np.full(observation.job_executors.size, float(observation.num_executors))
    delay_ms = move_cost_ms(observation)
    if not delay_ms:
        return lasting
    from_job = observation.source >= 0
    worth_ms = (worth_leaving if from_job else worth_moving) * delay_ms
    offered = observation.classes[observation.executor_class]
    fits = (observation.stages["cpu"] <= offered["cpu"]) & (observation.stages["memory"] <= offered["memory"])
    found = observation.work_ms(observation.unclaimed_tasks * fits) / worth_ms
    if from_job:
        found[observation.source] = lasting[observation.source]  # executors that stay do not move
    return np.maximum(found, 1.0)


class CappedSrpt(LimitedSrpt):
    """Shortest remaining work first, with limits that grow with the root of the remaining work.

    Tasks take longer if their job holds more executors. While other jobs need executors, a job's limit is
    ``coefficient`` times the root of its remaining work in units of 100 s, at least 4 and at least an equal share.

    Args:
        coefficient: limit of a job with 100 s of remaining work.

    Raises:
        ValueError: the coefficient is negative.
    """

    def __init__(self, coefficient: float = 5.0) -> None:
        if not coefficient >= 0:
            raise ValueError(f"the coefficient must not be negative, got {coefficient:g}")
        self.coefficient = coefficient

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return limits in proportion to the root of the remaining work."""
        return at_least_share(observation, np.maximum(self.coefficient * np.sqrt(work / UNIT_MS), FEWEST))


class ProfiledSrpt(LimitedSrpt):
    """Shortest remaining work first; each job is limited to its useful parallelism, or to an equal share if larger.

    ``simulator.cluster.alone`` estimates the useful parallelism when a job arrives. So this scheduler uses more
    knowledge than others: task durations at each parallelism level.

    Args:
        thrift: cost exponent of executors, see ``simulator.cluster.alone.useful_executors``.

    Raises:
        ValueError: ``thrift`` is not positive.
    """

    def __init__(self, thrift: float = 2.5) -> None:
        check_positive(thrift=thrift)
        self.thrift = thrift
        self._used_well: PerJob[NDArray[np.float64]] = PerJob(
            lambda profile, config: float(useful_executors(profile, config, thrift)), np.array
        )

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the useful parallelism of each live job, at least an equal share."""
        return at_least_share(observation, self._used_well(observation))
