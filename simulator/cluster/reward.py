"""Rewards of a running cluster: minus the cost, by an objective, that accrues while jobs are in the system.

``objective_named`` looks up an objective. Completion time and makespan are here, others in ``objectives.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakMethod

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import JobSequence
    from workloads.carbon import Signal

__all__ = ["COMMON", "AllJobs", "LiveJobs", "Makespan", "Mean", "Objective", "RewardMeter", "objective_named"]


class AllJobs(NamedTuple):
    """Attributes of all jobs of a sequence.

    Attributes:
        arrival_ms: float64 [num_jobs].
        weight: float64 [num_jobs].
        deadline_ms: float64 [num_jobs].
        tenant: int64 [num_jobs], index of the job's tenant in ``JobSequence.tenants``.
        tenant_weight: float64 [tenants].
    """

    arrival_ms: NDArray[np.float64]
    weight: NDArray[np.float64]
    deadline_ms: NDArray[np.float64]
    tenant: NDArray[np.int64]
    tenant_weight: NDArray[np.float64]

    @classmethod
    def of(cls, sequence: JobSequence, deadline_ms: NDArray[np.float64]) -> AllJobs:
        """Collect the attributes of a sequence whose jobs have the deadlines ``deadline_ms``, float64 [num_jobs]."""
        tenant_weight = np.array([tenant.weight for tenant in sequence.tenants])
        return cls(sequence.arrival_ms, sequence.weight, deadline_ms, sequence.tenant, tenant_weight)


def _of_live(name: str) -> cached_property[NDArray[np.float64]]:
    return cached_property(lambda live: getattr(live._of_all, name)[sorted(live._jobs)])


class LiveJobs:
    """Jobs in the system during an interval. Attribute arrays are computed on first use, in order of arrival.

    Args:
        jobs: numbers of the live jobs in the sequence.
        of_all: attributes of all jobs of the sequence.

    Attributes:
        carbon: emissions of the cluster during the interval, g; 0 unless the objective uses them.
    """

    def __init__(self, jobs: Collection[int], of_all: AllJobs) -> None:
        self.carbon = 0.0
        self._jobs, self._of_all = jobs, of_all

    def __len__(self) -> int:
        return len(self._jobs)

    arrival_ms = _of_live("arrival_ms")
    """Arrival of each job, float64 [jobs], ms."""
    weight = _of_live("weight")
    """Weight of each job, float64 [jobs]."""
    deadline_ms = _of_live("deadline_ms")
    """Deadline of each job, float64 [jobs], ms; infinite for a job without one."""

    @cached_property
    def by_tenant(self) -> NDArray[np.float64]:
        """Number of live jobs of each tenant divided by the tenant's weight, float64 [tenants]."""
        weight = self._of_all.tenant_weight
        return np.bincount(self._of_all.tenant[sorted(self._jobs)], minlength=weight.size) / weight


class Objective(ABC):
    """A cost that accrues over simulated time. A policy minimises its sum; the reward is minus the cost."""

    #: Whether the cost depends on the jobs in the system; else it depends on elapsed time alone.
    depends_on_jobs = True
    #: Job attributes that the cost is computed from: ``weight``, ``deadline``, ``tenant``.
    attributes: frozenset[str] = frozenset()
    #: Whether the cost is computed from ``LiveJobs.carbon``; the cluster then needs a carbon or price signal.
    uses_carbon = False
    #: Name of the signal that the cluster must have; None: any signal.
    signal: str | None = None

    @abstractmethod
    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the cost of an interval in which no job enters or leaves the system.

        Args:
            begin_ms: beginning of the interval (exclusive), ms.
            end_ms: end of the interval (inclusive), ms.
            jobs: jobs in the system during the interval.
            scale_ms: ``ClusterConfig.reward_scale_ms``, by which rewards are divided.
        """


class Mean(Objective):
    """Sum of job completion times (Decima, section 5.3)."""

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the jobs spend in the system."""
        return len(jobs) * (end_ms - begin_ms)


