"""What studies of a real Spark compare: what Spark does by itself, and what could be in charge of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from decima.evaluation.tuning import GRIDS, TUNED_ONCE, best_for_all, sweep_ms
from simulator.cluster.config import ClusterConfig
from workloads.arrivals import JobSequence

__all__ = ["LOOKS", "SPARKS_OWN", "TRAINING_SEEDS", "WEIGHTED_FAIR", "tuned"]

#: Shown name -> scheduler, of Spark's own.
SPARKS_OWN = {"Spark FIFO": "fifo", "Spark FAIR": "fair"}
#: Shown name -> scheduler, of the one that is tuned before.
WEIGHTED_FAIR = {"weighted fair": TUNED_ONCE}
#: Shown name -> the scheduler whose colour it has, where that is another.
LOOKS = {**SPARKS_OWN, **WEIGHTED_FAIR}
#: Sequences to tune on start here, so that none is compared on.
TRAINING_SEEDS = 1_000_000


def tuned(
    schedulers: Mapping[str, str], cluster: ClusterConfig, training: Iterable[JobSequence]
) -> tuple[dict[str, str], str]:
    """Give weighted fair sharing the alpha that is best for other sequences.

    Args:
        schedulers: shown name -> scheduler.
        cluster: the cluster.
        training: the sequences; not looked at where nobody is to be tuned.

    Returns:
        The same with that alpha; and the setting, empty where nobody is tuned.
    """
    if TUNED_ONCE not in schedulers.values():
        return dict(schedulers), ""
    sweeps = np.array([sweep_ms(cluster, sequence) for sequence in training])
    setting: str = best_for_all(sweeps, GRIDS[TUNED_ONCE])
    return {name: setting if spec == TUNED_ONCE else spec for name, spec in schedulers.items()}, setting
