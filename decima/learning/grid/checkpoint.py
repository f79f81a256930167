"""Where a training run on grids stands, as a file to go on from; read without executing anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decima.evaluation.grid import MEASURES
from decima.learning.cluster.checkpoint import read_document, write_document
from decima.learning.grid.config import DeepRMConfig
from decima.settings import TrainingError, parse_settings

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

FORMAT, VERSION = "deeprm-checkpoint", 1


@dataclass
class Checkpoint:
    """Where a training run stands.

    Attributes:
        config: its settings.
        iteration: iterations that are over.
        networks: weights of actor and critic by name.
        optimisers: their states.
        best_actor: weights of the best actor so far.
        best_iteration: when it was found.
        best_measures: its means on the validation sets, by measure.
        best_improvement: over the best heuristic.
        curve: [iteration, what the objective asks for, improvement] of each validation.
        cpu_s: CPU time since the training began, s.
    """

    config: DeepRMConfig
    iteration: int
    networks: dict[str, Tensor]
    optimisers: dict[str, Any]
    best_actor: dict[str, Tensor]
    best_iteration: int
    best_measures: dict[str, float]
    best_improvement: float
    curve: list[list[float]]
    cpu_s: float


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, in one step."""
    write_document(path, FORMAT, VERSION, {**vars(checkpoint), "config": checkpoint.config.model_dump_json()})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        TrainingError: it is missing, cut off, no checkpoint of this kind, or of another version.
    """
    document = read_document(path, FORMAT, VERSION, set(Checkpoint.__dataclass_fields__))
    try:
        config = parse_settings(DeepRMConfig, json.loads(document.pop("config")), f"{path}: config")
        checkpoint = Checkpoint(config=config, **document)
        _check(checkpoint)
    except TrainingError:
        raise
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise TrainingError(f"{path}: does not fit its own settings: {reason:.200}") from None
    return checkpoint


def _check(checkpoint: Checkpoint) -> None:
    """Raise if anything but the shapes of weights is wrong: what those should be, the networks know."""
    weights = [*checkpoint.networks.values(), *checkpoint.best_actor.values()]
    if not all(torch.isfinite(weight).all() for weight in weights):
        raise ValueError("weights that are not finite")
    if min(checkpoint.iteration, checkpoint.best_iteration) < 0:
        raise ValueError("the iteration is negative")
    if checkpoint.best_measures.keys() != MEASURES.keys():
        raise ValueError(f"best_measures must be {', '.join(MEASURES)}")
    if np.shape(checkpoint.curve)[1:] != (3,):
        raise ValueError("curve must have three columns")
    fsum([*checkpoint.best_measures.values(), checkpoint.best_improvement, checkpoint.cpu_s])  # are numbers
