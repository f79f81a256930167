"""Setup and result of a study: tidy rows, tables, notes, checked claims of the paper, pictures, and their JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.outputs import json_text, machine
from decima.show.tables import Report, table_of
from workloads.errors import DecimaError

#: Text for a value that is missing in the paper or in the results.
UNKNOWN = "—"
#: Best heuristic for clusters with one executor class.
RULE = "srpt"
#: Displayed name of a study's main policy.
FULL = "decima"


class OptionError(DecimaError, ValueError):
    """Raised, with a message of one line, if options of a study are missing or exclude each other."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """Setup of a study.

    Attributes:
        command: command line, which training folders record.
        tell: progress callback: activity, number of steps done, number of all steps.
        given: names of options that the user gave.
    """

    command: str = ""
    tell: Callable[..., None] = lambda what, done, total: None
    given: frozenset[str] = frozenset()

    @classmethod
    def of_options(cls, values: dict[str, Any], **others: Any) -> Self:
        """Make a setup from the option values with names of its fields, and remove these from ``values``."""
        taken = {each.name: values.pop(each.name) for each in fields(cls) if each.name in values}
        return cls(**{name: value for name, value in taken.items() if value is not None} | others)

    def refuse(self, why: Mapping[str, str]) -> None:
        """Raise ``OptionError`` if the user gave an option without effect; ``why`` maps options to reasons."""
        for name in why.keys() & self.given:
            raise OptionError(f"--{name.replace('_', '-')} has no effect: {why[name]}")


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, the measured value, and whether it holds; None if the results cannot decide it."""

    paper: str
    here: str
    holds: bool | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """Result of a study.

    Attributes:
        name: name of the study, such as ``fig9a``.
        runs: tidy results, one row per run; columns such as ``condition``, ``scheduler``, ``seed``, ``mean_jct_s``.
        notes: notes below the tables, one sentence each.
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
        """Return the report; ``command`` is the command line that repeats the study."""
        content = {
            "study": self.name,
            "command": command,
            "machine": machine(),
            "claims": [asdict(claim) for claim in self.claims],
            "notes": list(self.notes),
            **self.extra,
            "runs": self.runs.to_dict("records"),
        }
        answers = {True: "yes", False: "no", None: "?"}
        rows = ((claim.paper, claim.here, answers[claim.holds]) for claim in self.claims)
        claims = table_of("What the paper says", ("Paper", "Here", "Holds"), rows, names=2)
        tables = [*self.tables, *[claims] * bool(self.claims)]
        return Report(tables, self.notes, json_text(content), self.pictures)
