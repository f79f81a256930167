"""Resume a run: read and validate its checkpoint, without executing code, and check that it has the same settings."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decima.learning.card import policy_card
from decima.learning.checkpoint import FORMAT, VERSION, Best, Checkpoint, load_weights
from decima.learning.loop import CONFIG, TrainingLoop
from decima.settings import TrainingError
from workloads.reading import LARGEST, read_bytes

__all__ = ["check_same_run", "command_so_far", "load_checkpoint", "restore"]

#: Settings that may differ when a run is resumed.
MAY_CHANGE = ("iterations", "checkpoint_every")
#: Maximum number of values in a field that is neither tensors nor the learner's state.
MOST_VALUES = 1_000_000


def restore(training: TrainingLoop[Any], path: Path) -> Checkpoint:
    """Read the checkpoint of a run, and restore networks and optimisers from it.

    Returns:
        The checkpoint, with the settings of the resumed run.

    Raises:
        TrainingError: the checkpoint is damaged, or belongs to a run with other settings.
    """
    checkpoint = load_checkpoint(path)
    config = training.config.model_dump(mode="json")
    check_same_run(path, checkpoint.config, config, checkpoint.iteration)
    try:
        cloning = training.config.behaviour_cloning
        if -checkpoint.iteration > (0 if cloning is None else cloning.epochs):
            raise ValueError(f"{-checkpoint.iteration} epochs of behaviour cloning are left")
        with warnings.catch_warnings(action="ignore"):  # PyTorch warns about damaged tensors
            if checkpoint.best is not None:
                # These raise if weights or results do not fit.
                load_weights(training.kept, checkpoint.best.weights)
                policy_card(training.NAME, training.about_best(checkpoint, checkpoint.best))
            training.restore(checkpoint.learner)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise TrainingError(f"{path}: does not fit its own settings: {reason:.200}") from None
    return replace(checkpoint, config=config)


def command_so_far(training: TrainingLoop[Any]) -> str:
    """Return the command in the folder's ``config.yaml``, followed by this command if the settings differ."""
    try:
        text = read_bytes(training.out / CONFIG).decode()
    except (OSError, UnicodeDecodeError):
        return training.command
    first, _, settings = text.partition("\n")
    before = first.removeprefix("# ")
    if before == first or not before:
        return training.command
    return before if settings == training.config.to_yaml() else f"{before} && {training.command}"


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and validate all fields except ``learner``.

    Raises:
        TrainingError: the file is missing, truncated, not a checkpoint, or of another format version.
    """
    try:
        data = read_bytes(path, 2 * LARGEST)
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}, expected a checkpoint") from None
    try:
        # PyTorch decompresses what it has never compressed, and also reads older formats.
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("compressed")
        document = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception:  # PyTorch tries several formats, which raise errors of any type
        raise TrainingError(f"{path}: not a checkpoint, or truncated") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise TrainingError(f"{path}: not a checkpoint of a training run")
    if (version := document.pop("version", None)) != VERSION:
        raise TrainingError(f"{path}: format version {VERSION} expected, got {version!r}")
    best = document.get("best", {})
    for entries, kind in ((document, Checkpoint), *(() if best is None else ((best, Best),))):
        names = {field.name for field in fields(kind)}
        if not isinstance(entries, dict) or entries.keys() != names:
            wrong = sorted(names ^ (entries.keys() if isinstance(entries, dict) else set()), key=str)[0]
            raise TrainingError(f"{path}: {wrong} is missing or unknown")
    checkpoint = Checkpoint(**{**document, "best": None if best is None else Best(**best)})
    try:
        _check(checkpoint)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TrainingError(f"{path}: {error}") from None
    return checkpoint


def _check(checkpoint: Checkpoint) -> None:
    """Check the types of all fields except the contents of ``learner``; fields of the policy file must be JSON."""
    best = checkpoint.best
    all_results = {"reference": checkpoint.reference, **({} if best is None else {"results": best.results})}
    for name in ("config", "curve", "before"):
        _check_size(getattr(checkpoint, name), name)
        json.dumps(getattr(checkpoint, name), ensure_ascii=False).encode()
    for name, results in all_results.items():
        if not isinstance(results, dict):
            raise ValueError(f"{name} must be entries by name")
        _check_size(results, name)
        if not all(map(_are_numbers, results.values())):
            raise ValueError(f"{name} must be numbers of each scheduler, in lists or by name")
        measures = {
            tuple(sorted(values)) if isinstance(values, dict) else len(values) for values in results.values()
        }
        if len(measures) > 1 or not all(isinstance(scheduler, str) for scheduler in results):
            raise ValueError(f"{name} must be the same measures of each scheduler, by name")
    if best is not None and [*best.results][:-1] != [*checkpoint.reference]:
        raise ValueError("results must be those of the reference, followed by the policy's")
    for name, entries in (*vars(checkpoint).items(), *(() if best is None else vars(best).items())):
        if name in ("config", "learner", "reference", "weights", "results") and not isinstance(entries, dict):
            raise ValueError(f"{name} must be entries by name")
    if not isinstance(checkpoint.before, list):
        raise ValueError("before must be a list")
    if not isinstance(checkpoint.iteration, int) or (checkpoint.iteration < 0) != (best is None):
        raise ValueError("the iteration must be a number from 0, or below it and without a best policy")
    if best is not None and (not isinstance(best.iteration, int) or best.iteration < 0):
        raise ValueError("the iteration must be a number from 0")
    if checkpoint.curve != [] and np.shape(checkpoint.curve)[1:] != (3,):
        raise ValueError("curve must have three columns")
    improvement = 0.0 if best is None else best.improvement
    fsum([checkpoint.cpu_s, improvement, *np.ravel(checkpoint.curve)])  # are numbers
    if best is not None and best.iteration not in [row[0] for row in checkpoint.curve]:
        raise ValueError(f"curve must have a row of the best iteration, {best.iteration}")


def _are_numbers(values: Any) -> bool:
    """Return whether these are numbers in a list or by name, at least one."""
    entries = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    return bool(entries) and all(
        isinstance(entry, int | float) and not isinstance(entry, bool) for entry in entries
    )


def _check_size(document: object, name: str) -> None:
    """Refuse too many values. A value may be contained many times, so that a short file has a huge document."""
    containers, count = [document], 1
    while containers:
        value = containers.pop()
        inner: Collection[object] = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, list | tuple):
            inner = value
        count += len(inner)
        if count > MOST_VALUES:
            raise ValueError(f"{name}: more than {MOST_VALUES:,} values, or a value that contains itself")
        containers += inner


def check_same_run(path: Path, old: Mapping[str, Any], new: Mapping[str, Any], iteration: int) -> None:
    """Check that a run can be resumed with these settings.

    Args:
        path: path of the checkpoint, for error messages.
        old: settings in the checkpoint.
        new: settings of the resumed run.
        iteration: number of completed iterations in the checkpoint.

    Raises:
        TrainingError: settings other than ``MAY_CHANGE`` differ, or more iterations are complete than requested.
    """
    if difference := _difference(old, new):
        may_change = " and ".join(MAY_CHANGE)
        raise TrainingError(
            f"{path}: belongs to a run with another {difference}; only {may_change} may change"
        )
    if iteration > new["iterations"]:
        raise TrainingError(
            f"{path}: {iteration} iterations are complete, more than the {new['iterations']} requested"
        )


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> str:
    """Return the dotted key of the first setting that differs and must not; empty if there is none."""
    for name in {**new, **old}:
        key, one, other = f"{path}{name}", old.get(name), new.get(name)
        if one == other or key in MAY_CHANGE:
            continue
        return (
            _difference(one, other, f"{key}.") if isinstance(one, dict) and isinstance(other, dict) else key
        )
    return ""
