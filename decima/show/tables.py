"""How all tables look, and how they tell means with their confidence intervals."""

from __future__ import annotations

import math
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from decima.evaluation.intervals import Interval
from decima.outputs import visible

__all__ = ["PlainTable", "interval_text", "new_table"]


class PlainTable(Table):
    """A table whose texts are data: control characters in them are seen, and do nothing."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """As ``rich.table.Table``."""
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def new_table(title: str, *headings: str, names: int = 1) -> Table:
    """An empty table: the first headings are of ``names``, which may be long, the others of numbers."""
    table = PlainTable(
        title=visible(title), title_justify="left", title_style="", box=SIMPLE_HEAD, pad_edge=False
    )
    table.min_width = min(len(title), 80)  # a title is broken where the table ends
    for place, heading in enumerate(headings):
        heading = visible(heading)
        if place < names:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def interval_text(interval: Interval, form: str = ".1f", unknown: str = "-") -> str:
    """A mean and half its confidence interval, as far as they are defined.

    Args:
        interval: both.
        form: of the mean, such as ``+.1%``; the other has no sign.
        unknown: stands for a mean that is not defined.
    """
    mean, half_width = interval
    if math.isnan(mean):
        return unknown
    return f"{mean:{form}}" + ("" if math.isnan(half_width) else f" ± {half_width:{form.lstrip('+')}}")
