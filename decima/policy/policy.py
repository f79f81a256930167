"""The policy: which stage next, and how many executors for its job.

Source: Decima (SIGCOMM 2019), section 5.2. A stage's score is q(e_v, y_i, z), a limit's score w(y_i, z, l); softmax
over the stages that may be chosen, then over the limits that the chosen stage's job may get.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.utils import scatter, softmax

from decima.policy.actor import Actor, Choices
from decima.policy.config import PolicyConfig
from decima.policy.encoder import Embeddings, Encoder, GraphTensors, make_network
from decima.policy.files import load_actor
from decima.policy.graphs import Graphs

__all__ = ["Evaluation", "Policy", "load_policy"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How the policy sees choices that were made in B observations.

    Attributes:
        log_probability: float [B]; of stage and limit together.
        entropy: float [B]; of the stage's and, for the chosen stage, of the limit's distribution, nats.
    """

    log_probability: Tensor
    entropy: Tensor


class Policy(nn.Module):
    """Networks that turn graphs into probabilities and decisions.

    Args:
        config: its shape.
        seed: of the initial weights.
    """

    def __init__(self, config: PolicyConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = nn.ModuleDict(
                {
                    name: make_network(
                        widths, activate_last=config.activate_embeddings and not name.endswith("_head")
                    )
                    for name, widths in config.layers.items()
                }
            )
            # Heads that say nothing yet leave the choice to the rule.
            for name, weight in (
                ("stage_head", config.rule_stage_weight),
                ("limit_head", config.rule_limit_weight),
            ):
                if weight:
                    for parameter in self._network(name)[-1].parameters():
                        nn.init.zeros_(parameter)
        self.encoder = Encoder(config, self.networks) if config.graph else None
        # To look for the parameters anew at every decision would take longer than a small network.
        self._weights = tuple(self.parameters())
        self._actor: Actor | None = None
        self._actor_version: tuple[int, ...] = ()

    @property
    def num_parameters(self) -> int:
        """Number of weights and biases."""
        return sum(parameter.numel() for parameter in self.parameters())

    def layers(self) -> Iterator[tuple[str, int, nn.Linear]]:
        """Every layer of weights: the name of its network, its number there, and itself."""
        for name in self.networks:
            linear = (layer for layer in self._network(name) if isinstance(layer, nn.Linear))
            yield from ((name, number, layer) for number, layer in enumerate(linear))

    def _network(self, name: str) -> nn.Sequential:
        network = self.networks[name]
        assert isinstance(network, nn.Sequential)
        return network

    # With gradients, on any device.

    def tensors(self, graphs: Graphs) -> GraphTensors:
        """The graphs, on the policy's device and in its precision."""
        parameter = next(self.parameters())
        return GraphTensors.of(graphs, parameter.device, parameter.dtype)

    def forward(self, graphs: Graphs, stage: NDArray[np.int32], count: NDArray[np.int32]) -> Evaluation:
        """Log-probability and entropy of choices, as :class:`Choices` has them; every observation has a choice."""
        batch = self.tensors(graphs)
        embeddings = self.encoder(batch) if self.encoder is not None else None
        candidates = np.flatnonzero(graphs.high > graphs.low)
        owner = np.repeat(np.arange(graphs.num_graphs), np.diff(graphs.first_stage))[candidates]
        chosen = graphs.first_stage[:-1] + stage
        places = np.searchsorted(candidates, chosen)

        scores = self._stage_scores(batch, embeddings, candidates)
        log_probability, entropy = _choose(scores, self._move(owner), self._move(places), graphs.num_graphs)
        if self.config.limit == "none":
            return Evaluation(log_probability, entropy)

        # Only where there are several limits is there something to choose.
        low, num_limits = graphs.low[chosen], graphs.high[chosen] - graphs.low[chosen]
        open_ = np.flatnonzero(num_limits > 1)
        if open_.size:
            row, limit = _limits(low[open_], num_limits[open_])
            scores = self._limit_scores(batch, embeddings, chosen[open_], row, limit)
            ends = np.cumsum(num_limits[open_])
            places = ends - num_limits[open_] + count[open_] - 1
            limit_log_probability, limit_entropy = _choose(
                scores, self._move(row), self._move(places), open_.size
            )
            where = self._move(open_)
            log_probability = log_probability.index_add(0, where, limit_log_probability)
            entropy = entropy.index_add(0, where, limit_entropy)
        return Evaluation(log_probability, entropy)

    def probabilities(self, graphs: Graphs) -> tuple[Tensor, list[Tensor]]:
        """All probabilities.

        Returns:
            For every stage, float [S]; 0 where it may not be chosen. And for every stage that may be chosen, in
            order, those of the limits ``low + 1 .. high``.
        """
        batch = self.tensors(graphs)
        embeddings = self.encoder(batch) if self.encoder is not None else None
        candidates = np.flatnonzero(graphs.high > graphs.low)
        owner = np.repeat(np.arange(graphs.num_graphs), np.diff(graphs.first_stage))
        logits = torch.full(
            (owner.size,), -torch.inf, dtype=batch.features.dtype, device=batch.features.device
        )
        scores = self._stage_scores(batch, embeddings, candidates)
        logits = logits.index_put((self._move(candidates),), scores)
        stages = softmax(logits, self._move(owner), num_nodes=graphs.num_graphs)
        limits = []
        for stage in candidates:
            num_limits = int(graphs.high[stage] - graphs.low[stage])
            if self.config.limit == "none":
                only = torch.zeros(num_limits, dtype=logits.dtype)
                only[-1] = 1
                limits.append(only)
                continue
            row, limit = _limits(graphs.low[[stage]], np.array([num_limits]))
            scores = self._limit_scores(batch, embeddings, np.array([stage]), row, limit)
            limits.append(torch.softmax(scores, 0))
        return stages, limits

    def _stage_scores(
        self, batch: GraphTensors, embeddings: Embeddings | None, stages: NDArray[np.int64]
    ) -> Tensor:
        """The score q of stages, float [len(stages)]."""
        scores: Tensor = self.networks["stage_head"](
            self._stage_inputs(batch, embeddings, self._move(stages))
        )
        if not self.config.rule_stage_weight:
            return scores.squeeze(1)
        ruled = batch.features[self._move(stages), self.config.rule_column]
        return scores.squeeze(1) + self.config.rule_stage_weight * ruled

    def _stage_inputs(self, batch: GraphTensors, embeddings: Embeddings | None, stages: Tensor) -> Tensor:
        raw = batch.features.index_select(0, stages)
        if embeddings is None:
            return raw
        jobs = batch.stage_job.index_select(0, stages)
        parts = [raw] if self.config.shortcut else []
        parts += [embeddings.stages.index_select(0, stages), *_of_jobs(batch, embeddings, jobs)]
        return torch.cat(parts, dim=1)

    def _limit_scores(
        self,
        batch: GraphTensors,
        embeddings: Embeddings | None,
        stages: NDArray[np.int64],
        row: NDArray[np.int64],
        limit: NDArray[np.int64],
    ) -> Tensor:
        """The score w of limits, float [len(limit)]; ``row`` says to which of ``stages`` each belongs."""
        chosen = self._move(stages)
        if self.config.limit == "stage":
            inputs = self._stage_inputs(batch, embeddings, chosen)
        else:
            jobs = batch.stage_job.index_select(0, chosen)
            raw = batch.job_features.index_select(0, jobs)
            parts = [raw] if self.config.shortcut or embeddings is None else []
            inputs = torch.cat([*parts, *(_of_jobs(batch, embeddings, jobs) if embeddings else ())], dim=1)
        rows = self._move(row)
        head = self._network("limit_head")
        if self.config.limit == "outputs":
            scores: Tensor = head(inputs)[rows, self._move(limit) - 1]
            return scores
        # The first layer is linear: what does not depend on the limit need be multiplied only once.
        first = head[0]
        assert isinstance(first, nn.Linear)
        scaled = self._move(limit).to(inputs.dtype) / self.config.limit_scale
        fixed = nn.functional.linear(inputs, first.weight[:, :-1], first.bias)
        hidden = fixed.index_select(0, rows) + scaled[:, None] * first.weight[:, -1]
        limit_scores: Tensor = head[1:](hidden)
        if not self.config.rule_limit_weight:
            return limit_scores.squeeze(1)
        ruled = raw[:, self.config.rule_limit_column] * (
            self.config.rule_limit_scale / self.config.limit_scale
        )
        away = (scaled - ruled.index_select(0, rows)).abs()
        return limit_scores.squeeze(1) - self.config.rule_limit_weight * away

    def _move(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(next(self.parameters()).device)

    # Without gradients, compiled, on the CPU.

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The weights, as an ``Actor`` has them."""
        arrays: dict[str, NDArray[np.float32]] = {}
        for name, number, layer in self.layers():
            arrays[f"{name}.{number}.weight"] = layer.weight.detach().float().cpu().numpy()
            arrays[f"{name}.{number}.bias"] = layer.bias.detach().float().cpu().numpy()
        return arrays

    def act(self, graphs: Graphs, uniforms: NDArray[np.float64] | None = None) -> Choices:
        """Decide in each observation, as ``Actor.act`` does."""
        version = tuple(parameter._version for parameter in self._weights)
        if self._actor is None or version != self._actor_version:
            self._actor, self._actor_version = Actor(self.config, self.arrays), version
        return self._actor.act(graphs, uniforms)


def load_policy(path: Path) -> Policy:
    """Read a policy, to train it or to look at its probabilities; to decide, an ``Actor`` is enough.

    Raises:
        PolicyFileError: as ``load_actor``.
    """
    actor = load_actor(path)
    policy = Policy(actor.config)
    with torch.no_grad():
        for name, number, layer in policy.layers():
            layer.weight.copy_(torch.from_numpy(actor.arrays[f"{name}.{number}.weight"]))
            layer.bias.copy_(torch.from_numpy(actor.arrays[f"{name}.{number}.bias"]))
    return policy


def _of_jobs(batch: GraphTensors, embeddings: Embeddings, jobs: Tensor) -> tuple[Tensor, Tensor]:
    """The embeddings y and z for these jobs."""
    graphs = batch.job_graph.index_select(0, jobs)
    return embeddings.jobs.index_select(0, jobs), embeddings.cluster.index_select(0, graphs)


def _limits(
    low: NDArray[np.int32], num_limits: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All limits of several jobs, one after the other: the job of each, and the limit."""
    row = np.repeat(np.arange(low.size), num_limits)
    start = np.cumsum(num_limits) - num_limits
    return row, np.arange(row.size) - start[row] + low[row].astype(np.int64) + 1


def _choose(scores: Tensor, group: Tensor, chosen: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
    """Log-probability of the chosen score and entropy of a softmax in each group of scores."""
    probability = softmax(scores, group, num_nodes=num_groups)
    logs = torch.log(probability.clamp_min(torch.finfo(scores.dtype).tiny))
    entropy = -scatter(probability * logs, group, dim_size=num_groups, reduce="sum")
    return logs.index_select(0, chosen), entropy
