"""Schedulers, learned ones among them, on the same job sequences under several conditions.

Schedulers go by what ``decima.schedulers.make_scheduler`` understands, such as ``decima:FILE`` for a learned policy,
or ``tuned-weighted-fair`` with hindsight. Every one of them meets the same jobs and the same task noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from decima.evaluation.experiments import ALPHAS, HINDSIGHT, CompareError, ExperimentSettings
from decima.evaluation.workers import Workers
from decima.registry import make_scheduler
from simulator import ClusterConfig, EpisodeRecord, SchedulingError, run_episode
from workloads import JobSequence

__all__ = ["MAKESPAN_HINDSIGHT", "POLICY", "Condition", "Evaluation", "evaluate"]

#: Begins the name of a scheduler that is a policy file.
POLICY = "decima:"
#: As ``tuned-weighted-fair``, but with the alpha that has the shortest makespan.
MAKESPAN_HINDSIGHT = f"{HINDSIGHT}:makespan"


@dataclass(frozen=True, eq=False)
class Condition:
    """A cluster, its jobs, and who schedules them.

    Attributes:
        name: for people; empty where there is only one.
        settings: cluster, jobs and seeds; the schedulers that it names are not used.
        schedulers: name for people -> scheduler, as the module describes.
        alphas: what the schedulers with hindsight choose from.
        keep: whether the episodes of the first seed are kept.
    """

    name: str
    settings: ExperimentSettings
    schedulers: Mapping[str, str]
    alphas: tuple[float, ...] = ALPHAS
    keep: bool = False


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came out.

    Attributes:
        conditions: what was asked for.
        runs: one row per condition, scheduler and seed, in that order: columns condition, scheduler (str), seed
            (int64), and float64 mean_jct_s, p95_jct_s, makespan_s, utilisation, load (executor time spent on tasks,
            as a share of that of all executors until the last arrival; NaN in a batch), alpha (NaN if there is none).
        records: (condition, scheduler) -> episode of the first seed, where they are kept.
    """

    conditions: tuple[Condition, ...]
    runs: pd.DataFrame
    records: Mapping[tuple[str, str], EpisodeRecord]

    def of(self, condition: str, scheduler: str) -> pd.DataFrame:
        """The rows of a scheduler, indexed by seed."""
        runs = self.runs
        return runs[(runs["condition"] == condition) & (runs["scheduler"] == scheduler)].set_index("seed")

    def mean(self, condition: str, scheduler: str, column: str = "mean_jct_s") -> float:
        """Mean of a column over the seeds."""
        return float(self.of(condition, scheduler)[column].mean())


def evaluate(
    conditions: Sequence[Condition], processes: int = 1, on_step: Callable[[int, int], None] | None = None
) -> Evaluation:
    """Run everything; the result does not depend on the number of processes.

    Args:
        conditions: with different names.
        processes: how many work at once.
        on_step: called with the number of pieces of work done and of all of them.

    Raises:
        CompareError: a scheduler failed.
        SchedulerError: a policy cannot be read.
        WorkerError: a worker process died.
    """
    work = [
        (number, name, seed)
        for number, condition in enumerate(conditions)
        for name in condition.schedulers
        for seed in condition.settings.seeds
    ]
    done: dict[tuple[int, str, int], _Result] = {}
    with Workers(tuple(conditions), min(processes, max(len(work), 1))) as workers:
        for result in workers.map(_evaluate, work):
            done[result.work] = result
            if on_step is not None:
                on_step(len(done), len(work))
    records = {
        (conditions[number].name, name): record
        for number, name, seed in work
        if (record := done[number, name, seed].record) is not None
    }
    return Evaluation(tuple(conditions), pd.DataFrame([done[item].row for item in work]), records)


@dataclass(frozen=True, eq=False)
class _Result:
    work: tuple[int, str, int]
    row: Mapping[str, str | float]
    record: EpisodeRecord | None


def _evaluate(conditions: tuple[Condition, ...], work: tuple[int, str, int]) -> _Result:
    number, name, seed = work
    condition = conditions[number]
    settings = condition.settings
    sequence, spec = settings.sequence(seed), condition.schedulers[name]
    alpha = float("nan")
    if spec in (HINDSIGHT, MAKESPAN_HINDSIGHT):
        alpha, record = _best_alpha(condition, sequence, by_makespan=spec == MAKESPAN_HINDSIGHT)
    else:
        record = _run(settings.cluster, sequence, spec)
    last_ms = float(sequence.arrival_ms[-1])
    row: dict[str, str | float] = {
        "condition": condition.name,
        "scheduler": name,
        "seed": seed,
        "mean_jct_s": record.mean_jct_ms / 1000,
        "p95_jct_s": record.jct_percentile_ms(95) / 1000,
        "makespan_s": record.makespan_ms / 1000,
        "utilisation": record.utilisation,
        "load": float(record.busy_ms.sum()) / (last_ms * settings.cluster.num_executors)
        if last_ms
        else np.nan,
        "alpha": alpha,
    }
    return _Result(work, row, record if condition.keep and seed == settings.seed else None)


def _best_alpha(
    condition: Condition, sequence: JobSequence, by_makespan: bool
) -> tuple[float, EpisodeRecord]:
    """The alpha that turns out best; the lowest one on a tie."""
    cluster = condition.settings.cluster
    runs = ((alpha, _run(cluster, sequence, f"weighted-fair:{alpha:g}")) for alpha in condition.alphas)
    return min(runs, key=lambda run: run[1].makespan_ms if by_makespan else run[1].mean_jct_ms)


def _run(cluster: ClusterConfig, sequence: JobSequence, spec: str) -> EpisodeRecord:
    try:
        return run_episode(cluster, sequence, make_scheduler(spec, sequence.seed))
    except SchedulingError as error:
        raise CompareError(f"{spec} on seed {sequence.seed}: {error}") from error
