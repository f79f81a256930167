"""Several trainings: a folder each. What is complete stays as it is, what was cut off goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from decima.learning.checkpoint import load_checkpoint
from decima.learning.config import RunConfig
from decima.learning.loop import CHECKPOINT, POLICY, TrainingLoop
from decima.learning.progress import TRAINING, VALIDATION, Tell, silent
from decima.settings import TrainingError

__all__ = ["Tell", "train_all"]

Config = TypeVar("Config", bound=RunConfig)


def train_all(
    configs: Mapping[str, Config],
    folder: Path,
    make_trainer: Callable[[Config, Path], TrainingLoop[Config]],
    tell: Tell = silent,
    elsewhere: str = "another folder for this study: --policies DIR",
) -> dict[str, Path]:
    """Train one policy after the other.

    Args:
        configs: name -> settings.
        folder: holds a folder of each name.
        make_trainer: of settings and a folder; it goes on with what is there.
        tell: told how far each training is, phase by phase.
        elsewhere: what to do where a folder holds a policy of other settings.

    Returns:
        Name -> policy file.

    Raises:
        TrainingError: a folder holds a policy of other settings.
        DivergedError: what is learned is not finite any more.
        KeyboardInterrupt: Ctrl-C; what was learned is kept.
    """
    files = {}
    for name, config in configs.items():
        out = folder / name
        files[name] = out / POLICY
        if _complete(config, out):
            continue
        try:
            trainer = make_trainer(config, out)
        except TrainingError as error:
            raise TrainingError(f"{error}; {elsewhere}") from None
        result = trainer.run(on_progress=partial(_tell_phase, tell, f"training {name}"))
        if result.interrupted:
            raise KeyboardInterrupt
    return files


def _tell_phase(tell: Tell, what: str, phase: str, done: int, total: int) -> None:
    """Tell a phase of one of several trainings; validations of seconds between its iterations are left out."""
    if phase != VALIDATION:
        tell(what if phase == TRAINING else f"{what}: {phase}", done, total)


def _complete(config: RunConfig, out: Path) -> bool:
    """Whether the folder holds the policy that these settings lead to."""
    if not ((out / CHECKPOINT).exists() and (out / POLICY).exists()):
        return False
    checkpoint = load_checkpoint(out / CHECKPOINT)
    return checkpoint.config == config.model_dump(mode="json") and checkpoint.iteration == config.iterations
