"""Which episodes an iteration has: their job sequences, when they end, and what their choices are drawn from.

All of it follows from (seed of the run, iteration) alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from decima.learning.cluster.seeds import CLONING, CLONING_OFFSET, ENDS, RUN_SEEDS, SHUFFLE, VALIDATION_SEEDS
from workloads.arrivals import JobSequence, RandomStream, random_stream

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from decima.learning.cluster.config import TrainingConfig
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import JobSequence

__all__ = [
    "EpisodePlan",
    "EpisodeSpec",
    "cloning_seeds",
    "cloning_shuffling",
    "episode_specs",
    "plan_iteration",
    "shuffling",
    "training_seeds",
    "validation_seeds",
]


@dataclass(frozen=True, eq=False)
class EpisodeSpec:
    """One episode to come.

    Attributes:
        sequence: the jobs.
        cluster: where they run.
        end_ms: when it ends, ms; infinite for "when all jobs are complete".
        random: what the policy draws from; without it the policy is greedy, see ``Policy.act``.
        share: of its decisions that become samples, evenly spaced.
    """

    sequence: JobSequence
    cluster: ClusterConfig
    end_ms: float = math.inf
    random: np.random.Generator | None = None
    share: float = 1.0


@dataclass(frozen=True)
class EpisodePlan:
    """An episode, small enough to be sent to another process.

    Attributes:
        sequence_seed: names its jobs and their noise.
        end_ms: when it ends at the latest, ms.
        run_seed: with the next two, what its choices are drawn from.
        iteration: from 0.
        episode: number in the iteration, from 0.
        share: see ``EpisodeSpec``.
    """

    sequence_seed: int
    end_ms: float
    run_seed: int
    iteration: int
    episode: int
    share: float = 1.0


def plan_iteration(config: TrainingConfig, iteration: int) -> list[list[EpisodePlan]]:
    """The episodes of an iteration, in groups that have one baseline and one end.

    The end is drawn from an exponential distribution, so that the policy cannot tell from the time that has passed
    how much is left; all episodes of a group share it, so that they can be compared (Decima, section 5.3).
    """
    episodes = config.episodes
    groups = []
    for group in range(episodes.sequences):
        end_ms = math.inf
        if config.curriculum is not None:
            mean_ms = 1000 * config.curriculum.mean_end_s(iteration / config.iterations)
            stream = random_stream(config.seed, RandomStream.TRAINING, ENDS, iteration, group)
            end_ms = max(float(stream.exponential(mean_ms)), 1.0)
        plans = []
        for place in range(episodes.per_sequence):
            number = group * episodes.per_sequence + place
            first = iteration * episodes.sequences * episodes.per_sequence
            own = first + (group * episodes.per_sequence if episodes.fixed_sequences else number)
            seed = (1 + config.seed) * RUN_SEEDS + own
            plans.append(EpisodePlan(seed, end_ms, config.seed, iteration, number, episodes.share))
        groups.append(plans)
    return groups


def episode_specs(conditions: Conditions, plans: Sequence[EpisodePlan]) -> list[EpisodeSpec]:
    """Plans turned into episodes; those of the same sequence share it."""
    sequences = {plan.sequence_seed: conditions.sequence(plan.sequence_seed) for plan in plans}
    return [
        EpisodeSpec(
            sequences[plan.sequence_seed],
            conditions.cluster_of(plan.sequence_seed),
            plan.end_ms,
            random_stream(plan.run_seed, RandomStream.POLICY, plan.iteration, plan.episode),
            plan.share,
        )
        for plan in plans
    ]


def shuffling(config: TrainingConfig, iteration: int) -> np.random.Generator:
    """What shuffles the samples of an iteration."""
    return random_stream(config.seed, RandomStream.TRAINING, SHUFFLE, iteration)


def cloning_shuffling(config: TrainingConfig) -> np.random.Generator:
    """What shuffles the choices that are cloned."""
    return random_stream(config.seed, RandomStream.TRAINING, CLONING)


def cloning_seeds(config: TrainingConfig) -> range:
    """The sequences that the cloned scheduler runs."""
    first = (1 + config.seed) * RUN_SEEDS + CLONING_OFFSET
    cloning = config.behaviour_cloning
    return range(first, first + (cloning.sequences if cloning is not None else 0))


def training_seeds(config: TrainingConfig) -> range:
    """All sequences of the training's episodes, in the order in which iterations meet them."""
    episodes, first = config.episodes, (1 + config.seed) * RUN_SEEDS
    stop = first + config.iterations * episodes.sequences * episodes.per_sequence
    return range(first, stop, episodes.per_sequence if episodes.fixed_sequences else 1)


def validation_seeds(config: TrainingConfig) -> range:
    """The sequences that policies are judged on; with settings those of one cell after the other."""
    validation = config.validation
    num_cells = 1 if config.settings is None else validation.cells
    return range(VALIDATION_SEEDS, VALIDATION_SEEDS + num_cells * validation.sequences)
