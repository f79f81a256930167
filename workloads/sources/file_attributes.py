"""Attributes of jobs, and tenants, of a workload file; most files have none."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from workloads.attributes import DEFAULT_TENANT, NO_ATTRIBUTES, JobAttributes, Tenant
from workloads.errors import WorkloadError
from workloads.sources.file_format import Attributes, WorkloadFile
from workloads.validation import place_name


def build_attributes(file: WorkloadFile) -> tuple[dict[str, JobAttributes], list[JobAttributes]]:
    """Return the attributes of drawn jobs by profile, for profiles that give any, and of the file's jobs.

    A job's own attributes come before those of its profile; a job's deadline replaces the slack of its profile.

    Raises:
        WorkloadError: an attribute is out of range; the message names the place in the file.
    """
    of_profiles = {
        name: _attributes(given, "profiles", name)
        for name, profile in file.profiles.items()
        if (given := _given(profile))
    }
    of_jobs = []
    for index, job in enumerate(file.jobs):
        given = {**_given(file.profiles[job.profile]), **_given(job)}
        if job.deadline_ms is not None and "slack" not in job.model_fields_set:
            given.pop("slack", None)
        of_jobs.append(_attributes(given, "jobs", index) if given else NO_ATTRIBUTES)
    return of_profiles, of_jobs


def _given(entry: Attributes) -> dict[str, Any]:
    """Return the attributes that the file gives, by name; null means an infinite time."""
    names = [field.name for field in fields(JobAttributes) if field.name in entry.model_fields_set]
    values = {name: getattr(entry, name) for name in names}
    return {name: math.inf if value is None else value for name, value in values.items()}


def build_tenants(file: WorkloadFile) -> tuple[Tenant, ...]:
    """Return the declared tenants of a file.

    Raises:
        WorkloadError: a value is out of range, or a profile or job names a tenant that is not declared; the message
            names the place in the file.
    """
    tenants = []
    for name, tenant in file.tenants.items():
        try:
            tenants.append(Tenant(name, tenant.weight, tenant.min_share))
        except WorkloadError as error:
            raise WorkloadError(f"{place_name(('tenants', name))}: {error}") from None
    names = {DEFAULT_TENANT, *file.tenants}
    uses: list[tuple[str, str | int, str]] = [
        *(("profiles", name, profile.tenant) for name, profile in file.profiles.items()),
        *(("jobs", index, job.tenant) for index, job in enumerate(file.jobs)),
    ]
    for kind, entry, name in uses:
        if tenants and name not in names:
            expected = f"expected one of {', '.join(file.tenants)}"
            raise WorkloadError(f"{place_name((kind, entry, 'tenant'))}: unknown tenant {name!r}, {expected}")
    return tuple(tenants)


def _attributes(given: dict[str, Any], *place: str | int) -> JobAttributes:
    try:
        return JobAttributes(**given)
    except WorkloadError as error:
        raise WorkloadError(f"{place_name(place)}: {error}") from None
