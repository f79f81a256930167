"""Training algorithms at equal CPU time: PPO against deep controlled learning (DCL).

In each setting, behaviour cloning of the rule ``priced-srpt`` makes one initial policy. Both algorithms train it with
several seeds, for about equal CPU time. The trained policies are compared on sequences of no training or validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
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
from decima.show.style import BLACK, GREY, LEGEND, ORANGE, draw_band, finish_axes, new_figure
from decima.show.tables import table_of
from decima.studies.compared import change, tidy
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study, Variant
from workloads.sources.open import EMBEDDED, open_workload

#: Settings that need no recordings -> section ``settings`` of the training configuration, without sources of jobs.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "batches, wrong estimates": {"job_error": 1.0},
    "streams, 85 % load": {"batches": 0.0, "load": 0.85, "stream_jobs": 60},
}
#: Setting with the jobs of recordings, and its number of executors.
RECORDINGS, RECORDED_EXECUTORS = "recordings", 10
#: Standard deviations of estimation errors that a workload file may contain.
ERRORS = ("job_error", "stage_error", "task_count_error")
CLONING = {
    "scheduler": RULE,
    "sequences": 40,
    "epochs": 8,
    "minibatch": 128,
    "learning_rate": 0.003,
    "entropy": 0.005,
}
#: Metric of the learning curves, in ``metrics.jsonl``.
METRIC = "validation_change_mean"
UPDATE = {"learning_rate": 0.0007, "final_learning_rate": 0.00007, "entropy_end": 0.0}
#: Algorithm -> arrivals -> training configuration; a stream has ten times as many decisions as a batch.
ALGORITHMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "ppo": {
        "batch": {"episodes": {"sequences": 4, "per_sequence": 4}, "validation": {"every": 3}},
        "stream": {"episodes": {"sequences": 2, "per_sequence": 4, "share": 0.3}, "validation": {"every": 1}},
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
#: Setting -> algorithm -> iterations at full size, chosen so that each takes about 100 s of CPU time.
ITERATIONS: Mapping[str, Mapping[str, int]] = {
    RECORDINGS: {"ppo": 60, "dcl": 20},
    "batches, wrong estimates": {"ppo": 28, "dcl": 10},
    "streams, 85 % load": {"ppo": 16, "dcl": 12},
}
COLOURS = {"ppo": BLACK, "dcl": ORANGE}


@dataclass(frozen=True, eq=False)
class Curve:
    """Learning curves of several seeds over CPU time.

    Attributes:
        cpu_s: float64 [N]; CPU time since the start of training, s, averaged over seeds.
        change: float64 [seeds, N]; change of the mean JCT against ``priced-srpt`` on validation sequences, a fraction.
    """

    cpu_s: NDArray[np.float64]
    change: NDArray[np.float64]


def settings_of(study: Study, recordings: Path | None) -> dict[str, dict[str, Any]]:
    """Return the section ``settings`` of the training configuration in each setting.

    Without ``recordings``, a workload file, their setting is left out. Raises ``WorkloadError`` if it cannot be read.
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
    """Return a training configuration; on streams rewards are discounted and executors may wait."""
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
    """Train with each algorithm and seed in each setting, and compare the best policies with ``priced-srpt``."""
    settings, seeds = settings_of(study, recordings), range(num_seeds)
    cloned = study.train({name: _cloned(study, name, each) for name, each in settings.items()})
    # Seeds in the outer loop: an interrupted study has complete seeds.
    variants = {
        (name, algorithm, seed): _variant(study, name, settings[name], algorithm, seed, cloned[name])
        for seed, name, algorithm in product(seeds, settings, ALGORITHMS)
    }
    policies = study.train(variants)
    num_experiments = study.num_experiments or study.scaled(20, least=2)
    compared = {}
    for name, each in settings.items():
        conditions = _config(study, each).conditions()
        conditions = replace(conditions, num_experiments=num_experiments, seed=study.seed)
        trained = {f"{one} {seed}": policies[name, one, seed] for one, seed in product(ALGORITHMS, seeds)}
        compared[name] = conditions, {"fair": "fair", RULE: RULE, "cloned": cloned[name]} | trained
    runs, curves, changes = tidy(study.compare(compared)), {}, {}
    for name, algorithm in product(settings, ALGORITHMS):
        folders = [study.policies / variants[name, algorithm, seed].name for seed in seeds]
        curves[name, algorithm] = curve_of_seeds(folders)
        changes[name, algorithm] = [change(runs, f"{algorithm} {seed}", RULE, name) for seed in seeds]
    return Outcome(
        "algorithms",
        runs,
        [_table(runs, settings, changes, curves)],
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
                {"setting": name, "algorithm": algorithm}
                | {key: values.tolist() for key, values in vars(curve).items()}
                for (name, algorithm), curve in curves.items()
            ],
        },
        pictures={"algorithms": partial(plot_algorithms, curves)},
    )


