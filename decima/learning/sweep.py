"""Sweeps (hyperparameter search): trainings over candidate settings and seeds, and their results.

A trial is one choice of settings, trained once for each seed. Every training has its own folder, and Optuna's journal
(JSON lines) contains every finished trial, so an interrupted sweep can be resumed. The settings of a trial are a
function of the sweep's seed and the earlier trials.
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
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from decima.evaluation.metrics import Interval, mean_interval
from decima.learning.card import SEEDS, policy_card
from decima.learning.checkpoint import load_checkpoint
from decima.learning.cluster.config import RECIPES
from decima.learning.cluster.train import ClusterTraining
from decima.learning.grid.train import GridTraining
from decima.learning.loop import CARD, CHECKPOINT, POLICY
from decima.learning.sweep_config import SweepConfig
from decima.learning.trainings import train_all
from decima.outputs import LOCK, atomic_path, folder_lock, make_folder, missing_paths, remove_paths
from decima.policy.files import add_about
from decima.settings import DivergedError, Progress, TrainingError, read_settings, silent
from workloads.reading import read_bytes

__all__ = ["SeedResult", "SweepResult", "Trial", "run_sweep", "seed_folder"]

SWEEP, JOURNAL = "sweep.yaml", "study.log"
#: Settings of a sweep that may differ when it is resumed.
MAY_CHANGE = {"trials"}


@dataclass(frozen=True)
class SeedResult:
    """Result of one training of a trial.

    Attributes:
        objective: objective (to minimise) of the best policy on the validation set.
        improvement: relative reduction of the objective against the reference scheduler, as a fraction.
        iteration: iteration of the best policy.
        cpu_s: CPU time of the training, s.
    """

    seed: int
    objective: float
    improvement: float
    iteration: int
    cpu_s: float


@dataclass(frozen=True)
class Trial:
    """Result of one choice of settings.

    Attributes:
        number: index of the trial, from 0.
        settings: chosen settings, dotted key -> value.
        results: results by seed, up to the first training that diverged.
    """

    number: int
    settings: Mapping[str, Any]
    results: tuple[SeedResult, ...]
    diverged: bool

    @property
    def objective(self) -> Interval:
        """Mean objective over the seeds, with a confidence interval; NaN if a training diverged."""
        return mean_interval([] if self.diverged else [each.objective for each in self.results])

    @property
    def improvement(self) -> Interval:
        """Mean improvement over the seeds, with a confidence interval; NaN if a training diverged."""
        return mean_interval([] if self.diverged else [each.improvement for each in self.results])

    @property
    def cpu_s(self) -> float:
        """CPU time of the trainings, s."""
        return math.fsum(each.cpu_s for each in self.results)


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep.

    Attributes:
        interrupted: whether Ctrl-C ended the sweep.
    """

    config: SweepConfig
    trials: tuple[Trial, ...]
    interrupted: bool

    @property
    def ranked(self) -> list[Trial]:
        """Trials from the best to the worst; trials that diverged are last."""
        return sorted(self.trials, key=lambda trial: (trial.diverged, trial.objective.mean, trial.number))


def seed_folder(number: int, seed: int) -> str:
    """Return the name of a training's folder within the folder of its sweep."""
    return f"trial-{number:03}/seed-{seed}"


def run_sweep(
    config: SweepConfig, out: Path, *, workers: int | str = 1, command: str = "", progress: Progress = silent
) -> SweepResult:
    """Run the unfinished trainings of a sweep; an interrupted sweep is resumed by a further call.

    Args:
        workers: workers that run episodes, see ``check_workers``.
        command: command line, saved in the policy files.

    Raises:
        TrainingError: the folder contains another sweep, or a damaged file.
        WorkloadError: the workload cannot be read.
        OutputError: the folder cannot be written to, or another sweep writes into it.

    If no training could start, new files and folders are removed.
    """
    kind: Any = ClusterTraining if config.train == "cluster" else GridTraining
    make_training = partial(kind, workers=workers, resume=True, command=command)
    trials: list[Trial] = []
    new_paths = missing_paths(out, LOCK)
    make_folder(out)
    with folder_lock(out):
        new_paths += missing_paths(out, SWEEP, JOURNAL)
        try:
            _take(config, out)
            study = _open(out / JOURNAL)
            for number in range(config.num_trials):
                known = number < len(study.trials)
                params = study.trials[number].params if known else _next(config, number, study)
                report = partial(_report, progress, f" ({number + 1} of {config.num_trials})")
                trial = _train(config, number, _settings(config, params), out, make_training, report)
                trials.append(trial)
                if not known:
                    study.add_trial(_frozen(config, params, trial))
        except KeyboardInterrupt:
            return SweepResult(config, tuple(trials), True)
        except Exception:
            if not any(out.glob("trial-*")):  # no training has started
                remove_paths(new_paths)
            raise
    return SweepResult(config, tuple(trials), False)


