"""What a paper says, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from decima.show.tables import new_table

__all__ = ["Claim", "claims_table"]


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what became of it.

    Attributes:
        paper: its words, in ours.
        here: the same of this run.
        holds: whether they agree; None where this run cannot tell.
    """

    paper: str
    here: str
    holds: bool | None


def claims_table(claims: Sequence[Claim]) -> Table:
    """A row for each."""
    table = new_table("What the paper says", "Paper", "Here", "Holds", names=2)
    for claim in claims:
        holds = {True: "yes", False: "no", None: "?"}[claim.holds]
        table.add_row(claim.paper, claim.here, holds, end_section=True)
    return table
