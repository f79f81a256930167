from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from decima.learning.cluster.curriculum import EpisodeSpec
from decima.learning.cluster.rollout import Trajectories, roll_out, roll_out_scheduler
from decima.learning.updates import UpdateReport, clone_behaviour, parts_of, ppo, reinforce
from decima.policy.config import SHORTCUT_POLICY, Feature, PolicyConfig
from decima.policy.errors import NotFiniteError
from decima.policy.graphs import Graphs
from decima.policy.policy import Policy
from decima.registry import make_scheduler
from simulator import ClusterConfig, run_episode
from tests.decima.evaluation.examples import LIBRARY
from workloads import batch_arrivals

CLUSTER = ClusterConfig(num_executors=4)
#: A stage's score is linear in its two features, and there are no limits to choose.
LINEAR = PolicyConfig(
    stage_features=(Feature(name="unclaimed_tasks"), Feature(name="mean_task_ms")),
    graph=False,
    head_hidden=(),
    limit="none",
)


def linear_samples(features: NDArray[np.float32], chosen: list[int]) -> Trajectories:
    """Observations with three stages that may be chosen, features float32 [n, 3, 2]."""
    size = len(chosen)
    pointer = np.arange(size + 1)
    graphs = Graphs(
        first_stage=3 * pointer,
        first_job=pointer,
        first_message=0 * pointer,
        features=features.reshape(-1, 2),
        job_features=np.zeros((size, 0), np.float32),
        stage_job=np.zeros(3 * size, np.int32),
        unfinished=np.ones(3 * size, bool),
        place=np.tile(np.arange(3, dtype=np.int32), size),
        low=np.zeros(3 * size, np.int32),
        high=np.ones(3 * size, np.int32),
        messages=np.zeros((0, 3), np.int32),
    )
    return Trajectories(
        graphs=graphs,
        stage=np.array(chosen, np.int32),
        limit=np.ones(size, np.int32),
        log_probability=np.zeros(size, np.float32),
        time_ms=np.arange(float(size)),
        reward=np.zeros(size),
        load=np.zeros((size, 7)),
        arrived=np.ones(size, np.int64),
        first=np.array([0, size]),
        end_ms=np.array([float(size)]),
        end_load=np.zeros((1, 7)),
        num_executors=np.array([4]),
        num_decisions=np.array([size]),
        mean_jct_ms=np.array([1.0]),
        num_completed=np.array([1]),
    )


def sampled(policy: Policy, seed: int = 0) -> Trajectories:
    sequence = batch_arrivals(LIBRARY.profiles, 5, seed)
    return roll_out(
        policy, [EpisodeSpec(sequence, CLUSTER, random=np.random.default_rng(each)) for each in range(3)]
    )


def advantages(samples: Trajectories) -> NDArray[np.float64]:
    return np.random.default_rng(1).standard_normal(len(samples))


def weights(policy: Policy) -> NDArray[np.float32]:
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in policy.parameters()])


def step(policy: Policy) -> torch.optim.Optimizer:
    """Plain gradient descent, so that the step is the gradient."""
    return torch.optim.SGD(policy.parameters(), lr=1.0)


def run_reinforce(policy: Policy, samples: Trajectories, **changes: Any) -> UpdateReport:
    given = {"advantage": advantages(samples), "entropy_weight": 0.0, "max_gradient_norm": 1e9, "chunk": 64}
    return reinforce(partial(samples.evaluate, policy), policy, step(policy), **given | changes)


def run_ppo(policy: Policy, samples: Trajectories, **changes: Any) -> UpdateReport:
    given: dict[str, Any] = {"advantage": advantages(samples), "old_log_probability": samples.log_probability}
    given |= {"entropy_weight": 0.0, "max_gradient_norm": 1e9, "clip": 0.2, "epochs": 1, "minibatches": 1}
    given |= {"max_kl": 1e9, "random": np.random.default_rng(0)}
    return ppo(partial(samples.evaluate, policy), policy, step(policy), **given | changes)


def test_reinforce_takes_the_gradient_that_was_computed_by_hand() -> None:
    """Of sum(log p * advantage) and of the entropy, both per sample, for a softmax of linear scores."""
    random = np.random.default_rng(5)
    features = random.standard_normal((4, 3, 2)).astype(np.float32)
    chosen, gain, entropy_weight = [2, 0, 1, 1], np.array([1.5, -0.7, 0.2, -2.0]), 0.3
    policy = Policy(LINEAR, seed=1)
    before = weights(policy)[:2]
    expected = np.zeros(2)
    entropies = []
    for x, choice, advantage in zip(features.astype(float), chosen, gain, strict=True):
        score = x @ before
        p = np.exp(score) / np.exp(score).sum()
        entropy = -(p * np.log(p)).sum()
        expected += advantage * (x[choice] - p @ x) / 4
        expected += entropy_weight * -(p * (np.log(p) + entropy)) @ x / 4
        entropies.append(entropy)
    report = run_reinforce(
        policy, linear_samples(features, chosen), advantage=gain, entropy_weight=entropy_weight
    )
    np.testing.assert_allclose(weights(policy)[:2] - before, expected, rtol=1e-4, atol=1e-6)
    assert report.entropy == pytest.approx(np.mean(entropies), rel=1e-5)
    assert report.gradient_norm == pytest.approx(float(np.linalg.norm(expected)), rel=1e-4)
    assert (report.kl, report.clipped, report.steps) == (0, 0, 1)


