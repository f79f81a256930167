"""Compiled: choices of the network in several graphs at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.embeddings import make_buffers
from decima.policy.compiled.graphs import Graphs
from decima.policy.compiled.layers import NetworkArrays
from decima.policy.compiled.network import check_graphs, choose_in
from simulator.compiled import compiled

__all__ = ["Choices", "choose_in_all"]


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices of a network in B observations.

    Attributes:
        stage: int32 [B], chosen stage, index in the observation's stage arrays; -1 if no stage may be chosen.
        limit: int32 [B], parallelism limit, above ``Graphs.low`` and at most ``Graphs.high`` of the stage.
        log_probability: float32 [B], joint log-probability of stage and limit.
        guarded: bool [B], whether the guard masked the network's first choice.
    """

    stage: NDArray[np.int32]
    limit: NDArray[np.int32]
    log_probability: NDArray[np.float32]
    guarded: NDArray[np.bool_]


@compiled
def choose_in_all(graphs, network, uniforms, greedy, guarded_low, guarded_high):
    """Choose a stage and a limit in each of B graphs.

    Args:
        graphs: fields of ``graphs.Graphs``, as a plain tuple, which is unpacked faster than a named one.
        network: fields of ``layers.NetworkArrays``, likewise.
        uniforms: float64 [B, 2], random numbers for stage and limit; [B, 4] with a guard.
        greedy: whether to take the most likely choices instead of sampling.
        guarded_low: int32 [S], ``graphs.low`` after the guard's mask; empty without a guard.
        guarded_high: int32 [S], ``graphs.high`` after the guard's mask; empty without a guard.

    Returns:
        The arrays of ``Choices``.

    Raises:
        ValueError: graphs and network are inconsistent.
    """
    graphs, network = Graphs(*graphs), NetworkArrays(*network)
    size = graphs.first_stage.size - 1
    stage, limit = np.empty(size, np.int32), np.empty(size, np.int32)
    log_probability, guarded = np.empty(size, np.float32), np.empty(size, np.bool_)
    check_graphs(graphs, network, uniforms, guarded_low, guarded_high)
    buffers = make_buffers(graphs, network)
    for graph in range(size):
        row, chosen, log_of_both, is_guarded = choose_in(
            graphs, graph, network, buffers, uniforms[graph], greedy, guarded_low, guarded_high
        )
        stage[graph] = graphs.stage_index[row] if row >= 0 else -1
        limit[graph], log_probability[graph], guarded[graph] = chosen, log_of_both, is_guarded
    return stage, limit, log_probability, guarded
