"""Algorithms of training at equal CPU time: PPO against deep controlled learning (DCL).

In each setting, a policy is cloned from the rule ``priced-srpt`` once. Both algorithms train it further, each with
several seeds, for about as much CPU time. Policies are compared on sequences that no training or validation contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from decima.evaluation.metrics import Interval, mean_interval
from decima.learning.cluster.config import TrainingConfig
from decima.learning.curves import read_run
from decima.registry import LEARNED
from decima.show.style import BLACK, GREY, LEGEND, ORANGE, finish_axes, new_figure
from decima.show.tables import interval_text, new_table
from decima.studies.compared import change, tidy
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study, Variant
from workloads.sources.open import EMBEDDED, open_workload

__all__ = ["Curve", "algorithms", "curve_of_seeds", "plot_algorithms", "settings_of"]

#: Settings without recordings: section ``settings`` of the trainings, beside the source of the jobs.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "batches, wrong estimates": {"job_error": 1.0},
    "streams, 85 % load": {"batches": 0.0, "load": 0.85, "stream_jobs": 60},
}
RECORDINGS = "recordings"
#: Executors of the setting of the recordings.
RECORDED_EXECUTORS = 10
#: Errors of estimates that a workload file may contain.
ERRORS = ("job_error", "stage_error", "task_count_error")
CLONING = {
    "scheduler": RULE,
    "sequences": 40,
    "epochs": 8,
    "minibatch": 128,
    "learning_rate": 0.003,
    "entropy": 0.005,
}
#: Metric of the learning curves.
METRIC = "validation_change_mean"
UPDATE = {"learning_rate": 0.0007, "final_learning_rate": 0.00007, "entropy_end": 0.0}
#: Settings of each algorithm by kind of arrivals; streams have ten times as many decisions.
ALGORITHMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "ppo": {
        "batch": {"episodes": {"sequences": 4, "per_sequence": 4}, "validation": {"every": 3}},
        "stream": {
            "episodes": {"sequences": 2, "per_sequence": 4, "share": 0.3},
            "validation": {"every": 1},
        },
        "both": {
            "critic": {"gae_horizon": 60},
            "update": UPDATE
            | {"entropy_start": 0.002, "normalise": "sequence", "max_kl": 0.03, "ema_decay": 0.8},
        },
    },
    "dcl": {
        "batch": {"episodes": {"sequences": 6, "per_sequence": 1, "share": 0.02}},
        "stream": {"episodes": {"sequences": 6, "per_sequence": 1, "share": 0.003}},
        "both": {
            "validation": {"every": 1},
            "update": UPDATE
            | {"algorithm": "dcl", "entropy_start": 0.0, "epochs": 4, "minibatches": 4, "ema_decay": 0.3},
            "dcl": {"futures": 8, "horizon": 30, "decisions": 2, "jobs": 2, "hold": 30, "rollout": RULE},
        },
    },
}
#: Iterations at full size, which take about 100 s of CPU time.
ITERATIONS: Mapping[str, Mapping[str, int]] = {
    RECORDINGS: {"ppo": 60, "dcl": 20},
    "batches, wrong estimates": {"ppo": 28, "dcl": 10},
    "streams, 85 % load": {"ppo": 16, "dcl": 12},
}
COLOURS = {"ppo": BLACK, "dcl": ORANGE}


@dataclass(frozen=True, eq=False)
class Curve:
    """Learning curve of several seeds by CPU time.

    Attributes:
        cpu_s: float64 [N]; mean CPU time since the beginning of the algorithm, s.
        change: float64 [seeds, N]; change of the mean JCT against the rule on validation sequences, as a fraction.
    """

    cpu_s: NDArray[np.float64]
    change: NDArray[np.float64]


def settings_of(study: Study, recordings: Path | None) -> dict[str, dict[str, Any]]:
    """Return the section ``settings`` of the trainings of each setting.

    Raises:
        WorkloadError: the recordings cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
    if recordings is not None:
        workload = open_workload(str(recordings))
        known = workload.imperfections.settings()
        delay_ms = workload.measured_moving_delay_ms
        found[RECORDINGS] = {
            "sources": [str(recordings)],
            "executors": RECORDED_EXECUTORS,
            **({} if delay_ms is None else {"moving_delay": delay_ms / 1000}),
            **{name: known[name] for name in ERRORS if name in known},
        }
    source = next(iter(study.source.values()), EMBEDDED)
    for name, setting in SETTINGS.items():
        jobs = {} if study.num_jobs is None else {"batch_jobs": study.num_jobs, "stream_jobs": study.num_jobs}
        found[name] = {"sources": [source], "executors": study.executors, **setting, **jobs}
    return found


