"""Write workload files; ``docs/reference/workload-file.md`` describes the format."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workloads.attributes import NO_ATTRIBUTES, JobAttributes
from workloads.errors import WorkloadError, check_instance, check_path
from workloads.imperfections import UNKNOWN
from workloads.job import ANY_LEVEL, JobProfile, TaskDurations, Wave
from workloads.sources.file_format import build_durations
from workloads.sources.workload_file import Workload, file_suffix

__all__ = ["describe_stages", "replace_file", "write_workload"]


def write_workload(path: str | Path, workload: Workload) -> None:
    """Write a workload to a ``.json`` or ``.json.gz`` file; reading it gives the same jobs, durations and arrivals.

    The file is replaced atomically.

    Raises:
        WorkloadError: the file cannot be written, its name ends in ``.toml``, or ``about`` is not JSON.
    """
    path = check_path(path, "path", WorkloadError)
    check_instance(workload, Workload, "workload", WorkloadError)
    if file_suffix(path) == ".toml":
        raise WorkloadError(f"{path}: TOML is only read, expected a name that ends in .json or .json.gz")
    try:
        data = _layout(workload).encode()
    except UnicodeEncodeError:
        raise WorkloadError(f"{path}: a name has a character that UTF-8 cannot encode") from None
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"{path}: about: expected JSON values: {error}") from None
    replace_file(path, gzip.compress(data, mtime=0) if file_suffix(path) == ".json.gz" else data)


def _layout(workload: Workload) -> str:
    """Format a workload as JSON with one line per stage and job, so that versions of a file can be compared."""
    profiles = [
        f'    {_json(profile.name)}: {{{_members(workload.attributes.get(profile.name, NO_ATTRIBUTES))}"stages": ['
        f"\n{_lines(describe_stages(profile))}\n    ]}}"
        for profile in workload.profiles
    ]
    text = '{\n  "format": "decima-workload",\n  "version": 1,\n'
    text += f'  "name": {_json(workload.name)},\n'
    if workload.about:
        about = json.dumps(workload.about, ensure_ascii=False, allow_nan=False, indent=2)
        text += '  "about": ' + about.replace("\n", "\n  ") + ",\n"
    if workload.imperfections != UNKNOWN:
        text += f'  "errors": {_json(workload.imperfections.to_json())},\n'
    if workload.tenants:
        tenants = {
            tenant.name: {"weight": tenant.weight, "min_share": tenant.min_share}
            for tenant in workload.tenants
        }
        text += f'  "tenants": {_json(tenants)},\n'
    text += '  "profiles": {\n' + ",\n".join(profiles) + "\n  }"
    if workload.sequence is not None:
        sequence = workload.sequence
        jobs = [
            {
                "profile": profile.name,
                "arrival_ms": arrival,
                **describe_attributes(attributes, workload.attributes.get(profile.name, NO_ATTRIBUTES)),
            }
            for profile, arrival, attributes in zip(
                sequence.profiles,
                sequence.arrival_ms.tolist(),
                sequence.attributes or (NO_ATTRIBUTES,) * len(sequence),
                strict=True,
            )
        ]
        text += f',\n  "jobs": [\n{_lines(jobs)}\n  ],\n  "seed": {int(workload.sequence.seed)}'
    return text + "\n}\n"


def _members(attributes: JobAttributes) -> str:
    """Format the attributes of a profile as the first members of its JSON object."""
    return "".join(f'"{name}": {_json(value)}, ' for name, value in describe_attributes(attributes).items())


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _lines(rows: Iterable[object]) -> str:
    return ",\n".join(f"      {_json(row)}" for row in rows)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically; a device, such as ``/dev/stdout``, is written directly.

    Raises:
        WorkloadError: the file cannot be written.
    """
    is_device = path.exists() and not path.is_file()  # such as /dev/stdout, which is written, never replaced
    temporary = path if is_device else path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if is_device and not path.is_dir():
            path.write_bytes(data)
            return
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        if not is_device:
            with contextlib.suppress(OSError):  # the file exists only after a failure
                temporary.unlink()


def describe_attributes(attributes: JobAttributes, profile: JobAttributes = NO_ATTRIBUTES) -> dict[str, Any]:
    """Return the file entry of a job's attributes that differ from its profile's; or of a profile's attributes."""
    given = {name: value for name, value in vars(attributes).items() if value != getattr(profile, name)}
    if "deadline_ms" in given:
        given.pop("slack", None)
    return {name: None if value == math.inf else value for name, value in given.items()}


def describe_stages(profile: JobProfile) -> Iterator[dict[str, Any]]:
    """Yield the file entry of each stage, without defaults."""
    for stage, parents in zip(profile.stages, profile.parents, strict=True):
        described = {
            "name": stage.name,
            "tasks": int(stage.num_tasks),
            "duration_ms": _describe_durations(stage.durations),
            "parents": list(parents),
            "cpu": float(stage.cpu),
            "memory": float(stage.memory),
            "input_bytes": stage.input_bytes,
            "input_rows": stage.input_rows,
            "shuffle_bytes": stage.shuffle_bytes,
            "operators": list(stage.operators),
        }
        defaults = {"name": "", "parents": [], "cpu": 1.0, "memory": 0.0, "operators": []}
        yield {key: value for key, value in described.items() if defaults.get(key) != value}


def _describe_durations(durations: TaskDurations) -> float | list[float] | dict[str, Any]:
    """Return the shortest entry from which the same durations are read."""
    tables = {wave.name.lower(): _measured(durations, wave) for wave in Wave}
    any_level: list[float] = tables["rest"].get(str(ANY_LEVEL), [])
    forms: list[float | list[float]] = [*any_level[:1], any_level] if any_level else []
    for form in forms:
        if _same(build_durations(form), durations):
            return form
    described: dict[str, Any] = {name: table for name, table in tables.items() if table}
    if durations.levels.tolist() == [ANY_LEVEL]:
        described = {name: table[str(ANY_LEVEL)] for name, table in described.items()}
    if not math.isnan(durations.given_mean_ms):
        described["mean_ms"] = durations.given_mean_ms
    return described


def _measured(durations: TaskDurations, wave: Wave) -> dict[str, list[float]]:
    return {str(level): cell.tolist() for level, cell in durations.table(wave).items() if cell.size}


def _same(one: TaskDurations, other: TaskDurations) -> bool:
    return one is other or (
        one.mean_ms == other.mean_ms
        and np.array_equal(one.levels, other.levels)
        and all(
            np.array_equal(left, right)
            for wave in Wave
            for left, right in zip(one.table(wave).values(), other.table(wave).values(), strict=True)
        )
    )
