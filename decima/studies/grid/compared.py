"""Studies that compare schedulers on DeepRM's grid: tables beside the papers' figures, tidy rows, claims, JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from decima.evaluation.grid import MEASURES, Evaluation, best_of, relative_change
from decima.policy.grid.files import read_about
from decima.show.grid_report import HEADINGS, measure_text, table_by_row
from decima.show.tables import new_table
from decima.studies.outcome import UNKNOWN, Claim, Outcome

__all__ = ["Measured", "Results", "better", "compared"]

#: Condition -> scheduler -> its evaluation; the condition is empty if there is only one.
Results = Mapping[str, Mapping[str, Evaluation]]


@dataclass(frozen=True, eq=False)
class Measured:
    """Evaluations of schedulers, and how a table shows them.

    Attributes:
        title: of the table.
        results: the evaluations.
        measures: that are shown.
        corner: heading of the conditions; empty if there is only one.
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
        """Return the table; the best of each condition is bold."""
        if self.wide:
            return table_by_row(self.title, self.corner, self.results, self.measures[0])
        quoted = {measure for _, _, measure in self.paper}
        names, headings = [*[self.corner] * bool(self.corner), "Scheduler"], []
        for measure in self.measures:
            headings += [HEADINGS[measure], *["Paper"] * (measure in quoted)]
        table = new_table(self.title, *names, *headings, names=len(names))
        for condition, row in self.results.items():
            best = {measure: best_of(row, measure) for measure in self.measures}
            for place, (name, evaluation) in enumerate(row.items()):
                cells: list[str | Text] = [*[condition if place == 0 else ""] * bool(self.corner), name]
                for measure in self.measures:
                    cells.append(measure_text(evaluation.interval(measure), bold=best[measure] == name))
                    if measure in quoted:
                        figure = self.paper.get((condition, name, measure))
                        cells.append(UNKNOWN if figure is None else f"{figure:g}")
                table.add_row(*cells, end_section=place == len(row) - 1 and bool(self.corner))
        return table

    def content(self) -> dict[str, Any]:
        """Return the entry of the JSON."""
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

    def tidy(self) -> pd.DataFrame:
        """Return one row for each condition, scheduler and set with jobs.

        Columns: ``part`` (the title), ``condition``, ``scheduler``, ``set``, and the mean of each of ``MEASURES``.
        """
        tables = []
        for condition, row in self.results.items():
            for name, evaluation in row.items():
                means = pd.DataFrame({measure: evaluation.by_set(measure)[0] for measure in MEASURES})
                names = {"part": self.title, "condition": condition, "scheduler": name, "set": means.index}
                tables.append(pd.concat([pd.DataFrame(names), means], axis=1))
        return pd.concat(tables, ignore_index=True)


def compared(
    name: str,
    parts: Sequence[Measured],
    claims: Sequence[Claim],
    notes: Sequence[str],
    networks: Mapping[str, Path],
    pictures: Mapping[str, Callable[[], Figure]],
    tables: Sequence[Table] = (),
    extra: Mapping[str, Any] | None = None,
) -> Outcome:
    """Return the outcome of a study that compared schedulers on a grid.

    Args:
        name: the study's.
        parts: evaluations, a table each.
        claims: statements of the paper and their checks.
        notes: of the study, besides the general ones.
        networks: scheduler, or condition that it was trained for -> policy file.
        pictures: name of the file -> function that draws it.
        tables: further ones.
        extra: further entries of the JSON.
    """
    about = {each: read_about(path) for each, path in networks.items()}
    count = len(next(iter(next(iter(parts[0].results.values())).values())).record.jobs)
    trained = "; ".join(
        f"{each} {said['iterations_trained']} ({said['training_cpu_s'] / 60:.1f})"
        for each, said in about.items()
    )
    return Outcome(
        name,
        pd.concat([part.tidy() for part in parts], ignore_index=True),
        [*(part.table() for part in parts), *tables],
        [
            f"Means over the jobs of {count} unseen sets; ± is half a 95 % confidence interval, from the sets "
            "(Student's t); the best is bold.",
            *notes,
            f"Iterations of training (minutes of CPU time): {trained}.",
        ],
        claims,
        {
            "parts": [part.content() for part in parts],
            "networks": {each: {"file": str(networks[each]), **said} for each, said in about.items()},
            **(extra or {}),
        },
        pictures,
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
    """Claim that a scheduler does better than others under all conditions, by the means.

    Args:
        paper: the claim in the paper's words.
        results: evaluations.
        one: name of the scheduler.
        others: names of the schedulers to compare with.
        measure: a name of ``MEASURES``.
        or_equal: the claim also holds if the interval of the difference includes 0.
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
