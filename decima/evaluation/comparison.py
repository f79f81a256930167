"""Compare schedulers: run the experiments, gather what finished, state it with confidence intervals."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import decima
from decima.evaluation.experiments import (
    ALPHAS,
    HINDSIGHT,
    TUNED_ONCE,
    Experiment,
    ExperimentSettings,
    run_experiment,
    sweep_alphas,
)
from decima.evaluation.intervals import mean_and_half_width
from decima.evaluation.workers import Workers, available_cpus
from decima.registry import LEARNED, SCHEDULERS
from simulator import DECIMA_SIM, PAPER, EpisodeRecord

__all__ = ["Comparison", "compare"]


def compare(settings: ExperimentSettings, processes: int | None = None) -> Comparison:
    """Run a comparison to its end; see ``Comparison``.

    Example:
        >>> from decima.evaluation.comparison import compare
        >>> from decima.evaluation.experiments import ExperimentSettings
        >>> from workloads import Workload, synthetic_profiles
        >>> workload = Workload(synthetic_profiles(), None, "synthetic")
        >>> settings = ExperimentSettings(workload, schedulers=("fifo", "fair"), num_experiments=2)
        >>> list(compare(settings, processes=1).table().index)
        ['fifo', 'fair']
    """
    comparison = Comparison(settings)
    comparison.run(processes)
    return comparison


class Comparison:
    """Schedulers, and the experiments with them that have finished so far.

    Results depend on the settings alone, not on the number of processes. After an interruption (Ctrl-C) what
    finished is still there, and ``run`` goes on with the rest.

    Attributes:
        settings: what is compared, on what.
        experiments: the finished ones, in order of their seeds, without episodes.
        episodes: by scheduler, all of the finished experiment with the lowest seed that brought them; for
            pictures. Empty before an experiment has finished.
        alpha: what ``weighted-fair`` was tuned to, if it takes part; ``None`` before.
    """

    def __init__(self, settings: ExperimentSettings) -> None:
        self.settings = settings
        self.episodes: Mapping[str, EpisodeRecord] = {}
        self.alpha: float | None = None
        self._finished: dict[int, Experiment] = {}

    # ---- running ---------------------------------------------------------------------------------------

    @property
    def num_steps(self) -> int:
        """Pieces of work: training sequences and experiments."""
        return len(self.settings.training_seeds) + len(self.settings.seeds)

    def run(self, processes: int | None = None, on_step: Callable[[], None] = lambda: None) -> None:
        """Run the experiments that have not finished.

        Args:
            processes: how many work at once, at least 1; the number of CPUs if omitted.
            on_step: called in this process after each piece of work.

        Raises:
            CompareError: a scheduler failed.
            WorkerError: a worker process died.
        """
        todo = [seed for seed in self.settings.seeds if seed not in self._finished]
        processes = min(processes or available_cpus(), max(len(todo), len(self.settings.training_seeds), 1))
        with Workers(self.settings, processes) as workers:
            if self.settings.training_seeds and self.alpha is None:
                self.alpha = _tune(self.settings, workers, on_step)
            # Work begins in order, so whatever is interrupted, the first to finish is among the first.
            pictured = frozenset(todo[:processes])
            for experiment in workers.map(partial(_experiment, self.alpha, pictured), todo):
                self._add(experiment)
                on_step()

    def _add(self, experiment: Experiment) -> None:
        if experiment.records is not None and experiment.seed <= min(self._finished, default=experiment.seed):
            self.episodes = experiment.records
        self._finished[experiment.seed] = Experiment(experiment.seed, experiment.runs)

    # ---- results ---------------------------------------------------------------------------------------

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """The finished experiments, in order of their seeds."""
        return tuple(self._finished[seed] for seed in sorted(self._finished))

    @property
    def complete(self) -> bool:
        """Whether all experiments have finished."""
        return len(self._finished) == len(self.settings.seeds)

    def per_seed_avg_jct_s(self, scheduler: str) -> NDArray[np.float64]:
        """Average JCT in each finished experiment, float64 [num_experiments], seconds."""
        return np.array([experiment.runs[scheduler].jct_ms.mean() / 1000 for experiment in self.experiments])

    @property
    def best_classic(self) -> str | None:
        """The classic scheduler with the lowest average JCT over the finished experiments.

        Classic are the schedulers that come with the project, ``weighted-fair:ALPHA`` included; not the
        user's own or ``decima``, and not ``tuned-weighted-fair``, which has hindsight. ``None`` if none took part.
        """
        classic = [name for name in self.settings.schedulers if name.split(":")[0] in SCHEDULERS]
        classic = [name for name in classic if name != HINDSIGHT]
        if not classic or not self._finished:
            return None
        return min(classic, key=lambda name: float(self.per_seed_avg_jct_s(name).mean()))

    def summary(self, scheduler: str) -> dict[str, float]:
        """One scheduler in numbers; means over the finished experiments.

        ``avg_jct_s`` and half its 95 % confidence interval ``avg_jct_ci95_s`` (Student's t over the
        experiments); ``p95_jct_s``, the 95th percentile of the JCTs inside each experiment; ``makespan_s``;
        ``utilisation``; ``difference_s``, the average JCT minus that of ``best_classic``, paired by
        experiment, with its own ``difference_ci95_s``. The best is chosen on these same experiments, so that
        interval is a little optimistic. NaN where a figure is not defined (an interval of one experiment).
        """
        runs = [experiment.runs[scheduler] for experiment in self.experiments]
        averages, best = self.per_seed_avg_jct_s(scheduler), self.best_classic
        mean, half_width = mean_and_half_width(averages)
        differences = averages - self.per_seed_avg_jct_s(best) if best else np.zeros(0)
        difference, difference_half_width = mean_and_half_width(differences)
        return {
            "avg_jct_s": mean,
            "avg_jct_ci95_s": half_width,
            "p95_jct_s": _mean([float(np.percentile(run.jct_ms, 95)) / 1000 for run in runs]),
            "makespan_s": _mean([run.makespan_ms / 1000 for run in runs]),
            "utilisation": _mean([run.utilisation for run in runs]),
            "difference_s": difference,
            "difference_ci95_s": difference_half_width,
        }

    def table(self) -> pd.DataFrame:
        """The summaries: one row per scheduler, in the order of the settings, float64 columns."""
        rows = {name: self.summary(name) for name in self.settings.schedulers}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("scheduler")

    def to_json(self, **extra: Any) -> str:
        """The results as JSON, seconds; the same settings give the same text, bit for bit.

        Args:
            extra: further top-level entries, such as the command that was run.
        """
        schedulers = {name: self._entry(name) for name in self.settings.schedulers}
        return json.dumps({**self._about(), **extra, "schedulers": schedulers}, indent=2) + "\n"

    def _about(self) -> dict[str, Any]:
        settings, sampled = self.settings, self.settings.workload.sequence is None
        return {
            "workload": settings.workload.name,
            "executors": settings.cluster.num_executors,
            "arrivals": settings.arrivals if sampled else "exact",
            "interval_s": settings.interval_ms / 1000 if sampled and settings.arrivals == "poisson" else None,
            "jobs": len(settings.sequence(settings.seed)),
            "moving_delay_s": settings.cluster.moving_delay_ms / 1000,
            "semantics": _semantics(settings),
            "seeds": [experiment.seed for experiment in self.experiments],
            "training_seeds": list(settings.training_seeds),
            "complete": self.complete,
            "best_classic": self.best_classic,
            "versions": {
                "decima": decima.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }

    def _entry(self, scheduler: str) -> dict[str, Any]:
        """What the JSON says of one scheduler; what is not defined is null there."""
        summary = self.summary(scheduler).items()
        entry: dict[str, Any] = {name: None if math.isnan(value) else value for name, value in summary}
        entry["per_seed_avg_jct_s"] = self.per_seed_avg_jct_s(scheduler).tolist()
        if scheduler == LEARNED:
            entry["policy"] = self.settings.learned_policy
        if scheduler == TUNED_ONCE:
            entry["alpha"] = self.alpha
        if scheduler == HINDSIGHT:
            entry["per_seed_alpha"] = [experiment.runs[scheduler].alpha for experiment in self.experiments]
        return entry


def _tune(settings: ExperimentSettings, workers: Workers, on_step: Callable[[], None]) -> float:
    """The alpha with the lowest average JCT over the training sequences; the lowest alpha on a tie."""
    sweeps = {}
    for seed, sweep in workers.map(_sweep, settings.training_seeds):
        sweeps[seed] = sweep
        on_step()
    # Summed in the order of the seeds, not of their finishing: rounding must not depend on the processes.
    return ALPHAS[int(np.argmin(np.mean([sweeps[seed] for seed in settings.training_seeds], axis=0)))]


def _sweep(settings: ExperimentSettings, seed: int) -> tuple[int, NDArray[np.float64]]:
    return seed, sweep_alphas(settings, seed)


def _experiment(
    alpha: float | None, pictured: frozenset[int], settings: ExperimentSettings, seed: int
) -> Experiment:
    return run_experiment(settings, seed, alpha, keep_records=seed in pictured)


def _semantics(settings: ExperimentSettings) -> str | dict[str, bool]:
    semantics = settings.cluster.semantics
    if semantics in (PAPER, DECIMA_SIM):
        return "paper" if semantics == PAPER else "decima-sim"
    return asdict(semantics)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan
