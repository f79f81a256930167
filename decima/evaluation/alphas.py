"""Weighted fair sharing with the best alpha, of a sweep -2, -1.9, .., 2 (Decima, section 7.1).

* ``weighted-fair`` uses the alpha that was best, by average JCT, over separate *training* sequences.
* ``tuned-weighted-fair`` uses the alpha that turns out best on the very sequence it is judged on. That is the
  paper's strongest baseline; it has hindsight that no scheduler could have. ``tuned-weighted-fair:makespan`` goes by
  the makespan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.run import objective_ms, run_scheduler

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord
    from workloads.arrivals import JobSequence

__all__ = [
    "ALPHAS",
    "HINDSIGHT",
    "MAKESPAN_HINDSIGHT",
    "OBJECTIVES",
    "TUNED_ONCE",
    "best_alphas",
    "best_for_all",
    "sweep",
    "sweep_ms",
    "weighted_fair",
]

#: What alpha is chosen from, unless somebody says otherwise.
ALPHAS: tuple[float, ...] = tuple(tenths / 10 for tenths in range(-20, 21))
TUNED_ONCE = "weighted-fair"
HINDSIGHT = "tuned-weighted-fair"
MAKESPAN_HINDSIGHT = f"{HINDSIGHT}:makespan"
#: Scheduler with hindsight -> what its alpha makes short; see ``run.objective_ms``.
OBJECTIVES = {HINDSIGHT: "jct", MAKESPAN_HINDSIGHT: "makespan"}


def weighted_fair(alpha: float) -> str:
    """The scheduler with this alpha."""
    return f"weighted-fair:{alpha:g}"


def sweep(
    cluster: ClusterConfig,
    sequence: JobSequence,
    alphas: Sequence[float] = ALPHAS,
    known: Mapping[str, EpisodeRecord] | None = None,
) -> Iterator[tuple[float, EpisodeRecord]]:
    """Weighted fair sharing with each alpha on one sequence, one after the other.

    Args:
        cluster: the cluster.
        sequence: the jobs.
        alphas: in the order in which they run.
        known: scheduler -> its episode on this sequence, which need not run again.

    Raises:
        CompareError: see ``run_scheduler``.
    """
    for alpha in alphas:
        name = weighted_fair(alpha)
        yield alpha, (known or {}).get(name) or run_scheduler(cluster, sequence, name)


def best_alphas(
    runs: Iterable[tuple[float, EpisodeRecord]], objectives: Iterable[str]
) -> dict[str, tuple[float, EpisodeRecord]]:
    """Objective -> the best alpha of a sweep on one sequence with its episode; the lowest alpha on a tie."""
    best: dict[str, tuple[float, EpisodeRecord]] = {}
    lowest_ms = dict.fromkeys(objectives, math.inf)
    for alpha, record in runs:
        for objective in lowest_ms:
            if (value_ms := objective_ms(record, objective)) < lowest_ms[objective]:
                lowest_ms[objective], best[objective] = value_ms, (alpha, record)
    return best


def sweep_ms(cluster: ClusterConfig, sequence: JobSequence, objective: str = "jct") -> NDArray[np.float64]:
    """What each of ``ALPHAS`` makes of a sequence, float64 [41], ms; see ``run.objective_ms``."""
    return np.array([objective_ms(record, objective) for _, record in sweep(cluster, sequence)])


def best_for_all(sweeps_ms: NDArray[np.float64]) -> float:
    """The alpha that is best on the average of sequences, the lowest one on a tie.

    Args:
        sweeps_ms: float64 [n, 41], a row of ``sweep_ms`` for each sequence.
    """
    return ALPHAS[int(sweeps_ms.mean(axis=0).argmin())]
