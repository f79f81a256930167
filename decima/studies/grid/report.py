"""The outcome of a study on grids: tables beside the papers' figures, their claims and what became of them, JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from decima.evaluation.grid import Evaluation, best_of, relative_change
from decima.outputs import json_text
from decima.policy.grid.files import read_about
from decima.show.grid_report import HEADINGS, measure_text, table_by_row
from decima.show.shown import Shown
from decima.show.tables import new_table
from decima.studies.claims import Claim, claims_table
from decima.studies.study_report import machine

__all__ = ["Claim", "GridOutcome", "Part", "Results", "better", "shown"]

#: Condition -> scheduler -> how it did.
Results = Mapping[str, Mapping[str, Evaluation]]


@dataclass(frozen=True, eq=False)
class Part:
    """A table.

    Attributes:
        title: what was compared.
        results: as above.
        measures: that are shown.
        corner: what conditions are; empty if there is only one.
        paper: (condition, scheduler, measure) -> the paper's figure.
        wide: a column for each scheduler, of the first measure, instead of a row.
    """

    title: str
    results: Results
    measures: Sequence[str] = ("slowdown",)
    corner: str = ""
    paper: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    wide: bool = False

    def table(self) -> Table:
        """As rich shows it; the best of each condition is bold."""
        if self.wide:
            return table_by_row(self.title, self.corner, self.results, self.measures[0])
        quoted = {measure for _, _, measure in self.paper}
        names = [*([self.corner] if self.corner else []), "Scheduler"]
        headings = []
        for measure in self.measures:
            headings += [HEADINGS[measure], *(["Paper"] if measure in quoted else [])]
        table = new_table(self.title, *names, *headings, names=len(names))
        for condition, row in self.results.items():
            best = {measure: best_of(row, measure) for measure in self.measures}
            for place, (name, evaluation) in enumerate(row.items()):
                cells: list[str | Text] = [condition if place == 0 else ""] if self.corner else []
                cells.append(name)
                for measure in self.measures:
                    cells.append(measure_text(evaluation.interval(measure), bold=best[measure] == name))
                    if measure in quoted:
                        figure = self.paper.get((condition, name, measure))
                        cells.append("—" if figure is None else f"{figure:g}")
                table.add_row(*cells, end_section=place == len(row) - 1 and bool(self.corner))
        return table

    def content(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "title": self.title,
            "conditions": {
                condition: {name: evaluation.summary() for name, evaluation in row.items()}
                for condition, row in self.results.items()
            },
            "paper": [
                {"condition": condition, "scheduler": name, "measure": measure, "figure": figure}
                for (condition, name, measure), figure in self.paper.items()
            ],
        }


@dataclass(frozen=True, eq=False)
class GridOutcome:
    """What a study found.

    Attributes:
        name: of the command.
        parts: tables of schedulers.
        claims: of the paper.
        notes: one sentence each.
        networks: scheduler, or what it was trained for -> policy file.
        pictures: name of the file -> what draws it.
        tables: further ones.
        extra: whatever else the JSON tells.
    """

    name: str
    parts: Sequence[Part]
    claims: Sequence[Claim]
    notes: Sequence[str]
    networks: Mapping[str, Path]
    pictures: Mapping[str, Callable[[], Figure]]
    tables: Sequence[Table] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


def shown(outcome: GridOutcome, command: str) -> Shown:
    """An outcome as commands show it."""
    about = {name: read_about(path) for name, path in outcome.networks.items()}
    sets = next(iter(outcome.parts[0].results.values()))
    count = len(next(iter(sets.values())).record.jobs)
    trained = "; ".join(
        f"{name} {each['iterations_trained']} ({each['training_cpu_s'] / 60:.1f})"
        for name, each in about.items()
    )
    notes = [
        f"Means over the jobs of {count} unseen sets; ± is half a 95 % confidence interval, from the sets "
        "(Student's t); the best is bold.",
        *outcome.notes,
        f"Iterations of training (minutes of CPU time): {trained}.",
    ]
    content = {
        "study": outcome.name,
        "command": command,
        "machine": machine(),
        "parts": [part.content() for part in outcome.parts],
        "claims": [asdict(claim) for claim in outcome.claims],
        "networks": {name: {"file": str(outcome.networks[name]), **each} for name, each in about.items()},
        "notes": notes,
        **outcome.extra,
    }
    return Shown(
        tables=[*(part.table() for part in outcome.parts), *outcome.tables, claims_table(outcome.claims)],
        notes=notes,
        json=json_text(content),
        pictures=outcome.pictures,
    )


def better(
    paper: str,
    results: Results,
    one: str,
    others: Iterable[str],
    measure: str = "slowdown",
    *,
    or_equal: bool = False,
) -> Claim:
    """The claim that a scheduler does better than others under all conditions, by the means.

    Args:
        paper: how the paper says it.
        results: as above.
        one: the scheduler.
        others: those that it is compared with.
        measure: a name of ``MEASURES``.
        or_equal: it holds as long as the difference may be chance.
    """
    told, failed = [], []
    for condition, row in results.items():
        for other in others:
            change, half_width = relative_change(row[one], row[other], measure)
            text = f"{change:+.1%} ± {half_width:.1%} against {other}"
            told.append(f"{condition}: {text}" if condition else text)
            if not (change < 0 or (or_equal and change <= half_width)):
                failed.append(told[-1])
    if len(told) > 4:  # more than can be read
        told = [f"in {len(told) - len(failed)} of {len(told)} comparisons", *failed]
    return Claim(paper, f"{one}: {'; '.join(told)}", not failed)
