"""Settings, random seeds and progress callbacks that trainings on clusters and on grids share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from decima.settings import Count, Section

__all__ = [
    "CLONING", "CLONING_OFFSET", "ENDS", "FUTURES", "RUN_SEEDS", "SETTINGS", "SHUFFLE", "TRAINING",
    "VALIDATION", "VALIDATION_SEEDS", "WARM_UPS", "CloningSection", "Progress", "RunConfig",
    "ValidationSection", "silent",
]  # fmt: skip

#: First seed of the validation sequences, the same in all runs, so that runs can be compared. Evaluations use smaller
#: seeds, training episodes use seeds above a billion.
VALIDATION_SEEDS = 5_000_000
#: Sequence seeds of a run start at (1 + seed of the run) * ``RUN_SEEDS``; behaviour cloning adds an offset.
RUN_SEEDS = 1_000_000_000
CLONING_OFFSET = 900_000_000
#: Keys of random streams besides the policy's choices: truncation times, minibatches, cloning, settings, dcl's futures.
ENDS, SHUFFLE, CLONING, SETTINGS, FUTURES, WARM_UPS = range(6)

#: Progress callback, called with the name of the phase, the finished part and the total.
Progress = Callable[[str, int, int], None]
#: Phase names of the progress callback; validation interrupts other phases.
TRAINING, VALIDATION = "training", "validation"


def silent(phase: str, done: int, total: int) -> None:
    """Progress callback that does nothing."""


class CloningSection(Section):
    """Behaviour cloning: before reinforcement learning, the policy learns the choices of a heuristic."""

    epochs: Count = Field(default=5, description="number of times that each choice is used")
    minibatch: Count = Field(default=256, description="choices per gradient step")


class ValidationSection(Section):
    """Validation: the best policy is selected on held-out jobs."""

    every: Count = Field(default=10, description="iterations from one validation to the next")


class RunConfig(Section):
    """Settings of a training run. They determine its results, bit for bit on a CPU."""

    RENAMED: ClassVar[Mapping[str, str]] = {"imitation": "behaviour_cloning"}

    seed: int = Field(default=0, ge=0, lt=1_000_000, description="seed of initial weights, jobs and choices")
    iterations: Count = Field(default=300, description="iterations, each with episodes and an update")
    start: str | None = Field(
        default=None,
        description="initial policy (warm start): a file, or the name of a shipped policy; excludes behaviour cloning",
    )
    behaviour_cloning: CloningSection | None = None
    validation: ValidationSection = ValidationSection()
    checkpoint_every: Count = Field(default=10, description="iterations from one checkpoint to the next")

    @model_validator(mode="after")
    def _check_start(self) -> RunConfig:
        if self.start is not None and self.behaviour_cloning is not None:
            raise ValueError("start: expected behaviour_cloning=null beside it")
        return self
