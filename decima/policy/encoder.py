"""The graph neural network (GNN): message passing in DAGs; embeddings of stages, jobs and the cluster; heads.

Source: Decima (SIGCOMM 2019), section 5.1 and equation 1; attention as in GATv2, Brody et al. (2022), "How attentive
are graph attention networks?".
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

from decima.policy.compiled.dense import CompiledLayers
from decima.policy.compiled.graphs import Graphs
from decima.policy.compiled.layers import SLOPE
from decima.policy.config import PolicyConfig

__all__ = [
    "DenseLayers", "Embeddings", "Encoder", "GraphTensors", "LimitHead", "Links", "StageHead", "Step", "SumEncoder",
    "sum_rows", "take_rows",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Links:
    """Links between rows of a source table and rows of a target table, sorted by target and by source.

    Attributes:
        source: int64 [n], source row of each link, sorted by target.
        ends_of_target: int64 [targets + 1]; ``source[ends[t]:ends[t + 1]]`` are linked to target row t.
        target: int64 [n], target row of each link, sorted by source.
        ends_of_source: int64 [sources + 1].
    """

    source: Tensor
    ends_of_target: Tensor
    target: Tensor
    ends_of_source: Tensor

    @staticmethod
    def of(source: Tensor, target: Tensor, num_sources: int, num_targets: int) -> Links:
        """Sort links, given as source row and target row of each link, int64 [n]."""

        def sort(keys: Tensor, values: Tensor, num_keys: int) -> tuple[Tensor, Tensor]:
            rows = keys.cpu().numpy()
            ends = np.append(0, np.bincount(rows, minlength=num_keys).cumsum())
            if (rows[1:] < rows[:-1]).any():  # most links are sorted already
                order = torch.from_numpy(np.argsort(rows, kind="stable"))
                values = values.index_select(0, order.to(values.device))
            return values, torch.from_numpy(ends).to(values.device)

        return Links(*sort(target, source, num_targets), *sort(source, target, num_sources))


@dataclass(frozen=True, eq=False)
class Step:
    """One step of message passing: n messages from child stages to parent stages.

    Attributes:
        senders: int64, stages that send.
        receivers: int64, stages that receive, each from all its children.
        edges: int64 [2, n], index into ``senders`` and index into ``receivers`` of each message.
    """

    senders: Tensor
    receivers: Tensor
    edges: Tensor

    @cached_property
    def links(self) -> Links:
        """The messages as links from ``senders`` to ``receivers``."""
        source, target = self.edges
        return Links.of(source, target, self.senders.numel(), self.receivers.numel())


@dataclass(frozen=True, eq=False)
class GraphTensors:
    """A batch of ``Graphs`` as tensors. Indices of stages and jobs count over the whole batch.

    Attributes:
        features: float [S, F], features of stages.
        job_features: float [J, F_job], features of jobs.
        stage_job: int64 [S], job of each stage.
        job_graph: int64 [J], observation of each job.
        unfinished: int64, unfinished stages.
        steps: steps of message passing, in order.
        num_graphs: number of observations B.
    """

    features: Tensor
    job_features: Tensor
    stage_job: Tensor
    job_graph: Tensor
    unfinished: Tensor
    steps: tuple[Step, ...]
    num_graphs: int

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges of the DAGs for layers of PyTorch Geometric: int64 [2, E], from children to parents, each edge once.

        Messages flow in this direction in Decima; ``edge_index.flip(0)`` is the opposite direction. The edges are
        those of ``steps``, sorted by child and parent.
        """
        num_stages = max(1, self.stage_job.numel())
        # One number for each edge, as finding unique columns is slow.
        pairs = [
            step.senders[step.edges[0]] * num_stages + step.receivers[step.edges[1]] for step in self.steps
        ]
        edges = torch.unique(torch.cat([self.stage_job.new_zeros(0), *pairs]))
        return torch.stack([edges // num_stages, edges % num_stages])

    @cached_property
    def job_links(self) -> Links:
        """Links from ``unfinished`` stages to their jobs."""
        return Links.of(
            torch.arange(self.unfinished.numel(), device=self.unfinished.device),
            self.stage_job.index_select(0, self.unfinished),
            self.unfinished.numel(),
            self.job_graph.numel(),
        )

    @cached_property
    def cluster_links(self) -> Links:
        """Links from jobs to their observation."""
        num_jobs = self.job_graph.numel()
        return Links.of(
            torch.arange(num_jobs, device=self.job_graph.device), self.job_graph, num_jobs, self.num_graphs
        )

    @staticmethod
    def of(graphs: Graphs, device: torch.device, dtype: torch.dtype = torch.float32) -> GraphTensors:
        """Copy graphs to a device as tensors, with floats in the given precision."""
        num_stages, num_jobs = np.diff(graphs.first_stage), np.diff(graphs.first_job)
        stage_job = graphs.stage_job + np.repeat(graphs.first_job[:-1], num_stages)
        messages = (
            graphs.messages[:, 1:]
            + np.repeat(graphs.first_stage[:-1], np.diff(graphs.first_message))[:, None]
        )
        step_of = graphs.messages[:, 0]
        order = np.argsort(step_of, kind="stable")
        messages = messages[order]
        ends = np.flatnonzero(np.diff(step_of[order], append=-1)) + 1

        def move(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        steps = []
        for part in np.split(messages, ends[:-1]) if messages.size else ():
            receivers, to = _unique(part[:, 0])
            senders, source = _unique(part[:, 1])
            steps.append(Step(move(senders), move(receivers), move(np.stack([source, to]))))
        return GraphTensors(
            move(graphs.features).to(dtype),
            move(graphs.job_features).to(dtype),
            move(stage_job),
            move(np.repeat(np.arange(graphs.num_graphs), num_jobs)),
            move(np.flatnonzero(graphs.unfinished)),
            tuple(steps),
            graphs.num_graphs,
        )


def _unique(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the unique rows, ascending, and the index of each row among them; faster if rows are sorted."""
    if (rows[1:] < rows[:-1]).any():
        return np.unique(rows, return_inverse=True)
    is_first = np.append(True, rows[1:] != rows[:-1])
    return rows[is_first], np.cumsum(is_first) - 1


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of the three levels of the graph neural network.

    Attributes:
        stages: float [S, D], the paper's e_v.
        jobs: float [J, D], the paper's y_i.
        cluster: float [B, D], the paper's z.
    """

    stages: Tensor
    jobs: Tensor
    cluster: Tensor


class DenseLayers(nn.Sequential):
    """Linear layers with leaky ReLUs between them; Glorot initialisation, zero biases.

    Args:
        widths: numbers of units, input first.
        activate_last: whether an activation follows the last layer.
    """

    def __init__(self, widths: tuple[int, ...], *, activate_last: bool = False) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            linear = nn.Linear(inputs, outputs)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
            layers += [linear, nn.LeakyReLU(SLOPE)]
        super().__init__(*(layers if activate_last else layers[:-1]))
        self.activate_last = activate_last
        self.weights = tuple(self.parameters())  # cached, since collecting them is slow

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs of the last layer, float [n, outputs], for one or more inputs of n rows, side by side.

        Compiled code computes single precision on a CPU, and PyTorch everything else.
        """
        if not self.is_compiled(inputs[0]):
            outputs: Tensor = super().forward(torch.cat(inputs, dim=1))  # type: ignore[no-untyped-call]
            return outputs
        return CompiledLayers.apply(SLOPE, self.activate_last, len(inputs), *inputs, *self.weights)  # type: ignore[no-any-return, no-untyped-call]

    def is_compiled(self, inputs: Tensor) -> bool:
        """Return whether compiled code computes the layers."""
        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            return False
        return inputs.device.type == "cpu" and inputs.dtype == torch.float32


# Rows of tables.


class _SumRows(torch.autograd.Function):
    """Sum of linked rows; the gradient is the sum over the same links, in the opposite direction."""

    @staticmethod
    def forward(context: Any, values: Tensor, links: Links) -> Tensor:
        context.links = links
        return embedding_bag(links.source, values, links.ends_of_target, mode="sum", include_last_offset=True)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        links = context.links
        return embedding_bag(
            links.target, gradient.contiguous(), links.ends_of_source, mode="sum", include_last_offset=True
        ), None


def sum_rows(values: Tensor, links: Links) -> Tensor:
    """Sum the source rows that are linked to each target row, float [targets, D]; 0 without a link.

    As fast as a copy of the rows, unlike ``index_add`` and the gradient of ``index_select`` in PyTorch.

    Args:
        values: float [sources, D], source rows.
        links: links between source rows and target rows.
    """
    return _SumRows.apply(values, links)  # type: ignore[no-any-return, no-untyped-call]


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return the given rows, float [len(rows), D], as ``index_select``, with a faster gradient."""
    order = torch.arange(len(rows), device=rows.device)
    return sum_rows(values, Links.of(rows, order, len(values), len(rows)))


class _TakeRows(torch.autograd.Function):
    """Rows of a table, and the table; the gradient of the rows is added in place to the gradient of the table.

    The gradient of ``index_select`` is a new array of the size of the table, for every step of message passing.
    """

    @staticmethod
    def forward(context: Any, table: Tensor, rows: Tensor, owns_gradient: bool) -> tuple[Tensor, Tensor]:
        context.rows, context.owns_gradient = rows, owns_gradient
        context.mark_dirty(table)
        return table, table.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(context: Any, of_table: Tensor, of_rows: Tensor) -> tuple[Tensor, None, None]:
        if not context.owns_gradient:
            of_table = of_table.clone(memory_format=torch.contiguous_format)
        return of_table.index_add_(0, context.rows, of_rows), None, None


def _take_rows(table: Tensor, rows: Tensor, owns_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return a table, and the given rows of it; ``owns_gradient``: whether no other code holds its gradient."""
    return _TakeRows.apply(table, rows, owns_gradient)  # type: ignore[no-any-return, no-untyped-call]


class Encoder(nn.Module, ABC):
    """Base class of graph neural networks that embed stages, jobs and the cluster; subclass it for a custom encoder.

    Args:
        config: configuration of the policy; embeddings have width ``config.embedding``.
    """

    config: PolicyConfig

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, graphs: GraphTensors) -> Embeddings:
        """Return the embeddings of a batch, with gradients. Observations must not influence one another."""


class SumEncoder(Encoder):
    """Built-in encoder: embeds stages by message passing from children to parents, then jobs, then the cluster.

    ``e_v = g(sum over children u of f(e_u)) + x_v`` for every stage v (equation 1), with lifted features x_v. Job and
    cluster embeddings are the same kind of sum over stages and over jobs, with separate networks. If
    ``config.encoder`` is ``attention``, a weighted mean over children replaces the sum.

    Args:
        config: configuration of the policy.
        networks: networks by the names of ``PolicyConfig.layers``.
    """

    def __init__(self, config: PolicyConfig, networks: nn.ModuleDict) -> None:
        super().__init__(config)
        present = dict(networks.items())
        nothing = nn.Identity()
        self.shortcut = config.shortcut
        self.stage_input = networks["stage_input"]
        self.message, self.aggregate = networks["message"], present.get("aggregate", nothing)
        self.attention = present.get("attention")
        self.job_summary = networks["job_summary"]
        self.job_aggregate = present.get("job_aggregate", nothing)
        self.global_summary = networks["global_summary"]
        self.global_aggregate = present.get("global_aggregate", nothing)

    def embed_stages(self, graphs: GraphTensors) -> Tensor:
        """Return the embeddings of stages, float [S, D]."""
        embeddings: Tensor = self.stage_input(graphs.features)
        for index, step in enumerate(graphs.steps):
            # Other code may hold the gradient of the last embeddings, so that the last operation copies it.
            owns_gradient = index < len(graphs.steps) - 1
            if self.attention is None:
                embeddings, senders = _take_rows(embeddings, step.senders, owns_gradient)
                heard = self._sum(self.message(senders), step.links)
            else:
                embeddings, receivers = _take_rows(embeddings, step.receivers, True)
                embeddings, senders = _take_rows(embeddings, step.senders, owns_gradient)
                heard = self._attend(self.attention, self.message(senders), receivers, step)
            # In place, since no gradient needs the overwritten values.
            embeddings.index_add_(0, step.receivers, self.aggregate(heard))
        return embeddings

    def _sum(self, values: Tensor, links: Links) -> Tensor:
        """Return the sum of the linked rows, divided by the root of their number if ``root_sums``."""
        total = sum_rows(values, links)
        if not self.config.root_sums:
            return total
        counts = links.ends_of_target.diff().clamp(min=1)
        return total * counts.to(values.dtype).rsqrt()[:, None]

    def _attend(self, attention: nn.Module, sent: Tensor, receivers: Tensor, step: Step) -> Tensor:
        """Return the mean of the messages to each receiver, weighted by the softmax of attention scores."""
        source, target = step.edges
        sent = sent.index_select(0, source)
        scores = attention(torch.cat([receivers.index_select(0, target), sent], dim=1)).squeeze(1)
        top = scores.detach().new_zeros(len(receivers))
        top.scatter_reduce_(0, target, scores.detach(), "amax", include_self=False)
        weight = (scores - top.index_select(0, target)).exp()[:, None]
        nothing = sent.new_zeros(receivers.shape)
        return nothing.index_add(0, target, weight * sent) / nothing[:, :1].index_add(0, target, weight)

    def forward(self, graphs: GraphTensors) -> Embeddings:
        """Return the embeddings of a batch, with gradients."""
        stages = self.embed_stages(graphs)
        seen = [graphs.features, stages] if self.shortcut else [stages]
        if len(graphs.unfinished) < len(stages):
            seen = [take_rows(tensor, graphs.unfinished) for tensor in seen]
        jobs = self.job_aggregate(self._sum(self.job_summary(*seen), graphs.job_links))
        total = self._sum(self.global_summary(jobs), graphs.cluster_links)
        return Embeddings(stages, jobs, self.global_aggregate(total))


class StageHead(nn.Module, ABC):
    """Base class of heads that score stages: q in the paper.

    Args:
        config: configuration of the policy.
        width: number W of inputs for a stage: its features (with a shortcut or without a graph), and the embeddings
            of stage, job and cluster (with a graph).
    """

    config: PolicyConfig
    width: int

    def __init__(self, config: PolicyConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores of stages, float [n].

        Args:
            inputs: float [n, W], inputs for the stages that may be chosen.
        """


class LimitHead(nn.Module, ABC):
    """Base class of heads that score parallelism limits of jobs or of stages: w in the paper.

    Args:
        config: configuration of the policy.
        width: number W of inputs for a job: its features (with a shortcut or without a graph), and the embeddings
            of job and cluster (with a graph); as in ``StageHead`` if limits are per stage.
    """

    config: PolicyConfig
    width: int

    def __init__(self, config: PolicyConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width

    @abstractmethod
    def forward(self, inputs: Tensor, rows: Tensor, limits: Tensor) -> Tensor:
        """Return scores of limits, float [m].

        Args:
            inputs: float [n, W], inputs for jobs or stages.
            rows: int64 [m], row of ``inputs`` that each limit belongs to.
            limits: int64 [m], limits, numbers of executors from 0.
        """
