"""Whatever is simulated while a policy is trained, by several workers, and the CPU time that it takes.

Workers get an ``Actor`` where there is one for the policy, and need no PyTorch then, which takes seconds to import.
A policy is validated greedily, on sequences that no training meets, against the classic schedulers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.run import objective_ms, run_scheduler
from decima.evaluation.tuning import ALPHAS, HINDSIGHT, best_for_all, sweep_ms, weighted_fair
from decima.learning.cluster.curriculum import EpisodePlan, EpisodeSpec, episode_specs
from decima.learning.cluster.rollout import Trajectories, roll_out, roll_out_scheduler
from decima.learning.progress import VALIDATION, Tell, silent
from decima.learning.simulation import SharedSimulation
from decima.policy.errors import NotFiniteError
from decima.policy.files import make_actor
from decima.policy.scheduler import NeuralScheduler
from decima.registry import make_scheduler
from simulator.cluster.episode import run_episode

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from decima.policy.actor import Actor
    from decima.policy.config import PolicyConfig
    from decima.policy.policy import Policy

__all__ = ["Simulation", "fair_ms", "judge"]

Item = TypeVar("Item")
Result = TypeVar("Result")

HEURISTICS = "heuristics on the validation sequences"
#: Sequences that a policy is validated on at once, from one message about progress to the next.
FEW = 4


@dataclass(frozen=True, eq=False)
class _Shared:
    """What every worker needs."""

    conditions: Conditions
    policy: PolicyConfig
    seed: int = 0


class Simulation(SharedSimulation):
    """Runs episodes; a context manager. Who works, and how many, does not show in the results.

    Args:
        conditions: the cluster, and how sequences are drawn.
        policy: the shape of the policies.
        workers: see ``check_workers``.
        seed: of heuristics that choose at random.

    Attributes:
        cpu_s: CPU time of all episodes so far, over all workers, s.

    Raises:
        WorkerError: there are no such workers.
    """

    def __init__(
        self, conditions: Conditions, policy: PolicyConfig, workers: int | str, seed: int = 0
    ) -> None:
        super().__init__(_Shared(conditions, policy, seed), workers)

    def watch(
        self, scheduler: str, seeds: Sequence[int], num_jobs: int | None, share: float, tell: Tell = silent
    ) -> Trajectories:
        """Let a heuristic run sequences, and record what it chose as choices of a policy.

        Args:
            scheduler: the heuristic's name, see ``decima.registry.make_scheduler``.
            seeds: of the sequences.
            num_jobs: jobs in each sequence; as many as in training if None.
            share: of its decisions that become samples.
            tell: told the episodes.

        Raises:
            WorkerError: workers died.
        """
        watched = partial(_watch, scheduler, num_jobs, share)
        phase = f"episodes of {scheduler} to clone"
        return Trajectories.concatenate(self._in_order(watched, seeds, partial(tell, phase)))

    def roll_out(self, policy: Policy, plans: Sequence[EpisodePlan]) -> Trajectories:
        """Let a policy sample these episodes.

        Raises:
            NotFiniteError: it gives probabilities that are no numbers.
            WorkerError: workers died.
        """
        return Trajectories.concatenate(
            self._in_order(partial(_roll_out, policy.arrays), self._shares(plans))
        )

    def judge(self, policy: Policy, seeds: Sequence[int], tell: Tell = silent) -> NDArray[np.float64]:
        """Let a greedy policy run the sequences of these seeds; see ``judge``.

        Raises:
            NotFiniteError: it has weights that are no numbers.
            WorkerError: workers died.
        """
        shares = self._shares(seeds, FEW)
        judged = partial(_judge, policy.arrays)
        return np.concatenate(self._in_order(judged, shares, partial(tell, VALIDATION), map(len, shares)))

    def reference(self, seeds: Sequence[int], tell: Tell = silent) -> dict[str, list[float]]:
        """Let fair sharing and weighted fair sharing with each alpha run the sequences of these seeds.

        Raises:
            WorkerError: workers died.
        """
        return _reference(np.array(self._in_order(_reference_row, seeds, partial(tell, HEURISTICS))))

    def schedulers(
        self, names: Sequence[str], seeds: Sequence[int], tell: Tell = silent
    ) -> dict[str, list[float]]:
        """Let schedulers run the sequences of these seeds: what is rewarded, by scheduler, [n], ms.

        Raises:
            WorkerError: workers died.
        """
        work = [(name, seed) for name in names for seed in seeds]
        results = self._in_order(_scheduled, work, partial(tell, HEURISTICS))
        table = np.array(results).reshape(len(names), len(seeds))
        return dict(zip(names, table.tolist(), strict=True))

    def _shares(self, items: Sequence[Item], most: int | None = None) -> list[list[Item]]:
        """Each worker's share of the items, in order; in parts of at most ``most``."""
        count = self._workers.count if most is None else max(self._workers.count, -(-len(items) // most))
        places = np.array_split(np.arange(len(items)), min(count, len(items)))
        return [[items[place] for place in part] for part in places]

    def _in_order(
        self,
        function: Callable[[_Shared, Item], Result],
        items: Sequence[Item],
        tell: Callable[[int, int], None] = lambda done, total: None,
        sizes: Iterable[int] | None = None,
    ) -> list[Result]:
        """Results in the order of the items; how many are done is told, each counted as its size, or as 1."""
        size = [1] * len(items) if sizes is None else list(sizes)
        finished: list[tuple[int, Result, float]] = []
        tell(0, sum(size))
        for each in self._workers.map(partial(_timed, function), enumerate(items)):
            finished.append(each)
            tell(sum(size[number] for number, _, _ in finished), sum(size))
        finished.sort(key=lambda each: each[0])
        self.cpu_s += sum(cpu_s for _, _, cpu_s in finished)
        return [result for _, result, _ in finished]


# What the workers do.

_Weights = dict[str, NDArray[np.float32]]


def _watch(scheduler: str, num_jobs: int | None, share: float, shared: _Shared, seed: int) -> Trajectories:
    conditions = shared.conditions
    if num_jobs is not None:
        conditions = replace(conditions, num_jobs=num_jobs)
    spec = EpisodeSpec(conditions.sequence(seed), conditions.cluster_of(seed), share=share)
    return roll_out_scheduler(make_scheduler(scheduler, shared.seed), shared.policy, [spec])


def _roll_out(weights: _Weights, shared: _Shared, plans: list[EpisodePlan]) -> Trajectories:
    return roll_out(make_actor(shared.policy, weights), episode_specs(shared.conditions, plans))


def _judge(weights: _Weights, shared: _Shared, seeds: list[int]) -> NDArray[np.float64]:
    return judge(shared.conditions, make_actor(shared.policy, weights), seeds)


def _timed(
    function: Callable[[_Shared, Any], Any], shared: _Shared, work: tuple[int, Any]
) -> tuple[int, Any, float]:
    number, item = work
    begun = time.process_time()
    return number, function(shared, item), time.process_time() - begun


# Validation.


def judge(conditions: Conditions, policy: Actor | Policy, seeds: Sequence[int]) -> NDArray[np.float64]:
    """The mean JCT and the makespan of a policy on each of these sequences, float64 [n, 2], ms.

    Raises:
        NotFiniteError: it has weights that are no numbers.
    """
    if not all(np.isfinite(array).all() for array in policy.arrays.values()):
        raise NotFiniteError("the policy has weights that are no numbers")
    scheduler = NeuralScheduler(policy)
    records = [
        run_episode(conditions.cluster_of(seed), conditions.sequence(seed), scheduler) for seed in seeds
    ]
    return np.array([(record.mean_jct_ms, record.makespan_ms) for record in records])


def _reference_row(shared: _Shared, seed: int) -> NDArray[np.float64]:
    """Fair, and weighted fair with each of ``ALPHAS``, on one sequence: what is rewarded, float64 [42], ms."""
    conditions, cluster = shared.conditions, shared.conditions.cluster_of(seed)
    return np.array(
        [fair_ms(conditions, seed), *sweep_ms(cluster, conditions.sequence(seed), cluster.reward)]
    )


def _scheduled(shared: _Shared, work: tuple[str, int]) -> float:
    return _scheduler_ms(shared.conditions, *work)


def _scheduler_ms(conditions: Conditions, scheduler: str, seed: int) -> float:
    """What is rewarded, of a scheduler on the sequence of a seed, ms."""
    cluster = conditions.cluster_of(seed)
    return objective_ms(run_scheduler(cluster, conditions.sequence(seed), scheduler), cluster.reward)


def fair_ms(conditions: Conditions, seed: int) -> float:
    """What is rewarded, of fair sharing on the sequence of a seed, ms: a finger-print of workload and simulator."""
    return _scheduler_ms(conditions, "fair", seed)


def _reference(table: NDArray[np.float64]) -> dict[str, list[float]]:
    """What is rewarded on each sequence by scheduler, [n], ms; of weighted fair the alpha that is best for all, and the
    best of each sequence, known only in hindsight: the strongest baseline.

    Args:
        table: float64 [n, 42], rows as ``_reference_row`` gives them.
    """
    fair, sweep = table[:, 0], table[:, 1:]
    alpha = best_for_all(sweep)
    results = {
        "fair": fair,
        weighted_fair(alpha): sweep[:, ALPHAS.index(alpha)],
        HINDSIGHT: sweep.min(axis=1),
    }
    return {name: values.tolist() for name, values in results.items()}
