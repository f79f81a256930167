"""Representations of objects for notebooks: text and small HTML tables, with names escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

#: Maximum number of shown rows of a table.
MOST_ROWS = 12
#: Maximum number of characters of a shown text.
_LONGEST = 60


def plain_text(text: str) -> str:
    """Return a text as one line of printable characters, shortened if it is long."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[: _LONGEST + 1])
    return shown if len(text) <= _LONGEST else f"{shown[:_LONGEST]}…"


def count_text(count: int, thing: str) -> str:
    """Format a count with its noun, such as ``1 stage`` or ``1,200 tasks``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def html_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], count: int = 0) -> str:
    """Format a table as HTML for a notebook.

    Args:
        rows: table rows; the first ``MOST_ROWS`` are shown.
        count: total number of rows; a line below the table counts the rows that are not shown.
    """
    head = "".join(f"<th>{escape(plain_text(each))}</th>" for each in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(plain_text(str(each)))}</td>" for each in row) + "</tr>"
        for row, _ in zip(rows, range(MOST_ROWS), strict=False)
    )
    below = f"<p>.. and {count - MOST_ROWS:,} more</p>" if count > MOST_ROWS else ""
    return f"<p>{escape(plain_text(title))}</p><table><tr>{head}</tr>{body}</table>{below}"
