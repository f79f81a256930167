"""A policy as a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from decima.policy.features import Featurizer
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.arrivals import RandomStream, random_stream

if TYPE_CHECKING:
    from decima.policy.actor import Actor
    from decima.policy.policy import Policy

__all__ = ["NeuralScheduler"]


class NeuralScheduler:
    """Decima: a graph neural network chooses the stage and its job's parallelism limit.

    Args:
        policy: the network.
        sample_seed: draw decisions with the policy's probabilities, in every episode the same numbers; by default
            nothing is drawn, see ``Actor.act``.
    """

    def __init__(self, policy: Actor | Policy, sample_seed: int | None = None) -> None:
        self.policy = policy
        self.sample_seed = sample_seed
        self._featurizer = Featurizer(policy.config)
        self._begin()

    def reset(self, config: ClusterConfig) -> None:
        """Begin the draws anew."""
        self._begin()

    def _begin(self) -> None:
        self._random: np.random.Generator | None = None
        if self.sample_seed is not None:
            self._random = random_stream(self.sample_seed, RandomStream.POLICY)

    def decide(self, observation: Observation) -> Decision | None:
        """One pass through the network; none if every job that could go on holds all executors."""
        graphs = self._featurizer.graph(observation)
        uniforms = None if self._random is None else self._random.random((1, 2))
        choices = self.policy.act(graphs, uniforms)
        return (
            self._featurizer.decision(observation, int(graphs.place[choices.stage[0]]), int(choices.count[0]))
            if choices.stage[0] >= 0
            else None
        )
