"""Escape invisible characters in texts that are shown, such as escape codes of a terminal."""

from __future__ import annotations

import unicodedata

__all__ = ["visible"]

#: Unicode categories of invisible characters: control, format (such as right-to-left), line and paragraph separator.
_UNSEEN = ("Cc", "Cf", "Zl", "Zp")


def visible(text: str) -> str:
    """Escape invisible characters, such as escape codes of a terminal; line ends and tabs remain."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in _UNSEEN
        else (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
        for char in text
    )
