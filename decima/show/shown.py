"""What was found, for people and for programs, before it is printed, drawn or saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["Shown"]


@dataclass(frozen=True, eq=False)
class Shown:
    """What a comparison or a study found.

    Attributes:
        tables: as rich tables.
        notes: one sentence each.
        json: everything, as a text.
        pictures: name of the file -> what draws it.
    """

    tables: Sequence[Table]
    notes: Sequence[str]
    json: str
    pictures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
