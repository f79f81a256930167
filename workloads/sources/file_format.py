"""Schema of workload files, and conversion between its entries and job profiles.

``workloads.sources.workload_file`` documents the format and is the public module; this module validates and converts.
"""

from __future__ import annotations

import math
from dataclasses import fields
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    create_model,
)

from workloads.imperfections import Imperfections
from workloads.job import MOST_BYTES, MOST_OPERATORS, JobProfile, StageProfile, TaskDurations, WorkloadError

#: Maximum length of lists of durations that are cached, as many stages may share them.
FEW = 16


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


_TAGS: dict[type, str] = {int: "<number>", float: "<number>", str: "<name>", list: "<list>", dict: "<object>"}


def _one_of(expected: str) -> Discriminator:
    """Return a discriminator by the type of a value, whose error names the expected types."""
    return Discriminator(
        lambda value: _TAGS.get(type(value)),
        custom_error_type="kind",
        custom_error_message=f"expected {expected}",
    )


_Duration = Annotated[float, Field(ge=0)]
_Durations = Annotated[list[_Duration], Field(min_length=1, fail_fast=True)]
_Level = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}$")]

_WaveDurations = Annotated[
    Annotated[_Duration, Tag("<number>")]
    | Annotated[_Durations, Tag("<list>")]
    | Annotated[dict[_Level, _Durations], Tag("<object>")],
    _one_of("a number, a list of numbers, or an object of lists by parallelism level"),
]


class _Waves(_Model):
    fresh: _WaveDurations = Field(default_factory=dict)
    first: _WaveDurations = Field(default_factory=dict)
    rest: _WaveDurations = Field(default_factory=dict)
    mean_ms: _Duration = math.nan


_StageDurations = Annotated[
    Annotated[_Duration, Tag("<number>")]
    | Annotated[_Durations, Tag("<list>")]
    | Annotated[_Waves, Tag("<object>")],
    _one_of("a number, a list of numbers, or an object by wave"),
]


_Amount = Annotated[int, Field(ge=0, le=MOST_BYTES)]


class _Stage(_Model):
    tasks: Annotated[int, Field(ge=1)]
    duration_ms: _StageDurations
    name: str = ""
    parents: Annotated[
        list[
            Annotated[
                Annotated[int, Tag("<number>")] | Annotated[str, Tag("<name>")],
                _one_of("a stage's number or its name"),
            ]
        ],
        Field(fail_fast=True),
    ] = Field(default_factory=list)
    cpu: Annotated[float, Field(ge=0)] = 1.0
    memory: Annotated[float, Field(ge=0)] = 0.0
    input_bytes: _Amount | None = None
    input_rows: _Amount | None = None
    shuffle_bytes: _Amount | None = None
    operators: Annotated[list[str], Field(max_length=MOST_OPERATORS)] = Field(default_factory=list)


class Attributes(_Model):
    """Attributes of jobs as written in a file; ``JobAttributes`` checks the values."""

    weight: float = 1.0
    slack: float | None = None
    tenant: str = "default"


class _Profile(Attributes):
    stages: Annotated[list[_Stage], Field(min_length=1, fail_fast=True)]


class _Job(Attributes):
    profile: str
    arrival_ms: Annotated[float, Field(ge=0)] = 0.0
    deadline_ms: float | None = None


class _Tenant(_Model):
    weight: float = 1.0
    min_share: int = 0


#: Fields of ``Imperfections``, which checks their ranges.
_ERRORS: dict[str, Any] = {field.name: (float | None, None) for field in fields(Imperfections)}
_Errors = create_model("_Errors", __base__=_Model, **_ERRORS)


class WorkloadFile(_Model):
    """Root of a workload file."""

    format: Literal["decima-workload"]
    #: A boolean becomes a text, as ``true`` is not version 1.
    version: Annotated[
        Literal[1],
        BeforeValidator(lambda version: str(version).lower() if isinstance(version, bool) else version),
    ]
    profiles: Annotated[dict[str, _Profile], Field(min_length=1)]
    name: str = ""
    about: dict[str, JsonValue] = Field(default_factory=dict)
    jobs: Annotated[list[_Job], Field(min_length=1, fail_fast=True)] = Field(default_factory=list)
    seed: Annotated[int, Field(ge=0, lt=2**128)] = 0
    tenants: dict[str, _Tenant] = Field(default_factory=dict)
    errors: _Errors | None = None  # type: ignore[valid-type]


def gives_attributes(file: WorkloadFile) -> bool:
    """Return whether a file gives attributes of jobs, or declares tenants."""
    entries: list[Attributes] = [*file.profiles.values(), *file.jobs]
    names = Attributes.model_fields.keys() | {"deadline_ms"}
    return bool(file.tenants) or any(entry.model_fields_set & names for entry in entries)


def build_profile(name: str, profile: _Profile) -> JobProfile:
    """Build the job profile of the entry ``name`` in ``profiles``.

    Raises:
        WorkloadError: the job is impossible; the message names the place in the file.
    """
    stages = []
    for index, stage in enumerate(profile.stages):
        try:
            durations = build_durations(stage.duration_ms)
        except WorkloadError as error:
            raise _at(("profiles", name, "stages", index, "duration_ms"), error) from None
        try:
            stages.append(
                StageProfile(
                    stage.tasks,
                    durations,
                    stage.name,
                    stage.cpu,
                    stage.memory,
                    stage.input_bytes,
                    stage.input_rows,
                    stage.shuffle_bytes,
                    tuple(stage.operators),
                )
            )
        except WorkloadError as error:
            raise _at(("profiles", name, "stages", index), error) from None
    edges = _build_edges(name, profile.stages)
    try:
        return JobProfile(name, tuple(stages), edges)
    except WorkloadError as error:
        raise _at(("profiles", name), error) from None


def build_durations(durations: float | list[float] | _Waves) -> TaskDurations:
    """Return the durations of an entry ``duration_ms``; those of short lists are cached."""
    if isinstance(durations, list) and len(durations) <= FEW:
        return _sampled(tuple(durations))
    return TaskDurations.parse(vars(durations) if isinstance(durations, _Waves) else durations)


@lru_cache(maxsize=4096)
def _sampled(durations_ms: tuple[float, ...]) -> TaskDurations:
    """Return cached durations, as files of many jobs repeat short lists."""
    return TaskDurations.sampled(durations_ms)


def _build_edges(name: str, stages: list[_Stage]) -> NDArray[np.int64]:
    """Return the (parent, child) pairs of the job ``name``, int64 [num_edges, 2], ascending."""
    by_name: dict[int | str, list[int]] = {index: [index] for index in range(len(stages))}
    for number, stage in enumerate(stages):
        by_name.setdefault(stage.name, []).append(number)
    edges = []
    for child, stage in enumerate(stages):
        for index, parent in enumerate(stage.parents):
            matches = by_name.get(parent, [])
            if len(matches) != 1:
                place = ("profiles", name, "stages", child, "parents", index)
                raise _at(place, _expected_parent(parent, matches, stages))
            edges.append((matches[0], child))
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


def _expected_parent(parent: int | str, found: list[int], stages: list[_Stage]) -> str:
    if isinstance(parent, int):
        return f"expected the number of a stage, 0 to {len(stages) - 1}"
    if found:
        return f"stages {found[0]} and {found[1]} are both named {parent!r}, expected a number"
    return f"no stage of this job is named {parent!r}"


def _at(place: tuple[str | int, ...], problem: object) -> WorkloadError:
    """Return the error of a problem at a place in the file."""
    from workloads.validation import place_name

    return WorkloadError(f"{place_name(place)}: {problem}")
