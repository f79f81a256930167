"""A policy as a scheduler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from decima.policy.features import Featurizer
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.arrivals import RandomStream, random_stream

if TYPE_CHECKING:
    from decima.policy.actor import Actor
    from decima.policy.graphs import Graphs
    from decima.policy.policy import Policy

__all__ = ["NeuralScheduler"]


class NeuralScheduler:
    """Decima: a graph neural network chooses the stage and its job's parallelism limit.

    Args:
        policy: the network.
        sample_seed: draw decisions with the policy's probabilities, in every episode the same numbers; by default
            nothing is drawn, see ``Actor.act``.
        guard: where the policy would leave executors idle, or have them wait for a stage that opens late, although a
            stage that is ready is worth a move, it chooses once more among the rest. Far from what it was trained on, a
            policy may otherwise keep a cluster idle for ever.

    Attributes:
        num_guarded: decisions of the episode that the guard changed.
        probability: that the policy gave its last choice, stage and limit together; NaN if there was nothing to choose.
    """

    learned = True

    def __init__(self, policy: Actor | Policy, sample_seed: int | None = None, guard: bool = True) -> None:
        self.policy = policy
        self.sample_seed = sample_seed
        self._featurizer = Featurizer(policy.config)
        self._guarded = Featurizer(policy.config, guard=True) if guard and not policy.config.guard else None
        self._begin()

    def reset(self, config: ClusterConfig) -> None:
        """Begin the draws anew."""
        self._begin()

    def _begin(self) -> None:
        self.num_guarded = 0
        self.probability = math.nan
        self._random: np.random.Generator | None = None
        if self.sample_seed is not None:
            self._random = random_stream(self.sample_seed, RandomStream.POLICY)

    def decide(self, observation: Observation) -> Decision | None:
        """One pass through the network, two where the guard acts; none if every job holds all executors."""
        decision = self._choose(self._featurizer.graph(observation), self._featurizer, observation)
        if self._guarded is None or (decision is not None and observation.ready_rank[decision.stage] >= 0):
            return decision
        graph, num_answers = self._guarded.graph_and_answers(observation)
        if not num_answers or self._guarded.allows(graph, observation, decision):
            return decision
        self.num_guarded += 1
        return self._choose(graph, self._guarded, observation)

    def _choose(self, graph: Graphs, featurizer: Featurizer, observation: Observation) -> Decision | None:
        uniforms = None if self._random is None else self._random.random((1, 2))
        choices = self.policy.act(graph, uniforms)
        if choices.stage[0] < 0:
            self.probability = math.nan
            return None
        self.probability = math.exp(choices.log_probability[0])
        return featurizer.decision(observation, graph, int(choices.stage[0]), int(choices.count[0]))
