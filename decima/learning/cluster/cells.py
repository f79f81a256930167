"""Validation of a training over a distribution of settings: each cell is a setting with sequences of its own."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from decima.evaluation.metrics import Interval, mean_interval
from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.randomised import by_cell, validation_settings
from decima.learning.metrics import Validation

__all__ = ["describe_cells", "references", "validate_cells"]


def references(config: TrainingConfig) -> list[str]:
    """Return the names of the heuristics in the validation; the last one is the reference scheduler."""
    return list(dict.fromkeys(("fair", config.validation.against)))


def validate_cells(
    config: TrainingConfig, objective_ms: NDArray[np.float64], reference: Mapping[str, Any]
) -> Validation:
    """Return the performance of a policy over the cells.

    Args:
        config: settings of the training.
        objective_ms: objective of the policy on each validation sequence, float64 [n], ms, cell after cell.
        reference: heuristic -> its objective on each sequence, ms.
    """
    changes = _changes(config, objective_ms, reference)
    mean = fmean(change.mean for change in changes)
    # With many cells of few sequences, some cell is worse by chance: only losses beyond the interval count.
    worst = max(0.0, *(float(change.mean - np.nan_to_num(change.half_width)) for change in changes))
    measured = {"validation_change_mean": mean, "validation_change_worst": worst}
    return Validation(mean, 0.0, -mean - worst, objective_ms.tolist(), measured)


def describe_cells(config: TrainingConfig, name: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the card's description of results by cell: ``set``, ``against`` and ``cells``.

    Args:
        config: settings of the training, with ``settings``.
        name: name of the policy in ``results``.
        results: scheduler -> its objective on each validation sequence, ms.
    """
    validation = config.validation
    assert config.settings is not None
    means_s = {scheduler: by_cell(values, validation.cells) / 1000 for scheduler, values in results.items()}
    changes = _changes(config, results[name], results)
    return {
        "set": f"{validation.cells} settings, {validation.sequences} sequences each; times are seconds",
        "against": f"{validation.against} on average over these settings, "
        "with the loss of the worst setting beyond its interval",
        "cells": [
            {
                "setting": str(setting),
                "results": {scheduler: float(mean_s[cell]) for scheduler, mean_s in means_s.items()},
                "change": changes[cell].mean,
            }
            for cell, setting in enumerate(validation_settings(config.settings, validation.cells))
        ],
    }


def _changes(config: TrainingConfig, objective_ms: ArrayLike, results: Mapping[str, Any]) -> list[Interval]:
    """Return the relative change of each cell against the reference scheduler, paired by sequence."""
    cells = config.validation.cells
    reference = np.reshape(results[references(config)[-1]], (cells, -1))
    relative = (np.reshape(objective_ms, (cells, -1)) - reference) / reference.mean(axis=1, keepdims=True)
    return [mean_interval(sequences) for sequences in relative]
