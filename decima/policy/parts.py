"""Custom classes by their names ``module:Class``: schedulers, parts of policies and of trainings; errors of policies.

Names on a command line, in a recipe or in a program are loaded. A policy file may come from any source: a class that
it names is loaded only if the module is already imported or allowed (``allow_parts``).
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from pydantic import AfterValidator

from workloads.errors import DecimaError, custom_code, is_custom

__all__ = [
    "ALLOWED", "NotFiniteError", "PartError", "PolicyFileError", "allow_parts", "build_part", "check_part",
    "is_allowed", "is_custom", "load_part",
]  # fmt: skip

#: Environment variable: comma-separated modules that policy files may name. Worker processes inherit it.
ALLOWED = "DECIMA_PARTS"

_CANNOT = "{!r} cannot be loaded"


class PartError(DecimaError, ValueError):
    """A custom class cannot be used. The message is one line that names the class."""


def built_in_or_custom(*names: str) -> AfterValidator:
    """Return a pydantic validator that accepts these names or ``module:Class``, without loading the class."""

    def check(name: str) -> str:
        if name in names or is_custom(name):
            return name
        raise ValueError(f"expected {', '.join(map(repr, names))} or module:Class, got {name!r:.60}")

    return AfterValidator(check)


def allow_parts(*modules: str) -> None:
    """Allow policy files to name classes of these modules or packages, in this process and its worker processes."""
    os.environ[ALLOWED] = ",".join(dict.fromkeys([*_allowed(), *modules]))


def is_allowed(name: str) -> bool:
    """Return whether a policy file may name a class: whether its module is already imported, or allowed."""
    module = name.partition(":")[0]
    return module in sys.modules or any(
        module == each or module.startswith(f"{each}.") for each in _allowed()
    )


def _allowed() -> list[str]:
    return [each for each in os.environ.get(ALLOWED, "").split(",") if each]


def load_part(name: str, base: type | str = object) -> Any:
    """Import a custom class by name; modules of the current folder are found, too.

    Args:
        name: ``module:Class``.
        base: required base class, or its name ``module:Class`` if importing the base class is slow.

    Raises:
        PartError: the module or class does not exist, or the class is not a subclass of ``base``.
    """
    with custom_code(_CANNOT.format(name), PartError):
        module, _, attribute = name.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    wanted: type = load_part(base) if isinstance(base, str) else base
    if wanted is not object and not (isinstance(found, type) and issubclass(found, wanted)):
        raise PartError(f"{name!r} is not a {wanted.__name__}: expected a subclass of {_public(wanted)}")
    return found


def build_part(name: str, base: type | str = object, /, *values: Any, **options: Any) -> Any:
    """Instantiate a custom class by name, with the arguments ``values`` and ``options``.

    Raises:
        PartError: the class cannot be loaded (see ``load_part``), or the constructor fails.
    """
    part = load_part(name, base)
    with custom_code(_CANNOT.format(name), PartError):
        return part(*values, **options)


def check_part(name: str, place: str, base: type | str) -> None:
    """Check that a custom class can be loaded.

    Args:
        name: ``module:Class``.
        place: setting that contains the name, for error messages.
        base: required base class, see ``load_part``.

    Raises:
        PartError: the class cannot be loaded; the message begins with ``place``.
    """
    try:
        load_part(name, base)
    except PartError as error:
        raise PartError(f"{place}: {error}") from None


def _public(base: type) -> str:
    """Return the public name of a base class, with its package."""
    return f"{'.'.join(base.__module__.split('.')[:2])}.{base.__name__}"


class NotFiniteError(DecimaError, ArithmeticError):
    """A probability, loss or gradient is not finite. The message is one line that names the number."""


class PolicyFileError(DecimaError, ValueError):
    """An invalid policy file. The message is one line that names the file and what was expected."""
