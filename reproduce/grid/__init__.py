"""Training and comparison of networks on the grid, and checks of claims, for figures of DeepRM and its successors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

import decima
from decima.evaluation import GridComparison
from decima.evaluation.grid import HEURISTIC_NAMES, TUNED, compare_by, load_name
from decima.learning import DeepRMConfig, TrainingResult, train_on_grid

__all__ = [
    "FORMATS", "HEURISTIC_NAMES", "TUNED", "claim", "compare", "compare_by", "load_name", "means", "train",
    "training_text",
]  # fmt: skip

#: Metric -> heading; formats of the metrics in tables.
HEADINGS = {"slowdown": "slowdown", "completion": "completion (steps)", "waiting": "waiting (steps)"}
FORMATS = dict.fromkeys(HEADINGS.values(), ".2f")


def train(folder: Path, recipe: str, settings: Sequence[str] = ()) -> TrainingResult[DeepRMConfig]:
    """Train a network in a folder, or continue the training in it. A complete training in it is not repeated.

    Args:
        recipe: training recipe: ``deeprm``, ``cnn`` or ``a2c``.
        settings: settings that differ from the recipe, such as ``jobs.load=0.7``; the last one of a name counts.

    Raises:
        TrainingError: the folder contains a training with other settings.
        KeyboardInterrupt: Ctrl-C; the next call continues the training.
    """
    begun = (folder / "config.yaml").exists()
    trained = train_on_grid(recipe, folder, overrides=settings, resume=begun)
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained


def training_text(trainings: Mapping[str, TrainingResult[DeepRMConfig]]) -> str:
    """Return iterations and minutes of CPU time of trainings, in words."""
    return "; ".join(
        f"{name} {trained.iteration} ({trained.cpu_s / 60:.1f})" for name, trained in trainings.items()
    )


def compare(
    config: DeepRMConfig,
    networks: Mapping[str, Path],
    heuristics: Sequence[str] = HEURISTIC_NAMES,
    *,
    sets: int,
    seed: int,
    name: str = "",
    **jobs: Any,
) -> pd.DataFrame:
    """Compare networks with heuristics on unseen job sets, on the grid and with the jobs of a training.

    Args:
        networks: displayed name -> policy file.
        sets: number of job sets.
        seed: seed of the job sets.
        name: value of the column ``condition``.
        jobs: settings of the jobs that differ from the training, such as ``load``.

    Returns:
        Tidy results, see ``GridComparison.runs``.
    """
    section = replace(config.jobs, **jobs)
    comparison = GridComparison(config.grid, {name: section}, heuristics, networks, sets=sets, seed=seed)
    comparison.run()
    return comparison.runs


def means(runs: pd.DataFrame, metrics: Sequence[str], by: Sequence[str] = ()) -> pd.DataFrame:
    """Return means over job sets with intervals, a row for each scheduler and value of ``by``; times in steps."""
    keys = [*by, "scheduler"]
    parts = [decima.summary_table(runs, metrics=[metric], by=by).set_index(keys) for metric in metrics]
    columns = {
        column: column.replace(name, HEADINGS[name]) for name in HEADINGS for column in (name, f"{name}_ci95")
    }
    return pd.concat(parts, axis=1).rename(columns=columns).reset_index()


def claim(
    paper: str,
    runs: pd.DataFrame,
    scheduler: str,
    other_schedulers: Iterable[str],
    metric: str = "slowdown",
    *,
    or_equal: bool = False,
) -> dict[str, str]:
    """Check a paper's claim that a scheduler has a lower mean of a metric than others, in each condition.

    With ``or_equal`` it also holds where the interval of the difference includes 0.

    Returns:
        A row of a table: ``paper`` (the claim), ``here`` (the changes), ``holds`` (yes or no).
    """
    texts, failed = [], []
    for other in other_schedulers:
        for condition, row in compare_by(runs, reference=other).items():
            change, half_width = row[scheduler][metric].change
            text = f"{change:+.1%} ± {half_width:.1%} against {other}"
            texts.append(f"{condition}: {text}" if condition else text)
            if not (change < 0 or (or_equal and change <= half_width)):
                failed.append(texts[-1])
    if len(texts) > 4:
        texts = [f"in {len(texts) - len(failed)} of {len(texts)} comparisons", *failed]
    return {"paper": paper, "here": f"{scheduler}: {'; '.join(texts)}", "holds": "no" if failed else "yes"}
