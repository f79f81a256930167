"""How good a policy is: without chance, on sequences that no training meets, against the classic schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.experiments import ALPHAS, ExperimentSettings
from decima.learning.cluster.rollout import play
from decima.policy.policy import Policy
from decima.registry import make_scheduler
from simulator import run_episode
from workloads import JobSequence

__all__ = ["Outcome", "Reference", "fair_ms", "judge", "reference_row"]


class Outcome(NamedTuple):
    """How a policy did.

    Attributes:
        jct_ms: float64 [n], mean JCT of each sequence, ms.
        makespan_ms: float64 [n].
    """

    jct_ms: NDArray[np.float64]
    makespan_ms: NDArray[np.float64]

    def objective(self, settings: ExperimentSettings) -> NDArray[np.float64]:
        """What the reward asks to be short, float64 [n], ms."""
        return self.makespan_ms if settings.cluster.reward == "makespan" else self.jct_ms


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
    def table(self) -> NDArray[np.float64]:
        """What ``of`` takes."""
        return np.column_stack([self.fair, self.sweep])

    @property
    def alpha(self) -> float:
        """The best one for all sequences."""
        return ALPHAS[int(self.sweep.mean(axis=0).argmin())]

    @property
    def tuned(self) -> NDArray[np.float64]:
        """With the best alpha of each sequence, known only in hindsight: the strongest baseline, float64 [n], ms."""
        lowest: NDArray[np.float64] = self.sweep.min(axis=1)
        return lowest

    def results(self) -> Mapping[str, NDArray[np.float64]]:
        """By the name that is shown, float64 [n], ms."""
        best = self.sweep[:, int(self.sweep.mean(axis=0).argmin())]
        return {"fair": self.fair, f"weighted-fair:{self.alpha:g}": best, "tuned-weighted-fair": self.tuned}

    def improvement(self, outcome: NDArray[np.float64]) -> float:
        """By how much a policy (float64 [n], ms) is below the tuned weighted fair: 1 - ratio of the means."""
        return float(1 - outcome.mean() / self.tuned.mean())


def judge(settings: ExperimentSettings, policy: Policy, seeds: list[int]) -> Outcome:
    """Let a policy run these sequences to their end."""
    records = play(policy, settings.cluster, [settings.sequence(seed) for seed in seeds])
    return Outcome(
        np.array([record.mean_jct_ms for record in records]),
        np.array([record.makespan_ms for record in records]),
    )


def reference_row(settings: ExperimentSettings, seed: int) -> NDArray[np.float64]:
    """Fair, and weighted fair with each of ``ALPHAS``, on one sequence, float64 [42], ms."""
    sequence = settings.sequence(seed)
    weighted = [_run(settings, sequence, f"weighted-fair:{alpha:g}") for alpha in ALPHAS]
    return np.array([_run(settings, sequence, "fair"), *weighted])


def fair_ms(settings: ExperimentSettings, seed: int) -> float:
    """The first entry of ``reference_row``, ms: a finger-print of workload and simulator."""
    return _run(settings, settings.sequence(seed), "fair")


def _run(settings: ExperimentSettings, sequence: JobSequence, name: str) -> float:
    record = run_episode(settings.cluster, sequence, make_scheduler(name))
    return record.makespan_ms if settings.cluster.reward == "makespan" else record.mean_jct_ms
