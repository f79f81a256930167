"""Base class of all errors, and checks of arguments.

A check returns the value, or raises ``error`` with a message that names the field. NumPy numbers count as numbers,
booleans do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

#: Maximum time in any setting or workload, ms: 300 years.
LONGEST_MS = 1e13
#: Largest standard deviation of the logarithm of an error, a factor of about 150.
LARGEST_ERROR = 5.0
#: Largest weight of a job; the smallest weight is its inverse.
LARGEST_WEIGHT = 1e9


class DecimaError(Exception):
    """Base class of all errors: invalid input, or a failure of the machine. The message is one line.

    Attributes:
        place: setting with which the message begins; empty if it begins with something else.
    """

    place: str = ""


class ConfigError(DecimaError, ValueError):
    """A cluster or grid cannot be simulated. The message is one line that names the setting."""


class WorkloadError(DecimaError, ValueError):
    """A workload is invalid. The message is one line that names the place and the expected value."""


class SchedulerError(DecimaError, ValueError):
    """A scheduler's name or parameter is invalid. The message is one line."""


class SchedulingError(DecimaError, RuntimeError):
    """The cluster cannot carry out a decision, or the episode cannot go on. The message is one line."""


class PartError(DecimaError, ValueError):
    """A custom class cannot be used. The message is one line that names the class."""


class PolicyFileError(DecimaError, ValueError):
    """An invalid policy file. The message is one line that names the file and what was expected."""


class NotFiniteError(DecimaError, ArithmeticError):
    """A probability, loss or gradient is not finite. The message is one line that names the number."""


class CompareError(DecimaError, ValueError):
    """Invalid comparison. The message is one line."""


_Kind = TypeVar("_Kind")

#: Longer texts are not compared with known names, and are cut in messages.
_LONGEST_NAME = 60


def check_whole(
    value: Any, field: str, error: type[DecimaError], least: float = -math.inf, most: float = math.inf
) -> int:
    """Return an integer as ``int``; raise ``error`` on any other value."""
    if type(value) is int and least <= value <= most:
        return value
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        bound = f" of at least {least}" if least > -math.inf else ""
        bound = f" of {least} to {most:,}" if most < math.inf else bound
        raise error(f"{field} must be a whole number{bound}, got {described_value(value)}")
    return int(value)


def check_number(
    value: Any, field: str, error: type[DecimaError], bounds: tuple[float, float] | None = None
) -> float:
    """Return a number as ``float``, within ``bounds`` if given; else NaN and infinity are numbers."""
    if bounds is not None:
        low, high = bounds
        if not low <= (number := check_number(value, field, error)) <= high:
            raise error(f"{field} must be between {low:g} and {high:g}, got {number:g}")
        return number
    if type(value) is float:  # the most frequent type; the general test is ten times slower
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise error(f"{field} must be a number, got {described_value(value)}")
    try:
        return float(value)
    except OverflowError:
        raise error(f"{field} must be a number below 1e308, got {described_value(value)}") from None


def check_one_of(value: Any, known: Iterable[str], field: str, error: type[DecimaError]) -> str:
    """Return a string that is one of ``known``."""
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise error(
            f"{field} must be {one_of(names)}, got {described_value(value)}{did_you_mean(value, names)}"
        )
    return value


def one_of(names: Iterable[str]) -> str:
    """Format alternatives: ``'a', 'b' or 'c'``."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def check_instance(value: Any, kind: type[_Kind], field: str, error: type[DecimaError]) -> _Kind:
    """Return an object of the class ``kind``."""
    if not isinstance(value, kind):
        raise error(f"{field} must be of the type {kind.__name__}, got {described_value(value)}")
    return value


def check_all(values: Any, kind: type[_Kind], field: str, error: type[DecimaError]) -> tuple[_Kind, ...]:
    """Return objects of the class ``kind`` as a tuple."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise error(f"{field} must be several of the type {kind.__name__}, got {described_value(values)}")
    items = tuple(values)
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            check_instance(item, kind, f"{field}[{index}]", error)
    return items


def check_callable(value: Any, field: str, error: type[DecimaError]) -> None:
    """Raise ``error`` if an object cannot be called."""
    if not callable(value):
        raise error(f"{field} must be a function, got {described_value(value)}")


def check_path(value: Any, field: str, error: type[DecimaError]) -> Path:
    """Return a path, given as string or path."""
    if not isinstance(value, str | PathLike):
        raise error(f"{field} must be a path, got {described_value(value)}")
    return Path(value)


def check_paths(values: Any, field: str, error: type[DecimaError]) -> list[Path]:
    """Return several paths; raise ``error`` on a single one."""
    if isinstance(values, str | PathLike) or not isinstance(values, Iterable):
        raise error(f"{field} must be several paths, got {described_value(values)}")
    return [check_path(value, f"{field}[{index}]", error) for index, value in enumerate(values)]


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return a hint at the known name that is most similar, with a leading space; empty if none is similar."""
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return ""
    by_lower_case = {known_name.lower(): known_name for known_name in known}
    near = get_close_matches(name.lower(), list(by_lower_case), n=1)
    return f" (did you mean {by_lower_case[near[0]]!r}?)" if near else ""


def described_value(value: Any) -> str:
    """Describe a value of any type in a few words, for an error message."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # such as an integer with thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}.. ({type(value).__name__})"
