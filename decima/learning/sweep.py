"""A sweep: trainings over settings that are tried and over seeds, and what came of each.

Each trial is a choice of settings, trained once for each seed. Every training has a folder of its own and every trial
that is over stands in Optuna's journal (JSON, a line each), so that a sweep that was cut off goes on where it stood.
What is tried next follows from the sweep's seed and the trials before, whatever happened in between.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from decima.evaluation.intervals import Interval, mean_interval
from decima.learning.card import SEEDS, policy_card
from decima.learning.checkpoint import load_checkpoint
from decima.learning.cluster.config import RECIPES
from decima.learning.cluster.trainer import Trainer
from decima.learning.grid.trainer import DeepRMTrainer
from decima.learning.loop import CARD, CHECKPOINT, POLICY
from decima.learning.progress import Tell, silent
from decima.learning.sweep_config import SweepConfig
from decima.learning.trainings import train_all
from decima.outputs import atomic_path, make_folder
from decima.policy.files import add_about
from decima.settings import DivergedError, TrainingError, read_settings

__all__ = [
    "SeedResult",
    "SweepResult",
    "Trial",
    "run_sweep",
    "seed_folder",
]

SWEEP, JOURNAL = "sweep.yaml", "study.log"
#: What a sweep may be gone on with although it differs: how many trials there are.
MAY_CHANGE = {"trials"}


@dataclass(frozen=True)
class SeedResult:
    """What came of one training.

    Attributes:
        seed: of the training.
        objective: of the policy that was kept, on the validation set: what is to be small.
        improvement: over whom it is compared with.
        iteration: when it was found.
        cpu_s: CPU time of the training, s.
    """

    seed: int
    objective: float
    improvement: float
    iteration: int
    cpu_s: float


@dataclass(frozen=True)
class Trial:
    """What came of one choice of settings.

    Attributes:
        number: from 0 on.
        settings: dotted key -> value, of those that are tried.
        results: of each seed; those before the one that diverged, if one did.
        diverged: whether a training met what is not finite.
    """

    number: int
    settings: Mapping[str, Any]
    results: tuple[SeedResult, ...]
    diverged: bool

    @property
    def objective(self) -> Interval:
        """Over the seeds; not defined where one diverged."""
        return mean_interval([] if self.diverged else [each.objective for each in self.results])

    @property
    def improvement(self) -> Interval:
        """Over the seeds; not defined where one diverged."""
        return mean_interval([] if self.diverged else [each.improvement for each in self.results])

    @property
    def cpu_s(self) -> float:
        """CPU time of its trainings, s."""
        return math.fsum(each.cpu_s for each in self.results)


@dataclass(frozen=True)
class SweepResult:
    """What came of a sweep.

    Attributes:
        config: what was swept.
        trials: those that are over.
        interrupted: whether Ctrl-C ended it.
    """

    config: SweepConfig
    trials: tuple[Trial, ...]
    interrupted: bool

    @property
    def ranked(self) -> list[Trial]:
        """The trials, the best first; those that diverged are last."""
        return sorted(self.trials, key=lambda trial: (trial.diverged, trial.objective.mean, trial.number))


def seed_folder(number: int, seed: int) -> str:
    """Where in a sweep's folder a training lies."""
    return f"trial-{number:03}/seed-{seed}"


def run_sweep(
    config: SweepConfig,
    out: Path,
    *,
    workers: int | str = 1,
    command: str = "",
    tell: Tell = silent,
) -> SweepResult:
    """Train whatever is not trained yet; to go on with a sweep is to run it again.

    Args:
        config: what is swept.
        out: the folder.
        workers: who runs episodes, see ``check_workers``.
        command: the command line, kept in the policy files.
        tell: told how far it is.

    Raises:
        TrainingError: the folder holds another sweep, or a file of it is damaged.
        WorkloadError: the workload cannot be read.
        OutputError: the folder cannot be written.
    """
    _take(config, out)
    make_trainer: Any = partial(Trainer if config.train == "cluster" else DeepRMTrainer, workers=workers)
    make_trainer = partial(make_trainer, resume=True, command=command)
    study = _open(out / JOURNAL)
    trials: list[Trial] = []
    try:
        for number in range(config.num_trials):
            known = number < len(study.trials)
            params = study.trials[number].params if known else _next(config, number, study)
            settings = _settings(config, params)
            which = f" ({number + 1} of {config.num_trials})"
            trial = _train(config, number, settings, out, make_trainer, partial(_tell, tell, which))
            trials.append(trial)
            if not known:
                study.add_trial(_told(config, params, trial))
    except KeyboardInterrupt:
        return SweepResult(config, tuple(trials), True)
    return SweepResult(config, tuple(trials), False)


