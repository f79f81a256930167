"""A policy as a scheduler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
        self._featurizer = Featurizer(policy.config, guard=guard)
        self._begin()

    def reset(self, config: ClusterConfig) -> None:
        """Begin the draws anew."""
        self._begin()

    def _begin(self) -> None:
        self.num_guarded = 0
        self.probability = math.nan
        self._random = (
            None if self.sample_seed is None else random_stream(self.sample_seed, RandomStream.POLICY)
        )
        self._uniforms = np.zeros(0)

    def decide(self, observation: Observation) -> Decision | None:
        """Decide in one pass through the network; None if no stage may be chosen, or the executors are left idle."""
        graph, guard = self._featurizer.graph_and_guard(observation)
        uniforms = self._next_uniforms()
        choices = self.policy.act(graph, uniforms, guard)
        if uniforms is not None:
            self._uniforms = uniforms[0, 4 if choices.guarded[0] else 2 :]
        self.num_guarded += int(choices.guarded[0])
        if choices.stage[0] < 0:
            self.probability = math.nan
            return None
        self.probability = math.exp(choices.log_probability[0])
        return self._featurizer.decision(observation, int(choices.stage[0]), int(choices.limit[0]))

    def _next_uniforms(self) -> NDArray[np.float64] | None:
        """The next four random numbers of the stream, float64 [1, 4], of which a decision uses two or all."""
        if self._random is None:
            return None
        drawn = self._random.random(4 - self._uniforms.size)
        return np.concatenate([self._uniforms, drawn])[None]
