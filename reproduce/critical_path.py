"""Decima, section 5.1 and appendix E: which graph neural networks (GNNs) can find critical paths.

An encoder learns on random DAGs to estimate the critical path of each stage: cp(v) = work(v) + max cp(child). The test
has larger, unseen, partly complete DAGs: among stages with complete parents, it has to find the one with the longest
path. A maximum over children is no sum of a function of each child; a second function g after the sum makes it
learnable. The paper's network with two levels is nearly perfect, a single level is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from decima.policy.compiled.graphs import Graphs
from decima.policy.config import Feature, PolicyConfig
from decima.policy.encoder import GraphTensors
from decima.policy.policy import Policy
from decima.show.style import BLUE, GREY, LEGEND, RED, count_iterations, draw_band, finish_axes, new_axes
from reproduce.common import Result
from workloads import random_dag

#: Network -> whether g follows the sum over children, and its colour.
NETWORKS = {"two-level: g of the sum": (True, BLUE), "single-level: the sum": (False, RED)}
#: Ranges of the number of stages in training DAGs (TPC-H jobs have up to 18) and in test DAGs.
TRAINING_STAGES, TEST_STAGES = (5, 20), (21, 30)
BATCH, NUM_BATCHES, NUM_TESTS = 128, 80, 1000
LEARNING_RATE, MAX_GRADIENT_NORM = 7e-3, 1.0
#: Inverse temperature of the softmax over critical paths in the loss.
SHARPNESS = 5.0


def run(*, iterations: int = 2400, seeds: int = 5) -> Result:
    """Train both networks with each seed, and measure their accuracy on larger DAGs.

    Args:
        iterations: Gradient steps of a training.
        seeds: Networks of each kind that are trained.
    """
    torch.set_num_threads(1)  # more threads slow such small networks down
    curves, chances = [], []
    measured = set(np.linspace(0, iterations, 25).astype(int).tolist())
    for seed in range(seeds):
        tests = draw_dags(NUM_TESTS, TEST_STAGES, np.random.default_rng((seed, 1)))
        sizes = torch.bincount(tests.graphs.stage_job[tests.frontier])
        chances.append(float((1 / sizes).mean()))
        for network, (aggregate, _) in NETWORKS.items():
            model = StagePaths(aggregate, seed)
            for iteration in train(model, iterations, seed):
                if iteration in measured:
                    with torch.no_grad():
                        share = accuracy(model(tests.graphs), tests)
                    curves.append((network, seed, iteration, share))
    rows = pd.DataFrame(curves, columns=["network", "seed", "iteration", "accuracy"])
    final = rows[rows["iteration"] == iterations].groupby("network", sort=False)["accuracy"]
    table = final.agg(["mean", "min", "max"]).reset_index()
    table.loc[len(table)] = ["chance", np.mean(chances), np.nan, np.nan]
    formats = dict.fromkeys(("mean", "min", "max"), ".1%")
    return Result(
        {"accuracy": table}, {"critical-path": plot(rows, float(np.mean(chances)))}, formats=formats
    )


def plot(rows: pd.DataFrame, chance: float) -> Figure:
    """Draw the accuracy over iterations: mean and range over seeds."""
    figure, axes = new_axes(6, 3.5)
    for network, (_, colour) in NETWORKS.items():
        accuracies = rows[rows["network"] == network].groupby("iteration")["accuracy"]
        points = 100 * accuracies.agg(["mean", "min", "max"])
        draw_band(
            axes, points.index, points["mean"], points["min"], points["max"], label=network, color=colour
        )
    axes.axhline(100 * chance, color=GREY, linestyle="dotted", label="chance")
    count_iterations(axes)
    finish_axes(axes, xlabel="Iteration", ylabel="Accuracy on larger, unseen DAGs (%)", ylim=(0, 100))
    axes.margins(x=0)
    axes.legend(loc="lower right", **LEGEND)
    return figure


# ---- random DAGs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dags:
    """Incomplete stages of random DAGs.

    Attributes:
        graphs: B DAGs with S stages in total. The only feature, float [S, 1], is the work of a stage.
        frontier: indices of stages whose parents are all complete, int64; at least two in each DAG.
    """

    graphs: GraphTensors
    frontier: Tensor

    def with_work(self, random: np.random.Generator) -> Dags:
        """Return the same DAGs with newly drawn work, uniform up to 1."""
        work = random.random(self.graphs.features.shape, dtype=np.float32)
        return Dags(replace(self.graphs, features=torch.from_numpy(work)), self.frontier)


def draw_dags(num_dags: int, stages: tuple[int, int], random: np.random.Generator) -> Dags:
    """Draw random DAGs with random work; ``stages``: least and largest number, with complete stages."""
    drawn = [draw_dag(stages, random) for _ in range(num_dags)]
    sizes = [frontier.size for frontier, _ in drawn]
    total, nothing = sum(sizes), np.zeros(sum(sizes), np.int32)
    graphs = Graphs(
        first_stage=np.cumsum([0, *sizes]),
        first_job=np.arange(num_dags + 1),
        first_message=np.cumsum([0, *(len(messages) for _, messages in drawn)]),
        features=np.zeros((total, 1), np.float32),
        job_features=np.zeros((num_dags, 0), np.float32),
        stage_job=nothing,
        unfinished=np.ones(total, np.bool_),
        stage_index=nothing,
        low=nothing,
        high=nothing,
        messages=np.concatenate([messages for _, messages in drawn]),
    )
    frontier = np.flatnonzero(np.concatenate([frontier for frontier, _ in drawn]))
    tensors = GraphTensors.of(graphs, torch.device("cpu"))
    return Dags(tensors, torch.from_numpy(frontier)).with_work(random)


def draw_dag(
    stages: tuple[int, int], random: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Draw one DAG.

    Returns whether each incomplete stage is in the frontier, bool [stages], and messages (step, receiver, sender)
    between incomplete stages, int32 [edges, 3].
    """
    while True:
        size = int(random.integers(stages[0], stages[1] + 1))
        edges = random_dag(size, random)
        if random.random() < 0.5:  # generated DAGs have many joins; reversed DAGs have many forks
            edges = size - 1 - edges[::-1, ::-1]
        complete, waits = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        share = 0.7 * random.random()
        for stage in range(size):
            waits[stage] = not complete[edges[edges[:, 1] == stage, 0]].all()
            complete[stage] = not waits[stage] and random.random() < share
        frontier = ~waits & ~complete
        if frontier.sum() > 1:
            break
    index = np.cumsum(~complete) - 1  # among the incomplete stages
    edges = index[edges[~complete[edges[:, 0]]]]
    height = np.zeros(size, dtype=np.int64)
    for parent, child in edges[np.argsort(-edges[:, 0], kind="stable")].tolist():
        height[parent] = max(height[parent], height[child] + 1)
    messages = np.column_stack([height[edges[:, 0]] - 1, edges])
    messages = messages[np.lexsort((edges[:, 0], messages[:, 0]))]
    return frontier[~complete], messages.astype(np.int32)


