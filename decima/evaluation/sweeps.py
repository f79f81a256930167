"""Sweeps: run all candidate settings of a scheduler on a job sequence, and measure an objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.episodes import run_scheduler
from decima.evaluation.variants import ALPHAS, GRIDS

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord
    from workloads.arrivals import JobSequence

__all__ = ["best_for_all", "objective_ms", "sweep", "sweep_ms"]


def objective_ms(record: EpisodeRecord, objective: str) -> float:
    """Return the objective to minimise, ms: mean JCT (``jct``), ``makespan``, or mean cost of a job by a reward."""
    if objective == "jct":
        return record.mean_jct_ms
    if objective == "makespan":
        return record.makespan_ms
    from simulator.cluster.costs import cost_ms  # most schedulers are tuned for the mean JCT

    return cost_ms(record, objective) / len(record.sequence)


def sweep(
    cluster: ClusterConfig,
    sequence: JobSequence,
    settings: Sequence[str] = GRIDS["weighted-fair"],
    records: Mapping[str, EpisodeRecord] | None = None,
) -> Iterator[tuple[str, EpisodeRecord]]:
    """Run candidate settings, as scheduler names, on one sequence, and yield each with its episode.

    ``records`` has episodes of settings that were already run. For errors see ``run_scheduler``.
    """
    for setting in settings:
        yield setting, (records or {}).get(setting) or run_scheduler(cluster, sequence, setting)


def sweep_ms(
    cluster: ClusterConfig,
    sequence: JobSequence,
    objective: str = "jct",
    settings: Sequence[str] = GRIDS["weighted-fair"],
) -> NDArray[np.float64]:
    """Return the objective of each setting on a sequence, float64 [len(settings)], ms; see ``objective_ms``."""
    return np.array([objective_ms(record, objective) for _, record in sweep(cluster, sequence, settings)])


def best_for_all(sweeps_ms: NDArray[np.float64], settings: Sequence[Any] = ALPHAS) -> Any:
    """Return the setting that is best on average over sequences; the first one on a tie.

    ``sweeps_ms``, float64 [n, len(settings)], has one row of ``sweep_ms`` per sequence.
    """
    return settings[int(sweeps_ms.mean(axis=0).argmin())]
