"""Validation errors of pydantic as one line: the place, what is expected there, and the value.

``first_error`` is for documents, such as workload files; ``refusal`` is for settings, see ``workloads.declaration``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from workloads.declaration import fields_of
from workloads.errors import ConfigError, DecimaError, described_value, did_you_mean

__all__ = ["first_error", "misplaced", "place_name", "refusal"]

#: Number of errors from which on none is described: descriptions of all errors would fill the memory.
_MOST_ERRORS = 10_000

#: Texts that replace those of pydantic in messages about documents, by type of error.
_IN_DOCUMENT = {
    "missing": "this key is required",
    "extra_forbidden": "unknown key",
    "model_type": "expected an object",
    "dict_type": "expected an object",
    "list_type": "expected a list",
    "too_short": "expected at least one entry",
    "string_pattern_mismatch": "expected a parallelism level, a whole number from 1",
}


def first_error(
    invalid: ValidationError, model: type[BaseModel] | None = None, elsewhere: Sequence[str] = ()
) -> str:
    """Describe validation errors in one line: place of the first error, expected value, number of further errors.

    An error that a validator raised keeps its own words.

    Args:
        invalid: the errors.
        model: validated model; the message about an unknown key then suggests a similar key.
        elsewhere: keys to suggest for an unknown key if its place has no similar key.
    """
    if invalid.error_count() > _MOST_ERRORS:
        return f"{invalid.error_count():,} entries are malformed"
    error = invalid.errors(include_url=False, include_context=False)[0]
    place, value = place_name(error["loc"]), error["input"]
    if error["type"] == "value_error":
        problem = invalid.errors(include_url=False)[0]["ctx"]["error"]
        if not place:
            return str(problem)
        return f"{place}.{problem}" if getattr(problem, "place", "") else f"{place}: {problem}"
    expected = _IN_DOCUMENT.get(error["type"], error["msg"].replace("Input should be", "expected"))
    if error["type"] == "extra_forbidden" and model is not None:
        here = did_you_mean(error["loc"][-1], _keys(model, error["loc"][:-1]))
        there = f" (did you mean {' or '.join(map(repr, elsewhere))}?)" if elsewhere else ""
        expected += here or there
    message = f"{place}: {expected}" if place else expected
    if isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 1e18):
        message += f", got {value!r:.60}"
    more = invalid.error_count() - 1
    return f"{message} (and {more} more)" if more else message


def _keys(model: type[BaseModel], place: Iterable[int | str]) -> list[str]:
    """Return the known keys at a place of a model."""
    models = {model}
    for step in place:
        inner = [_models_of(model.model_fields[step]) for model in models if step in model.model_fields]
        models = set().union(*inner) or models  # numbers of entries and names of a mapping keep the models
    return [name for model in models for name in model.model_fields]


def _models_of(field: FieldInfo) -> set[type[BaseModel]]:
    """Return all models in the annotation of a field; markers may name others as their attribute ``section``."""
    named = {marker.section for marker in field.metadata if hasattr(marker, "section")}
    return named | _models(field.annotation)


def _models(annotation: Any) -> set[type[BaseModel]]:
    """Return all models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return set().union(*map(_models, get_args(annotation)))


#: Texts that replace those of pydantic in messages about settings; names in braces are the limits of the field.
_IN_SETTING = {
    "int_type": "a whole number",
    "missing_argument": "a value",
    "too_short": "at least {min_length} value",
    "too_long": "at most {max_length} values",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "several values",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:,.15g}",
    "literal_error": "{expected}",
    "is_instance_of": "a value of the type {class}",
    "dataclass_type": "a value of the type {class_name}",
}


def refusal(
    invalid: ValidationError, cls: Any, error: type[DecimaError], quantities: Iterable[Any] = ()
) -> DecimaError:
    """Return the first validation error as an error of one line: the setting, what is expected, and the value.

    Args:
        cls: class that was built.
        error: type of the error, unless a file or text is malformed, whose own error then stays.
        quantities: quantities in whose names and units the values were given, see ``workloads.quantities``.
    """
    first = invalid.errors(include_url=False)[0]
    place, value, limits = list(first["loc"]), first["input"], first.get("ctx", {})
    if place and isinstance(place[0], int):  # a positional argument
        place[0] = [each.name for each in fields(cls) if not each.kw_only][place[0]]
    for quantity in quantities:
        depth = len(quantity.path)
        if tuple(place[:depth]) == quantity.path:
            place[:depth] = [quantity.name]
            if quantity.is_time and isinstance(value, Real) and not isinstance(value, bool):
                value = float(value) / 1000
                limits = {
                    name: each / 1000 if isinstance(each, Real) else each for name, each in limits.items()
                }
    match first["type"]:
        case "value_error":
            given = limits["error"]
            if isinstance(given, DecimaError) and (type(given) is not ConfigError or not place):
                return given
            return misplaced(error, place_name(place), str(given))
        case "missing":
            problem = "expected a value"
        case "unexpected_keyword_argument":
            known = list(fields_of(cls))
            problem = f"unknown key{did_you_mean(place[-1], known)}, expected {', '.join(known)}"
        case kind:
            expected = _IN_SETTING.get(kind, first["msg"].replace("Input should be ", "")).format(**limits)
            hint = did_you_mean(value, re.findall(r"'([^']*)'", limits.get("expected", "")))
            problem = f"expected {expected}, got {described_value(value)}{hint}"
    return misplaced(error, place_name(place), problem)


def misplaced(error: type[DecimaError], place: str, problem: str) -> DecimaError:
    """Return an error whose message begins with the setting, which is its ``place``."""
    made = error(f"{place}: {problem}" if place else problem)
    made.place = place
    return made


def place_name(location: Iterable[str | int]) -> str:
    """Format a place in a document, such as ``jobs[3].profile``."""
    text = ""
    for part in location:
        if part in ("<number>", "<name>", "<list>", "<object>", "[key]"):  # added by pydantic
            continue
        if isinstance(part, str) and part.startswith(("function-", "tuple[")):  # alternatives, by pydantic
            continue
        if isinstance(part, str) and re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text
