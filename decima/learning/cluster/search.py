"""Direct policy search: pairs of episodes improve the last layers of both heads of a trained policy.

The greedy policy runs each job sequence twice, with the same task noise, and with weights changed in opposite random
directions; the difference of the objective estimates its derivative in this direction. These are evolution strategies
with antithetic sampling (Salimans et al., 2017; Mania et al., 2018, "Simple random search provides a competitive
approach to reinforcement learning"). In streams, thousands of decisions share each return, so that policy gradients of
a good policy are mostly noise; a difference of whole episodes needs no credit assignment, but only few weights can be
searched. Needs no PyTorch until an update, since worker processes import this module.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decima.learning.cluster.rollout import EpisodePlan, Shared, Trajectories, roll_out_plans
from decima.learning.cluster.validation import evaluate_weights
from decima.policy import batches
from decima.settings import SEARCH, Count, Positive, Section
from workloads.arrivals import RandomStream, random_stream
from workloads.declaration import described

if TYPE_CHECKING:
    import torch

    from decima.learning.cluster.config import TrainingConfig
    from decima.policy.policy import Policy

__all__ = ["SearchSection", "improve", "make_optimiser", "score_metrics"]

HEADS = ("stage_head", "limit_head")
#: Share of the steps' direction that older iterations have.
MOMENTUM = 0.8
#: Number of job sequences from which the metric of the weights is estimated, and share of the decisions in them.
SEQUENCES, SAMPLED = 4, 0.1
#: Added to the eigenvalues of covariance matrices, relative to their mean.
RIDGE = 1e-3

Floats = NDArray[np.float64]
#: Runs a function on each item in the workers, see ``TrainingLoop``.
Run = Callable[[Callable[[Shared, Any], Any], Sequence[Any]], list[Any]]


class SearchSection(Section):
    """Direct search in the last layers of both heads, instead of reinforcement learning."""

    pairs: Count = described(48, "number of pairs of episodes in an iteration, each on its own job sequence")
    noise: Positive = described(
        0.15, "random change of the scores in an episode, relative to their standard deviation in a decision"
    )
    step: Positive = described(
        0.1, "change of the scores in an iteration at the beginning, likewise; smaller where directions vary"
    )
    final_step: Positive = described(0.015, "change at the end; geometric in between")

    def check(self, config: TrainingConfig) -> None:
        """Refuse settings that have no effect, and policies that cannot be searched.

        Raises:
            ValueError: a setting has no effect beside ``search``, or the last layer of a head has not one output.
        """
        for name in ("episodes", "curriculum", "returns", "baseline", "critic", "update"):
            if getattr(config, name) != type(config).model_fields[name].default:
                raise ValueError(f"{name}: has no effect beside search")
        policy = config.policy.build()
        if policy.limit == "outputs" or (policy.stage_head, policy.limit_head) != ("layers", "layers"):
            raise ValueError("search: expected built-in heads, and not the limit outputs")

    def step_at(self, progress: float) -> float:
        """Return the step after this fraction of the training."""
        return math.exp((1 - progress) * math.log(self.step) + progress * math.log(self.final_step))


def make_optimiser(policy: Policy) -> torch.optim.Optimizer:
    """Return the optimiser of the last layers: gradient descent with momentum."""
    import torch

    weights = [layer.weight for layer in _last_layers(policy).values()]
    return torch.optim.SGD(weights, lr=1.0, momentum=MOMENTUM, dampening=MOMENTUM)


def improve(
    policy: Policy, optimiser: torch.optim.Optimizer, config: TrainingConfig, iteration: int, run: Run
) -> dict[str, float]:
    """Run the pairs of an iteration, and take a step along the estimated gradient.

    The step has a fixed length in the metric of ``score_metrics``, since the gradient's own length is mostly noise.

    Returns:
        Metrics by name.

    Raises:
        NotFiniteError: a weight is not finite.
    """
    import torch

    from decima.learning.cluster.reinforce import signal_of
    from decima.learning.loop import take_step

    search = config.search
    arrays, step = policy.arrays, search.step_at(iteration / config.iterations)
    seeds = config.training_seeds[iteration * search.pairs : (iteration + 1) * search.pairs]
    plans = [
        [EpisodePlan(seed, math.inf, config.seed, iteration, episode, SAMPLED)]
        for episode, seed in enumerate(seeds[:SEQUENCES])
    ]
    metrics = score_metrics(policy, Trajectories.concatenate(run(partial(roll_out_plans, arrays), plans)))

    random = random_stream(config.seed, RandomStream.TRAINING, SEARCH, iteration)
    directions = random.standard_normal((search.pairs, sum(map(len, metrics.values()))))
    changes = [_changes(metrics, search.noise * direction) for direction in directions]
    table = np.array(run(partial(run_pair, arrays), [*zip(seeds, changes, strict=True)]))

    objective = table[:, :, 2]
    sums = objective.sum(axis=1)
    differences = np.divide(objective[:, 0] - objective[:, 1], sums, out=np.zeros_like(sums), where=sums != 0)
    gradients = differences[:, None] * directions
    gradient = gradients.mean(axis=0)
    length = float(np.linalg.norm(gradient)) or 1.0
    along = _changes(metrics, math.sqrt(gradient.size) / length * gradient)
    for name, layer in _last_layers(policy).items():
        layer.weight.grad = torch.from_numpy(along[name]).to(layer.weight)
    optimiser.param_groups[0]["lr"] = step
    take_step(policy, optimiser)
    return {
        "mean_jct_s": float(table[:, :, 0].mean()) / 1000,
        "gradient_signal": signal_of(torch.from_numpy(gradients)),
        "learning_rate": step,
    }


def run_pair(
    weights: Mapping[str, NDArray[np.float32]], shared: Shared, work: tuple[int, Mapping[str, Floats]]
) -> Floats:
    """Run a job sequence with the changes of the last layers added, and subtracted.

    The episodes have no guard: a search with it finds policies that rely on it.

    Args:
        work: seed of the sequence, and changes by the name of the weights.

    Returns:
        float64 [2, 3], rows of ``evaluate_policy``.
    """
    seed, changes = work
    rows = []
    for sign in (1, -1):
        changed = dict(weights)
        for name, change in changes.items():
            changed[name] = (weights[name] + sign * change).astype(np.float32)
        rows.append(evaluate_weights(changed, shared, [seed], guard=False))
    return np.concatenate(rows)


def score_metrics(policy: Policy, samples: Trajectories) -> dict[str, Floats]:
    """Return for each head the matrix that maps a direction to a change of the last layer's H weights.

    In a decision, the scores that follow from independent directions of standard normal distribution change
    independently, on average by the standard deviation that the scores have now. Without this metric, most changes of
    the weights would shift all scores alike, which has no effect.

    Args:
        policy: policy whose heads are built in.
        samples: decisions of the policy.

    Returns:
        float64 [H, H] by the name of the weights.
    """
    import torch

    network = copy.deepcopy(policy).cpu().double()  # compiled layers, of single precision, call no hooks
    inputs: dict[str, list[Floats]] = {}
    layers = _last_layers(network)
    for name, layer in layers.items():
        rows = inputs.setdefault(name, [])
        layer.register_forward_pre_hook(lambda _, values, rows=rows: rows.append(values[0].numpy()))
    with torch.no_grad():
        for part in np.arange(len(samples))[:, None]:
            network(batches.select(samples.graphs, part), samples.stage[part], samples.limit[part])
    metrics = {}
    for name, layer in layers.items():
        weights = layer.weight.detach().numpy()[0]
        centred = np.concatenate(
            [np.zeros((1, weights.size)), *(rows - rows.mean(axis=0) for rows in inputs[name])]
        )
        covariance = centred.T @ centred / len(centred)
        values, vectors = np.linalg.eigh(covariance)
        values += RIDGE * values.mean() + np.finfo(float).tiny
        deviation = math.sqrt(weights @ covariance @ weights)
        metrics[name] = deviation / math.sqrt(weights.size) * (vectors / np.sqrt(values)) @ vectors.T
    return metrics


def _changes(metrics: Mapping[str, Floats], direction: Floats) -> dict[str, Floats]:
    """Return the changes of the last layers' weights in a direction, float64 [1, H] by name."""
    ends = np.cumsum([len(metric) for metric in metrics.values()])[:-1]
    parts = np.split(direction, ends)
    return {name: (metric @ part)[None] for (name, metric), part in zip(metrics.items(), parts, strict=True)}


def _last_layers(policy: Policy) -> dict[str, torch.nn.Linear]:
    """Return the last layer of each head, by the name of its weights in ``Policy.arrays``."""
    last = {
        name: (f"{name}.{index}.weight", layer) for name, index, layer in policy.layers() if name in HEADS
    }
    return dict(last.values())
