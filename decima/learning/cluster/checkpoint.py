"""Where a training run stands, as a file to go on from.

There are no states of random number generators in it: whatever is drawn in an iteration is drawn from the
run's seed and the iteration's number. The file holds tensors, numbers and texts only and is read without
executing anything.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decima.evaluation.alphas import ALPHAS
from decima.learning.cluster.config import TrainingConfig, TrainingError, parse_config
from decima.learning.cluster.critic import NUM_SUMS
from decima.outputs import atomic_path
from decima.policy.policy import Policy

__all__ = ["Checkpoint", "load_checkpoint", "read_document", "save_checkpoint", "write_document"]

FORMAT, VERSION = "decima-checkpoint", 1


@dataclass
class Checkpoint:
    """Where a training run stands.

    Attributes:
        config: its settings.
        iteration: iterations that are over.
        policy: weights by name.
        average: the same, averaged over the last iterations.
        optimiser: state of Adam.
        reference: float64 [validation sequences, 42], ms; see ``validation.reference_row``.
        best_policy: weights of the best policy so far.
        best_iteration: when it was found.
        best_outcome: float64 [2, validation sequences]; its mean JCT and makespan, ms.
        best_improvement: over the tuned weighted fair.
        window: float64 [n, 2]; rewards and durations (ms) that differential returns average.
        critic: float64 [7, 8]; ``LinearCritic.moments``, zeros where there is none.
        curve: [iteration, validation JCT or makespan in s, improvement] of each validation.
        cpu_s: CPU time since the training began, over all processes, s.
    """

    config: TrainingConfig
    iteration: int
    policy: dict[str, Tensor]
    average: dict[str, Tensor]
    optimiser: dict[str, Any]
    reference: Tensor
    best_policy: dict[str, Tensor]
    best_iteration: int
    best_outcome: Tensor
    best_improvement: float
    window: Tensor
    critic: Tensor
    curve: list[list[float]] = field(default_factory=list)
    cpu_s: float = 0.0


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, in one step."""
    write_document(path, FORMAT, VERSION, {**vars(checkpoint), "config": checkpoint.config.model_dump_json()})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        TrainingError: it is missing, cut off, no checkpoint, of another version, or does not fit its own settings.
    """
    document = read_document(path, FORMAT, VERSION, set(Checkpoint.__dataclass_fields__))
    try:
        document["config"] = parse_config(json.loads(document["config"]), f"{path}: config")
        checkpoint = Checkpoint(**document)
        _check(checkpoint)
    except TrainingError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise TrainingError(f"{path}: does not fit its own settings: {reason:.200}") from None
    return checkpoint


def write_document(path: Path, kind: str, version: int, document: Mapping[str, Any]) -> None:
    """Write tensors, numbers and texts by name, in one step."""
    with atomic_path(path) as partial:
        torch.save({"format": kind, "version": version, **document}, partial)


def read_document(path: Path, kind: str, version: int, expected: set[str]) -> dict[str, Any]:
    """Read what ``write_document`` wrote, without executing anything.

    Args:
        path: where.
        kind: what it must be.
        version: of its format.
        expected: the names.

    Raises:
        TrainingError: it is missing, cut off, something else, of another version, or other names are in it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}, expected a checkpoint") from None
    try:
        document = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception:  # whatever the many formats that PyTorch tries may raise
        raise TrainingError(f"{path}: not a checkpoint, or cut off") from None
    if not isinstance(document, dict) or document.pop("format", None) != kind:
        raise TrainingError(f"{path}: not a checkpoint of a training run")
    if (found := document.pop("version", None)) != version:
        raise TrainingError(f"{path}: format version {version} expected, got {found!r}")
    if document.keys() != expected:
        raise TrainingError(f"{path}: {sorted(document.keys() ^ expected)[0]} is missing or unknown")
    return document


def _check(checkpoint: Checkpoint) -> None:
    """Raise if anything has another shape than the settings ask for, or is not finite."""
    policy = Policy(checkpoint.config.policy.build())
    for weights in (checkpoint.best_policy, checkpoint.average, checkpoint.policy):
        policy.load_state_dict(weights)
        if not all(torch.isfinite(weight).all() for weight in weights.values()):
            raise ValueError("weights that are not finite")
    optimiser = torch.optim.Adam(policy.parameters())
    optimiser.load_state_dict(checkpoint.optimiser)
    for parameter, state in optimiser.state.items():
        for name in ("exp_avg", "exp_avg_sq"):
            if state[name].shape != parameter.shape:
                raise ValueError("the optimiser's state has another shape than the weights")
    sequences = checkpoint.config.validation.sequences
    shapes = {
        "reference": (sequences, 1 + len(ALPHAS)),
        "best_outcome": (2, sequences),
        "critic": (NUM_SUMS, NUM_SUMS + 1),
    }
    for name, shape in shapes.items():
        if getattr(checkpoint, name).shape != shape:
            raise ValueError(f"{name} must have shape {shape}")
    if checkpoint.window.ndim != 2 or checkpoint.window.shape[1] != 2:
        raise ValueError("window must have two columns")
    if checkpoint.iteration < 0:
        raise ValueError("the iteration is negative")