def test_the_pieces_of_a_pass_do_not_show() -> None:
    policies = [Policy(SHORTCUT_POLICY, seed=2) for _ in range(2)]
    samples = sampled(policies[0])
    for policy, chunk in zip(policies, (7, 100_000), strict=True):
        run_reinforce(policy, samples, chunk=chunk, entropy_weight=0.1)
    np.testing.assert_allclose(weights(policies[0]), weights(policies[1]), atol=1e-5)


def test_a_long_gradient_is_clipped() -> None:
    policy = Policy(SHORTCUT_POLICY, seed=2)
    samples, before = sampled(policy), weights(policy)
    report = run_reinforce(policy, samples, advantage=100 * advantages(samples), max_gradient_norm=0.25)
    assert report.gradient_norm > 1
    assert np.linalg.norm(weights(policy) - before) == pytest.approx(0.25, rel=1e-3)


def test_the_first_step_of_ppo_is_that_of_reinforce() -> None:
    """While nothing has changed, all ratios are 1."""
    policies = [Policy(SHORTCUT_POLICY, seed=2) for _ in range(2)]
    samples, before = sampled(policies[0]), weights(policies[0])
    run_reinforce(policies[0], samples, entropy_weight=0.1)
    report = run_ppo(policies[1], samples, entropy_weight=0.1)
    one, other = (weights(policy) - before for policy in policies)
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.99999
    assert np.linalg.norm(one) == pytest.approx(np.linalg.norm(other), rel=1e-3)
    assert report.kl == pytest.approx(0.0, abs=1e-5)
    assert report.clipped == 0


@pytest.mark.parametrize(("advantage", "moves"), [(1.0, False), (-1.0, True)])
def test_ppo_does_not_follow_gains_beyond_the_clip(advantage: float, moves: bool) -> None:
    """All choices are e times as likely as when they were made."""
    policy = Policy(SHORTCUT_POLICY, seed=2)
    samples, before = sampled(policy), weights(policy)
    samples = replace(samples, log_probability=samples.log_probability - 1)
    report = run_ppo(policy, samples, advantage=np.full(len(samples), advantage))
    assert bool((weights(policy) != before).any()) == moves
    assert report.clipped == 1
    assert report.kl == pytest.approx(math.e - 2, rel=1e-3)


def test_ppo_stops_when_the_policy_has_moved_far() -> None:
    for max_kl, steps in ((1e9, 20), (1e-9, 5)):
        policy = Policy(SHORTCUT_POLICY, seed=2)
        report = run_ppo(policy, sampled(policy), epochs=4, minibatches=5, max_kl=max_kl)
        assert report.steps == steps


def test_more_minibatches_than_samples_are_as_many_as_samples() -> None:
    policy = Policy(LINEAR, seed=1)
    samples = linear_samples(np.random.default_rng(0).random((3, 3, 2), dtype=np.float32), [0, 1, 2])
    assert run_ppo(policy, samples, minibatches=10).steps == 3


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("run", [run_reinforce, run_ppo])
def test_a_loss_that_is_no_number_changes_nothing(run: Any, wrong: float) -> None:
    policy = Policy(SHORTCUT_POLICY, seed=2)
    samples, before = sampled(policy), weights(policy)
    gain = advantages(samples)
    gain[3] = wrong
    with pytest.raises(NotFiniteError, match=r"^the loss is .*$"):
        run(policy, samples, advantage=gain)
    np.testing.assert_array_equal(weights(policy), before)


def test_behaviour_cloning_reaches_the_choices_of_a_scheduler() -> None:
    name = "sjf-cp"
    policy = Policy(SHORTCUT_POLICY, seed=2)
    sequences = [batch_arrivals(LIBRARY.profiles, 5, seed) for seed in range(40)]
    shown, kept = ([EpisodeSpec(each, CLUSTER) for each in part] for part in (sequences[:30], sequences[30:]))
    samples = roll_out_scheduler(make_scheduler(name), policy.config, shown)
    optimiser, random = torch.optim.Adam(policy.parameters(), lr=4e-3), np.random.default_rng(0)
    reports = [
        clone_behaviour(
            partial(samples.evaluate, policy),
            policy,
            optimiser,
            parts_of(random.permutation(len(samples)), 32),
            max_gradient_norm=1.0,
        )
        for _ in range(10)
    ]
    assert reports[0].steps == math.ceil(len(samples) / 32)
    assert reports[-1].loss < reports[0].loss / 2
    unseen = roll_out_scheduler(make_scheduler(name), policy.config, kept)
    choices = policy.act(unseen.graphs)
    agrees = (choices.stage == unseen.stage) & (choices.limit == unseen.limit)
    untrained = Policy(SHORTCUT_POLICY, seed=2).act(unseen.graphs)
    agreed = (untrained.stage == unseen.stage) & (untrained.limit == unseen.limit)
    assert agrees.mean() > 0.95
    assert 1 - agrees.mean() < (1 - agreed.mean()) / 4
    own = roll_out(policy, kept).mean_jct_ms.mean()
    theirs = [run_episode(CLUSTER, each, make_scheduler(name)).mean_jct_ms for each in sequences[30:]]
    assert own == pytest.approx(np.mean(theirs), rel=0.02)