def _cloned(study: Study, name: str, settings: Mapping[str, Any]) -> Variant:
    """Return the training of the initial policy: behaviour cloning and one short iteration."""
    episodes = {"sequences": 1, "per_sequence": 2, "share": 0.2 if _is_stream(settings) else 1.0}
    config = _config(study, settings, iterations=1, behaviour_cloning=CLONING, episodes=episodes)
    return Variant(f"algorithms-{name.partition(',')[0]}-cloned", config)


def _variant(
    study: Study, name: str, settings: Mapping[str, Any], algorithm: str, seed: int, start: str
) -> Variant:
    """Return the training with an algorithm and seed that starts from the policy ``start``, a scheduler."""
    kinds = ALGORITHMS[algorithm]
    full = {**kinds["both"], **kinds["stream" if _is_stream(settings) else "batch"]}
    full |= {"iterations": study.scaled(ITERATIONS[name][algorithm]), "seed": seed}
    config = _config(study, settings, start=start.removeprefix(f"{LEARNED}:"), **full)
    return Variant(f"algorithms-{name.partition(',')[0]}-{algorithm}-{seed}", config)


def _is_stream(settings: Mapping[str, Any]) -> bool:
    return settings.get("batches") == 0


def curve_of_seeds(folders: Sequence[Path]) -> Curve:
    """Read the learning curves of training folders that differ only by seed.

    Raises:
        TrainingError: a folder has no metrics.
    """
    rows = [
        [row for row in read_run(each).rows if METRIC in row and row["iteration"] >= 0] for each in folders
    ]
    cpu_s, change = (np.array([[row[key] for row in each] for each in rows]) for key in ("cpu_s", METRIC))
    return Curve((cpu_s - cpu_s[:, :1]).mean(axis=0), change)


def _table(
    runs: pd.DataFrame,
    settings: Iterable[str],
    changes: Mapping[tuple[str, str], Sequence[Interval]],
    curves: Mapping[tuple[str, str], Curve],
) -> Table:
    seeds, rows = range(len(next(iter(changes.values())))), list[tuple[object, ...]]()
    for name in settings:
        for each in ("fair", "cloned"):
            rows.append((name, each, None, *[None] * len(seeds), change(runs, each, RULE, name)))
        for each in ALGORITHMS:
            by_seed, mean = changes[name, each], mean_interval([seed.mean for seed in changes[name, each]])
            rows.append((name, each, f"{curves[name, each].cpu_s[-1]:.0f}", *by_seed, mean))
    headings = ("Setting", "Policy", "CPU (s)", *(f"seed {seed}" for seed in seeds), "mean")
    return table_of(f"Mean JCT against {RULE}", headings, rows, "+.1%", names=2)


def plot_algorithms(curves: Mapping[tuple[str, str], Curve]) -> Figure:
    """Draw learning curves over CPU time, one panel per setting: median and range over seeds."""
    settings = list(dict.fromkeys(name for name, _ in curves))
    figure = new_figure(4.3 * len(settings), 4)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(settings))), settings, strict=True):
        for algorithm, colour in COLOURS.items():
            curve = curves[name, algorithm]
            middle, low, high = np.quantile(100 * curve.change, (0.5, 0, 1), axis=0)
            draw_band(axes, curve.cpu_s, middle, low, high, color=colour, marker=".", label=algorithm)
        axes.axhline(0, color=GREY, linewidth=0.8)
        finish_axes(
            axes, title=name, xlabel="CPU time (s)", ylabel=f"Mean JCT against {RULE} (%)", xlim=(0, None)
        )
    figure.axes[0].legend(**LEGEND)
    return figure
