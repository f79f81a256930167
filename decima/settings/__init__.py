"""Training settings in YAML files: read, override and validate them; settings that all trainings share.

Trainings on clusters and on grids share settings (``RunConfig``), random seeds and progress callbacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from workloads.declaration import described
from workloads.errors import DecimaError, did_you_mean
from workloads.quantities import build, to_outside
from workloads.reading import read_bytes

__all__ = [
    "CLONING",
    "CLONING_OFFSET",
    "ENDS",
    "RUN_SEEDS",
    "SEARCH",
    "SEEDS",
    "SETTINGS",
    "SHUFFLE",
    "TRAINING",
    "VALIDATION",
    "VALIDATION_SEEDS",
    "WARM_UPS",
    "CommonCloningSection",
    "CommonValidationSection",
    "Count",
    "DivergedError",
    "Imported",
    "LearningRate",
    "Outside",
    "Positive",
    "Progress",
    "Recipes",
    "RunConfig",
    "Section",
    "Share",
    "TrainingError",
    "Weight",
    "Whole",
    "check_overrides",
    "declared_class",
    "described",
    "parse_settings",
    "parse_yaml",
    "read_settings",
    "sections_in",
    "silent",
]  # fmt: skip

#: First seed of the validation sequences, the same in all runs, so that runs can be compared. Evaluations use smaller
#: seeds, training episodes use seeds above a billion.
VALIDATION_SEEDS = 5_000_000
#: Number of possible seeds of a run.
SEEDS = 1_000_000
#: Sequence seeds of a run start at (1 + seed of the run) * ``RUN_SEEDS``; behaviour cloning adds an offset.
RUN_SEEDS = 1_000_000_000
CLONING_OFFSET = 900_000_000
#: Keys of random streams of a training: truncation times, minibatches, cloning, settings, warm-ups, search.
ENDS, SHUFFLE, CLONING, SETTINGS, WARM_UPS, SEARCH = 0, 1, 2, 3, 5, 6

#: Progress callback, called with the name of the phase, the finished part and the total.
Progress = Callable[[str, int, int], None]
#: Phase names of the progress callback; validation interrupts other phases.
TRAINING, VALIDATION = "training", "validation"

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
#: Maximum size of a settings file, bytes, and maximum number of its values.
_LONGEST, _MOST_VALUES = 2**18, 100_000
#: Learning rate; Adam's first step is ten times as long and must fit in a float32.
LearningRate = Annotated[float, Field(gt=0, le=1e37)]

_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class TrainingError(DecimaError, ValueError):
    """Training cannot start or resume. The message is one line that names the file and the place."""


class DivergedError(TrainingError):
    """Training diverged: a loss, gradient or probability is not finite."""


class Outside:
    """Marker of a section whose class is declared (``workloads.declaration``), as in ``Annotated[Cluster, Outside()]``.

    Its keys in YAML are the names that users see, and times are seconds.

    Args:
        defaults: defaults that differ from those of the class, by the names of the fields; times are ms.
    """

    def __init__(self, **defaults: Any) -> None:
        self._defaults = defaults

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: (
                build(source, value, defaults=self._defaults) if isinstance(value, Mapping) else value
            ),
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(to_outside),
        )


class Imported:
    """Marker of a section whose class is imported only for settings that have the section, as most do not.

    Args:
        reference: the class, ``module:Class``.
    """

    def __init__(self, reference: str) -> None:
        self._reference = reference

    @property
    def section(self) -> type[Section]:
        """The class of the section."""
        module, _, name = self._reference.partition(":")
        return cast("type[Section]", getattr(import_module(module), name))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None else self.section.model_validate(value)
        )


class Section(BaseModel):
    """Base class of settings: immutable; unknown keys are errors."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    #: Former name of a setting -> current name.
    RENAMED: ClassVar[Mapping[str, str]] = {}
    #: Name of a setting of any keys and values -> model whose fields are these keys.
    FREE: ClassVar[Mapping[str, type[BaseModel]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_wrong_kinds(cls, values: Any) -> Any:
        for old, new in cls.RENAMED.items():
            if isinstance(values, dict) and old in values:
                raise ValueError(f"{old} is called {new} now")
        if isinstance(values, dict):
            for name, value in values.items():
                field = cls.model_fields.get(name)
                if value is None or field is None:
                    continue
                if any(isinstance(each, BeforeValidator) for each in field.metadata):
                    continue
                kinds = _kinds(field.annotation)
                if any(isinstance(each, Imported) for each in field.metadata):
                    kinds = set(sections_in(field))
                if isinstance(value, bool) and bool not in kinds:
                    raise ValueError(f"{name}: must not be a Boolean, got {str(value).lower()}")
                for each in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(each, str) and not kinds & {str, Path} and _is_quoted(each, kinds):
                        raise ValueError(f"{name}: must not be text, got {each!r:.60}")
        return values

    def to_yaml(self) -> str:
        """Return all settings as YAML; ``read_settings`` reads them back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def _is_quoted(text: str, kinds: set[Any]) -> bool:
    """Return whether pydantic would convert a text to a number or Boolean, one of the types ``kinds``."""
    try:
        float(text)
    except ValueError:
        return bool in kinds
    return bool({bool, int, float} & kinds)


def _kinds(annotation: Any) -> set[Any]:
    """Return all types in an annotation, nested ones included; ``Any`` permits Booleans."""
    if annotation is Any:
        return {bool}
    inner = [kind for each in get_args(annotation) for kind in _kinds(each)]
    return {annotation, *inner, *map(type, get_args(annotation))}


Settings = TypeVar("Settings", bound=Section)


def declared_class(field: FieldInfo) -> Any:
    """Return the declared class of a section; None for other settings."""
    return field.annotation if any(isinstance(each, Outside) for each in field.metadata) else None


def sections_in(field: FieldInfo) -> list[type[Section]]:
    """Return the classes of sections that a setting can have."""
    kinds = [each.section for each in field.metadata if isinstance(each, Imported)]
    kinds += [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, Section)]


@dataclass(frozen=True)
class Recipes:
    """Recipes (shipped training settings): the YAML files in a folder of package resources."""

    folder: Any

    def names(self) -> list[str]:
        """Return the names of the recipes, sorted."""
        return sorted(path.name.removesuffix(".yaml") for path in self.folder.iterdir())


def read_settings(
    model: type[Settings],
    recipes: Recipes,
    source: str | Path,
    overrides: Sequence[str] = (),
    changes: Mapping[str, Any] | None = None,
) -> Settings:
    """Read training settings from a recipe or a YAML file.

    Args:
        model: class of the settings.
        recipes: shipped settings.
        source: name of a recipe, or path of a YAML file (with a slash, or ending in .yaml or .yml).
        overrides: texts ``section.key=value`` with values in YAML, which replace values of the file.
        changes: values by key, which replace values of the file; of a section a dictionary of some of its keys.

    Raises:
        TrainingError: there is no such file or recipe, it is malformed, or a key is unknown or has a wrong value.
    """
    check_overrides(overrides)
    if not isinstance(source, str | Path):
        raise TrainingError(f"config must be the name of a recipe, or a path, got {source!r:.60}")
    is_file = isinstance(source, Path) or "/" in source or source.endswith((".yaml", ".yml"))
    if not is_file and source not in recipes.names():
        known = ", ".join(recipes.names())
        near = did_you_mean(source, recipes.names())
        raise TrainingError(f"unknown recipe {source!r}{near}: expected one of {known}, or a YAML file")
    document = read_yaml(Path(source) if is_file else recipes.folder / f"{source}.yaml", str(source))
    for override in overrides:
        _override(document, override)
    for key, value in (changes or {}).items():
        section = document.get(key)
        document[key] = (
            {**section, **value} if isinstance(section, dict) and isinstance(value, Mapping) else value
        )
    where = f"{source} with {' '.join(overrides)}" if overrides else str(source)
    return parse_settings(model, document, where)


def parse_settings(model: type[Settings], document: dict[str, Any], where: str) -> Settings:
    """Validate a document (keys and values) as settings; error messages begin with ``where``.

    Raises:
        TrainingError: a key is unknown or has a wrong value.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        from decima.settings.problems import first_problem

        raise TrainingError(f"{where}: {first_problem(error, model)}") from None


def check_overrides(overrides: Any) -> None:
    """Check that ``overrides`` are several texts; a single text or a dictionary is a frequent mistake.

    Raises:
        TrainingError: they are anything else.
    """
    is_several = isinstance(overrides, Sequence) and not isinstance(overrides, str)
    if not is_several or not all(isinstance(each, str) for each in overrides):
        raise TrainingError(
            f"overrides must be a list of texts such as ['iterations=20'], got {overrides!r:.60}"
        )


def read_yaml(path: Path, name: str | None = None) -> dict[str, Any]:
    """Read a YAML file of keys and values; an empty file has none.

    Args:
        name: name of the file in error messages; by default its path.

    Raises:
        TrainingError: the file cannot be read, is malformed, or contains anything but keys and values.
    """
    name = str(path) if name is None else name
    try:
        text = read_bytes(path, _LONGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TrainingError(f"{name}: byte {error.start}: expected UTF-8 text") from None
    except OSError as error:
        raise TrainingError(f"{name}: {error.strerror}, expected a YAML file") from None
    document = parse_yaml(text, name)
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise TrainingError(f"{name}: expected keys and values, such as iterations: 100")
    return document


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
    document[names[-1]] = parse_yaml(value, repr(text))


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML with the number syntax of YAML 1.2; error messages begin with ``where``.

    Raises:
        TrainingError: the text is not YAML, has too many values, a key twice, or keys that are not names.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_size(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except RecursionError:
        raise TrainingError(f"{where}: too many levels of brackets") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise TrainingError(f"{where}: {place}{problem}") from None


def _check_size(root: yaml.Node) -> None:
    """Refuse too many values. Each use of an anchor counts, so that a short text cannot become a huge document."""
    nodes, count = [root], 1
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            inner = [each for pair in node.value for each in pair]
        else:
            inner = node.value if isinstance(node, yaml.SequenceNode) else []
        nodes += inner
        count += len(inner)
        if count > _MOST_VALUES:
            problem = f"more than {_MOST_VALUES:,} values, or a value that contains itself"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


class _Loader(yaml.SafeLoader):
    """YAML loader of plain values that refuses duplicate keys and reads numbers as in YAML 1.2."""

    #: PyYAML reads YAML 1.1, in which 1:30 is 90, 010 is 8, 1_0 is 10, and 1e-4 is a text.
    yaml_implicit_resolvers = {  # noqa: RUF012  # an attribute of PyYAML's class
        first: [(tag, pattern) for tag, pattern in found if tag not in (_INT, _FLOAT)]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, IndexError, TypeError, ValueError):  # 2001-13-45, or thousands of digits
            raise yaml.constructor.ConstructorError(
                None, None, "this value is invalid", node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "expected a name as key", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given more than once", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?(0|[1-9][0-9]*)$", re.ASCII), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"([-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$",
        re.ASCII,
    ),
    list("-+.0123456789"),
)


def silent(phase: str, done: int, total: int) -> None:
    """Progress callback that does nothing."""


class CommonCloningSection(Section):
    """Behaviour cloning: before reinforcement learning, the policy learns the choices of a heuristic."""

    epochs: Count = described(5, "number of times that each choice is used")
    minibatch: Count = described(256, "choices per gradient step")


class CommonValidationSection(Section):
    """Validation: the best policy is selected on held-out jobs."""

    every: Count = described(10, "iterations from one validation to the next")


class RunConfig(Section):
    """Settings of a training run. They determine its results, bit for bit on a CPU."""

    RENAMED: ClassVar[Mapping[str, str]] = {"imitation": "behaviour_cloning"}

    seed: int = described(0, "seed of initial weights, jobs and choices", ge=0, lt=SEEDS)
    iterations: Count = described(300, "iterations, each with episodes and an update")
    start: str | None = described(
        None,
        "initial policy (warm start): a file, or the name of a shipped policy; excludes behaviour cloning",
    )
    behaviour_cloning: CommonCloningSection | None = None
    validation: CommonValidationSection = CommonValidationSection()
    checkpoint_every: Count = described(10, "iterations from one checkpoint to the next")

    @model_validator(mode="after")
    def _check_start(self) -> RunConfig:
        if self.start is not None and self.behaviour_cloning is not None:
            raise ValueError("start: expected behaviour_cloning=null beside it")
        return self
