"""Autograd functions of PyTorch for log-probabilities and entropies of choices, computed by compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from decima.policy.compiled.gradients import differentiate, evaluate
from decima.policy.compiled.graphs import Graphs
from decima.policy.compiled.layers import PARTS, Network

__all__ = ["CompiledEvaluation", "FlatWeights"]


class FlatWeights(torch.autograd.Function):
    """All weights of a network as one tensor, differentiable in weight and bias of each layer.

    The gradient of one more entry for each of ``layers.PARTS`` is the number of the part's inputs.
    """

    @staticmethod
    def forward(context: Any, network: Network, *_parameters: Tensor) -> Tensor:
        """Return the weights and one entry for each part, float32 [weights + 10].

        Args:
            network: weights, in the same order as the parameters.
        """
        context.network = network
        return torch.from_numpy(np.append(network.weights, np.zeros(len(PARTS), np.float32)))

    @staticmethod
    @once_differentiable
    def backward(context: Any, of_weights: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of weight and bias of each layer; None if a part of the network had no input."""
        network, gradients = context.network, list[Tensor | None]()
        for part, layers in enumerate(np.split(network.layers, network.first_layer[1:-1])):
            has_input = bool(of_weights[part - len(PARTS)])
            for num_in, num_out, offset in layers.tolist():
                own = of_weights[offset : offset + (num_in + 1) * num_out].view(-1, num_out)
                gradients += [own[:-1].T, own[-1]] if has_input else [None, None]
        return None, *gradients


class CompiledEvaluation(torch.autograd.Function):
    """Log-probability and entropy of choices in B observations, float32 [B], differentiable in the weights."""

    @staticmethod
    def forward(
        context: Any,
        network: Network,
        graphs: Graphs,
        rows: NDArray[np.int64],
        limit: NDArray[np.int32],
        _weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of the choices.

        Args:
            network: network with these weights.
            graphs: B observations.
            rows: int64 [B], rows of the chosen stages, see ``Graphs.rows_of``.
            limit: int32 [B], chosen limits.
        """
        log_probability, entropy, context.kept = evaluate(graphs, network, rows, limit)
        context.network = network
        return torch.from_numpy(log_probability), torch.from_numpy(entropy)

    @staticmethod
    @once_differentiable
    def backward(context: Any, of_log_probability: Tensor, of_entropy: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the weights."""
        found = differentiate(
            context.network,
            context.kept,
            of_log_probability.contiguous().numpy(),
            of_entropy.contiguous().numpy(),
        )
        num_inputs = np.array([each.x.size for each in context.kept.passes], np.float32)
        return None, None, None, None, torch.from_numpy(np.append(found, num_inputs))