def _report(progress: Progress, which: str, what: str, done: int, total: int) -> None:
    progress(what + which, done, total)


def _take(config: SweepConfig, out: Path) -> None:
    """Write the settings to the sweep's folder; refuse the folder of another sweep."""
    path = out / SWEEP
    if path.exists():
        before = read_settings(SweepConfig, RECIPES, path)
        for name in SweepConfig.model_fields:
            if name not in MAY_CHANGE and getattr(before, name) != getattr(config, name):
                raise TrainingError(f"{path}: belongs to a sweep with other {name}; expected another folder")
    with atomic_path(path) as partial_path:
        partial_path.write_text(config.to_yaml(), encoding="utf-8")


def _open(path: Path) -> optuna.Study:
    """Open the journal of finished trials; an incomplete last line is dropped."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if path.exists():
        try:
            whole = read_bytes(path)
        except OSError as error:
            raise TrainingError(f"{path}: {error.strerror}, expected the journal of a sweep") from None
        if not whole.endswith(b"\n"):
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        return optuna.create_study(storage=storage, study_name="sweep", load_if_exists=True)
    except OSError:
        raise
    except Exception as error:  # Optuna raises exceptions of any type for damaged lines
        raise TrainingError(f"{path}: not the journal of a sweep: {type(error).__name__}: {error}") from None


def _next(config: SweepConfig, number: int, study: optuna.Study) -> dict[str, Any]:
    """Return the settings of the next trial as parameters of Optuna."""
    if config.is_grid:
        settings = next(itertools.islice(config.combinations(), number, None))
        return {key: json.dumps(value) for key, value in settings.items()}
    [seed] = np.random.SeedSequence([config.seed, number]).generate_state(1).tolist()
    past = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    past.add_trials(study.trials)
    return past.ask(_distributions(config)).params


def _distributions(config: SweepConfig) -> dict[str, BaseDistribution]:
    """Return the candidate settings as distributions of Optuna; listed values, of any type, are JSON texts."""
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
        raise TrainingError(f"{JOURNAL}: belongs to another sweep, of {', '.join(params) or 'nothing'}")
    return {
        key: json.loads(params[key]) if isinstance(given, list) else params[key]
        for key, given in config.vary.items()
    }


def _train(
    config: SweepConfig,
    number: int,
    settings: dict[str, Any],
    out: Path,
    make_training: Any,
    progress: Progress,
) -> Trial:
    results: list[SeedResult] = []
    for seed in config.all_seeds:
        name = seed_folder(number, seed)
        try:
            training = {name: config.training(settings, seed)}
            train_all(training, out, make_training, progress, "expected another folder")
        except DivergedError:
            return Trial(number, settings, tuple(results), True)
        checkpoint = load_checkpoint(out / name / CHECKPOINT)
        best = checkpoint.best
        assert best is not None
        objective = {int(row[0]): row[1] for row in checkpoint.curve}[best.iteration]
        results.append(SeedResult(seed, objective, best.improvement, best.iteration, checkpoint.cpu_s))
    if len(results) > 1:
        _write_seeds(results, [out / seed_folder(number, each.seed) for each in results])
    return Trial(number, settings, tuple(results), False)


def _write_seeds(results: Sequence[SeedResult], folders: Sequence[Path]) -> None:
    """Add the results of all seeds to each policy file and its card."""
    results_by_seed = {SEEDS: [[each.seed, each.objective, each.improvement] for each in results]}
    for folder in folders:
        about = add_about(folder / POLICY, results_by_seed)
        with atomic_path(folder / CARD) as path:
            path.write_text(policy_card(folder.name, about), encoding="utf-8")


def _frozen(config: SweepConfig, params: dict[str, Any], trial: Trial) -> optuna.trial.FrozenTrial:
    """Return a finished trial as Optuna's journal stores it."""
    return create_trial(
        params=params,
        distributions=_distributions(config),
        state=TrialState.FAIL if trial.diverged else TrialState.COMPLETE,
        value=None if trial.diverged else trial.objective.mean,
    )