def critical_paths(graphs: GraphTensors) -> Tensor:
    """Return the critical path of each stage, float [S]; the feature of a stage is its work."""
    paths = graphs.features[:, 0].clone()
    for step in graphs.steps:
        source, to = step.edges
        longest = paths.new_zeros(step.receivers.numel())
        longest.scatter_reduce_(0, to, paths[step.senders[source]], "amax")
        paths.index_add_(0, step.receivers, longest)
    return paths


# ---- networks and their training ---------------------------------------------------------------------------


class StagePaths(nn.Module):
    """The encoder of a policy, with or without g, and a linear readout of stage embeddings."""

    def __init__(self, aggregate: bool, seed: int, embedding: int = 16) -> None:
        super().__init__()
        work = Feature(name="unclaimed_work_ms")
        config = PolicyConfig(stage_features=(work,), embedding=embedding, aggregate=aggregate, limit="none")
        self.encoder = Policy(config, seed).encoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.readout = nn.Linear(embedding, 1)

    def forward(self, graphs: GraphTensors) -> Tensor:
        """Estimate the critical path of each stage, float [S]."""
        return self.readout(self.encoder.embed_stages(graphs)).squeeze(1)


def train(model: StagePaths, iterations: int, seed: int) -> Iterator[int]:
    """Train a model in place, on DAGs with newly drawn work in each iteration.

    Yields the number of iterations done, before the first iteration (0) and after each.
    """
    random = np.random.default_rng((seed, 0))
    batches = [draw_dags(BATCH, TRAINING_STAGES, random) for _ in range(min(NUM_BATCHES, iterations))]
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, LEARNING_RATE, total_steps=iterations, pct_start=0.1
    )
    yield 0
    for iteration in range(iterations):
        dags = batches[iteration % len(batches)].with_work(random)
        optimiser.zero_grad()
        loss(model(dags.graphs), dags).backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimiser.step()
        schedule.step()
        yield iteration + 1


def loss(estimates: Tensor, dags: Dags) -> Tensor:
    """Return the training loss: relative errors of critical paths, plus cross-entropy of the tested choice."""
    paths = critical_paths(dags.graphs)
    off = (estimates - paths) / (paths + 0.3)
    chance = softmax(SHARPNESS * estimates[dags.frontier], dags)
    right = chance[is_longest(paths, dags)].clamp_min(torch.finfo(chance.dtype).tiny)
    return 10 * functional.smooth_l1_loss(off, torch.zeros_like(off), beta=0.1) - right.log().mean()


def softmax(scores: Tensor, dags: Dags) -> Tensor:
    """Return the softmax over the frontier of each DAG, float [frontier]."""
    owner = dags.graphs.stage_job[dags.frontier]
    weights = (scores - largest(scores.detach(), dags)).exp()
    totals = weights.new_zeros(dags.graphs.num_graphs).scatter_add_(0, owner, weights)
    return weights / totals[owner]


def accuracy(estimates: Tensor, dags: Dags) -> float:
    """Return the share of DAGs whose frontier stage with the largest estimate, float [S], has the longest path."""
    right = is_longest(estimates, dags) & is_longest(critical_paths(dags.graphs), dags)
    return float(right.sum()) / dags.graphs.num_graphs


def is_longest(paths: Tensor, dags: Dags) -> Tensor:
    """Mark frontier stages with the largest value in their DAG, bool [frontier]."""
    values = paths[dags.frontier]
    return values == largest(values, dags)


def largest(values: Tensor, dags: Dags) -> Tensor:
    """Return for each frontier stage the largest value in the frontier of its DAG, float [frontier]."""
    owner = dags.graphs.stage_job[dags.frontier]
    maxima = values.new_full((dags.graphs.num_graphs,), -torch.inf)
    return maxima.scatter_reduce_(0, owner, values, "amax")[owner]
