"""Choices of a policy with custom networks, by PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from decima.policy import batches
from decima.policy.compiled.choices import Choices
from decima.policy.compiled.graphs import Graphs, Guard
from decima.policy.compiled.network import pick
from decima.policy.encoder import Embeddings, GraphTensors
from decima.policy.policy import Policy, list_limits
from decima.policy.threads import one_thread

__all__ = ["choose_by_networks"]


@torch.no_grad()
def choose_by_networks(
    policy: Policy, graphs: Graphs, uniforms: NDArray[np.float64] | None, guard: Guard
) -> Choices:
    """Choose in each observation by PyTorch, see ``Actor.act``; all observations are one batch."""
    size = graphs.num_graphs
    choices = Choices(
        np.full(size, -1, np.int32),
        np.zeros(size, np.int32),
        np.zeros(size, np.float32),
        np.zeros(size, np.bool_),
    )
    with one_thread():
        batch = policy.tensors(graphs)
        seen = batch, policy.embed(batch)
        _choose(policy, choices, graphs, *seen, None if uniforms is None else uniforms[:, :2])
        low, high = guard
        if (high > low).any():
            asked = np.flatnonzero(choices.stage >= 0)
            rows = batches.rows_of(graphs, np.maximum(choices.stage, 0))[asked]
            limit = choices.limit[asked]
            choices.guarded[asked] = (limit <= low[rows]) | (limit > high[rows])
            # An observation in which the guard leaves no choice keeps its first choice.
            is_open = np.logical_or.reduceat(np.append(high > low, False), graphs.first_stage[:-1])
            choices.guarded[:] &= is_open
            owner = np.repeat(np.arange(size), np.diff(graphs.first_stage))
            again = graphs._replace(low=low, high=np.where(choices.guarded[owner], high, low))
            _choose(policy, choices, again, *seen, None if uniforms is None else uniforms[:, 2:4])
    return choices


def _choose(
    policy: Policy,
    choices: Choices,
    graphs: Graphs,
    batch: GraphTensors,
    embeddings: Embeddings | None,
    uniforms: NDArray[np.float64] | None,
) -> None:
    """Set stage, limit and log-probability of each observation in which some stage may be chosen."""
    candidates = np.flatnonzero(graphs.high > graphs.low)
    if not candidates.size:
        return
    owner = np.searchsorted(graphs.first_stage, candidates, side="right") - 1
    asked, first = np.unique(owner, return_index=True)
    greedy = uniforms is None
    uniforms = np.full((graphs.num_graphs, 2), 0.5) if uniforms is None else uniforms

    scores = policy.stage_scores(batch, embeddings, candidates).float().cpu().numpy()
    picked = [
        pick(part, uniforms[index, 0], greedy)
        for index, part in zip(asked, np.split(scores, first[1:]), strict=True)
    ]
    rows = candidates[first + np.array([choice for choice, _ in picked])]
    limit, log_probability = graphs.high[rows], np.array([log for _, log in picked])

    low, num_limits = graphs.low[rows], graphs.high[rows] - graphs.low[rows]
    several = np.flatnonzero(num_limits > 1)
    if policy.config.limit != "none" and several.size:
        row, limits = list_limits(low[several], num_limits[several])
        scores = policy.limit_scores(batch, embeddings, rows[several], row, limits).float().cpu().numpy()
        likeliest = greedy and not policy.config.wait  # else the median, see ``Actor.act``
        parts = np.split(scores, np.cumsum(num_limits[several])[:-1])
        for index, part in zip(several, parts, strict=True):
            choice, more = pick(part, uniforms[asked[index], 1], likeliest)
            limit[index] = low[index] + 1 + choice
            log_probability[index] += more
    choices.stage[asked], choices.limit[asked] = graphs.stage_index[rows], limit
    choices.log_probability[asked] = log_probability
