"""Where a training run stands, as a file to go on from: tensors, numbers and texts, read without executing anything.

There are no states of random number generators in it: whatever is drawn in an iteration is drawn from the run's seed
and the iteration's number.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, fields
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decima.outputs import atomic_path
from decima.settings import TrainingError
from workloads.reading import read_bytes

__all__ = ["Best", "Checkpoint", "load_checkpoint", "save_checkpoint"]

FORMAT, VERSION = "decima-checkpoint", 3


@dataclass(frozen=True, eq=False)
class Best:
    """The best policy so far.

    Attributes:
        iteration: when it was found.
        improvement: over whom it is compared with.
        weights: by name.
        results: on the validation set, by scheduler; the policy itself is the last.
    """

    iteration: int
    improvement: float
    weights: dict[str, Tensor]
    results: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a training run stands.

    Attributes:
        config: its settings, as JSON has them.
        iteration: completed iterations; below 0, minus the epochs of behaviour cloning that are left.
        learner: what it learned, see ``Learner.state``.
        reference: results of the heuristics on the validation set.
        best: the best policy so far; None before iteration 0.
        curve: [iteration, what is to be small, improvement] of each validation.
        cpu_s: CPU time since the training began, s.
        before: the trainings that made the policy it began with, see ``card.trainings_told``.
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
    """Write a checkpoint, in one step."""
    data = io.BytesIO()  # PyTorch's own writer does not say what is wrong with a disk
    best = None if checkpoint.best is None else vars(checkpoint.best)
    torch.save({"format": FORMAT, "version": VERSION, **vars(checkpoint), "best": best}, data)
    with atomic_path(path) as partial:
        partial.write_bytes(data.getvalue())


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        TrainingError: it is missing, cut off, no checkpoint, or of another version. What its learner has is not looked
            at.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}, expected a checkpoint") from None
    try:
        document = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception:  # whatever the many formats that PyTorch tries may raise
        raise TrainingError(f"{path}: not a checkpoint, or cut off") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise TrainingError(f"{path}: not a checkpoint of a training run")
    if (found := document.pop("version", None)) != VERSION:
        raise TrainingError(f"{path}: format version {VERSION} expected, got {found!r}")
    best = document.get("best", {})
    for entries, kind in ((document, Checkpoint), *(() if best is None else ((best, Best),))):
        names = {field.name for field in fields(kind)}
        if not isinstance(entries, dict) or entries.keys() != names:
            wrong = sorted(names ^ (entries.keys() if isinstance(entries, dict) else set()), key=str)[0]
            raise TrainingError(f"{path}: {wrong} is missing or unknown")
    checkpoint = Checkpoint(**{**document, "best": None if best is None else Best(**best)})
    try:
        _check_plain(document)
        _check(checkpoint)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TrainingError(f"{path}: {error}") from None
    return checkpoint


def _check_plain(document: dict[str, Any]) -> None:
    """Raise if what goes into the policy file and its card is not what JSON can hold, or a result is no number."""
    best = document["best"]
    found = {"reference": document["reference"], **({} if best is None else {"results": best["results"]})}
    for name in ("config", "curve", "before"):
        json.dumps(document[name], ensure_ascii=False).encode()
    for name, results in found.items():
        if not isinstance(results, dict):
            raise ValueError(f"{name} must be entries by name")
        measures = {tuple(sorted(values)) if isinstance(values, dict) else () for values in results.values()}
        if len(measures) > 1 or not all(isinstance(scheduler, str) for scheduler in results):
            raise ValueError(f"{name} must be the same measures of each scheduler, by name")
        if not all(map(_are_numbers, results.values())):
            raise ValueError(f"{name} must be numbers of each scheduler, in lists or by name")


def _are_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_are_numbers, value))
    if isinstance(value, dict):
        return all(not isinstance(each, list | dict) and _are_numbers(each) for each in value.values())
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(checkpoint: Checkpoint) -> None:
    """Raise if anything but what only the learner knows is wrong."""
    best = checkpoint.best
    for name, entries in (*vars(checkpoint).items(), *(() if best is None else vars(best).items())):
        if name in ("config", "learner", "reference", "weights", "results") and not isinstance(entries, dict):
            raise ValueError(f"{name} must be entries by name")
    if not isinstance(checkpoint.before, list):
        raise ValueError("before must be a list")
    if not isinstance(checkpoint.iteration, int) or (checkpoint.iteration < 0) != (best is None):
        raise ValueError("the iteration must be a number from 0, or below it and without a best policy")
    if best is not None and (not isinstance(best.iteration, int) or best.iteration < 0):
        raise ValueError("the iteration must be a number from 0")
    if best is not None and np.shape(checkpoint.curve)[1:] != (3,):
        raise ValueError("curve must have three columns")
    improvement = 0.0 if best is None else best.improvement
    fsum([checkpoint.cpu_s, improvement, *np.ravel(checkpoint.curve)])  # are numbers
