"""Validation: greedy episodes of the policy, and episodes of heuristics, on held-out job sequences.

Most functions run as work items of worker processes, with ``rollout.Shared`` as an argument. Needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.episodes import run_scheduler
from decima.evaluation.sweeps import best_for_all, objective_ms
from decima.evaluation.variants import ALPHAS, HINDSIGHT, weighted_fair
from decima.learning.cluster.rollout import Shared, make_actor
from decima.policy.scheduler import NeuralScheduler
from decima.schedulers.fair import WeightedFair
from simulator.cluster.episode import make_cluster, run_episode
from workloads.errors import NotFiniteError

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import JobSequence

__all__ = [
    "evaluate_policy", "evaluate_weights", "reference_results", "reference_row", "scheduler_ms", "weighted_fair_ms",
]  # fmt: skip


def evaluate_policy(
    conditions: Conditions, policy: Actor | Policy, seeds: Sequence[int], guard: bool = True
) -> NDArray[np.float64]:
    """Run greedy episodes of a policy on the job sequences of n seeds, with or without its guard.

    Returns:
        float64 [n, 3], ms: mean JCT, makespan and objective (``decima.evaluation.sweeps.objective_ms``) by sequence.

    Raises:
        NotFiniteError: a weight of the policy is not finite.
    """
    if not all(np.isfinite(array).all() for array in policy.arrays.values()):
        raise NotFiniteError("the policy has weights that are not finite")
    setups = [(conditions.cluster_of(seed), conditions.sequence(seed)) for seed in seeds]
    if policy.config.is_compiled:
        scheduler = NeuralScheduler(policy, guard=guard)
        records = [run_episode(*setup, scheduler) for setup in setups]
    else:
        from decima.policy.together import run_together  # networks that are not compiled

        clusters = [make_cluster(*setup) for setup in setups]
        run_together(policy, clusters, guard)
        records = [cluster.record() for cluster in clusters]
    return np.array(
        [
            (record.mean_jct_ms, record.makespan_ms, objective_ms(record, conditions.cluster.reward))
            for record in records
        ]
    )


def evaluate_weights(
    weights: dict[str, NDArray[np.float32]], shared: Shared, seeds: Sequence[int], guard: bool = True
) -> NDArray[np.float64]:
    """Run ``evaluate_policy`` for a policy with the given weights.

    A network for few jobs has no guard here, as in its training: a policy is otherwise best that relies on it.
    """
    policy = make_actor(shared.policy, weights)
    if shared.many_jobs is not None:
        policy, guard = shared.many_jobs.and_few(policy), False
    return evaluate_policy(shared.conditions, policy, seeds, guard)


def reference_row(shared: Shared, seed: int) -> NDArray[np.float64]:
    """Run fair, and weighted fair with each of ``ALPHAS``, on a sequence; return objectives, float64 [42], ms."""
    cluster, sequence = shared.conditions.cluster_of(seed), shared.conditions.sequence(seed)
    return np.array([scheduler_ms(shared, ("fair", seed)), *weighted_fair_ms(cluster, sequence)])


def weighted_fair_ms(cluster: ClusterConfig, sequence: JobSequence) -> NDArray[np.float64]:
    """Return the objective of weighted fair with each of ``ALPHAS`` on a sequence, float64 [41], ms."""
    runs = (run_scheduler(cluster, sequence, weighted_fair(alpha), WeightedFair(alpha)) for alpha in ALPHAS)
    return np.array([objective_ms(record, cluster.reward) for record in runs])


def reference_results(table: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return the objective of fair and of tuned weighted fair on each of n sequences, by scheduler, [n], ms.

    Weighted fair is tuned twice: with the best alpha for all sequences, and, in hindsight, with the best alpha of each
    sequence, which is the reference scheduler.

    Args:
        table: float64 [n, 42], rows of ``reference_row``.
    """
    fair, sweep = table[:, 0], table[:, 1:]
    alpha = best_for_all(sweep)
    results = {
        "fair": fair,
        weighted_fair(alpha): sweep[:, ALPHAS.index(alpha)],
        HINDSIGHT: sweep.min(axis=1),
    }
    return {name: values.tolist() for name, values in results.items()}


def scheduler_ms(shared: Shared, work: tuple[str, int]) -> float:
    """Run a scheduler on a job sequence, given as (name, seed); return the objective, ms."""
    scheduler, seed = work
    cluster, sequence = shared.conditions.cluster_of(seed), shared.conditions.sequence(seed)
    return objective_ms(run_scheduler(cluster, sequence, scheduler), cluster.reward)
