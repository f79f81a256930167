"""What is trained, on what, and how: the settings of a training run, and the YAML files that hold them.

A file gives those that differ from the defaults, under the names below (``cluster:`` with ``executors: 50`` under it);
a few such files come with the project, see ``recipe_names``. Times are seconds, as everywhere that people write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from decima.experiments import ExperimentSettings
from decima.training.sections import (
    BaselineSection,
    ClusterSection,
    Count,
    CriticSection,
    CurriculumSection,
    EpisodesSection,
    ImitationSection,
    PolicySection,
    ReturnsSection,
    Section,
    UpdateSection,
    ValidationSection,
    WorkloadSection,
    first_problem,
)

__all__ = [
    "TrainingConfig",
    "TrainingError",
    "describe_settings",
    "parse_config",
    "read_config",
    "recipe_names",
]

#: More would reach the seeds of another run.
MAX_SEQUENCES = 800_000_000


class TrainingError(ValueError):
    """A training that cannot be begun or gone on with. The message is one line that names the file and the place."""


class TrainingConfig(Section):
    """A training run. Everything it does follows from these settings, bit for bit on a CPU."""

    seed: int = Field(
        default=0, ge=0, lt=1_000_000, description="of the first weights, the sequences and the choices"
    )
    iterations: Count = Field(default=300, description="rounds of episodes and update")
    policy: PolicySection = PolicySection()
    cluster: ClusterSection = ClusterSection()
    workload: WorkloadSection = WorkloadSection()
    episodes: EpisodesSection = EpisodesSection()
    curriculum: CurriculumSection | None = None
    returns: ReturnsSection = ReturnsSection()
    baseline: BaselineSection = BaselineSection()
    critic: CriticSection | None = None
    update: UpdateSection = UpdateSection()
    imitation: ImitationSection | None = None
    validation: ValidationSection = ValidationSection()
    checkpoint_every: Count = Field(default=10, description="iterations from one checkpoint to the next")

    @model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        if self.iterations * self.episodes.sequences * self.episodes.per_sequence > MAX_SEQUENCES:
            raise ValueError(f"iterations: there are seeds for {MAX_SEQUENCES} episodes only")
        if self.curriculum is not None and self.cluster.semantics == "decima-sim":
            raise ValueError("curriculum: no episode ends early with the semantics decima-sim")
        return self

    def settings(self) -> ExperimentSettings:
        """The cluster, and how sequences are drawn, as experiments have it.

        Raises:
            WorkloadError: the workload cannot be read, or no jobs can be drawn from it.
            ConfigError: no such cluster can be simulated.
        """
        return ExperimentSettings(
            workload=self.workload.read(),
            cluster=self.cluster.build(),
            schedulers=("fair",),
            arrivals=self.workload.arrivals,
            interval_ms=self.workload.interval * 1000,
            num_jobs=self.workload.jobs,
        )

    def to_yaml(self) -> str:
        """All settings; ``read_config`` reads them back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def describe_settings() -> list[tuple[str, str, str]]:
    """Every setting: its dotted key, its default as YAML writes it, and what it means."""
    return list(_described(TrainingConfig, ""))


def _described(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        inner = [
            kind
            for kind in (field.annotation, *get_args(field.annotation))
            if isinstance(kind, type) and issubclass(kind, Section)
        ]
        if not inner:
            yield f"{prefix}{name}", json.dumps(field.default), str(field.description)
            continue
        default = "null" if field.default is None else ""
        yield f"{prefix}{name}", default, " ".join((inner[0].__doc__ or "").split())
        yield from _described(inner[0], f"{prefix}{name}.")


def recipe_names() -> list[str]:
    """The recipes that come with the project."""
    return sorted(path.name.removesuffix(".yaml") for path in _recipes().iterdir())


def read_config(source: str | Path, overrides: Sequence[str] = ()) -> TrainingConfig:
    """Read the settings of a training run.

    Args:
        source: the name of a recipe, or a YAML file (any path, or a name that ends in .yaml or .yml).
        overrides: ``section.key=value``, where the value is YAML; they win over the file.

    Raises:
        TrainingError: there is no such file or recipe, it is malformed, or a key is unknown or has a wrong value.
    """
    text = _read(source)
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise TrainingError(f"{source}: {_yaml_problem(error)}") from None
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise TrainingError(f"{source}: expected keys and values, such as iterations: 100")
    for override in overrides:
        _override(document, override)
    where = f"{source} with {' '.join(overrides)}" if overrides else str(source)
    return parse_config(document, where)


def parse_config(document: dict[str, Any], where: str) -> TrainingConfig:
    """Settings from what YAML or JSON holds.

    Args:
        document: keys and values.
        where: named in errors.

    Raises:
        TrainingError: a key is unknown or has a wrong value.
    """
    try:
        return TrainingConfig.model_validate(document)
    except ValidationError as error:
        raise TrainingError(f"{where}: {first_problem(error)}") from None


def _recipes() -> Any:
    return resources.files("decima.training") / "recipes"


def _read(source: str | Path) -> str:
    is_file = isinstance(source, Path) or "/" in source or source.endswith((".yaml", ".yml"))
    if not is_file and source not in recipe_names():
        known = ", ".join(recipe_names())
        raise TrainingError(f"unknown recipe {source!r}: expected one of {known}, or a YAML file")
    path = Path(source) if is_file else _recipes() / f"{source}.yaml"
    try:
        return str(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise TrainingError(f"{source}: byte {error.start}: expected UTF-8 text") from None
    except OSError as error:
        raise TrainingError(f"{source}: {error.strerror}, expected a YAML file") from None


def _override(document: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise TrainingError(f"{text!r} is not of the form section.key=value")
    for place, name in enumerate(names[:-1]):
        inner = document.get(name)
        document[name] = document = {} if inner is None else inner
        if not isinstance(document, dict):
            raise TrainingError(f"{text!r}: {'.'.join(names[: place + 1])} has no keys")
    try:
        document[names[-1]] = yaml.load(value, Loader=_Loader)
    except yaml.YAMLError as error:
        raise TrainingError(f"{text!r}: {_yaml_problem(error)}") from None


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else problem


class _Loader(yaml.SafeLoader):
    """Plain values only; a key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given more than once", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
