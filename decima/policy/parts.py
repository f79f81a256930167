"""Custom classes, named ``module:Class``: schedulers, and parts of policies and trainings.

A name on a command line, in a recipe or in a program is loaded. A policy file may come from any source, so a class
named there is loaded only if its module is already imported or allowed (``allow_parts``).
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from pydantic import AfterValidator

from workloads.custom import custom_code, is_custom
from workloads.errors import DecimaError

__all__ = [
    "ALLOWED",
    "PartError",
    "allow_parts",
    "build_part",
    "check_part",
    "is_allowed",
    "is_custom",
    "load_part",
]

#: Environment variable with the modules that policy files may name, comma-separated; worker processes inherit it.
ALLOWED = "DECIMA_PARTS"

_CANNOT = "{!r} cannot be loaded"


class PartError(DecimaError, ValueError):
    """A custom class cannot be used. The message is one line that names it."""


def built_in_or_custom(*names: str) -> AfterValidator:
    """Return a validator that accepts these names or ``module:Class``. Nothing is loaded."""

    def check(name: str) -> str:
        if name in names or is_custom(name):
            return name
        raise ValueError(f"expected {', '.join(map(repr, names))} or module:Class, got {name!r:.60}")

    return AfterValidator(check)


def allow_parts(*modules: str) -> None:
    """Allow policy files to name classes of these modules or packages, in this process and its workers."""
    os.environ[ALLOWED] = ",".join(dict.fromkeys([*_allowed(), *modules]))


def is_allowed(name: str) -> bool:
    """Return whether a policy file may name this class: its module is already imported, or allowed."""
    module = name.partition(":")[0]
    return module in sys.modules or any(
        module == each or module.startswith(f"{each}.") for each in _allowed()
    )


def _allowed() -> list[str]:
    return [each for each in os.environ.get(ALLOWED, "").split(",") if each]


def load_part(name: str, base: type | str = object) -> Any:
    """Return the class of a name; modules of the current folder are found too.

    Args:
        name: ``module:Class``.
        base: required base class, or its name if importing it is slow.

    Raises:
        PartError: the module or class does not exist, or has another base class.
    """
    with custom_code(_CANNOT.format(name), PartError):
        module, _, attribute = name.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    wanted: type = load_part(base) if isinstance(base, str) else base
    if wanted is not object and not (isinstance(found, type) and issubclass(found, wanted)):
        raise PartError(f"{name!r} is not a {wanted.__name__}: expected a subclass of {_public(wanted)}")
    return found


def build_part(name: str, base: type | str = object, /, *values: Any, **options: Any) -> Any:
    """Instantiate the class of a name with these arguments.

    Raises:
        PartError: as ``load_part``, or the constructor fails.
    """
    part = load_part(name, base)
    with custom_code(_CANNOT.format(name), PartError):
        return part(*values, **options)


def check_part(name: str, place: str, base: type | str) -> None:
    """Refuse a name that cannot be loaded.

    Args:
        name: ``module:Class``.
        place: key that holds the name, for error messages.
        base: see ``load_part``.

    Raises:
        PartError: as ``load_part``.
    """
    try:
        load_part(name, base)
    except PartError as error:
        raise PartError(f"{place}: {error}") from None


def _public(base: type) -> str:
    """Return the public name of a base class, with its package."""
    return f"{'.'.join(base.__module__.split('.')[:2])}.{base.__name__}"
