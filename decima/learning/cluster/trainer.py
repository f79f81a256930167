"""Training on clusters: what the loop does there. Who runs the episodes does not show."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from decima.evaluation.fit import surroundings
from decima.evaluation.intervals import Interval, mean_interval
from decima.evaluation.tuning import HINDSIGHT
from decima.learning.cluster.config import TrainingConfig, read_config, workload_overrides
from decima.learning.cluster.curriculum import training_seeds, validation_seeds
from decima.learning.cluster.learner import Learner
from decima.learning.cluster.metrics import METRICS
from decima.learning.cluster.settings import by_cell
from decima.learning.cluster.simulation import Simulation, fair_ms
from decima.learning.learner import check_device
from decima.learning.loop import CONFIG, IterationReport, TrainingLoop, TrainingResult, Validation
from decima.learning.progress import Tell, silent
from decima.policy.files import TRAINED_ON, policy_path, read_about, save_policy
from decima.settings import TrainingError
from decima.workers.pool import check_workers

if TYPE_CHECKING:
    from decima.policy.policy import Policy

__all__ = ["Trainer", "train_policy"]

#: Training sequences that say what a policy was trained on; where each has a setting of its own, it takes more.
MEASURED, MEASURED_SETTINGS = 20, 300


class Trainer(TrainingLoop["TrainingConfig"]):
    """One training run and its folder, see ``TrainingLoop``.

    Results are the mean JCT (or the makespan, if that is rewarded) of each validation sequence, [n], ms.

    Args:
        config: the settings.
        out: the folder.
        resume: go on from the folder's checkpoint.
        device: where updates are computed, ``cpu`` or ``cuda``; episodes are always run on CPUs.
        workers: who runs episodes, see ``check_workers``.
        command: the command line, kept in the policy file.

    Raises:
        TrainingError: the folder holds a training run already, its checkpoint is damaged or of other settings,
            or there is no such device.
        WorkerError: there are no such workers.
        WorkloadError: the workload cannot be read.
        PolicyFileError: the policy to begin with cannot be read, or has other features or sizes.
        OutputError: the folder cannot be written.
    """

    METRICS = METRICS
    NAME = "decima"
    _learner: Learner
    _simulation: Simulation

    def __init__(
        self,
        config: TrainingConfig,
        out: str | Path,
        *,
        resume: bool = False,
        device: str = "cpu",
        workers: int | str = 1,
        command: str = "",
    ) -> None:
        self._device, self._workers = check_device(device), check_workers(workers)
        super().__init__(config, out, resume, command)

    def _make_learner(self) -> Learner:
        self._conditions = self.config.conditions()
        return Learner(self.config, self._conditions, self._device)

    def _begin_with(self, start: str) -> Mapping[str, Any]:
        self._learner.begin_with(policy_path(start))
        return read_about(start)

    def _restore(self, path: Path) -> None:
        super()._restore(path)
        if fair_ms(self._conditions, validation_seeds(self.config)[0]) != self._reference["fair"][0]:
            raise TrainingError(
                f"{path}: is of a run on another workload: fair does not do there what it does now"
            )

    def _iterations(self) -> Generator[dict[str, float], None, None]:
        shape, seed = self._learner.policy.config, self.config.seed
        with Simulation(self._conditions, shape, self._workers, seed) as self._simulation:
            yield from super()._iterations()

    def _run_heuristics(self) -> dict[str, Any]:
        seeds = validation_seeds(self.config)
        if self.config.settings is None:
            return self._simulation.reference(seeds, self._tell)
        return self._simulation.schedulers(self._references, seeds, self._tell)

    def _clone(self, epochs_done: int) -> Iterator[dict[str, float]]:
        cloning = self.config.behaviour_cloning
        assert cloning is not None
        return self._learner.clone(self._simulation, cloning, epochs_done, self._tell)

    def _learn(self, iteration: int) -> dict[str, float]:
        return self._learner.learn(self._simulation, iteration)

    def _cpu_s(self) -> float:
        return self._learner.cpu_s + self._simulation.cpu_s

    def _validate(self) -> Validation:
        seeds = validation_seeds(self.config)
        jct_ms, makespan_ms = self._simulation.judge(self._learner.average, seeds, self._tell).T.copy()
        objective = makespan_ms if self.config.cluster.reward == "makespan" else jct_ms
        if self.config.settings is not None:
            return self._over_cells(objective)
        mean = float(objective.mean())
        measured = {
            "validation_mean_jct_s": float(jct_ms.mean()) / 1000,
            "validation_makespan_s": float(makespan_ms.mean()) / 1000,
        }
        reference = float(np.mean(self._reference[HINDSIGHT]))
        return Validation(mean / 1000, reference / 1000, 1 - mean / reference, objective.tolist(), measured)

    @property
    def _references(self) -> list[str]:
        """With settings: whom policies stand beside; the last one is whom they are compared with."""
        return list(dict.fromkeys(("fair", self.config.validation.against)))

    def _over_cells(self, objective_ms: NDArray[np.float64]) -> Validation:
        changes = self._changes(objective_ms, self._reference)
        mean = fmean(change.mean for change in changes)
        # Of many settings with few sequences each, chance alone makes one worse: only what is beyond it counts.
        worst = max(0.0, *(float(change.mean - np.nan_to_num(change.half_width)) for change in changes))
        measured = {"validation_change_mean": mean, "validation_change_worst": worst}
        return Validation(mean, 0.0, -mean - worst, objective_ms.tolist(), measured)

    def _changes(self, own: ArrayLike, results: Mapping[str, Any]) -> list[Interval]:
        """By what fraction the mean of each cell is above that of whom it is compared with, in pairs."""
        cells = self.config.validation.cells
        reference = np.reshape(results[self._references[-1]], (cells, -1))
        relative = (np.reshape(own, (cells, -1)) - reference) / reference.mean(axis=1, keepdims=True)
        return [mean_interval(sequences) for sequences in relative]

    def _describe(self, results: Mapping[str, Any]) -> dict[str, Any]:
        validation = self.config.validation
        objective = "makespan" if self.config.cluster.reward == "makespan" else "mean JCT"
        described = {
            "set": f"{validation.sequences} validation sequences; times are seconds",
            "objective": objective,
            "against": "weighted fair with the best alpha of each sequence",
            "shown": [objective],
            "results": {name: {objective: fmean(values) / 1000} for name, values in results.items()},
        }
        settings = self.config.settings
        if settings is None:
            return described
        means_s = {name: by_cell(values, validation.cells) / 1000 for name, values in results.items()}
        changes = self._changes(results[self.NAME], results)
        return described | {
            "set": f"{validation.cells} settings, {validation.sequences} sequences each; times are seconds",
            "against": f"{validation.against} on average over these settings, "
            "with what the worst one loses for certain",
            "cells": [
                {
                    "setting": str(setting),
                    "results": {name: float(each[cell]) for name, each in means_s.items()},
                    "change": changes[cell].mean,
                }
                for cell, setting in enumerate(settings.cells(validation.cells))
            ],
        }

    @cached_property
    def _surroundings(self) -> dict[str, Any]:
        """Of the training; the same at every checkpoint, and not free."""
        measured = MEASURED if self.config.settings is None else MEASURED_SETTINGS
        seeds = training_seeds(self.config)[:measured]
        return surroundings(self._conditions, seeds).model_dump(mode="json", exclude_none=True)

    def _about(self) -> dict[str, Any]:
        return {TRAINED_ON: self._surroundings}

    def _write(self, path: Path, network: Policy, about: Mapping[str, Any]) -> None:
        save_policy(path, network, about)


def train_policy(
    config: TrainingConfig | str | Path | None,
    out: str | Path,
    *,
    workload: str | Path | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    device: str = "cpu",
    workers: int | str = 1,
    command: str = "",
    on_iteration: Callable[[IterationReport], None] | None = None,
    on_progress: Tell = silent,
) -> TrainingResult[TrainingConfig]:
    """Train a policy, as ``decima train`` does.

    The folder gets ``policy.npz``, the policy that was best on the validation sequences, its card, all settings,
    metrics and a checkpoint. The same settings give the same policy, bit for bit on a CPU.

    Args:
        config: the settings, the name of a recipe such as ``quick``, or a YAML file; None for those in the folder of
            a run to go on with.
        out: the folder.
        workload: the jobs instead of those of ``config``: ``tpch``, ``synthetic``, a workload file, or a folder of
            published TPC-H profiles.
        overrides: settings that differ from those of ``config``, such as ``"iterations=20"``.
        resume: go on from the folder's checkpoint.
        device: where updates are computed, ``cpu`` or ``cuda``; episodes are always run on CPUs.
        workers: processes that run episodes, see ``check_workers``; does not change the result.
        command: the command line, kept in the policy file.
        on_iteration: called for the initial policy, after each epoch of behaviour cloning and each iteration.
        on_progress: called in every phase with its name, how much of it is done, and how much there is.

    Raises:
        TrainingError: the settings are malformed, or see ``Trainer``.
        KeyboardInterrupt: Ctrl-C before the first iteration; later, the result says ``interrupted``.
        DivergedError: a loss, gradient or probability is not finite.
        Exception: those of ``Trainer``.

    Example:
        >>> from decima.learning import train_policy
        >>> result = train_policy("quick", "my-policy")  # doctest: +SKIP
        >>> result.policy_file  # doctest: +SKIP
        PosixPath('my-policy/policy.npz')
    """
    if workload is not None:
        overrides = [*overrides, *workload_overrides(workload)]
    if not isinstance(config, TrainingConfig):
        config = read_config(Path(out) / CONFIG if config is None else config, overrides)
    elif overrides:
        raise TrainingError("workload and overrides: expected the name of a recipe or a file beside them")
    trainer = Trainer(config, out, resume=resume, device=device, workers=workers, command=command)
    return trainer.run(on_iteration, on_progress)
