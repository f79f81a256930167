"""What the studies on grids share: their size, the networks that they train, the sets that they compare on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decima.evaluation.grid import HEURISTIC_NAMES, TRAINING_SEED, Evaluation, evaluate, heuristics_for
from decima.evaluation.grid_comparison import network_actor
from decima.learning.grid.config import RECIPES, DeepRMConfig
from decima.learning.grid.trainer import DeepRMTrainer
from decima.policy.threads import one_thread
from decima.schedulers.grid import GridScheduler
from decima.settings import read_settings
from decima.studies.trainings import Tell, train_all
from workloads import JobSets

__all__ = ["GridCondition", "GridStudy"]

#: Below this budget there are fewer sets, too.
FEWER_SETS = 0.1


@dataclass(frozen=True, eq=False)
class GridCondition:
    """What schedulers are compared on.

    Attributes:
        config: its grid and its jobs.
        networks: scheduler -> policy file.
        heuristics: names that ``heuristics_for`` knows.
    """

    config: DeepRMConfig
    networks: Mapping[str, Path]
    heuristics: Sequence[str] = HEURISTIC_NAMES


@dataclass(frozen=True, eq=False)
class GridStudy:
    """A study's size and means.

    Attributes:
        budget: 1 is full size. Iterations are multiplied by it, and below 0.1 the sets of training and validation by
            ten times as much.
        seed: names the sets of jobs; also that of trainings.
        sets: unseen sets of jobs on which schedulers are compared.
        policies: folder of the trained networks.
        command: the command line, kept in what is written.
        tell: told how far it is.
    """

    budget: float = 1.0
    seed: int = 0
    sets: int = 100
    policies: Path = Path("reproduce/policies")
    command: str = ""
    tell: Tell = lambda what, done, total: None

    def config(self, recipe: str, *, share: float = 1.0, **settings: Any) -> DeepRMConfig:
        """A recipe at this study's size.

        Args:
            recipe: its name.
            share: of its iterations.
            settings: further ones that differ, with ``__`` where a dotted key has a dot.

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
        """Train what has not been trained yet; folder -> policy file. See ``train_all``."""
        return train_all(
            configs,
            self.policies,
            lambda config, out: DeepRMTrainer(config, out, resume=True, command=self.command),
            self.tell,
        )

    def draw(self, config: DeepRMConfig) -> JobSets:
        """The sets that schedulers are compared on; no training meets them."""
        return config.jobs.draw(config.grid.build(), self.sets, self.seed)

    def schedulers(self, condition: GridCondition) -> dict[str, GridScheduler]:
        """Heuristics, tuned on as many training sets, and networks."""
        config = condition.config
        grid = config.grid.build()
        training = config.jobs.draw(grid, self.sets, TRAINING_SEED + self.seed)
        heuristics = heuristics_for(grid, training, condition.heuristics)
        return heuristics | {
            name: network_actor(path, self.seed) for name, path in condition.networks.items()
        }

    def evaluate(self, conditions: Mapping[str, GridCondition]) -> dict[str, dict[str, Evaluation]]:
        """Run all schedulers under each condition; condition -> scheduler -> how it did."""
        results = {}
        for done, (name, condition) in enumerate(conditions.items()):
            self.tell("comparing schedulers", done, len(conditions))
            grid, jobs = condition.config.grid.build(), self.draw(condition.config)
            with one_thread():
                results[name] = evaluate(grid, jobs, self.schedulers(condition))
        return results
