"""The graph neural network (GNN): message passing in DAGs; embeddings of stages, jobs and the cluster; heads.

Source: Decima (SIGCOMM 2019), section 5.1 and equation 1; attention as in GATv2, Brody et al. (2022), "How attentive
are graph attention networks?".
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax

from decima.policy.compiled.graphs import Graphs
from decima.policy.compiled.layers import SLOPE
from decima.policy.config import PolicyConfig

__all__ = [
    "AttentiveMessages", "Embeddings", "Encoder", "GraphTensors", "LimitHead", "StageHead",
    "StageMessages", "Step", "SumEncoder", "make_network",
]  # fmt: skip


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
        pairs = [
            torch.stack([step.senders[step.edges[0]], step.receivers[step.edges[1]]]) for step in self.steps
        ]
        edges: Tensor = torch.unique(torch.cat([self.stage_job.new_zeros(2, 0), *pairs], dim=1), dim=1)
        return edges

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
            receivers, to = np.unique(part[:, 0], return_inverse=True)
            senders, source = np.unique(part[:, 1], return_inverse=True)
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


def make_network(widths: tuple[int, ...], *, activate_last: bool = False) -> nn.Sequential:
    """Build linear layers with leaky ReLUs between them; Glorot initialisation, zero biases.

    Args:
        widths: numbers of units, input first.
        activate_last: whether an activation follows the last layer.
    """
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        linear = nn.Linear(inputs, outputs)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers.append(linear)
        if activate_last or place < len(widths) - 2:
            layers.append(nn.LeakyReLU(SLOPE))
    return nn.Sequential(*layers)


class StageMessages(MessagePassing):  # type: ignore[misc]  # PyG has no types
    """Message passing with sums: ``g(sum over children of f(e_child))`` for every receiver of a step.

    Args:
        message: network f, applied to embeddings of senders.
        aggregate: network g, applied to sums of messages.
    """

    def __init__(self, message: nn.Module, aggregate: nn.Module) -> None:
        super().__init__(aggr="sum")
        _remove_generated_code()
        self.transform = message
        self.combine = aggregate

    def forward(self, embeddings: Tensor, step: Step) -> Tensor:
        """Return the terms that the step adds to the receivers' embeddings, float [receivers, D]."""
        sent = self.transform(embeddings.index_select(0, step.senders))
        size = (step.senders.numel(), step.receivers.numel())
        heard: Tensor = self.propagate(step.edges, x=(sent, None), size=size)
        return self.combine(heard)  # type: ignore[no-any-return]

    def message(self, x_j: Tensor) -> Tensor:
        """Return the messages unchanged."""
        return x_j


def _remove_generated_code() -> None:
    """Remove the temporary file into which PyTorch Geometric writes the code of ``propagate``."""
    file = Path(sys.modules[StageMessages.propagate.__module__].__file__ or "")
    if file.parent == Path(tempfile.gettempdir()):
        file.unlink(missing_ok=True)


class AttentiveMessages(nn.Module):
    """Message passing with attention: ``g(weighted mean over children of f(e_child))`` for every receiver of a step.

    Args:
        message: network f, applied to embeddings of senders.
        aggregate: network g, applied to means of messages.
        attention: network that scores pairs of receiver and message; weights are the softmax over children.
    """

    def __init__(self, message: nn.Module, aggregate: nn.Module, attention: nn.Module) -> None:
        super().__init__()
        self.transform = message
        self.combine = aggregate
        self.attention = attention

    def forward(self, embeddings: Tensor, step: Step) -> Tensor:
        """Return the terms that the step adds to the receivers' embeddings, float [receivers, D]."""
        source, to = step.edges
        sent = self.transform(embeddings.index_select(0, step.senders)).index_select(0, source)
        hearing = embeddings.index_select(0, step.receivers).index_select(0, to)
        scores = self.attention(torch.cat([hearing, sent], dim=1)).squeeze(1)
        weight = softmax(scores, to, num_nodes=step.receivers.numel())
        heard = scatter(weight[:, None] * sent, to, dim_size=step.receivers.numel(), reduce="sum")
        return self.combine(heard)  # type: ignore[no-any-return]


class Encoder(nn.Module, ABC):
    """Base class of graph neural networks that embed stages, jobs and the cluster; subclass it for a custom encoder.

    Args:
        config: configuration of the policy; embeddings have width ``config.embedding``.
    """

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
        message, aggregate = networks["message"], present.get("aggregate", nothing)
        self.shortcut = config.shortcut
        self.stage_input = networks["stage_input"]
        self.stage_messages = (
            AttentiveMessages(message, aggregate, networks["attention"])
            if config.encoder == "attention"
            else StageMessages(message, aggregate)
        )
        self.job_summary = networks["job_summary"]
        self.job_aggregate = present.get("job_aggregate", nothing)
        self.global_summary = networks["global_summary"]
        self.global_aggregate = present.get("global_aggregate", nothing)

    def embed_stages(self, graphs: GraphTensors) -> Tensor:
        """Return the embeddings of stages, float [S, D]."""
        embeddings: Tensor = self.stage_input(graphs.features)
        for step in graphs.steps:  # in place, since no gradient needs the overwritten values
            embeddings.index_add_(0, step.receivers, self.stage_messages(embeddings, step))
        return embeddings

    def forward(self, graphs: GraphTensors) -> Embeddings:
        """Return the embeddings of a batch, with gradients."""
        stages = self.embed_stages(graphs)
        seen = torch.cat([graphs.features, stages], dim=1) if self.shortcut else stages
        summaries = self.job_summary(seen.index_select(0, graphs.unfinished))
        owner = graphs.stage_job.index_select(0, graphs.unfinished)
        jobs = self.job_aggregate(scatter(summaries, owner, dim_size=graphs.job_graph.numel(), reduce="sum"))
        summaries = self.global_summary(jobs)
        total = scatter(summaries, graphs.job_graph, dim_size=graphs.num_graphs, reduce="sum")
        return Embeddings(stages, jobs, self.global_aggregate(total))


class StageHead(nn.Module, ABC):
    """Base class of heads that score stages: q in the paper.

    Args:
        config: configuration of the policy.
        width: number W of inputs for a stage: its features (with a shortcut or without a graph), and the embeddings
            of stage, job and cluster (with a graph).
    """

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
