"""Learning curves: metrics of training runs over iterations, averaged over seeds, with confidence intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.metrics import mean_interval
from decima.learning.loop import CONFIG
from decima.learning.metrics import validation_metric
from decima.learning.metrics_file import read_metrics
from decima.settings import TrainingError, read_yaml

__all__ = [
    "LearningCurve", "TrainingRun", "curve_of", "find_runs", "objective_metric", "read_run",
    "reference_of", "same_but_seed", "setting_text",
]  # fmt: skip

METRICS_FILE = "metrics.jsonl"


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """Settings and metrics of a finished or running training run.

    Attributes:
        settings: all settings, dotted key -> value.
        rows: metrics of each iteration by name; metrics that were not measured are missing.
    """

    folder: Path
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Learning curve: a metric over the iterations of runs that differ only by seed.

    Attributes:
        iterations: int64 [N], iterations in which all runs measured the metric.
        mean: float64 [N], mean over the runs.
        half_width: float64 [N], half the 95 % confidence interval; NaN for a single run.
    """

    iterations: NDArray[np.int64]
    mean: NDArray[np.float64]
    half_width: NDArray[np.float64]
    runs: int


def find_runs(folder: Path) -> list[Path]:
    """Find folders of training runs: ``folder`` itself, or all such folders below it.

    Raises:
        TrainingError: there is no training run.
    """
    if (folder / METRICS_FILE).is_file():
        return [folder]
    folders = sorted(path.parent for path in folder.rglob(METRICS_FILE))
    if not folders:
        raise TrainingError(f"{folder}: no training run here or in folders below ({METRICS_FILE})")
    return folders


def read_run(folder: Path) -> TrainingRun:
    """Read the settings and metrics of a training run.

    Raises:
        TrainingError: a file is missing or malformed.
    """
    return TrainingRun(folder, dict(_flat(read_yaml(folder / CONFIG))), read_metrics(folder / METRICS_FILE))


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def objective_metric(run: TrainingRun) -> str:
    """Return the name of the validation metric by which a run selected its best policy."""
    settings = run.settings
    if "grid.objective" in settings:
        return f"validation_{settings['grid.objective']}"
    if any(name.startswith("settings.") for name in settings):
        return "validation_change_mean"
    return validation_metric(str(settings.get("cluster.reward", "jct")))


def reference_of(runs: Sequence[TrainingRun], metric: str) -> tuple[str, float] | None:
    """Return name and mean objective of the reference scheduler of runs that differ only by seed.

    Returns:
        None if the runs did not select their policy by this metric, or a run did not measure the reference.
    """
    references = [
        row["validation_reference"] for run in runs for row in run.rows[:1] if "validation_reference" in row
    ]
    if metric != objective_metric(runs[0]) or len(references) < len(runs):
        return None
    settings, name = runs[0].settings, "tuned weighted fair, the best alpha of each sequence"
    if "grid.objective" in settings:
        name = "the best heuristic"
    elif any(key.startswith("settings.") for key in settings):
        name = str(settings["validation.against"])
    return name, float(np.mean(references))


def same_but_seed(runs: Sequence[TrainingRun]) -> dict[str, list[TrainingRun]]:
    """Group runs that differ only by seed.

    The name of a group lists the settings in which groups differ; the name of a single group is its first folder.
    """
    groups: dict[str, list[TrainingRun]] = {}
    for run in runs:
        settings = {name: value for name, value in run.settings.items() if name != "seed"}
        groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run)
    firsts = [group[0].settings for group in groups.values()]
    names = [
        name
        for name in dict.fromkeys(name for settings in firsts for name in settings)
        if name != "seed" and len({json.dumps(settings.get(name), default=str) for settings in firsts}) > 1
    ]
    return {
        ", ".join(f"{name}={setting_text(group[0].settings.get(name))}" for name in names)
        or str(group[0].folder): group
        for group in groups.values()
    }


def setting_text(value: Any) -> str:
    """Format the value of a setting."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, default=str).strip('"')


def curve_of(runs: Sequence[TrainingRun], metric: str) -> LearningCurve:
    """Return the learning curve of runs that differ only by seed.

    Raises:
        TrainingError: there is no iteration in which all runs measured the metric.
    """
    measured = [{int(row["iteration"]): row[metric] for row in run.rows if metric in row} for run in runs]
    iterations = sorted(set.intersection(*map(set, measured)))
    if not iterations:
        names = ", ".join(sorted({name for run in runs for row in run.rows for name in row} - {"iteration"}))
        raise TrainingError(f"{runs[0].folder}: has no metric {metric}; it has {names or 'none'}")
    points = np.array([mean_interval([by_iteration[at] for by_iteration in measured]) for at in iterations])
    return LearningCurve(np.array(iterations), points[:, 0], points[:, 1], len(runs))
