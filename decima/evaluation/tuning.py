"""Tune schedulers: the best candidate settings on a job sequence, or on several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError
from decima.evaluation.sweeps import best_for_all, objective_ms, sweep_ms
from decima.evaluation.variants import GRIDS
from workloads.arrivals import JobSequence
from workloads.errors import check_one_of

if TYPE_CHECKING:
    from decima.evaluation.run import ComparisonPlan
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord

__all__ = ["best_settings", "sweep_item", "tune"]


def best_settings(
    runs: Iterable[tuple[str, EpisodeRecord]], objectives: Iterable[str]
) -> dict[str, tuple[str, EpisodeRecord]]:
    """Return, for each objective, the best setting of a sweep with its episode; the first one on a tie."""
    best: dict[str, tuple[str, EpisodeRecord]] = {}
    lowest_ms = dict.fromkeys(objectives, math.inf)
    for setting, record in runs:
        for objective in lowest_ms:
            if (value_ms := objective_ms(record, objective)) < lowest_ms[objective]:
                lowest_ms[objective], best[objective] = value_ms, (setting, record)
    return best


def tune(
    config: ClusterConfig,
    sequences: JobSequence | Sequence[JobSequence],
    scheduler: str = "weighted-fair",
    objective: Literal["jct", "makespan"] = "jct",
) -> str:
    """Return a scheduler's name with the parameters that are best on average over job sequences.

    On an evaluation sequence, the result is the setting of ``tuned-weighted-fair``, known only in hindsight; on
    training sequences, it is the setting of ``weighted-fair``.

    Args:
        sequences: one or several job sequences.
        scheduler: one of ``GRIDS``.
        objective: quantity to minimise: the mean JCT or the makespan.

    Returns:
        Name for ``make_scheduler``, such as ``weighted-fair:-0.8``.

    Raises:
        CompareError: no sequences, an unknown scheduler or objective, or a failed episode.
    """
    training_sequences = [sequences] if isinstance(sequences, JobSequence) else list(sequences)
    if not training_sequences:
        raise CompareError("tuning needs at least one sequence")
    settings = GRIDS[check_one_of(scheduler, GRIDS, "scheduler", CompareError)]
    check_one_of(objective, ("jct", "makespan"), "objective", CompareError)
    swept = [sweep_ms(config, sequence, objective, settings) for sequence in training_sequences]
    return str(best_for_all(np.array(swept), settings))


def sweep_item(
    plans: Sequence[ComparisonPlan], item: tuple[int, str, int]
) -> tuple[int, str, int, NDArray[np.float64]]:
    """Run all candidate settings of a scheduler on a training sequence; return the work item and mean JCTs, ms."""
    index, family, seed = item
    conditions, settings = plans[index].conditions, plans[index].settings[family]
    return *item, sweep_ms(conditions.cluster_of(seed), conditions.sequence(seed), settings=settings)
