"""A study on DeepRM's grid: its size, the networks that it trains, the sets that it compares on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from decima.evaluation.grid import HEURISTIC_NAMES, Evaluation, GridConditions
from decima.learning.config import Progress
from decima.learning.grid.config import RECIPES, DeepRMConfig
from decima.learning.grid.train import GridTraining
from decima.learning.trainings import train_all
from decima.settings import read_settings

__all__ = ["GridStudy"]

#: Below this budget there are fewer sets, too.
FEWER_SETS = 0.1


@dataclass(frozen=True, eq=False)
class GridStudy:
    """Size and surroundings of a study.

    Attributes:
        budget: 1 is full size. Iterations are multiplied by it, and below 0.1 the sets of training and validation by
            ten times as much.
        seed: names the sets of jobs; also the seed of trainings.
        sets: number of unseen sets of jobs on which schedulers are compared.
        policies: folder of the trained networks.
        workers: of trainings, see ``check_workers``.
        command: command line, kept in the files of trainings.
        tell: progress callback.
    """

    budget: float = 1.0
    seed: int = 0
    sets: int = 100
    policies: Path = Path("reproduce/policies")
    workers: int | str = 1
    command: str = ""
    tell: Progress = lambda what, done, total: None

    @classmethod
    def of_options(cls, values: dict[str, Any], **others: Any) -> GridStudy:
        """Make a study from the values of its command's options, which are removed from ``values``."""
        size = {each.name: values.pop(each.name) for each in fields(cls) if each.name in values}
        return cls(**size | others | {"workers": size["workers"] or 1})

    def config(self, recipe: str, *, share: float = 1.0, **settings: Any) -> DeepRMConfig:
        """Return a recipe at this study's size.

        Args:
            recipe: its name.
            share: of its iterations to run.
            settings: further settings that differ, with ``__`` where a dotted key has a dot.

        Raises:
            TrainingError: there is no such setting.
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
        """Train the networks that are missing, see ``train_all``; returns folder -> policy file."""
        return train_all(
            configs,
            self.policies,
            partial(GridTraining, resume=True, workers=self.workers, command=self.command),
            self.tell,
        )

    def conditions(
        self, config: DeepRMConfig, networks: Mapping[str, Path], heuristics: Sequence[str] = HEURISTIC_NAMES
    ) -> GridConditions:
        """Return the conditions in which networks, by name, and heuristics are compared: grid and jobs."""
        grid = config.grid.build()
        draw = partial(config.jobs.draw, grid)
        return GridConditions(grid, draw, heuristics, networks, self.sets, self.seed)

    def compare(self, conditions: Mapping[str, GridConditions]) -> dict[str, dict[str, Evaluation]]:
        """Run all schedulers under each condition; returns condition -> scheduler -> evaluation."""
        results = {}
        for done, (name, each) in enumerate(conditions.items()):
            self.tell("comparing schedulers", done, len(conditions))
            results[name] = each.run()
        return results
