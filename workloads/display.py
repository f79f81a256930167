"""Short texts for representations of objects and for messages: names of one line, counts, and numbers."""

from __future__ import annotations

from collections.abc import Iterable

#: Maximum number of characters of a shown text.
_LONGEST = 60


def plain_text(text: str) -> str:
    """Return a text as one line of printable characters, shortened if it is long."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[: _LONGEST + 1])
    return shown if len(text) <= _LONGEST else f"{shown[:_LONGEST]}…"


def count_text(count: int, thing: str) -> str:
    """Format a count with its noun, such as ``1 stage`` or ``1,200 tasks``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def number_text(number: float) -> str:
    """Format a number exactly; integers without a decimal point."""
    return repr(float(number)).removesuffix(".0")


def numbers_text(numbers: Iterable[float]) -> str | None:
    """Format numbers separated by commas; None without numbers."""
    return ",".join(map(number_text, numbers)) or None


def colon_separated(numbers: Iterable[float]) -> str:
    """Format numbers separated by colons, as parameters are written on the command line."""
    return ":".join(map(number_text, numbers))
