"""Reports: all outputs of a command (tables, notes, JSON, pictures), and formats of means and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from decima.evaluation.metrics import METRICS, Interval, ci95
from decima.outputs import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table


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
    for place, heading in enumerate(headings):
        if place < names:
            table.add_column(visible(heading), overflow="fold")
        else:
            table.add_column(visible(heading), justify="right", no_wrap=True)
    return table


def interval_text(interval: Interval, form: str = ".1f", unknown: str = "-") -> str:
    """Format a mean and half of its confidence interval, which is left out if NaN.

    Args:
        interval: mean and half width.
        form: format of the mean, such as ``+.1%``; the half width has no sign.
        unknown: text for a mean that is NaN.
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
        tables: rich tables.
        notes: sentences below the tables.
        json: all results as JSON.
        pictures: file name -> function that draws the picture.
    """

    tables: Sequence[Table]
    notes: Sequence[str]
    json: str
    pictures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