def _tell(tell: Tell, which: str, what: str, done: int, total: int) -> None:
    tell(what + which, done, total)


def _take(config: SweepConfig, out: Path) -> None:
    """Make the folder this sweep's, unless it is another's."""
    make_folder(out)
    path = out / SWEEP
    if path.exists():
        before = read_settings(SweepConfig, RECIPES, path)
        for name in SweepConfig.model_fields:
            if name not in MAY_CHANGE and getattr(before, name) != getattr(config, name):
                raise TrainingError(f"{path}: is of a sweep with other {name}; expected another folder")
    with atomic_path(path) as partial_path:
        partial_path.write_text(config.to_yaml(), encoding="utf-8")


def _open(path: Path) -> optuna.Study:
    """The journal of the trials that are over. What was being written when a sweep was killed is dropped."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if path.exists():
        whole = path.read_bytes()
        if not whole.endswith(b"\n"):
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        return optuna.create_study(storage=storage, study_name="sweep", load_if_exists=True)
    except OSError:
        raise
    except Exception as error:  # whatever Optuna makes of lines that are none of its own
        raise TrainingError(f"{path}: is no journal of a sweep: {type(error).__name__}: {error}") from None


def _next(config: SweepConfig, number: int, study: optuna.Study) -> dict[str, Any]:
    """What Optuna calls the settings of the next trial: it follows from the trials before, and from the seed."""
    if config.is_grid:
        settings = next(itertools.islice(config.combinations(), number, None))
        return {key: json.dumps(value) for key, value in settings.items()}
    [seed] = np.random.SeedSequence([config.seed, number]).generate_state(1).tolist()
    past = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    past.add_trials(study.trials)
    return past.ask(_distributions(config)).params


def _distributions(config: SweepConfig) -> dict[str, BaseDistribution]:
    """What is tried, as Optuna says it. A choice is the JSON of a value, which may be of any kind."""
    ranges, found = config.ranges(), dict[str, BaseDistribution]()
    for key, given in config.vary.items():
        if key not in ranges:
            found[key] = CategoricalDistribution([json.dumps(value) for value in given])
            continue
        low, high, log, whole = ranges[key]
        found[key] = (
            IntDistribution(int(low), int(high), log=log) if whole else FloatDistribution(low, high, log=log)
        )
    return found


def _settings(config: SweepConfig, params: Mapping[str, Any]) -> dict[str, Any]:
    if params.keys() != config.vary.keys():
        raise TrainingError(f"{JOURNAL}: has a trial of {', '.join(params) or 'nothing'}: is another sweep's")
    return {
        key: json.loads(params[key]) if isinstance(given, list) else params[key]
        for key, given in config.vary.items()
    }


def _train(
    config: SweepConfig, number: int, settings: dict[str, Any], out: Path, make_trainer: Any, tell: Tell
) -> Trial:
    results: list[SeedResult] = []
    for seed in config.all_seeds:
        name = seed_folder(number, seed)
        try:
            train_all(
                {name: config.training(settings, seed)}, out, make_trainer, tell, "expected another folder"
            )
        except DivergedError:
            return Trial(number, settings, tuple(results), True)
        checkpoint = load_checkpoint(out / name / CHECKPOINT)
        best = checkpoint.best
        assert best is not None
        objective = {int(row[0]): row[1] for row in checkpoint.curve}[best.iteration]
        results.append(SeedResult(seed, objective, best.improvement, best.iteration, checkpoint.cpu_s))
    if len(results) > 1:
        _say_seeds(results, [out / seed_folder(number, each.seed) for each in results])
    return Trial(number, settings, tuple(results), False)


def _say_seeds(results: Sequence[SeedResult], folders: Sequence[Path]) -> None:
    """Each policy says what came of all seeds, and so does its card."""
    said = {SEEDS: [[each.seed, each.objective, each.improvement] for each in results]}
    for folder in folders:
        about = add_about(folder / POLICY, said)
        with atomic_path(folder / CARD) as path:
            path.write_text(policy_card(folder.name, about), encoding="utf-8")


def _told(config: SweepConfig, params: dict[str, Any], trial: Trial) -> optuna.trial.FrozenTrial:
    """A trial as Optuna keeps it."""
    return create_trial(
        params=params,
        distributions=_distributions(config),
        state=TrialState.FAIL if trial.diverged else TrialState.COMPLETE,
        value=None if trial.diverged else trial.objective.mean,
    )
