"""Policy network in PyTorch: log-probabilities and entropies of choices of stage and limit, with gradients.

Source: Decima (SIGCOMM 2019), section 5.2. The score of a stage is q(e_v, y_i, z), that of a limit w(y_i, z, l). The
policy is a softmax over the stages that may be chosen, then a softmax over the limits of the chosen stage's job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.policy import batches
from decima.policy.compiled.graphs import NO_GUARD, Graphs, Guard
from decima.policy.config import PolicyConfig
from decima.policy.encoder import (
    DenseLayers,
    Embeddings,
    Encoder,
    GraphTensors,
    LimitHead,
    StageHead,
    SumEncoder,
    take_rows,
)
from decima.policy.scheduler import Actor
from workloads.custom import is_custom
from workloads.errors import PartError

if TYPE_CHECKING:
    from decima.policy.compiled.choices import Choices
    from decima.policy.few_jobs import FewJobs

__all__ = ["Evaluation", "Policy"]

#: Score of a choice that does not exist: its probability is 0, and unlike infinity it gives no NaN.
IMPOSSIBLE = -1e30

#: Number of changes of a tensor's values so far.
_version_of = attrgetter("_version")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Log-probabilities and entropies of choices in B observations.

    Attributes:
        log_probability: float [B], joint log-probability of stage and limit.
        entropy: float [B], nats: entropy of the distribution of stages plus that of limits for the chosen stage.
    """

    log_probability: Tensor
    entropy: Tensor


