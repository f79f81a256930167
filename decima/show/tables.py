"""Reports: all outputs of a command (tables, notes, JSON, pictures), and formats of means and intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from decima.evaluation.metrics import METRICS, Interval, ci95
from decima.show.visible import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.cluster.kept import Overruled

#: Maximum number of decisions that a note names.
MOST_NAMED = 5


class PlainTable(Table):
    """A table that shows control characters as escape codes."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; see ``rich.table.Table``."""
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def new_table(title: str, *headings: str, names: int = 1) -> Table:
    """Make an empty table. The first ``names`` columns contain text, the others numbers."""
    table = PlainTable(
        title=visible(title), title_justify="left", title_style="", box=SIMPLE_HEAD, pad_edge=False
    )
    table.min_width = min(len(title), 80)  # rich wraps a title at the width of its table
    for index, heading in enumerate(headings):
        if index < names:
            table.add_column(visible(heading), overflow="fold")
        else:
            table.add_column(visible(heading), justify="right", no_wrap=True)
    return table


def table_of(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    forms: str | Sequence[str] = "",
    *,
    names: int = 1,
    bold: Container[str] = (),
    unknown: str = "-",
) -> Table:
    """Make a table from rows of values: texts, numbers, ``Interval``, or None for an empty cell.

    The first ``names`` columns contain text. With two of them, rows with the same first name are a group: the name is
    shown once, and a line follows the group. ``forms`` are formats such as ``+.1%``, one for each column of numbers or
    one for all. Rows whose last name is in ``bold`` are bold. ``unknown`` replaces NaN.
    """
    table, above = new_table(title, *headings, names=names), None
    each_form = itertools.repeat(forms) if isinstance(forms, str) else forms
    for row in rows:
        texts = [str(name) for name in row[:names]]
        style = "bold" if texts[-1] in bold else None
        if names > 1 and texts[0] == above:
            texts[0] = ""
        elif names > 1:
            table.add_section()
            above = texts[0]
        cells = zip(row[names:], each_form, strict=False)
        table.add_row(*texts, *(_cell(value, form, unknown) for value, form in cells), style=style)
    return table


def _cell(value: Any, form: str, unknown: str) -> str | Text:
    if value is None or isinstance(value, str | Text):
        return value or ""
    interval = value if isinstance(value, tuple) else (value, math.nan)
    return interval_text(Interval(*interval), form, unknown)


def interval_text(interval: Interval, form: str = ".1f", unknown: str = "-") -> str:
    """Format a mean and half of its confidence interval.

    The half width has no sign, and is left out if NaN; ``unknown`` replaces a mean that is NaN.
    """
    mean, half_width = interval
    if math.isnan(mean):
        return unknown
    return f"{mean:{form}}" + ("" if math.isnan(half_width) else f" ± {half_width:{form.lstrip('+')}}")


def metric_text(row: Mapping[str, float], name: str, unknown: str = "-") -> str:
    """Format one of ``METRICS``; ``row`` is a row of ``summarise``."""
    metric = METRICS[name]
    half_width = row[ci95(name)] if metric.interval else math.nan
    return interval_text(Interval(row[name], half_width), metric.form, unknown)


@dataclass(frozen=True, eq=False)
class Report:
    """All outputs of a command.

    Attributes:
        tables: tables of results.
        notes: lines below the tables.
        json: the results as JSON.
        pictures: functions that draw pictures, by file name.
        lead: first lines, above the tables.
        warnings: lines between these lines and the tables, in red.
    """

    tables: Sequence[Table]
    notes: Sequence[str]
    json: str
    pictures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    lead: Sequence[str] = ()
    warnings: Sequence[str] = ()


def overruled_text(overruled: Sequence[Overruled]) -> str:
    """Format number, time and guarantee of the first decisions that guarantees changed."""
    texts = [
        f"{decision.decision} at {decision.time_ms / 1000:.1f} s ({decision.guarantee})"
        for decision in overruled[:MOST_NAMED]
    ]
    return ", ".join([*texts, ".."] if len(overruled) > MOST_NAMED else texts)


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Cut names to at most ``width`` (at least 8) characters, such that different names stay different.

    A cut name keeps its beginning and its end. Names with equal beginning and end keep the part that differs. Names
    that are still equal are numbered.
    """
    cut = {name: _middle_cut(name, width) for name in names}
    for alike in _alike(cut):
        letters = enumerate(zip(*alike, strict=False))
        differ = next(
            (index for index, characters in letters if len(set(characters)) > 1), min(map(len, alike))
        )
        for name in alike:
            cut[name] = _cut_from(name, differ, width)
    for alike in _alike(cut):
        for index, name in enumerate(alike[1:], start=2):
            cut[name] = f"{cut[name][: width - len(f'…{index}')]}…{index}"
    return [cut[name] for name in names]


def _alike(cut: dict[str, str]) -> list[list[str]]:
    """Return groups of different names that were cut to the same text."""
    groups: dict[str, list[str]] = {}
    for name, short in cut.items():
        groups.setdefault(short, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _middle_cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[head + 1 - width :]}"


def _cut_from(name: str, position: int, width: int) -> str:
    """Return the beginning of a name and its part from a position on."""
    head = (width - 2) // 3
    start = max(head, min(position - 2, len(name) - (width - head - 1)))
    rest = name[start : start + width - head - 1]
    return f"{name[:head]}…{rest}" if start + len(rest) == len(name) else f"{name[:head]}…{rest[:-1]}…"
