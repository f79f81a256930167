"""Interface of objectives."""

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
        tenant: int64 [num_jobs], place of the job's tenant among the tenants.
        tenant_weight: float64 [tenants].
    """

    arrival_ms: NDArray[np.float64]
    weight: NDArray[np.float64]
    deadline_ms: NDArray[np.float64]
    tenant: NDArray[np.int64]
    tenant_weight: NDArray[np.float64]

    @classmethod
    def of(cls, sequence: JobSequence, deadline_ms: NDArray[np.float64]) -> AllJobs:
        """Return the attributes of a sequence with these deadlines, float64 [num_jobs], ms."""
        tenant_weight = np.array([tenant.weight for tenant in sequence.tenants])
        return cls(sequence.arrival_ms, sequence.weight, deadline_ms, sequence.tenant, tenant_weight)


class LiveJobs:
    """Jobs in the system. Arrays are made when they are needed, in order of arrival.

    Args:
        jobs: numbers of the jobs.
        of_all: attributes of all jobs of the sequence.

    Attributes:
        carbon: emissions of the cluster in the time that is asked about, g; 0 unless the objective uses them.
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
        """Number of jobs of each tenant over the tenant's weight, float64 [tenants]; 0 for tenants without jobs."""
        weight = self._of_all.tenant_weight
        return np.bincount(self._of_all.tenant[sorted(self._jobs)], minlength=weight.size) / weight


class Objective(ABC):
    """A cost that accrues over time; a policy minimises its sum."""

    #: Whether the cost depends on the jobs in the system; else it depends on the time alone.
    depends_on_jobs = True
    #: Attributes of jobs that the cost is computed from: ``weight``, ``deadline``, ``tenant``.
    attributes: frozenset[str] = frozenset()
    #: Whether the cost is computed from ``LiveJobs.carbon``; the cluster then needs a signal.
    uses_carbon = False
    #: Name of the signal that the objective is about; None for the signal of any cluster.
    signal: str | None = None

    @abstractmethod
    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the cost of an interval in which no job enters or leaves the system.

        Args:
            begin_ms: beginning of the interval (exclusive), ms.
            end_ms: its end (inclusive), ms.
            jobs: jobs in the system during the interval.
            scale_ms: rewards are divided by this, ms.
        """