class Makespan(Objective):
    """Elapsed time until the last job is complete."""

    depends_on_jobs = False

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the length of the interval."""
        return end_ms - begin_ms


#: Objectives that need no attributes of jobs, by name.
COMMON: dict[str, type[Objective]] = {"jct": Mean, "mean": Mean, "makespan": Makespan}


@lru_cache(maxsize=64)
def objective_named(text: str) -> Objective:
    """Return the objective with a name, see ``simulator.cluster.objectives.parse_objective``; results are cached.

    Raises:
        ConfigError: the name is unknown, the class cannot be used, or a number is malformed or out of range.
    """
    if text in COMMON:
        return COMMON[text]()
    from simulator.cluster.objectives import parse_objective  # most episodes have a common objective

    return parse_objective(text)


class RewardMeter:
    """Rewards from decision to decision (Decima, section 5.3). A shallow copy is independent of the original.

    The rewards of an episode add up to minus the objective's cost, divided by ``reward_scale_ms``: with ``"jct"`` the
    sum of job completion times (of incomplete jobs: times since arrival); with ``"makespan"`` the elapsed time.

    Args:
        deadline_ms: deadline of each job, float64 [jobs], ms.
    """

    def __init__(
        self, config: ClusterConfig, sequence: JobSequence, deadline_ms: NDArray[np.float64]
    ) -> None:
        self._scale_ms = config.reward_scale_ms
        self._objective = objective_named(config.reward)
        self._all_jobs = config.semantics.reward_short_jobs
        self._known = AllJobs.of(sequence, deadline_ms)
        self._live: frozenset[int] = frozenset()
        self._live_jobs = LiveJobs((), self._known)
        self._seen: frozenset[int] = frozenset()  # live at the last step
        self._step_ms = 0.0
        self._counted_ms = 0.0
        self._cost_ms = 0.0
        self._num_arrived, self._num_ended = 0, 0
        #: Signal of the emissions; None if the objective does not use them.
        self._signal = config.signal if self._objective.uses_carbon else None
        self._busy, self._idle = (
            watts / 1000 / 3_600_000 for watts in (config.executor_watts, config.idle_watts)
        )
        self._idle_ms = 0.0
        self._idleness: WeakMethod[Callable[[], tuple[float, int]]] | None = None

    def follow(self, idleness: Callable[[], tuple[float, int]]) -> None:
        """Measure the emissions of a cluster from now on, if the objective uses them.

        Args:
            idleness: method of the cluster, referenced weakly. Returns the total idle time of executors since the
                beginning, ms, and their present number.
        """
        self._idleness = WeakMethod(idleness)

    def settle(self, now_ms: float) -> None:
        """Count emissions until now, before the signal or the number of executors in the cluster changes."""
        if self._signal is not None:
            self._count(now_ms)

    def add_job(self, now_ms: float, job: int, idle_ms: float | None = None) -> None:
        """Start counting a job that arrives.

        Args:
            idle_ms: total idle time of executors until ``now_ms``; by default the cluster's, for the present time.
        """
        self._count(now_ms, idle_ms)
        self._live |= {job}
        self._num_arrived += 1
        self._live_jobs = LiveJobs(self._live, self._known)

    def end_job(self, now_ms: float, job: int, arrival_ms: float, idle_ms: float | None = None) -> None:
        """Stop counting a job that has ended; for ``idle_ms`` see ``add_job``."""
        self._count(now_ms, idle_ms)
        self._live -= {job}
        self._num_ended += 1
        self._live_jobs = LiveJobs(self._live, self._known)
        if not self._all_jobs and job not in self._seen:
            begin_ms = max(arrival_ms, self._step_ms)
            ended = LiveJobs((job,), self._known)
            self._cost_ms -= self._objective.cost_ms(begin_ms, now_ms, ended, self._scale_ms)

    def step(self, now_ms: float) -> float:
        """Return the reward since the last step."""
        if now_ms == self._step_ms and not self._cost_ms:
            self._seen = self._live
            return -0.0
        self._count(now_ms)
        cost_ms = self._cost_ms
        if not self._objective.depends_on_jobs:  # rounding: the sum of the parts is not exactly the whole
            cost_ms = self._objective.cost_ms(self._step_ms, now_ms, self._live_jobs, self._scale_ms)
        self._step_ms, self._cost_ms = now_ms, 0.0
        self._seen = self._live
        return -cost_ms / self._scale_ms

    def _count(self, now_ms: float, idle_ms: float | None = None) -> None:
        """Add the cost from the last count until now."""
        if now_ms > self._counted_ms:
            if self._signal is not None:
                self._live_jobs.carbon = self._emitted(now_ms, self._signal, idle_ms)
            self._cost_ms += self._objective.cost_ms(
                self._counted_ms, now_ms, self._live_jobs, self._scale_ms
            )
            self._counted_ms = now_ms

    def _emitted(self, now_ms: float, signal: Signal, given_ms: float | None) -> float:
        """Return the emissions since the last count, g; at the episode's end, all add up to ``EpisodeRecord.carbon``.

        Idle executors count from the first arrival to the end of the last job.
        """
        idleness = self._idleness and self._idleness()
        idle_ms, present = idleness() if idleness else (0.0, 0)
        idle_ms = idle_ms if given_ms is None else given_ms
        waited_ms, self._idle_ms = idle_ms - self._idle_ms, idle_ms
        busy_ms = max(present * (now_ms - self._counted_ms) - waited_ms, 0.0)
        observed = self._num_arrived > 0 and self._num_ended < len(self._known.arrival_ms)
        used = self._busy * busy_ms + (self._idle * waited_ms if observed else 0.0)
        return signal.at(self._counted_ms) * used
