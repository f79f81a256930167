"""The settings that all training runs have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from decima.settings import Count, Section

__all__ = ["CloningSection", "RunConfig", "ValidationSection"]


class CloningSection(Section):
    """Behaviour cloning: before reinforcement learning, the choices of a classic scheduler are learned."""

    epochs: Count = Field(default=5, description="how often each choice is used")
    minibatch: Count = Field(default=256, description="choices per gradient step")


class ValidationSection(Section):
    """How the best policy is found: on jobs that no training meets."""

    every: Count = Field(default=10, description="iterations from one validation to the next")


class RunConfig(Section):
    """A training run. Everything it does follows from these settings, bit for bit on a CPU."""

    RENAMED: ClassVar[Mapping[str, str]] = {"imitation": "behaviour_cloning"}

    seed: int = Field(
        default=0, ge=0, lt=1_000_000, description="of the first weights, the jobs and the choices"
    )
    iterations: Count = Field(default=300, description="rounds of episodes and update")
    start: str | None = Field(
        default=None,
        description="policy to begin with: a file, or the name of one that ships; without behaviour cloning",
    )
    behaviour_cloning: CloningSection | None = None
    validation: ValidationSection = ValidationSection()
    checkpoint_every: Count = Field(default=10, description="iterations from one checkpoint to the next")

    @model_validator(mode="after")
    def _check_start(self) -> RunConfig:
        if self.start is not None and self.behaviour_cloning is not None:
            raise ValueError("start: expected behaviour_cloning=null beside it")
        return self
