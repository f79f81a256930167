"""How good a policy is: greedy, on sequences that no training meets, against the classic schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.alphas import ALPHAS, HINDSIGHT, best_for_all, sweep_ms, weighted_fair
from decima.evaluation.run import objective_ms, run_scheduler
from decima.policy.scheduler import NeuralScheduler
from simulator.cluster.episode import run_episode

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from decima.policy.policy import Policy

__all__ = ["fair_ms", "judge", "reference", "reference_row"]


def judge(conditions: Conditions, policy: Policy, seeds: Sequence[int]) -> NDArray[np.float64]:
    """The mean JCT and the makespan of a policy on each of these sequences, float64 [n, 2], ms."""
    scheduler = NeuralScheduler(policy)
    records = [run_episode(conditions.cluster, conditions.sequence(seed), scheduler) for seed in seeds]
    return np.array([(record.mean_jct_ms, record.makespan_ms) for record in records])


def reference_row(conditions: Conditions, seed: int) -> NDArray[np.float64]:
    """Fair, and weighted fair with each of ``ALPHAS``, on one sequence: what is rewarded, float64 [42], ms."""
    cluster = conditions.cluster
    return np.array(
        [fair_ms(conditions, seed), *sweep_ms(cluster, conditions.sequence(seed), cluster.reward)]
    )


def fair_ms(conditions: Conditions, seed: int) -> float:
    """The first entry of ``reference_row``, ms: a finger-print of workload and simulator."""
    cluster = conditions.cluster
    return objective_ms(run_scheduler(cluster, conditions.sequence(seed), "fair"), cluster.reward)


def reference(table: NDArray[np.float64]) -> dict[str, list[float]]:
    """What is rewarded on each sequence by scheduler, [n], ms; of weighted fair the alpha that is best for all, and the
    best of each sequence, known only in hindsight: the strongest baseline.

    Args:
        table: float64 [n, 42], rows as ``reference_row`` gives them.
    """
    fair, sweep = table[:, 0], table[:, 1:]
    alpha = best_for_all(sweep)
    results = {
        "fair": fair,
        weighted_fair(alpha): sweep[:, ALPHAS.index(alpha)],
        HINDSIGHT: sweep.min(axis=1),
    }
    return {name: values.tolist() for name, values in results.items()}
