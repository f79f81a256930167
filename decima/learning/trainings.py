"""Run several trainings, each in its own folder: completed trainings are kept, interrupted ones are resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from decima.learning.checkpoint import load_checkpoint
from decima.learning.loop import CHECKPOINT, POLICY, TrainingLoop
from decima.outputs import OutputError
from decima.settings import TRAINING, VALIDATION, Progress, RunConfig, TrainingError, silent

__all__ = ["train_all"]

Config = TypeVar("Config", bound=RunConfig)


def train_all(
    configs: Mapping[str, Config],
    folder: Path,
    make_training: Callable[[Config, Path], TrainingLoop[Config]],
    progress: Progress = silent,
    elsewhere: str = "another folder for this study: --policies DIR",
) -> dict[str, Path]:
    """Train several policies, one after the other.

    Args:
        configs: settings by name of the policy.
        folder: parent folder; each training has a folder in it, with the name of the policy.
        make_training: makes the training for settings and a folder; resumes a run that the folder contains.
        elsewhere: end of the error message if a folder contains a policy of other settings.

    Returns:
        Policy files by name.

    Raises:
        TrainingError: a folder contains a policy of other settings.
        OutputError: a folder cannot be written to, or another training writes into it.
        DivergedError: a loss, gradient or probability is not finite.
        KeyboardInterrupt: Ctrl-C; finished iterations are kept.
    """
    files = {}
    for name, config in configs.items():
        out = folder / name
        files[name] = out / POLICY
        if _is_complete(config, out):
            continue
        try:
            training = make_training(config, out)
        except (TrainingError, OutputError) as error:
            raise type(error)(f"{error}; {elsewhere}") from None
        result = training.run(on_progress=partial(_report_phase, progress, f"training {name}"))
        if result.interrupted:
            raise KeyboardInterrupt
    return files


def _report_phase(progress: Progress, what: str, phase: str, done: int, total: int) -> None:
    """Report progress of one training; validations are short and frequent, and are not reported."""
    if phase != VALIDATION:
        progress(what if phase == TRAINING else f"{what}: {phase}", done, total)


def _is_complete(config: RunConfig, out: Path) -> bool:
    if not ((out / CHECKPOINT).exists() and (out / POLICY).exists()):
        return False
    checkpoint = load_checkpoint(out / CHECKPOINT)
    return checkpoint.config == config.model_dump(mode="json") and checkpoint.iteration == config.iterations
