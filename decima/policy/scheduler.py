"""A policy that decides: from weights to choices, and from observations to decisions; compiled, without PyTorch.

Source: Decima (SIGCOMM 2019), section 5.2; ``decima.policy.policy`` has the same network with gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled import layers, network
from decima.policy.compiled.graphs import LIMIT_KINDS, NO_GUARD, Graphs, Guard
from decima.policy.config import PolicyConfig
from decima.policy.features import Featurizer
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.arrivals import RandomStream, random_stream

if TYPE_CHECKING:
    from decima.policy.policy import Policy

__all__ = ["Actor", "Choices", "NeuralScheduler"]


class NeuralScheduler:
    """Decima: a graph neural network chooses the stage and its job's parallelism limit.

    Args:
        policy: the network.
        sample_seed: seed of sampled decisions, the same random numbers in every episode; by default nothing is drawn,
            see ``Actor.act``.
        guard: whether choices are masked that leave executors idle, or let them wait for a stage that opens late,
            although a ready stage is worth a move. Out of its training distribution, a policy may otherwise keep a
            cluster idle for ever.

    Attributes:
        num_guarded: decisions of the episode that the guard changed.
        probability: of the last choice, stage and limit together; NaN if there was nothing to choose.
    """

    learned = True

    def __init__(self, policy: Actor | Policy, sample_seed: int | None = None, guard: bool = True) -> None:
        self.policy = policy
        self.sample_seed = sample_seed
        self._featurizer = Featurizer(policy.config, guard=guard)
        self._begin()

    def reset(self, config: ClusterConfig) -> None:
        """Reset the random numbers."""
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


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices of a policy in B observations.

    Attributes:
        stage: int32 [B]; place in the observation's stage arrays, -1 where no stage may be chosen.
        limit: int32 [B]; parallelism limit, above ``Graphs.low`` and at most ``Graphs.high`` of the stage.
        log_probability: float32 [B]; of stage and limit together.
        guarded: bool [B]; the policy chose again, among what its guard leaves.
    """

    stage: NDArray[np.int32]
    limit: NDArray[np.int32]
    log_probability: NDArray[np.float32]
    guarded: NDArray[np.bool_]


class Actor:
    """A policy's network without gradients.

    Args:
        config: its shape.
        arrays: float32, by the names and of the shapes of ``PolicyConfig.array_shapes``.
    """

    def __init__(self, config: PolicyConfig, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        self.config = config
        self.arrays = dict(arrays)
        weights: list[NDArray[np.float32]] = []
        shapes: list[tuple[int, int, int]] = []
        num_layers = [0] * len(layers.PARTS)
        offset = 0
        for name, widths in config.layers.items():
            num_layers[layers.PARTS.index(name)] = len(widths) - 1
            for layer in range(len(widths) - 1):
                weight, bias = self.arrays[f"{name}.{layer}.weight"], self.arrays[f"{name}.{layer}.bias"]
                shapes.append((weight.shape[1], weight.shape[0], offset))
                weights += [weight.T.reshape(-1), bias]
                offset += weight.size + bias.size
        self._network = layers.Network(
            weights=np.concatenate(weights),
            layers=np.array(shapes),
            first_layer=np.cumsum([0, *num_layers]),
            width=config.embedding if config.graph else 0,
            slope=np.float32(layers.SLOPE),
            embedding_slope=np.float32(layers.SLOPE if config.activate_embeddings else 1.0),
            shortcut=config.shortcut or not config.graph,
            limit_kind=LIMIT_KINDS[config.limit],
            limit_scale=np.float32(config.limit_scale),
            rule_column=config.rule_column,
            rule_weight=np.float32(config.rule_stage_weight),
            rule_limit_column=config.rule_limit_column,
            rule_limit_scale=np.float32(config.rule_limit_scale),
            rule_limit_weight=np.float32(config.rule_limit_weight),
            median_limit=config.wait,
        )

    def act(
        self, graphs: Graphs, uniforms: NDArray[np.float64] | None = None, guard: Guard = NO_GUARD
    ) -> Choices:
        """Decide in each observation.

        Args:
            graphs: B observations.
            uniforms: float64 [B, 2] in [0, 1), or [B, 4] with a guard: the random numbers to sample with. Without
                them the likeliest stage, and its likeliest limit, are chosen. Where waiting is a choice, it is the
                median limit: many limits that do much the same share their probability, and no single one may be as
                likely as waiting.
            guard: ``low`` and ``high`` of the choices that a guard leaves. Where the policy's choice is not among
                them, it chooses again among these, with the second pair of random numbers.
        """
        greedy = uniforms is None
        if uniforms is None:
            uniforms = np.empty((graphs.num_graphs, 4))
        return Choices(*network.act(graphs, self._network, uniforms, greedy, *guard))
