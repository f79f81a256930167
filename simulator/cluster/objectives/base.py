"""Base class of scheduling objectives, and the attributes of jobs that objectives read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from workloads.arrivals import JobSequence

__all__ = ["AllJobs", "LiveJobs", "Objective"]


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

    @cached_property
    def arrival_ms(self) -> NDArray[np.float64]:
        """Arrival of each job, float64 [jobs], ms."""
        return self._of_all.arrival_ms[sorted(self._jobs)]

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Weight of each job, float64 [jobs]."""
        return self._of_all.weight[sorted(self._jobs)]

    @cached_property
    def deadline_ms(self) -> NDArray[np.float64]:
        """Deadline of each job, float64 [jobs], ms; infinite for a job without one."""
        return self._of_all.deadline_ms[sorted(self._jobs)]

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
