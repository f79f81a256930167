"""Errors in training settings as one line, with similar settings for an unknown key, also from other sections."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from decima.settings import Section, declared_class, sections_in
from workloads.quantities import quantities
from workloads.validation import first_error

__all__ = ["first_problem"]


def first_problem(error: ValidationError, model: type[Section]) -> str:
    """Describe the first validation error in one line: its place and the expected value, see ``first_error``."""
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        return first_error(error, model, _keys_with_last_part(model, first["loc"][-1], first["input"]))
    return first_error(error, model)


def _keys_with_last_part(model: type[Section], name: Any, value: Any) -> list[str]:
    """Return the settings, as dotted keys, whose last part is that of an unknown key, or is similar to it."""
    while isinstance(value, dict) and len(value) == 1:
        [(name, value)] = value.items()
    by_name: dict[str, list[str]] = {}
    for key in _all_keys(model):
        by_name.setdefault(key.rpartition(".")[2], []).append(key)
    near = get_close_matches(str(name)[:60], by_name, n=1, cutoff=0.8)
    return by_name[near[0]] if near else []


def _all_keys(model: type[BaseModel]) -> Iterator[str]:
    """Yield all settings as dotted keys, sections included."""
    for name, field in model.model_fields.items():
        yield name
        if declared_class(field) is not None:
            yield from (f"{name}.{key}" for key in quantities(declared_class(field)))
            continue
        inner: list[type[BaseModel]] = [*sections_in(field)]
        if issubclass(model, Section) and name in model.FREE:
            inner.append(model.FREE[name])
        for kind in inner:
            yield from (f"{name}.{key}" for key in _all_keys(kind))
