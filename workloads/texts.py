"""Parse numbers in texts of users: options, specifications and files."""

from __future__ import annotations

import math
import re

from workloads.errors import ConfigError, described_value

__all__ = ["number_in", "numbers_in", "whole_in"]

_NOT_PLAIN = re.compile(r"[_\s]")
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")


def number_in(text: str) -> float:
    """Convert a text to a number; NaN if it is not a number.

    Underscores, spaces and digits of other scripts, which Python would accept, also give NaN.
    """
    try:
        return float(text) if text.isascii() and not _NOT_PLAIN.search(text) else math.nan
    except ValueError:
        return math.nan


def numbers_in(text: str) -> tuple[float, ...]:
    """Convert numbers separated by commas.

    Raises:
        ConfigError: the text contains anything else.
    """
    numbers = tuple(map(number_in, text.split(",")))
    if any(map(math.isnan, numbers)):
        raise ConfigError(f"expected numbers separated by commas, got {described_value(text)}")
    return numbers


def whole_in(text: str) -> int | None:
    """Convert a text to an integer of at most 18 digits; None if it is anything else.

    Underscores, spaces and digits of other scripts, which Python would accept, also give None.
    """
    return int(text) if _WHOLE.fullmatch(text) else None
