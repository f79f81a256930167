"""Quantities of declared settings as users see them: names, units, and conversion from and to the objects inside.

One rule gives the names: a field ``x_ms`` is ``x`` in seconds, a field ``num_x`` is ``x``; a few fields declare another
``name``. Quantities of a field that is itself declared, such as the errors of a cluster's estimates, stand beside the
others. Options of commands, keyword arguments, sections of YAML files and JSON are made from the quantities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from numbers import Real
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from workloads.declaration import Text, fields_of
from workloads.errors import ConfigError, DecimaError, did_you_mean

__all__ = ["NEVER", "Quantity", "build", "groups", "outside_name", "quantities", "to_outside"]

_T = TypeVar("_T")
#: Text for a time that is infinite.
NEVER = "never"


@dataclass(frozen=True)
class Quantity:
    """A quantity of a setting as users see it.

    Attributes:
        name: name on the command line (with hyphens), in YAML and in Python.
        path: names of the fields that lead to the value.
        field: declaration of the innermost field.
    """

    name: str
    path: tuple[str, ...]
    field: FieldInfo

    @property
    def is_time(self) -> bool:
        """Whether the value is ms inside and s for users."""
        return self.path[-1].endswith("_ms")

    @property
    def text(self) -> Text | None:
        """Text form of the value, if it has one."""
        return next((each for each in self.field.metadata if isinstance(each, Text)), None)

    @property
    def bounds(self) -> tuple[Any, dict[str, Any]]:
        """Type and bounds of the value; of alternatives, those of the first."""
        return _bounds(self.field.annotation, self.field.metadata)

    @property
    def extra(self) -> dict[str, Any]:
        """Further arguments of ``described``."""
        return cast("dict[str, Any]", self.field.json_schema_extra or {})

    @property
    def default(self) -> Any:
        """Default value as users see it."""
        return self.outside(self.field.default)

    @property
    def fixed_default(self) -> Any:
        """Default value, unless it is empty, or is measured or given with the workload; then None."""
        depends = self.extra["measured"] or "[default:" in str(self.field.description)
        return None if depends or self.field.default in ((), "") else self.default

    def inside(self, value: Any) -> Any:
        """Convert a value of a user: seconds become ms."""
        if self.text is not None and self.text.convert is not None:
            return self.text.converted(value)
        if not self.is_time:
            return value
        if isinstance(value, list | tuple):
            return tuple(map(self.inside, value))
        if value == NEVER:
            return math.inf
        return value * 1000 if isinstance(value, Real) and not isinstance(value, bool) else value

    def outside(self, value: Any) -> Any:
        """Convert a value to its form for users: ms become seconds, and structures their text."""
        if isinstance(value, str) or value is None:
            return value
        if isinstance(value, Path):
            return str(value)
        if self.text is not None:
            return self.text.formatted(value)
        if not self.is_time:
            return value
        if isinstance(value, tuple):
            return tuple(each / 1000 for each in value)
        return NEVER if math.isinf(value) else value / 1000

    def of(self, setting: Any) -> Any:
        """Return the value in an object of the declared class, ms for times."""
        for name in self.path:
            setting = getattr(setting, name)
        return setting


def _bounds(kind: Any, metadata: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    limits = {
        name: getattr(each, name) for each in metadata for name in ("ge", "gt", "le") if hasattr(each, name)
    }
    for each in metadata:
        if isinstance(each, FieldInfo):
            limits |= _bounds(None, each.metadata)[1]
    if get_origin(kind) in (Union, UnionType):
        return _bounds(get_args(kind)[0], metadata)
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _bounds(inner, [*metadata, *more])
    return kind, limits


@cache
def quantities(cls: Any) -> dict[str, Quantity]:
    """Return the quantities of a declared class by the names that users see, in the order of the declaration."""
    return {each.name: each for each in _quantities(cls, ())}


def _quantities(cls: Any, path: tuple[str, ...]) -> Iterator[Quantity]:
    for name, field in fields_of(cls).items():
        quantity = Quantity("", (*path, name), field)
        if quantity.extra.get("internal"):
            continue
        if group := _group(field):
            yield from _quantities(group, quantity.path)
        elif field.description:
            yield Quantity(quantity.extra["name"] or outside_name(name), quantity.path, field)


def _group(field: FieldInfo) -> Any:
    """Return the class of a field that is itself declared, and has no text form; None for other fields."""
    has_text = any(isinstance(each, Text) for each in field.metadata)
    return None if has_text or not hasattr(field.annotation, "__pydantic_fields__") else field.annotation


def outside_name(name: str) -> str:
    """Return the name that users see of a field."""
    return name.removesuffix("_ms").removeprefix("num_")


@cache
def groups(cls: Any) -> dict[str, tuple[str, ...]]:
    """Return the declared fields of a declared class: name -> names of the fields that lead to it."""
    paths = [each.path for each in quantities(cls).values()]
    return {path[depth]: path[: depth + 1] for path in paths for depth in range(len(path) - 1)}


def build(
    cls: Callable[..., _T],
    values: Mapping[str, Any],
    error: type[DecimaError] = ConfigError,
    defaults: Mapping[str, Any] | None = None,
) -> _T:
    """Build an object of a declared class from values by the names that users see; times are seconds.

    Args:
        values: values by the names of ``quantities(cls)``. A declared field, such as ``knowledge`` of a cluster, may
            also be given as a whole: an object, or a dictionary of some of its quantities. None: the default.
        error: raised for a wrong value.
        defaults: other defaults, by the names of the fields; times are ms.

    Raises:
        DecimaError: a name is unknown or a value is wrong. The message is one line that names the setting.
    """
    known, whole = quantities(cls), groups(cls)
    inside: dict[str, Any] = {}

    def put(path: tuple[str, ...], value: Any) -> None:
        group = inside
        for part in path[:-1]:
            group = group.setdefault(part, {})
        group[path[-1]] = value

    for quantity in known.values():
        if defaults is not None and quantity.path[-1] in defaults:
            put(quantity.path, defaults[quantity.path[-1]])
    for name, value in values.items():  # a later value replaces an earlier one
        if value is None:
            continue
        if name in whole and is_dataclass(value):
            for each in fields(value):
                put((*whole[name], each.name), getattr(value, each.name))
            continue
        is_group = name in whole and isinstance(value, Mapping)
        possible = {key: each for key, each in known.items() if not is_group or name in each.path}
        for key, item in (value if is_group else {name: value}).items():
            if key in possible:
                put(possible[key].path, possible[key].inside(item))
            elif key in whole and not is_group:
                put(whole[key], item)  # of a wrong type, which validation refuses
            else:
                from workloads.validation import misplaced

                hint, expected = did_you_mean(key, possible), ", ".join(possible)
                raise misplaced(error, key, f"unknown key{hint}, expected {expected}")
    try:
        validator = cls.__pydantic_validator__  # type: ignore[attr-defined]
        return cast("_T", validator.validate_python(inside))
    except ValidationError as invalid:
        from workloads.validation import refusal

        raise refusal(invalid, cls, error, known.values()) from None


def to_outside(setting: Any, *, with_units: bool = False) -> dict[str, Any]:
    """Return the quantities of an object of a declared class by the names that users see; times are seconds.

    Args:
        with_units: whether names of times end in ``_s``, for results, which have no help; infinite times are None.
    """
    cls: Any = type(setting)
    values = {}
    for name, quantity in quantities(cls).items():
        value = quantity.outside(quantity.of(setting))
        if with_units and quantity.is_time:
            name, value = f"{name}_s", None if value == NEVER else value
        values[name] = value
    return values
