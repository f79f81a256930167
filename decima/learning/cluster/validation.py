"""How good a policy is: greedy, on sequences that no training meets, against the classic schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.alphas import ALPHAS, HINDSIGHT, best_for_all, sweep_ms, weighted_fair
from decima.evaluation.conditions import Conditions
from decima.evaluation.run import objective_ms, run_scheduler
from decima.policy.policy import Policy
from decima.policy.scheduler import NeuralScheduler
from simulator.cluster.episode import run_episode

__all__ = ["Outcome", "Reference", "fair_ms", "judge", "reference_row"]


class Outcome(NamedTuple):
    """How a policy did.

    Attributes:
        jct_ms: float64 [n], mean JCT of each sequence, ms.
        makespan_ms: float64 [n].
    """

    jct_ms: NDArray[np.float64]
    makespan_ms: NDArray[np.float64]

    def objective(self, conditions: Conditions) -> NDArray[np.float64]:
        """What the reward asks to be short, float64 [n], ms."""
        return self.makespan_ms if conditions.cluster.reward == "makespan" else self.jct_ms


@dataclass(frozen=True, eq=False)
class Reference:
    """How the classic schedulers did, by what the reward asks to be short.

    Attributes:
        fair: float64 [n], ms.
        sweep: float64 [n, 41], ms; weighted fair with each of ``ALPHAS``.
    """

    fair: NDArray[np.float64]
    sweep: NDArray[np.float64]

    @staticmethod
    def of(table: NDArray[np.float64]) -> Reference:
        """From float64 [n, 42], ms, rows as ``reference_row`` gives them."""
        return Reference(table[:, 0], table[:, 1:])

    @property
    @property
    def tuned(self) -> NDArray[np.float64]:
        """With the best alpha of each sequence, known only in hindsight: the strongest baseline, float64 [n], ms."""
        lowest: NDArray[np.float64] = self.sweep.min(axis=1)
        return lowest

    def results(self) -> Mapping[str, NDArray[np.float64]]:
        """By the name that is shown, float64 [n], ms."""
        alpha = best_for_all(self.sweep)
        best = self.sweep[:, ALPHAS.index(alpha)]
        return {"fair": self.fair, weighted_fair(alpha): best, HINDSIGHT: self.tuned}


def judge(conditions: Conditions, policy: Policy, seeds: list[int]) -> Outcome:
    """Let a policy run these sequences to their end."""
    scheduler = NeuralScheduler(policy)
    records = [run_episode(conditions.cluster, conditions.sequence(seed), scheduler) for seed in seeds]
    return Outcome(
        np.array([record.mean_jct_ms for record in records]),
        np.array([record.makespan_ms for record in records]),
    )


def reference_row(conditions: Conditions, seed: int) -> NDArray[np.float64]:
    """Fair, and weighted fair with each of ``ALPHAS``, on one sequence, float64 [42], ms."""
    cluster = conditions.cluster
    return np.array(
        [fair_ms(conditions, seed), *sweep_ms(cluster, conditions.sequence(seed), cluster.reward)]
    )


def fair_ms(conditions: Conditions, seed: int) -> float:
    """The first entry of ``reference_row``, ms: a finger-print of workload and simulator."""
    cluster = conditions.cluster
    return objective_ms(run_scheduler(cluster, conditions.sequence(seed), "fair"), cluster.reward)
