"""Setup and result of a study on DeepRM's grid: size, training, comparisons; tables, tidy rows, claims and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.grid import HEURISTIC_NAMES, GridComparison, compare_by, summary
from decima.evaluation.metrics import GRID_METRICS, compare_metrics
from decima.learning.grid.config import RECIPES, DeepRMConfig
from decima.learning.grid.train import GridTraining
from decima.learning.trainings import train_all
from decima.policy.grid_config import read_about
from decima.settings import read_settings
from decima.show.grid_report import best_scheduler, mean_text, table_by_condition
from decima.show.tables import table_of
from decima.studies.outcome import UNKNOWN, Claim, Outcome, Setup

#: Budget below which the number of job sets is scaled, too.
FEWER_SETS = 0.1


@dataclass(frozen=True, eq=False)
class GridStudy(Setup):
    """Size, trained networks and workers of a study on the grid; see ``Study``.

    Attributes:
        budget: factor on iterations. Below 0.1, the factor on numbers of training and validation sets is ten times
            the budget.
        seed: seed of job sets and training.
        sets: number of unseen job sets in a comparison.
    """

    budget: float = 1.0
    seed: int = 0
    sets: int = 100
    policies: Path = Path("reproduce/policies")
    workers: int | str = 1

    def config(self, recipe: str, *, share: float = 1.0, **settings: Any) -> DeepRMConfig:
        """Adapt a training recipe to the size of this study; ``share`` is a further factor on iterations.

        Further settings have dotted keys, with ``__`` for each dot; unknown settings raise ``TrainingError``.
        """
        full = read_settings(DeepRMConfig, RECIPES, recipe)
        fewer = min(1.0, self.budget / FEWER_SETS)
        values = {
            "seed": self.seed,
            "iterations": max(1, round(full.iterations * share * self.budget)),
            "episodes.sets": max(2, round(full.episodes.sets * fewer)),
            "validation.sets": max(2, round(full.validation.sets * fewer)),
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        return read_settings(
            DeepRMConfig, RECIPES, recipe, [f"{key}={json.dumps(value)}" for key, value in values.items()]
        )

    def train(self, configs: Mapping[str, DeepRMConfig]) -> dict[str, Path]:
        """Train missing networks, see ``train_all``. Returns: name of the training folder -> policy file."""
        trainer = partial(GridTraining, resume=True, workers=self.workers, command=self.command)
        return train_all(configs, self.policies, trainer, self.tell)

    def comparison(
        self,
        name: str,
        config: DeepRMConfig,
        networks: Mapping[str, Path],
        heuristics: Sequence[str] = HEURISTIC_NAMES,
    ) -> GridComparison:
        """Return the comparison with grid and jobs of a training configuration, as a condition of this name."""
        jobs = {name: config.jobs}
        return GridComparison(config.grid.build(), jobs, heuristics, networks, sets=self.sets, seed=self.seed)

    def compare(self, comparisons: Sequence[GridComparison]) -> pd.DataFrame:
        """Run comparisons. Returns: rows of all, see ``GridComparison.runs``."""
        for done, each in enumerate(comparisons):
            self.tell("comparing schedulers", done, len(comparisons))
            each.run()
        return pd.concat([each.runs for each in comparisons], ignore_index=True)


@dataclass(frozen=True, eq=False)
class Measured:
    """Results of schedulers, and the layout of their table.

    Attributes:
        results: rows of ``GridComparison.runs``; the condition is empty if there is a single one.
        measures: measures of the table, keys of ``GRID_METRICS``.
        corner: heading of the column of conditions; empty for a single condition.
        paper: (condition, scheduler, measure) -> result of the paper.
        wide: whether schedulers are columns, which show the first measure; by default, schedulers are rows.
    """

    title: str
    results: pd.DataFrame
    measures: Sequence[str] = ("slowdown",)
    corner: str = ""
    paper: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    wide: bool = False

    def table(self) -> Table:
        """Return the table; the best scheduler of each condition is bold."""
        compared = compare_by(self.results)
        if self.wide:
            return table_by_condition(self.title, self.corner, compared, self.measures[0])
        quoted = {measure for _, _, measure in self.paper}
        names, headings = [*[self.corner] * bool(self.corner), "Scheduler"], []
        for measure in self.measures:
            headings += [GRID_METRICS[measure].heading, *["Paper"] * (measure in quoted)]
        rows = []
        for condition, row in compared.items():
            best = {measure: best_scheduler(row, measure) for measure in self.measures}
            for name, measured in row.items():
                cells: list[object] = [*[condition] * bool(self.corner), name]
                for measure in self.measures:
                    cells.append(mean_text(measured[measure].mean, bold=best[measure] == name))
                    cells += [self.paper.get((condition, name, measure), UNKNOWN)] * (measure in quoted)
                rows.append(cells)
        return table_of(self.title, (*names, *headings), rows, "g", names=len(names))

    def content(self) -> dict[str, Any]:
        """Return the JSON."""
        return {
            "title": self.title,
            "conditions": {
                str(condition): summary(rows)
                for condition, rows in self.results.groupby("condition", sort=False)
            },
            "paper": [
                {"condition": condition, "scheduler": name, "measure": measure, "figure": figure}
                for (condition, name, measure), figure in self.paper.items()
            ],
        }

    def tidy(self) -> pd.DataFrame:
        """Return tidy results, one row per condition, scheduler and job set that is not empty.

        Columns are ``part`` (the title), ``condition``, ``scheduler``, ``set``, and each of ``GRID_METRICS``.
        """
        columns = ["part", "condition", "scheduler", "set", *GRID_METRICS]
        return self.results.assign(part=self.title)[columns]


def compared(
    name: str,
    parts: Sequence[Measured],
    claims: Sequence[Claim],
    notes: Sequence[str],
    networks: Mapping[str, Path],
    pictures: Mapping[str, Callable[[], Figure]],
    sets: int,
    tables: Sequence[Table] = (),
    extra: Mapping[str, Any] | None = None,
) -> Outcome:
    """Return the outcome of a study that compared schedulers on a grid, with one table for each of ``parts``.

    Notes on the tables and on the training of ``networks``, policy files by name, are added; see ``Outcome``.
    """
    about = {each: read_about(path) for each, path in networks.items()}
    trained = "; ".join(
        f"{each} {said['iterations_trained']} ({said['training_cpu_s'] / 60:.1f})"
        for each, said in about.items()
    )
    return Outcome(
        name,
        pd.concat([part.tidy() for part in parts], ignore_index=True),
        [*(part.table() for part in parts), *tables],
        [
            f"Means over the jobs of {sets} unseen sets; ± is half a 95 % confidence interval, from the sets "
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
    results: pd.DataFrame,
    one: str,
    others: Iterable[str],
    measure: str = "slowdown",
    *,
    or_equal: bool = False,
) -> Claim:
    """Check the claim that a scheduler has a lower mean of a measure than others in all conditions.

    With ``or_equal``, the claim also holds if the interval of the difference includes 0.
    """
    told, failed = [], []
    for condition, rows in ((str(name), rows) for name, rows in results.groupby("condition", sort=False)):
        for other in others:
            row = compare_metrics(rows, [one], other, [measure])[one]
            change, half_width = row[measure].change
            text = f"{change:+.1%} ± {half_width:.1%} against {other}"
            told.append(f"{condition}: {text}" if condition else text)
            if not (change < 0 or (or_equal and change <= half_width)):
                failed.append(told[-1])
    if len(told) > 4:
        told = [f"in {len(told) - len(failed)} of {len(told)} comparisons", *failed]
    return Claim(paper, f"{one}: {'; '.join(told)}", not failed)
