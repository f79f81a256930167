"""Direct search: the last layers of both heads move along differences of pairs of episodes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.rollout import Episode, Shared, Trajectories, roll_out
from decima.learning.cluster.search import HEADS, improve, make_optimiser, run_pair, score_metrics
from decima.learning.cluster.validation import evaluate_policy
from decima.policy import batches
from decima.policy.policy import Policy
from decima.settings import parse_settings
from tests.decima.learning.cluster.examples import SMALL
from tests.decima.learning.examples import Runs, stop_after

#: A search of a second or two; the sections of reinforcement learning have no effect.
SEARCH: dict[str, Any] = {
    **{name: value for name, value in SMALL.items() if name not in ("episodes", "update")},
    "policy": {"preset": "relative"},
    "search": {"pairs": 3},
}
LAST = [f"{head}.2.weight" for head in HEADS]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs("cluster", tmp_path)


def searching(runs: Runs, **changes: Any) -> TrainingConfig:
    profiles = runs.config().workload.file
    document = SEARCH | {"workload": {"file": str(profiles), "jobs": 4}} | changes
    return parse_settings(TrainingConfig, document, "search")


def decisions(config: TrainingConfig, policy: Policy) -> Trajectories:
    conditions = config.conditions()
    random = np.random.default_rng(0)
    return roll_out(policy, [Episode(policy.config, conditions.cluster, conditions.sequence(1), random=random)])


def test_only_the_last_layers_of_the_heads_change(runs: Runs) -> None:
    config = searching(runs)
    runs.train(config)
    start = Policy(config.policy.build(), seed=config.seed).state_dict()
    [*changed] = [
        name
        for name, weight in runs.trainer(config, resume=True).networks["policy"].state_dict().items()
        if not torch.equal(weight, start[name])
    ]
    assert [name.split(".")[1] for name in changed] == [*HEADS]
    assert all(start[name].shape == (1, 16) for name in changed)


def test_an_interrupted_search_resumes_and_workers_do_not_matter(runs: Runs) -> None:
    config = searching(runs)
    runs.train(config, "whole", workers=2)
    with pytest.raises(RuntimeError):
        runs.trainer(config).run(stop_after(1, RuntimeError))
    runs.train(config, resume=True)
    runs.assert_same("whole", "out")


def test_episodes_of_a_pair_differ_in_opposite_directions(runs: Runs) -> None:
    config = searching(runs)
    policy = Policy(config.policy.build())
    shared = Shared(config.conditions(), policy.config)
    change = {name: np.random.default_rng(3).normal(size=(1, 16)) for name in LAST}
    opposite = {name: -value for name, value in change.items()}
    plus, minus = run_pair(policy.arrays, shared, (7, change))
    assert plus.tolist() != minus.tolist()
    np.testing.assert_array_equal(run_pair(policy.arrays, shared, (7, opposite)), [minus, plus])
    same = run_pair(policy.arrays, shared, (7, {name: 0 * value for name, value in change.items()}))
    assert same[0].tolist() == same[1].tolist()


def test_no_guard_helps_a_policy_that_waits(runs: Runs) -> None:
    config = searching(runs)
    policy = Policy(config.policy.build(), seed=3)
    shared = Shared(config.conditions(), policy.config)
    alone, guarded = (evaluate_policy(shared.conditions, policy, [7], guard=guard)[0] for guard in (False, True))
    assert alone[0] > guarded[0]
    unchanged = {name: np.zeros((1, 16)) for name in LAST}
    assert run_pair(policy.arrays, shared, (7, unchanged)).tolist() == [alone.tolist()] * 2


def test_random_directions_change_the_scores_by_their_standard_deviation(runs: Runs) -> None:
    config = searching(runs)
    policy = Policy(config.policy.build(), seed=4)
    samples = decisions(config, policy)
    metrics = score_metrics(policy, samples)
    random = np.random.default_rng(5)
    before: list[float] = []
    after: list[float] = []
    for _ in range(40):
        arrays = {name: array.copy() for name, array in policy.arrays.items()}
        name = LAST[0]
        arrays[name] = (metrics[name] @ random.standard_normal(16))[None].astype(np.float32)  # the change alone
        changed = Policy(policy.config)
        changed.take(arrays)
        for network, spreads in ((policy, before), (changed, after)):
            spreads += [variance(network, samples, part) for part in np.arange(len(samples))[:, None]]
    assert np.sum(after) == pytest.approx(np.sum(before), rel=0.3)


def variance(policy: Policy, samples: Trajectories, part: np.ndarray[Any, Any]) -> float:
    """Return the sum of squared deviations of the stages' scores in a decision."""
    graph = batches.select(samples.graphs, part)
    batch = policy.tensors(graph)
    with torch.no_grad():
        scores = policy.stage_scores(batch, policy.embed(batch), np.flatnonzero(graph.high > graph.low))
    return float((scores - scores.mean()).square().sum())


def test_the_search_finds_the_minimum_of_a_known_objective(runs: Runs) -> None:
    """The objective of an episode is the squared distance to a goal in the metric, with noise that pairs share."""
    config = searching(runs, iterations=40, search={"pairs": 40, "noise": 0.3, "step": 0.3, "final_step": 0.003})
    policy = Policy(config.policy.build())
    samples = decisions(config, policy)
    metrics = score_metrics(policy, samples)
    start = {name: policy.arrays[name].copy() for name in LAST}
    random = np.random.default_rng(6)
    goal = {name: start[name] + 0.5 * metrics[name] @ random.standard_normal(16) for name in LAST}
    inverse = {name: np.linalg.inv(metrics[name]) for name in LAST}

    def distance(weights: dict[str, Any]) -> float:
        return float(sum(np.sum(np.square(inverse[name] @ (weights[name] - goal[name])[0])) for name in LAST))

    def run(function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        [arrays] = function.args  # type: ignore[attr-defined]
        if function.func is not run_pair:  # type: ignore[attr-defined]
            return [samples]
        rows = []
        for seed, change in items:
            noise = 100 + np.random.default_rng(seed).normal()
            both = [{name: arrays[name] + sign * change[name] for name in LAST} for sign in (1, -1)]
            rows.append([[0, 0, noise + distance(weights)] for weights in both])
        return rows

    optimiser = make_optimiser(policy)
    far = distance(policy.arrays)
    steps = [improve(policy, optimiser, config, iteration, run) for iteration in range(config.iterations)]
    assert distance(policy.arrays) < 0.1 * far
    assert [steps[0]["learning_rate"], steps[-1]["learning_rate"]] == pytest.approx([0.3, 0.003], rel=0.2)
    assert steps[0]["gradient_signal"] == pytest.approx(1 / (2 * 16 + 2), rel=0.5)  # without noise
