"""Predictions from event logs and recordings of Spark, and comparison of schedulers on a real Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from decima.evaluation.sweeps import best_for_all, sweep_ms
from decima.evaluation.variants import GRIDS, TUNED_ONCE
from simulator.cluster.config import SPARK, ClusterConfig
from workloads.arrivals import JobSequence

__all__ = ["LOOKS", "SPARKS_OWN", "TRAINING_SEEDS", "WEIGHTED_FAIR", "as_simulated", "tuned"]

#: Displayed name -> scheduler: Spark's own schedulers.
SPARKS_OWN = {"Spark FIFO": "fifo", "Spark FAIR": "fair"}
#: Displayed name -> scheduler that is tuned beforehand.
WEIGHTED_FAIR = {"weighted fair": TUNED_ONCE}
#: Displayed name -> scheduler whose colour it has in pictures, if the name has no colour.
LOOKS = {**SPARKS_OWN, **WEIGHTED_FAIR}
#: First seed of sequences for tuning, disjoint from evaluation.
TRAINING_SEEDS = 1_000_000


def as_simulated(cluster: ClusterConfig, name: str, spec: str) -> tuple[ClusterConfig, str]:
    """Return the simulated cluster and scheduler that reproduce a scheduler on Spark.

    The moving delay of ``cluster`` is between jobs of one application (then it is 0), or between applications.
    """
    if cluster.moving_delay_ms > 0:
        # Any scheduler assigns executors to applications, each of which orders its stages as Spark does.
        return replace(cluster, semantics=replace(cluster.semantics, longest_path_first=False)), spec
    if name not in SPARKS_OWN:
        return cluster, spec
    return replace(cluster, semantics=SPARK), "spark-fair" if spec == "fair" else spec


def tuned(
    schedulers: Mapping[str, str], cluster: ClusterConfig, training: Iterable[JobSequence]
) -> tuple[dict[str, str], str]:
    """Tune weighted fair sharing on training sequences, which are not read if no scheduler is tuned.

    Returns:
        The schedulers with the best alpha, and that setting; empty if no scheduler is tuned.
    """
    if TUNED_ONCE not in schedulers.values():
        return dict(schedulers), ""
    sweeps = np.array([sweep_ms(cluster, sequence) for sequence in training])
    setting: str = best_for_all(sweeps, GRIDS[TUNED_ONCE])
    return {name: setting if spec == TUNED_ONCE else spec for name, spec in schedulers.items()}, setting
