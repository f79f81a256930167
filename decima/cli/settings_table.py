"""Table of all training settings, for ``--explain``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from decima.settings import Section, declared_class, sections_in
from workloads.quantities import quantities, to_outside

__all__ = ["describe_settings"]


def describe_settings(model: type[Section], given: Section | None = None) -> list[tuple[str, str, str]]:
    """List all settings as tuples: dotted key, value in YAML, meaning.

    Args:
        model: class of the settings.
        given: settings to show; default values where it or a section of it is None.
    """
    return list(_described(model, "", None if given is None else given.model_dump(mode="json")))


def _described(
    section: type[BaseModel], prefix: str, given: Mapping[str, Any] | None
) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        if (declared := declared_class(field)) is not None:
            values = to_outside(field.default) if given is None else given[name]
            yield f"{prefix}{name}", "", ((declared.__doc__ or "").partition("\n")[0])
            for key, quantity in quantities(declared).items():
                yield f"{prefix}{name}.{key}", json.dumps(values[key]), str(quantity.field.description)
            continue
        if not (inner := sections_in(field)):
            value = field.default if given is None else given[name]
            yield f"{prefix}{name}", json.dumps(value), str(field.description)
            continue
        is_out = (field.default if given is None else given[name]) is None
        yield f"{prefix}{name}", "null" if is_out else "", " ".join((inner[0].__doc__ or "").split())
        yield from _described(inner[0], f"{prefix}{name}.", None if is_out or given is None else given[name])