def _config(study: Study, settings: Mapping[str, Any], **others: Any) -> TrainingConfig:
    """Return a training in a setting; streams let executors wait, and discount rewards."""
    is_stream = _is_stream(settings)
    return TrainingConfig.model_validate(
        {
            "policy": {"preset": "profiled", "overrides": {} if is_stream else {"wait": False}},
            "settings": dict(settings),
            "returns": {"kind": "discounted", "horizon": 400} if is_stream else {"kind": "total"},
            **others,
            "validation": {"cells": 1, "sequences": study.scaled(60, least=2), "against": RULE}
            | others.get("validation", {}),
        }
    )


def algorithms(study: Study, recordings: Path | None, num_seeds: int) -> Outcome:
    """Train with each algorithm and seed in each setting, and compare the kept policies with the rule."""
    settings = settings_of(study, recordings)
    first = study.train(
        *(
            Variant(
                f"algorithms-{_folder(name)}-cloned",
                _config(
                    study,
                    each,
                    iterations=1,
                    behaviour_cloning=CLONING,
                    episodes={"sequences": 1, "per_sequence": 2, "share": 0.2 if _is_stream(each) else 1.0},
                ),
            )
            for name, each in settings.items()
        )
    )
    starts = dict(zip(settings, first.values(), strict=True))
    # All settings and algorithms with one seed, then the next seed: an interrupted study has complete seeds.
    variants = {
        (name, algorithm, seed): _variant(study, name, settings[name], algorithm, seed, starts[name])
        for seed in range(num_seeds)
        for name in settings
        for algorithm in ALGORITHMS
    }
    policies = study.train(*variants.values())
    comparisons = study.compare(
        {
            name: (
                replace(
                    _config(study, each).conditions(),
                    num_experiments=study.num_experiments or study.scaled(20, least=2),
                    seed=study.seed,
                ),
                {"fair": "fair", RULE: RULE, "cloned": starts[name]}
                | {
                    f"{algorithm} {seed}": policies[variants[name, algorithm, seed].name]
                    for algorithm in ALGORITHMS
                    for seed in range(num_seeds)
                },
            )
            for name, each in settings.items()
        }
    )
    runs = tidy(comparisons)
    curves = {
        (name, algorithm): curve_of_seeds(
            [study.policies / variants[name, algorithm, seed].name for seed in range(num_seeds)]
        )
        for name in settings
        for algorithm in ALGORITHMS
    }
    changes = {
        (name, algorithm): [change(runs, f"{algorithm} {seed}", RULE, name) for seed in range(num_seeds)]
        for name in settings
        for algorithm in ALGORITHMS
    }
    return Outcome(
        "algorithms",
        runs,
        [_table(runs, list(settings), changes, curves)],
        [
            f"Change of the mean JCT against {RULE} on other sequences, paired; ± is half a 95 % confidence interval "
            "(Student's t): of a policy over sequences, of the mean over the training seeds.",
            f"All begin with the policy that was cloned from {RULE}; its CPU time is not counted.",
            "Of each training, the policy is kept that is best on the validation sequences.",
        ],
        extra={
            "changes": [
                {"setting": name, "algorithm": algorithm, "seeds": each}
                for (name, algorithm), each in changes.items()
            ],
            "curves": [
                {
                    "setting": name,
                    "algorithm": algorithm,
                    "cpu_s": curve.cpu_s.tolist(),
                    "change": curve.change.tolist(),
                }
                for (name, algorithm), curve in curves.items()
            ],
        },
        pictures={"algorithms": partial(plot_algorithms, curves)},
    )


