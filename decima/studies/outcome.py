"""The one form of a study's result: tidy rows, tables, notes, claims of the paper, pictures; and its JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

import decima
from decima.outputs import json_text
from decima.show.tables import Report, new_table
from workloads.errors import DecimaError

__all__ = ["FULL", "RULE", "UNKNOWN", "Claim", "OptionError", "Outcome", "Part"]

#: Text for a value that the paper does not give, or that was not measured.
UNKNOWN = "—"
#: The best heuristic on one class of executors.
RULE = "priced-srpt"
#: Name of a study's main policy.
FULL = "decima"


class OptionError(DecimaError, ValueError):
    """Options of a study exclude each other or are missing. The message is one line."""


@dataclass(frozen=True)
class Part:
    """Setup of a study without a cluster of its own.

    Attributes:
        tell: progress callback: the activity, the number of steps done, the number of all steps.
        given: names of the options that the caller gave.
    """

    tell: Callable[..., None] = lambda what, done, total: None
    given: frozenset[str] = frozenset()

    @classmethod
    def of_options(
        cls, _: object, *, tell: Callable[..., None], given: frozenset[str], **others: object
    ) -> Part:
        """Make a setup; all options are the study's own."""
        return cls(tell, given)

    def refuse(self, why: Mapping[str, str]) -> None:
        """Raise ``OptionError`` for a given option that has no effect; option -> reason."""
        for name in why.keys() & self.given:
            raise OptionError(f"--{name.replace('_', '-')} has no effect: {why[name]}")


@dataclass(frozen=True)
class Claim:
    """A statement of a paper and its check.

    Attributes:
        paper: statement of the paper.
        here: the same quantity in this run.
        holds: whether they agree; None if this run cannot tell.
    """

    paper: str
    here: str
    holds: bool | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a study.

    Attributes:
        name: name of the study, such as fig9a.
        runs: tidy results, one row for each run; columns such as condition, scheduler, seed, mean_jct_s.
        tables: tables of the report.
        notes: one sentence each.
        claims: statements of the paper and their checks.
        extra: further entries of the JSON.
        pictures: file name -> function that draws the picture.
    """

    name: str
    runs: pd.DataFrame
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)

    def shown(self, command: str) -> Report:
        """Return tables, notes, JSON and pictures; ``command`` is the command line that repeats the study."""
        content = {
            "study": self.name,
            "command": command,
            "machine": machine(),
            "claims": [asdict(claim) for claim in self.claims],
            "notes": list(self.notes),
            **self.extra,
            "runs": self.runs.to_dict("records"),
        }
        claims = [_claims_table(self.claims)] if self.claims else []
        return Report([*self.tables, *claims], self.notes, json_text(content), self.pictures)


def _claims_table(claims: Sequence[Claim]) -> Table:
    table = new_table("What the paper says", "Paper", "Here", "Holds", names=2)
    for claim in claims:
        holds = {True: "yes", False: "no", None: "?"}[claim.holds]
        table.add_row(claim.paper, claim.here, holds, end_section=True)
    return table


def machine() -> dict[str, Any]:
    """Describe machine and versions."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {"decima": decima.__version__, "numpy": np.__version__, "torch": version("torch")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
