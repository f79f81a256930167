"""Attributes of submitted jobs: weight, deadline, tenant. They belong to a job in a sequence, not to its profile."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.errors import (
    LARGEST_WEIGHT,
    LONGEST_MS,
    WorkloadError,
    check_all,
    check_instance,
    check_number,
    check_whole,
)

__all__ = ["DEFAULT_TENANT", "NO_ATTRIBUTES", "JobAttributes", "Tenant", "check_attributes", "tenants_of"]

#: Tenant of jobs that name no tenant; Spark's pool of the same name.
DEFAULT_TENANT = "default"
_WEIGHTS = (1 / LARGEST_WEIGHT, LARGEST_WEIGHT)


def _check_name(name: str, what: str) -> None:
    if not check_instance(name, str, what, WorkloadError):
        raise WorkloadError(f"{what} must not be empty")


@dataclass(frozen=True)
class JobAttributes:
    """Importance, deadline and tenant of a submitted job.

    Args:
        weight: importance of the job's completion time, above 0.
        deadline_ms: time by which the job should complete, on the clock of the sequence, ms; infinite: no deadline.
        slack: the deadline as a multiple: time from the arrival to the deadline, divided by the estimated time of the
            job alone on the cluster (``simulator.cluster.deadlines.deadlines_ms``); infinite: no deadline. Not together
            with ``deadline_ms``.
        tenant: name of the user, queue or pool that submits the job.

    Raises:
        WorkloadError: a value is out of range, or both deadlines are given.
    """

    weight: float = 1.0
    deadline_ms: float = math.inf
    slack: float = math.inf
    tenant: str = DEFAULT_TENANT

    def __post_init__(self) -> None:
        for name, bounds in (("weight", _WEIGHTS), ("deadline_ms", None), ("slack", None)):
            object.__setattr__(self, name, check_number(getattr(self, name), name, WorkloadError, bounds))
        if not (0 <= self.deadline_ms <= LONGEST_MS or self.deadline_ms == math.inf):
            raise WorkloadError(
                f"deadline_ms must be between 0 and {LONGEST_MS:g}, or infinite, got {self.deadline_ms:g}"
            )
        if not self.slack > 0:
            raise WorkloadError(f"slack must be above 0, got {self.slack:g}")
        if not math.isinf(self.deadline_ms) and not math.isinf(self.slack):
            raise WorkloadError("a job has either deadline_ms or slack, got both")
        _check_name(self.tenant, "tenant")


@dataclass(frozen=True)
class Tenant:
    """A user, queue or pool that submits jobs, with its entitlement, as in Spark's FAIR scheduler.

    Args:
        name: name by which jobs refer to the tenant.
        weight: share of the cluster relative to other tenants, above 0.
        min_share: number of executors that the tenant gets first while it has work for them.

    Raises:
        WorkloadError: a value is out of range.
    """

    name: str = DEFAULT_TENANT
    weight: float = 1.0
    min_share: int = 0

    def __post_init__(self) -> None:
        _check_name(self.name, "a tenant's name")
        object.__setattr__(self, "weight", check_number(self.weight, "weight", WorkloadError, _WEIGHTS))
        object.__setattr__(self, "min_share", check_whole(self.min_share, "min_share", WorkloadError, 0))


#: Attributes of a job without weight, deadline and tenant.
NO_ATTRIBUTES = JobAttributes()


def tenants_of(attributes: Iterable[JobAttributes], declared: Iterable[Tenant] = ()) -> tuple[Tenant, ...]:
    """Return the tenants of some jobs: the declared ones, else the tenants that the jobs name, sorted by name.

    The default tenant, of jobs that name no tenant, need not be declared.

    Raises:
        WorkloadError: a tenant is declared twice, or a job names a tenant that is not declared.
    """
    declared = check_all(declared, Tenant, "tenants", WorkloadError)
    by_name: dict[str, Tenant] = {}
    for tenant in declared:
        if tenant.name in by_name:
            raise WorkloadError(f"the tenant {tenant.name!r} is declared twice")
        by_name[tenant.name] = tenant
    for job, of_job in enumerate(attributes):
        if of_job.tenant not in by_name:
            if declared and of_job.tenant != DEFAULT_TENANT:
                names = ", ".join(tenant.name for tenant in declared)
                raise WorkloadError(f"job {job}: unknown tenant {of_job.tenant!r}, expected one of {names}")
            by_name[of_job.tenant] = Tenant(of_job.tenant)
    return (
        tuple(by_name.values())
        if declared
        else tuple(sorted(by_name.values(), key=lambda tenant: tenant.name))
    )


def check_attributes(
    attributes: Iterable[JobAttributes], tenants: Iterable[Tenant], arrival_ms: NDArray[np.float64]
) -> tuple[tuple[JobAttributes, ...], tuple[Tenant, ...]]:
    """Return the attributes of all jobs of a sequence, and its tenants; no attributes if no job has any.

    Args:
        attributes: attributes of each job; can be empty.
        tenants: declared tenants; by default those that the jobs name.
        arrival_ms: arrival of each job, float64 [num_jobs], ms.

    Raises:
        WorkloadError: numbers of jobs and attributes differ, a deadline is before the arrival, or a tenant is unknown.
    """
    checked = check_all(attributes, JobAttributes, "attributes", WorkloadError)
    if checked and len(checked) != len(arrival_ms):
        raise WorkloadError(f"{len(arrival_ms)} jobs need as many attributes, got {len(checked)}")
    for job, (of_job, at_ms) in enumerate(zip(checked, arrival_ms.tolist(), strict=False)):
        if of_job.deadline_ms < at_ms:
            raise WorkloadError(
                f"job {job}: the deadline at {of_job.deadline_ms:g} ms is before its arrival at {at_ms:g} ms"
            )
    if tenants:
        checked = checked or (NO_ATTRIBUTES,) * len(arrival_ms)
    elif all(of_job == NO_ATTRIBUTES for of_job in checked):
        checked = ()
    return checked, tenants_of(checked, tenants)


def check_profile_attributes(
    names: Container[str],
    attributes: Mapping[str, JobAttributes],
    tenants: Iterable[Tenant],
    of_jobs: Iterable[Tenant],
) -> tuple[Tenant, ...]:
    """Check the attributes of a workload's profiles; return the tenants of the workload.

    Args:
        names: names of the profiles.
        attributes: attributes of jobs that are drawn from a profile, by its name.
        tenants: declared tenants.
        of_jobs: tenants of the workload's sequence, which replace missing declarations if any has an entitlement.

    Raises:
        WorkloadError: a profile or a tenant is unknown, or a value has a wrong type.
    """
    check_instance(attributes, dict, "attributes", WorkloadError)
    for name, of_profile in attributes.items():
        check_instance(of_profile, JobAttributes, f"the attributes of {name!r}", WorkloadError)
        if name not in names:
            raise WorkloadError(f"attributes of {name!r}, which is not among the profiles")
    declared = check_all(tenants, Tenant, "tenants", WorkloadError)
    if not declared and any(tenant != Tenant(tenant.name) for tenant in of_jobs):
        declared = tuple(of_jobs)
    tenants_of(attributes.values(), declared)
    return declared
