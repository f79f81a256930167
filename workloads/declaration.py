"""Declaration of settings: each quantity is a field of a frozen dataclass, with default, bounds and description.

Options of commands, keyword arguments, sections of YAML files and JSON are made from these fields, see
``workloads.quantities``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import wraps
from importlib import import_module
from numbers import Integral, Real
from textwrap import fill
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    Strict,
    ValidationError,
)
from pydantic.dataclasses import dataclass as validated_dataclass
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from workloads.errors import ConfigError, DecimaError, described_value, did_you_mean, one_of

__all__ = [
    "Flag", "Named", "Number", "Text", "Whole", "declared", "described", "fields_of", "instance_of",
]  # fmt: skip

_T = TypeVar("_T")
_Declared = TypeVar("_Declared")


def _plain(kind: type, convert: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator that converts numbers of all libraries to Python's; other values, and booleans, stay."""

    def converted(value: Any) -> Any:
        if not isinstance(value, kind) or isinstance(value, bool):
            return value
        try:
            return convert(value)
        except OverflowError:
            raise ValueError(f"expected a number below 1e308, got {described_value(value)}") from None

    return BeforeValidator(converted)


#: Types of declared numbers: NumPy's numbers are numbers, texts and booleans are not.
Whole = Annotated[int, Strict(), _plain(Integral, int)]
Number = Annotated[float, Strict(), _plain(Real, float)]
Flag = Annotated[bool, Strict()]


def instance_of(reference: str) -> PlainValidator:
    """Return a validator of None and objects of a class, ``module:Class``, which is imported for objects only."""

    def check(value: Any) -> Any:
        if value is not None:
            module, _, name = reference.partition(":")
            if not isinstance(value, getattr(import_module(module), name)):
                raise ValueError(f"expected a value of the type {name}, got {described_value(value)}")
        return value

    return PlainValidator(check)


@dataclass(frozen=True)
class Text:
    """Text form of values of another type, as in ``Annotated[tuple[ExecutorClass, ...], Text("25x1", ..)]``.

    Args:
        form: placeholder of the text in the help.
        parse: function from text to value. All functions can be given as ``module:function``, which is imported when
            it is first needed.
        format: function from value to text; of a value without a text, to its form in YAML and JSON.
        convert: function from that form to the value, if they differ.
    """

    form: str
    parse: Callable[[str], Any] | str
    format: Callable[[Any], Any] | str = str
    convert: Callable[[Any], Any] | str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.parsed, handler(source))

    def parsed(self, value: Any) -> Any:
        """Return the value of a text; other values stay."""
        return _imported(self.parse)(value) if isinstance(value, str) else value

    def formatted(self, value: Any) -> Any:
        """Return the text of a value, or its form in YAML and JSON."""
        return _imported(self.format)(value)

    def converted(self, value: Any) -> Any:
        """Return the value of its form in YAML and JSON."""
        return value if self.convert is None else _imported(self.convert)(value)


def _imported(function: Callable[[Any], Any] | str) -> Callable[[Any], Any]:
    """Return a function that can be given as ``module:function``."""
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    return cast("Callable[[Any], Any]", getattr(import_module(module), name))


class Named(Text):
    """Text form of dataclass objects that have names, such as semantics; the others are written field by field.

    Args:
        values: values by their names.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__("|".join(values), self._find)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "format", self._name)

    values: Mapping[str, Any]

    def _find(self, name: str) -> Any:
        if name not in self.values:
            raise ValueError(
                f"expected {one_of(self.values)}, got {described_value(name)}{did_you_mean(name, self.values)}"
            )
        return self.values[name]

    def _name(self, value: Any) -> Any:
        return next((name for name, known in self.values.items() if known == value), asdict(value))


def described(
    default: _T,
    description: str,
    *,
    name: str | None = None,
    metavar: str | None = None,
    without_value: str | None = None,
    measured: bool = False,
    internal: bool = False,
    only_speed: bool = False,
    **bounds: Any,
) -> _T:
    """Declare a setting.

    Args:
        default: default value.
        description: meaning and unit, for the help.
        name: name that users see, if it does not follow from the rule.
        metavar: placeholder of the value in the help of the command line.
        without_value: value of an option of the command line that is given without a value.
        measured: whether a workload file from event logs may contain the default.
        internal: whether only Python code can give the value.
        only_speed: whether the setting never changes results.
        bounds: further arguments of ``pydantic.Field``, such as ``ge``.
    """
    extra: dict[str, Any] = {
        "name": name,
        "metavar": metavar,
        "without_value": without_value,
        "measured": measured,
        "internal": internal,
        "only_speed": only_speed,
    }
    return cast("_T", Field(default=default, description=description, json_schema_extra=extra, **bounds))


def fields_of(cls: Any) -> dict[str, FieldInfo]:
    """Return the declarations of the fields of a class of settings."""
    return cast("dict[str, FieldInfo]", cls.__pydantic_fields__)


@dataclass_transform(frozen_default=True)
def declared(
    error: type[DecimaError] = ConfigError, **options: Any
) -> Callable[[type[_Declared]], type[_Declared]]:
    """Return a decorator for classes of settings: a frozen dataclass that validates its fields.

    Invalid values raise ``error``, whose message is one line that names the field and what is expected. The
    descriptions of the fields become part of the docstring.

    Args:
        options: further arguments of ``dataclasses.dataclass``.
    """

    def declare(cls: type[_Declared]) -> type[_Declared]:
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        made: Any = validated_dataclass(cls, frozen=True, config=config, **options)
        validate = made.__init__

        @wraps(validate)
        def validate_in_one_line(self: Any, *args: Any, **values: Any) -> None:
            try:
                validate(self, *args, **values)
            except ValidationError as invalid:
                from workloads.validation import refusal

                raise refusal(invalid, made, error) from None

        made.__init__ = validate_in_one_line
        arguments = [
            fill(f"{name}: {field.description}", 110, initial_indent=8 * " ", subsequent_indent=12 * " ")
            for name, field in fields_of(made).items()
            if field.description
        ]
        summary, raises, errors = (cls.__doc__ or "").partition("    Raises:")
        made.__doc__ = "\n".join([f"{summary.rstrip()}\n\n    Args:", *arguments, "", raises + errors])
        return cast("type[_Declared]", made)

    return declare
