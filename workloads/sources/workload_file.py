"""Workload files: job DAGs, and optionally their arrivals, as JSON (``.json``, ``.json.gz``) or TOML (``.toml``).

``docs/reference/workload-file.md`` describes the format.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from workloads.arrivals import JobSequence, trace_arrivals
from workloads.display import count_text, plain_text
from workloads.errors import check_all, check_instance, check_path
from workloads.imperfections import UNKNOWN, Imperfections
from workloads.job import JobProfile, WorkloadError
from workloads.reading import garbage_collection_paused, parse_json, read_document
from workloads.sources.file_format import WorkloadFile, build_profile, gives_attributes

if TYPE_CHECKING:
    from workloads.attributes import JobAttributes, Tenant

_SUFFIXES = (".json", ".json.gz", ".toml")


@dataclass(frozen=True, eq=False, repr=False)
class Workload:
    """Job profiles, and optionally the sequence in which jobs arrive.

    Args:
        profiles: at least one profile, with unique names.
        sequence: arriving jobs, all among ``profiles``; None if the profiles are a library to draw from.
        name: display name; any string.
        about: origin of the profiles; JSON.
        imperfections: measured variation between runs of a job, and failures.
        attributes: attributes of jobs that are drawn from a profile, by its name, see ``attributed``.
        tenants: tenants of the jobs; by default the tenants of the sequence, or those that the jobs name.

    Raises:
        WorkloadError: there is no profile, two have the same name, a job's profile is missing, or a tenant is unknown.
    """

    profiles: tuple[JobProfile, ...]
    sequence: JobSequence | None = None
    name: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    imperfections: Imperfections = UNKNOWN
    attributes: Mapping[str, JobAttributes] = field(default_factory=dict)
    tenants: tuple[Tenant, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", check_all(self.profiles, JobProfile, "profiles", WorkloadError))
        if self.sequence is not None:
            check_instance(self.sequence, JobSequence, "sequence", WorkloadError)
        for name, kind in (("name", str), ("about", dict), ("imperfections", Imperfections)):
            check_instance(getattr(self, name), kind, name, WorkloadError)
        if not self.profiles:
            raise WorkloadError("a workload needs at least one job profile")
        name, count = Counter(profile.name for profile in self.profiles).most_common(1)[0]
        if count > 1:
            raise WorkloadError(
                f"the profiles of a workload need different names, {count} are named {name!r}"
            )
        profiles = set(self.profiles)
        for job, profile in enumerate(self.sequence.profiles if self.sequence is not None else ()):
            if profile not in profiles:
                raise WorkloadError(f"the profile of job {job}, {profile.name!r}, is not among the profiles")
        declared = () if self.sequence is None else self.sequence.tenants
        if self.attributes != {} or self.tenants != () or declared:
            from workloads.attributes import check_profile_attributes

            names = {profile.name for profile in self.profiles}
            tenants = check_profile_attributes(names, self.attributes, self.tenants, declared)
            object.__setattr__(self, "tenants", tenants)

    def attributed(self, sequence: JobSequence) -> JobSequence:
        """Give jobs drawn from the profiles their attributes; returns the same object if there are none."""
        if not self.attributes and not self.tenants:
            return sequence
        from workloads.attributes import NO_ATTRIBUTES

        attributes = (self.attributes.get(profile.name, NO_ATTRIBUTES) for profile in sequence.profiles)
        return replace(sequence, attributes=tuple(attributes), tenants=self.tenants)

    def __repr__(self) -> str:
        jobs = "" if self.sequence is None else f", {count_text(len(self.sequence), 'job')}"
        return f"Workload({plain_text(self.name)!r}, {count_text(len(self.profiles), 'profile')}{jobs})"

    @property
    def measured(self) -> dict[str, float]:
        """Values measured when the jobs were recorded, by names of fields of a cluster, its errors and its faults.

        The moving delay is the start-up time of an executor.
        """
        known, startup_ms = self.imperfections.settings(), self.about.get("executor_startup_ms")
        if (
            isinstance(startup_ms, int | float)
            and not isinstance(startup_ms, bool)
            and 0 <= startup_ms < math.inf
        ):
            known["moving_delay_ms"] = float(startup_ms)
        return known


@garbage_collection_paused()
def read_workload(path: str | Path) -> Workload:
    """Read a workload file; see the description of the module.

    Raises:
        WorkloadError: the file cannot be read or is malformed. The message names the file, the place in it and the
            expected value.
    """
    path = check_path(path, "path", WorkloadError)
    suffix = file_suffix(path)
    document = read_document(path, "a workload file", tomllib.loads if suffix == ".toml" else parse_json)
    try:
        return _build_workload(WorkloadFile.model_validate(document), path.name[: -len(suffix)])
    except ValidationError as error:
        from workloads.validation import first_error

        raise WorkloadError(f"{path}: {first_error(error, WorkloadFile)}") from None
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None


def _build_workload(file: WorkloadFile, default_name: str) -> Workload:
    profiles = {name: build_profile(name, profile) for name, profile in file.profiles.items()}
    if "seed" in file.model_fields_set and not file.jobs:
        raise WorkloadError("seed: has no effect without jobs")
    for index, job in enumerate(file.jobs):
        if job.profile not in profiles:
            raise WorkloadError(f"jobs[{index}].profile: no profile named {job.profile!r}")
        if job.deadline_ms is not None and job.deadline_ms < job.arrival_ms:
            raise WorkloadError(
                f"jobs[{index}].deadline_ms: the deadline at {job.deadline_ms:g} ms is before the arrival at "
                f"{job.arrival_ms:g} ms"
            )
    tenants: tuple[Tenant, ...] = ()
    of_profiles: dict[str, JobAttributes] = {}
    of_jobs: list[JobAttributes] = []
    if gives_attributes(file):
        from workloads.sources.file_attributes import build_attributes, build_tenants

        tenants = build_tenants(file)
        of_profiles, of_jobs = build_attributes(file)
    sequence = None
    if file.jobs:
        arrivals = [job.arrival_ms for job in file.jobs]
        jobs = [profiles[job.profile] for job in file.jobs]
        sequence = trace_arrivals(jobs, arrivals, file.seed, of_jobs, tenants)
    name = file.name if "name" in file.model_fields_set else default_name
    try:
        imperfections = UNKNOWN if file.errors is None else Imperfections(**file.errors.model_dump())
    except WorkloadError as error:
        raise WorkloadError(f"errors.{error}") from None
    return Workload(tuple(profiles.values()), sequence, name, file.about, imperfections, of_profiles, tenants)


def file_suffix(path: Path) -> str:
    """Return the suffix of a workload file: ``.json``, ``.json.gz`` or ``.toml``.

    Raises:
        WorkloadError: the name ends in no such suffix.
    """
    for suffix in _SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise WorkloadError(f"{path}: expected a name that ends in {', '.join(_SUFFIXES)}")
