"""Checkpoints: the state of a training run in a file of tensors, numbers and text, which ``resume`` reads.

A checkpoint contains no state of random number generators: the random numbers of an iteration are a function of the
run's seed and the iteration.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from decima.outputs import atomic_path
from workloads.errors import PartError

__all__ = [
    "Best", "Checkpoint", "TrainingPart", "copy_state", "copy_weights", "load_weights", "save_checkpoint",
]  # fmt: skip

FORMAT, VERSION = "decima-checkpoint", 3


class TrainingPart:
    """Base class of replaceable parts of a training: returns, baseline, algorithm.

    The constructor of a custom part receives the setting ``options`` as keyword arguments.
    """

    def state(self) -> dict[str, Any]:
        """Return the state for checkpoints: tensors, numbers and text in lists and dicts; empty by default."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state that ``state`` returned.

        Raises:
            AttributeError, KeyError, RuntimeError, TypeError, ValueError: the state is damaged or of another part.
        """

    def wrong(self, key: str, expected: str) -> PartError:
        """Return the error for a custom part with an invalid result.

        Args:
            key: setting that names the part.
            expected: description of the expected result and of the actual result.
        """
        kind = type(self)
        return PartError(f"{key}: {f'{kind.__module__}:{kind.__name__}'!r} must return {expected}")


@dataclass(frozen=True, eq=False)
class Best:
    """The best policy so far, by validation.

    Attributes:
        iteration: iteration after which the policy was validated.
        improvement: relative reduction of the objective against the reference scheduler, as a fraction.
        results: results on the validation set by scheduler; those of the policy are last.
    """

    iteration: int
    improvement: float
    weights: dict[str, Tensor]
    results: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State of a training run.

    Attributes:
        config: settings, as JSON.
        iteration: number of completed iterations; below 0, minus the number of remaining epochs of behaviour cloning.
        learner: state of networks, optimisers and parts, see ``TrainingLoop.state``.
        reference: results of the heuristics on the validation set, by scheduler.
        best: best policy so far; None before iteration 0.
        curve: rows [iteration, objective, improvement], one for each validation.
        cpu_s: CPU time since the training began, s.
        before: trainings of the initial policy, see ``card.previous_trainings``.
    """

    config: dict[str, Any]
    iteration: int
    learner: dict[str, Any]
    reference: dict[str, Any]
    best: Best | None
    curve: list[list[float]]
    cpu_s: float
    before: list[dict[str, Any]]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically."""
    data = io.BytesIO()  # PyTorch's own writer does not report errors of the disk
    best = None if checkpoint.best is None else vars(checkpoint.best)
    torch.save({"format": FORMAT, "version": VERSION, **vars(checkpoint), "best": best}, data)
    with atomic_path(path) as partial:
        partial.write_bytes(data.getvalue())


def copy_weights(network: nn.Module) -> dict[str, Tensor]:
    """Copy a network's weights to the CPU, by name."""
    return {name: weight.detach().cpu().clone() for name, weight in network.state_dict().items()}


def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Set a network's weights by name.

    Raises:
        AttributeError, RuntimeError, TypeError: a weight has another shape or is not a tensor.
        ValueError: a weight is not finite.
    """
    network.load_state_dict(weights)
    if not all(torch.isfinite(weight).all() for weight in weights.values()):
        raise ValueError("weights that are not finite")


def copy_state(state: Any) -> Any:
    """Copy an optimiser's state to the CPU."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: copy_state(value) for key, value in state.items()}
    return copy.copy(state)
