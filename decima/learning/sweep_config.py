"""Settings of a sweep (hyperparameter search): candidate settings and seeds, read from YAML."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import field_validator, model_validator

from decima.learning.cluster.config import RECIPES as CLUSTER_RECIPES
from decima.learning.cluster.config import TrainingConfig
from decima.learning.grid.config import RECIPES as GRID_RECIPES
from decima.learning.grid.config import DeepRMConfig
from decima.settings import (
    Count,
    Recipes,
    RunConfig,
    Section,
    TrainingError,
    Whole,
    described,
    is_whole,
    parse_yaml,
    read_settings,
)

__all__ = ["SweepConfig", "read_sweep"]

RANGES = ("uniform", "log_uniform")
KINDS: dict[str, tuple[type[RunConfig], Recipes, str]] = {
    "cluster": (TrainingConfig, CLUSTER_RECIPES, "batch"),
    "deeprm": (DeepRMConfig, GRID_RECIPES, "deeprm"),
}
#: Maximum number of combinations of listed values.
MOST = 10_000


class SweepConfig(Section):
    """Settings of a sweep. They determine its results, bit for bit on a CPU."""

    train: Literal["cluster", "deeprm"] = described(
        "cluster", "kind of training: that of decima train, or of decima deeprm train"
    )
    config: str | None = described(
        None, "recipe or file with the initial settings; null for the command's default"
    )
    fixed: dict[str, Any] = described({}, "settings of all trials, by dotted key")
    vary: dict[str, Any] = described(
        {},
        "candidate settings, by dotted key: a list of values, or a range uniform: [a, b] or "
        "log_uniform: [a, b] from which values are sampled; if empty, only seeds vary",
    )
    seeds: Count | tuple[Whole, ...] = described(
        3, "seeds of the trainings of each trial: their number (0, 1, ..), or a list"
    )
    trials: Count | None = described(
        None, "number of sampled trials; null without a range, for all combinations"
    )
    seed: Whole = described(0, "random seed of the sampled settings")

    @field_validator("vary")
    @classmethod
    def _check_vary(cls, vary: dict[str, Any]) -> dict[str, Any]:
        return {key: _tried(key, given) for key, given in vary.items()}

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: int | tuple[int, ...]) -> int | tuple[int, ...]:
        if isinstance(seeds, tuple) and (not seeds or len({*seeds}) < len(seeds)):
            raise ValueError(f"expected at least one seed, without repetition, got {list(seeds)}")
        return seeds

    @model_validator(mode="after")
    def _check(self) -> SweepConfig:
        for key in (*self.fixed, *self.vary):
            if key == "seed":
                raise ValueError("seed: cannot be fixed or varied; expected the setting seeds")
        if both := self.fixed.keys() & self.vary.keys():
            raise ValueError(f"{min(both)}: is fixed and varied")
        if self.is_grid and self.trials is not None:
            raise ValueError("trials: expected none without a range; all combinations are tried")
        if not self.is_grid and self.trials is None:
            raise ValueError("trials: expected the number of sampled trials, since vary has a range")
        if self.is_grid and self.num_trials > MOST:
            raise ValueError(f"vary: {self.num_trials} combinations are more than {MOST}; a range is sampled")
        return self

    @property
    def is_grid(self) -> bool:
        """Whether all combinations are trained (grid search); otherwise settings are sampled."""
        return all(isinstance(given, list) for given in self.vary.values())

    @property
    def num_trials(self) -> int:
        """Number of trials."""
        return self.trials or math.prod(map(len, self.vary.values()))

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Seeds of the trainings of each trial."""
        return self.seeds if isinstance(self.seeds, tuple) else tuple(range(self.seeds))

    def training(self, settings: Mapping[str, Any], seed: int) -> RunConfig:
        """Return the settings of one training.

        Args:
            settings: settings of the trial, by dotted key.

        Raises:
            TrainingError: a recipe or setting is unknown, or a value is malformed.
        """
        model, recipes, default = KINDS[self.train]
        overrides = [_override(key, value) for key, value in {**self.fixed, **settings, "seed": seed}.items()]
        return read_settings(model, recipes, self.config or default, overrides)

    def check(self) -> None:
        """Validate all candidate settings, so that no training fails later.

        Raises:
            TrainingError: see ``training``.
        """
        for settings in self.combinations() if self.is_grid else self._corners():
            self.training(settings, self.all_seeds[0])

    def _corners(self) -> Iterator[dict[str, Any]]:
        """Vary one setting at a time: both ends of a range, or all listed values."""
        values = {key: given if isinstance(given, list) else _ends(given) for key, given in self.vary.items()}
        first = {key: each[0] for key, each in values.items()}
        for key, each in values.items():
            yield from (first | {key: value} for value in each)

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Iterate over all combinations of listed values, in order."""
        for values in itertools.product(*self.vary.values()):
            yield dict(zip(self.vary, values, strict=True))

    def ranges(self) -> dict[str, tuple[float, float, bool, bool]]:
        """Return (low, high, whether logarithmic, whether integer) of each range, by dotted key."""
        model = KINDS[self.train][0]
        return {
            key: (*_ends(given), "log_uniform" in given, is_whole(model, key))
            for key, given in self.vary.items()
            if not isinstance(given, list)
        }


def _tried(key: str, given: Any) -> Any:
    if isinstance(given, dict) and given.keys() == {"one_of"}:
        given = given["one_of"]
    if isinstance(given, list):
        if not given:
            raise ValueError(f"{key}: expected at least one value in the list")
        if len({json.dumps(value, default=str) for value in given}) < len(given):
            raise ValueError(f"{key}: a value is given more than once")
        return given
    if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= {*RANGES}:
        raise ValueError(
            f"{key}: expected a list of values, or exactly one of {', '.join(RANGES)} and one_of"
        )
    [(kind, ends)] = given.items()
    try:
        low, high = map(float, ends)  # YAML reads 1e-4 as a string
    except (TypeError, ValueError):
        raise ValueError(f"{key}: {kind}: expected two numbers, got {ends!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{key}: {kind}: expected two ascending numbers, got {ends!r}")
    if kind == "log_uniform" and low <= 0:
        raise ValueError(f"{key}: {kind}: expected positive numbers, got {ends!r}")
    return {kind: [low, high]}


def _ends(given: Mapping[str, list[float]]) -> tuple[float, float]:
    [(low, high)] = given.values()
    return low, high


def _override(key: str, value: Any) -> str:
    """Format a setting as ``key=value``, so that YAML reads the same value."""
    return f"{key}={yaml.safe_dump([value], default_flow_style=True, width=math.inf).strip()[1:-1]}"


def read_sweep(source: Path, overrides: Sequence[str] = ()) -> SweepConfig:
    """Read the settings of a sweep from a YAML file.

    Args:
        overrides: further fixed settings, as ``key=value``.

    Raises:
        TrainingError: the file is missing, or the file or a setting is malformed.
    """
    config = read_settings(SweepConfig, CLUSTER_RECIPES, source)
    fixed = dict(config.fixed)
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise TrainingError(f"{text!r} is not of the form section.key=value")
        fixed[key.strip()] = parse_yaml(value, repr(text))
        if key.strip() in config.vary:
            raise TrainingError(f"{text!r}: {source} varies {key.strip()}")
    config = config.model_copy(update={"fixed": fixed})
    try:
        config.check()
    except TrainingError as error:
        raise TrainingError(f"{source}: {error}") from None
    return config