class Policy(nn.Module):
    """Policy network in PyTorch, with gradients.

    Args:
        config: configuration of the policy.
        seed: random seed of the initial weights.

    Attributes:
        custom_parts: custom modules by their key in ``config``.
        few_jobs: see ``Actor.few_jobs``; its network is no submodule.

    Raises:
        PartError: a custom part cannot be loaded.
    """

    config: PolicyConfig
    networks: nn.ModuleDict
    encoder: Encoder | None
    custom_parts: dict[str, nn.Module]
    few_jobs: FewJobs | None = None

    def __init__(self, config: PolicyConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = nn.ModuleDict()
            for name, widths in config.layers.items():
                is_embedding = not name.endswith(("_head", "attention"))
                activate_last = config.activate_embeddings and is_embedding
                self.networks[name] = DenseLayers(widths, activate_last=activate_last)
            self.custom_parts = {}
            self.encoder = self._custom_part("encoder", Encoder, config)
            for name, base in (("stage_head", StageHead), ("limit_head", LimitHead)):
                self._custom_part(name, base, config, config.head_inputs[name])
        if config.graph and self.encoder is None:
            self.encoder = SumEncoder(config, self.networks)
        # Cached, since collecting the parameters takes longer than a decision of a small network.
        self._weights = tuple(self.parameters())
        if not self._weights:
            raise PartError(
                "encoder, stage_head, limit_head: none has parameters, so there is nothing to learn"
            )
        self._actor: Actor | None = None
        self._actor_version: tuple[int, ...] = ()
        self._flat_weights: Tensor | None = None

    def _custom_part(self, key: str, base: type[nn.Module], *values: object) -> Any:
        """Build and register the custom module that ``config`` names under ``key``; None if the part is built in."""
        name = getattr(self.config, key)
        if not is_custom(name):
            return None
        from decima.policy.parts import build_part

        try:
            part: nn.Module = build_part(name, base, *values)
            if any(not array.is_floating_point() for array in part.state_dict().values()):
                raise PartError(f"{name!r}: expected parameters and buffers of floating-point numbers")
        except PartError as error:
            raise PartError(f"{key}: {error}") from None
        self.add_module(key, part)
        self.custom_parts[key] = part
        return part

    @property
    def num_parameters(self) -> int:
        """Number of weights and biases."""
        return sum(parameter.numel() for parameter in self.parameters())

    def layers(self) -> Iterator[tuple[str, int, nn.Linear]]:
        """Yield name of the network, index in the network, and layer, for every linear layer."""
        for name in self.networks:
            linear = (layer for layer in self._network(name) if isinstance(layer, nn.Linear))
            yield from ((name, index, layer) for index, layer in enumerate(linear))

    def _network(self, name: str) -> nn.Sequential:
        network = self.networks[name]
        assert isinstance(network, nn.Sequential)
        return network

    # Training: with gradients, on any device.

    def tensors(self, graphs: Graphs) -> GraphTensors:
        """Copy graphs as tensors to the device of the policy, in the precision of its weights."""
        parameter = next(self.parameters())
        return GraphTensors.of(graphs, parameter.device, parameter.dtype)

    def embed(self, batch: GraphTensors) -> Embeddings | None:
        """Return the embeddings of stages, jobs and cluster; None without a graph neural network."""
        if self.encoder is None:
            return None
        embeddings: Embeddings = self.encoder(batch)
        if "encoder" in self.custom_parts:
            sizes = (len(batch.features), len(batch.job_features), batch.num_graphs)
            self._check("encoder", isinstance(embeddings, Embeddings), "Embeddings", embeddings)
            for name, size in zip(("stages", "jobs", "cluster"), sizes, strict=True):
                self._check_shape("encoder", getattr(embeddings, name), (size, self.config.embedding), name)
        return embeddings

    def _check(self, key: str, is_right: bool, expected: str, returned: object) -> None:
        if not is_right:
            name = getattr(self.config, key)
            raise PartError(f"{key}: {name!r} must return {expected}, returned {type(returned).__name__}")

    def _check_shape(self, key: str, returned: object, shape: tuple[int, ...], what: str) -> None:
        if isinstance(returned, Tensor) and (returned.shape != shape or not returned.is_floating_point()):
            name = getattr(self.config, key)
            kind = str(returned.dtype).removeprefix("torch.")
            raise PartError(
                f"{key}: {name!r} must return {what} as floating-point numbers of shape {list(shape)}, "
                f"returned {kind} of shape {list(returned.shape)}"
            )
        self._check(key, isinstance(returned, Tensor), "tensors", returned)

    def forward(self, graphs: Graphs, stage: NDArray[np.int32], limit: NDArray[np.int32]) -> Evaluation:
        """Return log-probability and entropy of one choice in each observation, with gradients.

        Args:
            graphs: B observations.
            stage: int32 [B], chosen stage, index in the observation's stage arrays.
            limit: int32 [B], chosen limit.
        """
        batch = self.tensors(graphs)
        embeddings = self.embed(batch)
        candidates = np.flatnonzero(graphs.high > graphs.low)
        owner = np.repeat(np.arange(graphs.num_graphs), np.diff(graphs.first_stage))[candidates]
        chosen = batches.rows_of(graphs, stage)

        scores = self.stage_scores(batch, embeddings, candidates)
        index = np.searchsorted(candidates, chosen) - np.searchsorted(owner, np.arange(graphs.num_graphs))
        log_probability, entropy = _choose(scores, owner, index)
        if self.config.limit == "none":
            return Evaluation(log_probability, entropy)

        # A single limit leaves no choice: its probability is 1 and its entropy 0.
        low, num_limits = graphs.low[chosen], graphs.high[chosen] - graphs.low[chosen]
        open_ = np.flatnonzero(num_limits > 1)
        if open_.size:
            row, limits = list_limits(low[open_], num_limits[open_])
            scores = self.limit_scores(batch, embeddings, chosen[open_], row, limits)
            limit_log_probability, limit_entropy = _choose(scores, row, (limit - low)[open_] - 1)
            where = self._move(open_)
            log_probability = log_probability.index_add(0, where, limit_log_probability)
            entropy = entropy.index_add(0, where, limit_entropy)
        return Evaluation(log_probability, entropy)

    def probabilities(self, graphs: Graphs) -> tuple[Tensor, list[Tensor]]:
        """Return the probabilities of all stages and of all limits.

        Returns:
            Probabilities of stages, float [S], 0 where a stage may not be chosen. For every stage that may be chosen,
            in order: probabilities of its limits ``low + 1 .. high``, given the stage.
        """
        batch = self.tensors(graphs)
        embeddings = self.embed(batch)
        candidates = np.flatnonzero(graphs.high > graphs.low)
        owner = np.repeat(np.arange(graphs.num_graphs), np.diff(graphs.first_stage))
        scores = self.stage_scores(batch, embeddings, candidates)
        stages = scores.new_zeros(owner.size)
        for graph in range(graphs.num_graphs):
            in_graph = owner[candidates] == graph
            stages[candidates[in_graph]] = torch.softmax(scores[in_graph], 0)
        num_limits = graphs.high[candidates] - graphs.low[candidates]
        if self.config.limit == "none":  # the highest limit is the only one
            of_limits = scores.new_zeros(int(num_limits.sum()))
            of_limits[self._move(np.cumsum(num_limits) - 1)] = 1
            return stages, list(torch.split(of_limits, num_limits.tolist()))
        row, limit = list_limits(graphs.low[candidates], num_limits)
        of_limits = self.limit_scores(batch, embeddings, candidates, row, limit)
        limits = [torch.softmax(each, 0) for each in torch.split(of_limits, num_limits.tolist())]
        return stages, limits

    def stage_scores(
        self, batch: GraphTensors, embeddings: Embeddings | None, stages: NDArray[np.int64]
    ) -> Tensor:
        """Return the scores q of stages, float [len(stages)]."""
        inputs = self._stage_inputs(batch, embeddings, self._move(stages))
        if "stage_head" in self.custom_parts:
            scores: Tensor = self.custom_parts["stage_head"](torch.cat(inputs, dim=1))
            self._check_shape("stage_head", scores, (len(stages),), "scores")
            return scores
        return self.networks["stage_head"](*inputs).squeeze(1)  # type: ignore[no-any-return]

    def _stage_inputs(
        self, batch: GraphTensors, embeddings: Embeddings | None, stages: Tensor
    ) -> list[Tensor]:
        """Return the inputs of a head for these stages: features, and embeddings of stage, job and cluster."""
        raw = batch.features.index_select(0, stages)
        if embeddings is None:
            return [raw]
        jobs = batch.stage_job.index_select(0, stages)
        parts = [raw] if self.config.shortcut else []
        parts += [take_rows(embeddings.stages, stages), *_of_jobs(batch, embeddings, jobs)]
        return parts

    def limit_scores(
        self,
        batch: GraphTensors,
        embeddings: Embeddings | None,
        stages: NDArray[np.int64],
        row: NDArray[np.int64],
        limit: NDArray[np.int64],
    ) -> Tensor:
        """Return the scores w of limits, float [len(limit)]; ``row`` is the index into ``stages`` of each limit."""
        chosen = self._move(stages)
        if self.config.limit == "stage":
            inputs = torch.cat(self._stage_inputs(batch, embeddings, chosen), dim=1)
        else:
            jobs = batch.stage_job.index_select(0, chosen)
            raw = batch.job_features.index_select(0, jobs)
            parts = [raw] if self.config.shortcut or embeddings is None else []
            inputs = torch.cat([*parts, *(_of_jobs(batch, embeddings, jobs) if embeddings else ())], dim=1)
        rows, limits = self._move(row), self._move(limit)
        scaled = limits.to(inputs.dtype) / self.config.limit_scale
        if self.config.log_limits:
            scaled = torch.log1p(scaled)
        if "limit_head" in self.custom_parts:
            scores: Tensor = self.custom_parts["limit_head"](inputs, rows, limits)
            self._check_shape("limit_head", scores, (len(limit),), "scores")
            return scores
        head = self._network("limit_head")
        if self.config.limit == "outputs":
            return head(inputs)[rows, limits - 1]  # type: ignore[no-any-return]
        # The first layer is linear: its terms that do not depend on the limit are computed once.
        first = head[0]
        assert isinstance(first, nn.Linear)
        fixed = nn.functional.linear(inputs, first.weight[:, :-1], first.bias)
        hidden = fixed.index_select(0, rows) + scaled[:, None] * first.weight[:, -1]
        return nn.Sequential(*list(head)[1:])(hidden).squeeze(1)  # type: ignore[no-any-return]

    def _move(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(next(self.parameters()).device)

    # Inference: without gradients, on the CPU.

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Float32 weights by name, as in ``Actor.arrays``, with those of custom parts."""
        arrays: dict[str, NDArray[np.float32]] = {}
        for name, index, layer in self.layers():
            arrays[f"{name}.{index}.weight"] = layer.weight.detach().float().cpu().numpy()
            arrays[f"{name}.{index}.bias"] = layer.bias.detach().float().cpu().numpy()
        for key, part in self.custom_parts.items():
            for name, array in part.state_dict().items():
                arrays[f"{key}.{name}"] = array.detach().float().cpu().numpy()
        return arrays

    @torch.no_grad()
    def take(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Set the weights to arrays with names and shapes as in ``arrays``."""
        for name, index, layer in self.layers():
            layer.weight.copy_(torch.from_numpy(arrays[f"{name}.{index}.weight"]))
            layer.bias.copy_(torch.from_numpy(arrays[f"{name}.{index}.bias"]))
        for key, part in self.custom_parts.items():
            for name, array in part.state_dict().items():
                array.copy_(torch.from_numpy(arrays[f"{key}.{name}"]))

    def act(
        self, graphs: Graphs, uniforms: NDArray[np.float64] | None = None, guard: Guard = NO_GUARD
    ) -> Choices:
        """Choose in each observation, see ``Actor.act``; by compiled code unless a network is custom."""
        if not self.config.is_compiled:
            from decima.policy.custom_choices import choose_by_networks

            return choose_by_networks(self, graphs, uniforms, guard)
        return self._current_actor().act(graphs, uniforms, guard)

    @property
    def packed(self) -> tuple[Any, ...] | None:
        """Fields of the compiled network with the current weights; None if a part of the network is custom."""
        return self._current_actor().packed if self.config.is_compiled else None

    def _current_actor(self) -> Actor:
        """Return a compiled actor with the current weights; cached until a weight changes."""
        version = tuple(map(_version_of, self._weights))
        if self._actor is None or version != self._actor_version:
            self._actor, self._actor_version = Actor(self.config, self.arrays), version
        return self._actor


def _of_jobs(batch: GraphTensors, embeddings: Embeddings, jobs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the embeddings y of these jobs and z of their clusters."""
    graphs = batch.job_graph.index_select(0, jobs)
    return take_rows(embeddings.jobs, jobs), take_rows(embeddings.cluster, graphs)


def list_limits(
    low: NDArray[np.int32], num_limits: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List the limits ``low + 1 .. low + num_limits`` of several stages: index of the stage, and limit."""
    row = np.repeat(np.arange(low.size), num_limits)
    start = np.cumsum(num_limits) - num_limits
    return row, np.arange(row.size) - start[row] + low[row].astype(np.int64) + 1


def _choose(scores: Tensor, group: NDArray[np.int64], chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return log-probability of the chosen score and entropy of the softmax, for each group of scores.

    Args:
        scores: float [n].
        group: int64 [n], group of each score, ascending from 0; every group has a score.
        chosen: int64 [groups], index of the chosen score in its group.
    """
    sizes = np.bincount(group)
    index = np.arange(group.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    group_, index_, chosen_ = (torch.from_numpy(array).to(scores.device) for array in (group, index, chosen))
    table = scores.new_full((sizes.size, int(sizes.max())), IMPOSSIBLE).index_put((group_, index_), scores)
    logs = torch.log_softmax(table, 1)
    entropy = -(logs.exp() * logs).sum(1)
    return logs.gather(1, chosen_[:, None]).squeeze(1), entropy
