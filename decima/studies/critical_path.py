"""Section 5.1 and appendix E of the Decima paper: which graph neural networks (GNNs) can find critical paths.

An encoder is trained on random DAGs, by supervised learning, to estimate the critical path of each stage: the largest
work on any path from the stage, cp(v) = work(v) + max cp(child). The test uses larger, unseen, partly complete DAGs:
among stages with complete parents, the encoder has to find the one with the longest critical path. A maximum over
children is not a sum of a function of each child. A second function, g, after the sum makes it learnable; the sum
alone, as in common GNNs, does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.utils import softmax

from decima.policy.compiled.graphs import Graphs
from decima.policy.config import Feature, PolicyConfig
from decima.policy.encoder import GraphTensors, SumEncoder
from decima.policy.policy import Policy
from decima.policy.threads import one_thread
from decima.show.style import BLUE, GREY, LEGEND, RED, count_iterations, draw_band, finish_axes, new_axes
from decima.show.tables import table_of
from decima.studies.outcome import Outcome, Setup
from workloads.sources.synthetic import random_dag

#: Displayed name of a network -> whether g follows the sum over children.
LEVELS = {"two-level": True, "single-level": False}

#: Ranges of the number of stages in training DAGs (TPC-H jobs have up to 18) and in test DAGs.
LEARN_STAGES, TEST_STAGES = (5, 20), (21, 30)
#: Gradient steps at full size; DAGs in a training batch, training batches, and DAGs in the test.
ITERATIONS = 2400
BATCH, NUM_BATCHES, NUM_TESTS = 128, 80, 1000
LEARNING_RATE, MAX_GRADIENT_NORM = 7e-3, 1.0
#: Largest work of a stage, in the same unit as critical paths.
MOST_WORK = 1.0
#: Inverse temperature of the softmax over critical paths.
SHARPNESS = 5.0


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
        """Return the same DAGs with newly drawn work, uniform up to ``MOST_WORK``."""
        work = random.random(self.graphs.features.shape, dtype=np.float32) * np.float32(MOST_WORK)
        return Dags(replace(self.graphs, features=torch.from_numpy(work)), self.frontier)


def draw_dags(num_dags: int, stages: tuple[int, int], random: np.random.Generator) -> Dags:
    """Draw random DAGs with random work; ``stages``: least and largest number, with complete stages."""
    drawn = [_draw_dag(stages, random) for _ in range(num_dags)]
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
        place=nothing,
        low=nothing,
        high=nothing,
        messages=np.concatenate([messages for _, messages in drawn]),
    )
    frontier = np.flatnonzero(np.concatenate([frontier for frontier, _ in drawn]))
    tensors = GraphTensors.of(graphs, torch.device("cpu"))
    return Dags(tensors, torch.from_numpy(frontier)).with_work(random)


def _draw_dag(
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
        order = np.argsort(edges[:, 1], kind="stable")
        ends = np.searchsorted(edges[order, 1], np.arange(size + 1))
        for stage in range(size):
            waits[stage] = not complete[edges[order[ends[stage] : ends[stage + 1]], 0]].all()
            complete[stage] = not waits[stage] and random.random() < share
        frontier = ~waits & ~complete
        if frontier.sum() > 1:
            break
    left = np.cumsum(~complete) - 1
    edges = left[edges[~complete[edges[:, 0]]]]
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


class StagePaths(nn.Module):
    """The encoder of a policy, with or without g, and a linear readout of stage embeddings."""

    def __init__(self, aggregate: bool, seed: int, embedding: int = 16) -> None:
        super().__init__()
        work = Feature(name="unclaimed_work_ms")
        config = PolicyConfig(stage_features=(work,), embedding=embedding, aggregate=aggregate, limit="none")
        encoder = Policy(config, seed).encoder
        assert isinstance(encoder, SumEncoder)
        self.encoder = encoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.readout = nn.Linear(embedding, 1)

    def forward(self, graphs: GraphTensors) -> Tensor:
        """Estimate the critical path of each stage, float [S]."""
        paths: Tensor = self.readout(self.encoder.embed_stages(graphs))
        return paths.squeeze(1)


def accuracy(estimates: Tensor, dags: Dags) -> float:
    """Return the share of DAGs whose frontier stage with the largest estimate, float [S], has the longest path."""
    right = _is_longest(estimates, dags) & _is_longest(critical_paths(dags.graphs), dags)
    return float(right.sum()) / dags.graphs.num_graphs


def _is_longest(paths: Tensor, dags: Dags) -> Tensor:
    """Mark frontier stages with the largest value in their DAG, bool [frontier]."""
    values, owner = paths[dags.frontier], dags.graphs.stage_job[dags.frontier]
    largest = values.new_full((dags.graphs.num_graphs,), -torch.inf)
    return values == largest.scatter_reduce_(0, owner, values, "amax")[owner]


def _loss(estimates: Tensor, dags: Dags) -> Tensor:
    """Return the training loss: relative errors of critical paths, plus cross-entropy of the tested choice."""
    paths = critical_paths(dags.graphs)
    off = (estimates - paths) / (paths + 0.3 * MOST_WORK)
    owner = dags.graphs.stage_job[dags.frontier]
    chance = softmax(SHARPNESS * estimates[dags.frontier], owner, num_nodes=dags.graphs.num_graphs)
    right = chance[_is_longest(paths, dags)].clamp_min(torch.finfo(chance.dtype).tiny)
    loss: Tensor = 10 * functional.smooth_l1_loss(off, torch.zeros_like(off), beta=0.1) - right.log().mean()
    return loss


def train(model: StagePaths, iterations: int, seed: int) -> Iterator[int]:
    """Train a model in place, on DAGs with newly drawn work in each iteration.

    Yields the number of iterations done, before the first iteration (0) and after each.
    """
    random = np.random.default_rng((seed, 0))
    batches = [draw_dags(BATCH, LEARN_STAGES, random) for _ in range(min(NUM_BATCHES, iterations))]
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, LEARNING_RATE, total_steps=iterations, pct_start=0.1
    )
    yield 0
    for iteration in range(iterations):
        dags = batches[iteration % len(batches)].with_work(random)
        optimiser.zero_grad()
        _loss(model(dags.graphs), dags).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimiser.step()
        schedule.step()
        yield iteration + 1


def measure(
    seeds: Sequence[int] = (0, 1, 2),
    iterations: int = ITERATIONS,
    num_measurements: int = 24,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[pd.DataFrame, float]:
    """Train both networks with each seed, on one thread, as more threads slow such small networks down.

    Returns:
        Learning curves, one row per measurement; columns ``iteration`` (int64), ``accuracy`` (float64, fraction of
        test DAGs), ``network`` (str, key of ``LEVELS``) and ``seed`` (int64). And the accuracy of random choices.
    """
    curves: list[pd.DataFrame] = []
    chances: list[float] = []
    steps, total = itertools.count(1), len(seeds) * len(LEVELS) * iterations
    stops = set(np.linspace(0, iterations, num_measurements + 1).astype(int).tolist())
    with one_thread():
        for seed in seeds:
            tests = draw_dags(NUM_TESTS, TEST_STAGES, np.random.default_rng((seed, 1)))
            sizes = torch.bincount(tests.graphs.stage_job[tests.frontier])
            chances.append(float((1 / sizes).mean()))
            for network, aggregate in LEVELS.items():
                model, rows = StagePaths(aggregate, seed), []
                for iteration in train(model, iterations, seed):
                    if iteration in stops:
                        with torch.no_grad():
                            rows.append((iteration, accuracy(model(tests.graphs), tests)))
                    if iteration:
                        on_step(next(steps), total)
                curve = pd.DataFrame(rows, columns=["iteration", "accuracy"])
                curves.append(curve.assign(network=network, seed=seed))
    return pd.concat(curves, ignore_index=True), float(np.mean(chances))


def final(curves: pd.DataFrame) -> pd.DataFrame:
    """Return accuracies after training; rows are networks, columns are seeds."""
    last = curves[curves["iteration"] == curves["iteration"].max()]
    table: pd.DataFrame = last.pivot_table("accuracy", "network", "seed").loc[list(LEVELS)]
    return table


def critical_path(setup: Setup, seeds: int, budget: float) -> Outcome:
    """Measure which networks find critical paths; ``budget`` is the factor on iterations."""
    iterations = max(1, round(budget * ITERATIONS))
    curves, chance = measure(range(seeds), iterations, on_step=partial(setup.tell, "training"))
    return Outcome(
        "critical-path",
        curves,
        [accuracy_table(curves, chance)],
        [
            "Accuracy: share of the DAGs in which the network chooses, among the stages whose parents are complete, "
            "the one with the longest critical path.",
            f"Learned in {iterations} iterations from smaller DAGs ({_range(LEARN_STAGES)} stages); the "
            "test DAGs are unseen.",
            "The paper's network with two levels is nearly perfect, with one it is not (appendix E).",
        ],
        extra={
            "curves": curves.to_dict("records"),
            "learn_stages": LEARN_STAGES,
            "test_stages": TEST_STAGES,
            "chance": chance,
        },
        pictures={"critical-path": partial(plot_accuracy, curves, chance)},
    )


#: Network -> label and colour in the picture.
_LOOKS = {"two-level": ("two-level: g of the sum", BLUE), "single-level": ("single-level: the sum", RED)}


def accuracy_table(curves: pd.DataFrame, chance: float) -> Table:
    """Return the table of accuracies after training, percent."""
    accuracies = final(curves)
    found = accuracies.agg(["mean", "min", "max"], axis=1)
    title = f"Critical paths in DAGs of {_range(TEST_STAGES)} stages, {len(accuracies.columns)} seeds"
    rows = ((_LOOKS[str(name)][0], *row) for name, row in found.iterrows())
    headings = ("Aggregation", "Mean", "Lowest", "Highest")
    return table_of(title, headings, (*rows, ("chance", chance, None, None)), ".1%")


def plot_accuracy(curves: pd.DataFrame, chance: float) -> Figure:
    """Draw the accuracy over iterations: mean and range over seeds."""
    figure, axes = new_axes(6, 3.5)
    for network, rows in curves.groupby("network", sort=False):
        points = 100 * rows.groupby("iteration")["accuracy"].agg(["mean", "min", "max"])
        label, colour = _LOOKS[str(network)]
        draw_band(axes, points.index, *(points[each] for each in points), label=label, color=colour)
    axes.axhline(100 * chance, color=GREY, linestyle="dotted", label="chance")
    count_iterations(axes)
    finish_axes(axes, xlabel="Iteration", ylabel="Accuracy on larger, unseen DAGs (%)", ylim=(0, 100))
    axes.margins(x=0)
    axes.legend(loc="lower right", **LEGEND)
    return figure


def _range(stages: tuple[int, int]) -> str:
    return f"{stages[0]} to {stages[1]}"