def _variant(
    study: Study, name: str, settings: Mapping[str, Any], algorithm: str, seed: int, start: str
) -> Variant:
    kinds = ALGORITHMS[algorithm]
    full = {**kinds["both"], **kinds["stream" if _is_stream(settings) else "batch"]}
    config = _config(
        study,
        settings,
        seed=seed,
        iterations=study.scaled(ITERATIONS[name][algorithm]),
        start=start.removeprefix(f"{LEARNED}:"),
        **full,
    )
    return Variant(f"algorithms-{_folder(name)}-{algorithm}-{seed}", config)


def _is_stream(settings: Mapping[str, Any]) -> bool:
    return settings.get("batches") == 0


def _folder(setting: str) -> str:
    return setting.partition(",")[0]


def curve_of_seeds(folders: Sequence[Path]) -> Curve:
    """Return the learning curve of trainings that differ only by seed.

    Raises:
        TrainingError: a folder has no metrics.
    """
    rows = [
        [row for row in read_run(folder).rows if METRIC in row and row["iteration"] >= 0]
        for folder in folders
    ]
    cpu_s = np.array([[row["cpu_s"] for row in each] for each in rows])
    return Curve(
        (cpu_s - cpu_s[:, :1]).mean(axis=0), np.array([[row[METRIC] for row in each] for each in rows])
    )


def _table(
    runs: pd.DataFrame,
    settings: Sequence[str],
    changes: Mapping[tuple[str, str], Sequence[Interval]],
    curves: Mapping[tuple[str, str], Curve],
) -> Table:
    seeds = range(len(next(iter(changes.values()))))
    names = ("Setting", "Policy", "CPU (s)", *(f"seed {seed}" for seed in seeds), "mean")
    table = new_table(f"Mean JCT against {RULE}", *names, names=2)
    for name in settings:
        for place, scheduler in enumerate(("fair", "cloned")):
            text = interval_text(change(runs, scheduler, RULE, name), "+.1%")
            table.add_row(name * (not place), scheduler, *[""] * (1 + len(seeds)), text)
        for algorithm in ALGORITHMS:
            each, cpu_s = changes[name, algorithm], curves[name, algorithm].cpu_s[-1]
            mean = mean_interval([seed.mean for seed in each])
            table.add_row(
                "",
                algorithm,
                f"{cpu_s:.0f}",
                *(interval_text(seed, "+.1%") for seed in each),
                interval_text(mean, "+.1%"),
                end_section=algorithm == list(ALGORITHMS)[-1],
            )
    return table


def plot_algorithms(curves: Mapping[tuple[str, str], Curve]) -> Figure:
    """Draw the validation by CPU time, a panel for each setting: median and range of the seeds."""
    settings = list(dict.fromkeys(name for name, _ in curves))
    figure = new_figure(4.3 * len(settings), 4)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(settings))), settings, strict=True):
        for algorithm, colour in COLOURS.items():
            curve = curves[name, algorithm]
            percent = 100 * curve.change
            axes.plot(curve.cpu_s, np.median(percent, axis=0), color=colour, marker=".", label=algorithm)
            axes.fill_between(
                curve.cpu_s, percent.min(axis=0), percent.max(axis=0), color=colour, alpha=0.15, linewidth=0
            )
        axes.axhline(0, color=GREY, linewidth=0.8)
        finish_axes(
            axes, title=name, xlabel="CPU time (s)", ylabel=f"Mean JCT against {RULE} (%)", xlim=(0, None)
        )
    figure.axes[0].legend(**LEGEND)
    return figure
