"""A policy that decides, from plain arrays: compiled, on the CPU, without PyTorch.

Source: Decima (SIGCOMM 2019), section 5.2; ``decima.policy.policy`` has the same network with gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled import network
from decima.policy.compiled.graphs import LIMIT_KINDS, NO_GUARD, Graphs, Guard
from decima.policy.config import PolicyConfig

__all__ = ["Actor", "Choices", "array_shapes"]


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


def array_shapes(config: PolicyConfig) -> dict[str, tuple[int, ...]]:
    """The arrays of a policy: ``NETWORK.LAYER.weight`` (outputs x inputs) and ``NETWORK.LAYER.bias``."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, widths in config.layers.items():
        for layer, (inputs, outputs) in enumerate(pairwise(widths)):
            shapes[f"{name}.{layer}.weight"] = (outputs, inputs)
            shapes[f"{name}.{layer}.bias"] = (outputs,)
    return shapes


class Actor:
    """A policy that decides.

    Args:
        config: its shape.
        arrays: float32, by the names and of the shapes of :func:`array_shapes`.
    """

    def __init__(self, config: PolicyConfig, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        self.config = config
        self.arrays = dict(arrays)
        weights: list[NDArray[np.float32]] = []
        layers: list[tuple[int, int, int]] = []
        num_layers = [0] * len(network.PARTS)
        offset = 0
        for name, widths in config.layers.items():
            num_layers[network.PARTS.index(name)] = len(widths) - 1
            for layer in range(len(widths) - 1):
                weight, bias = self.arrays[f"{name}.{layer}.weight"], self.arrays[f"{name}.{layer}.bias"]
                layers.append((weight.shape[1], weight.shape[0], offset))
                weights += [weight.T.reshape(-1), bias]
                offset += weight.size + bias.size
        self._network = network.Network(
            weights=np.concatenate(weights),
            layers=np.array(layers),
            first_layer=np.cumsum([0, *num_layers]),
            width=config.embedding if config.graph else 0,
            slope=np.float32(network.SLOPE),
            embedding_slope=np.float32(network.SLOPE if config.activate_embeddings else 1.0),
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
