"""Updates of REINFORCE, PPO and behaviour cloning."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decima.learning import PPO
from decima.learning.cluster.clone import clone_epochs, split
from decima.learning.cluster.demonstrations import record_scheduler
from decima.learning.cluster.reinforce import sequence_gradients, signal_of
from decima.learning.cluster.rollout import Episode, roll_out
from decima.policy import NotFiniteError, PartError, Policy
from decima.policy.presets import SHORTCUT_POLICY
from decima.registry import make_scheduler
from decima.settings import silent
from simulator import run_episode
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.updates import (
    CLUSTER,
    LINEAR,
    advantages,
    linear_samples,
    run,
    run_ppo,
    run_reinforce,
    sampled,
    step,
    weights,
)
from workloads import batch_arrivals


def test_reinforce_takes_the_gradient_that_was_computed_by_hand() -> None:
    """The gradient of sum(log p * advantage) and of the entropy, both per sample, for a softmax of linear scores."""
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
    report = run_reinforce(policy, linear_samples(features, chosen), advantage=gain, entropy_weight=entropy_weight)
    np.testing.assert_allclose(weights(policy)[:2] - before, expected, rtol=1e-4, atol=1e-6)
    assert report["entropy"] == pytest.approx(np.mean(entropies), rel=1e-5)
    assert report["gradient_norm"] == pytest.approx(float(np.linalg.norm(expected)), rel=1e-4)
    assert report.keys() == {"loss", "entropy", "gradient_norm", "steps"}
    assert report["steps"] == 1


def test_the_signal_is_the_part_of_the_gradient_that_is_common_to_sequences() -> None:
    random = np.random.default_rng(6)
    drawn = random.standard_normal((2, 3, 2)).astype(np.float32)
    alike = [slice(0, 2), slice(2, 4), slice(4, 6)]
    policy, samples = Policy(LINEAR, seed=1), linear_samples(np.concatenate([drawn] * 3), [2, 0] * 3)
    before, gain = weights(policy), np.array([1.5, -0.7])
    # Three sequences that agree; one of three that is the opposite; as many for as against.
    assert signal_of(sequence_gradients(policy, samples, np.tile(gain, 3), alike)) == pytest.approx(1.0, rel=1e-5)
    assert signal_of(sequence_gradients(policy, samples, np.concatenate([gain, gain, -gain]), alike)) == pytest.approx(
        -1 / 3, rel=1e-5
    )
    features = random.standard_normal((800, 3, 2)).astype(np.float32)
    noise = [slice(first, first + 4) for first in range(0, 800, 4)]
    assert (
        abs(
            signal_of(
                sequence_gradients(policy, linear_samples(features, [1] * 800), random.standard_normal(800), noise)
            )
        )
        < 0.05
    )
    np.testing.assert_array_equal(weights(policy), before)
    assert all(weight.grad is None for weight in policy.parameters())


def test_pieces_do_not_show_and_gradients_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = [Policy(SHORTCUT_POLICY, seed=2) for _ in range(2)]
    samples = sampled(policies[0])
    for policy, rows in zip(policies, (100, 100_000), strict=True):
        monkeypatch.setattr("decima.learning.cluster.rollout.MOST_ROWS", rows)
        run_reinforce(policy, samples, entropy_weight=0.1)
    np.testing.assert_allclose(weights(policies[0]), weights(policies[1]), atol=1e-5)
    for update in (run_reinforce, run_ppo):
        policy = Policy(SHORTCUT_POLICY, seed=2)
        before = weights(policy)
        report = update(policy, samples, advantage=100 * advantages(samples), max_gradient_norm=0.25)
        assert report["gradient_norm"] > 1
        assert np.linalg.norm(weights(policy) - before) == pytest.approx(0.25, rel=1e-3)


def test_a_step_of_cloning_is_that_of_reinforce_with_equal_advantages() -> None:
    """Both follow the gradient of the log-probabilities and of the entropy bonus, and clip it."""
    one, other = (Policy(SHORTCUT_POLICY, seed=2) for _ in range(2))
    samples, before = sampled(one), weights(one)
    given = {"entropy_weight": 0.3, "max_gradient_norm": 0.05}
    of_one = run_reinforce(one, samples, advantage=np.ones(len(samples)), **given)
    evaluate, everything = partial(samples.evaluate, other), [np.arange(len(samples))]
    [of_other] = clone_epochs(evaluate, other, step(other), lambda: everything, [1.0], 0, silent, **given)
    assert of_other["gradient_norm"] == pytest.approx(of_one["gradient_norm"], rel=1e-4)
    assert of_other["entropy"] == pytest.approx(of_one["entropy"], rel=1e-4)
    np.testing.assert_allclose(weights(other), weights(one), atol=1e-5)
    assert np.linalg.norm(weights(other) - before) == pytest.approx(0.05, rel=1e-3)


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


def test_steps_of_ppo_begin_as_those_of_reinforce() -> None:
    # Before the first step all probability ratios are 1.
    policies = [Policy(SHORTCUT_POLICY, seed=2) for _ in range(2)]
    samples, before = sampled(policies[0]), weights(policies[0])
    run_reinforce(policies[0], samples, entropy_weight=0.1)
    report = run_ppo(policies[1], samples, entropy_weight=0.1)
    one, other = (weights(policy) - before for policy in policies)
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.99999
    assert np.linalg.norm(one) == pytest.approx(np.linalg.norm(other), rel=1e-3)
    assert (report["kl"], report["clipped"]) == (pytest.approx(0.0, abs=1e-5), 0)
    for max_kl, steps in ((1e9, 20), (1e-9, 5)):
        learner = Policy(SHORTCUT_POLICY, seed=2)
        report = run_ppo(learner, sampled(learner), epochs=4, minibatches=5, max_kl=max_kl)
        assert report["steps"] == steps
    learner = Policy(LINEAR, seed=1)
    samples = linear_samples(np.random.default_rng(0).random((3, 3, 2), dtype=np.float32), [0, 1, 2])
    assert run_ppo(learner, samples, minibatches=10)["steps"] == 3


@pytest.mark.parametrize(("advantage", "moves"), [(1.0, False), (-1.0, True)])
def test_ppo_does_not_follow_gains_beyond_the_clip(advantage: float, moves: bool) -> None:
    """All probability ratios are e."""
    policy = Policy(SHORTCUT_POLICY, seed=2)
    samples, before = sampled(policy), weights(policy)
    samples = replace(samples, log_probability=samples.log_probability - 1)
    report = run_ppo(policy, samples, advantage=np.full(len(samples), advantage))
    assert bool((weights(policy) != before).any()) == moves
    assert (report["clipped"], report["kl"]) == (1, pytest.approx(math.e - 2, rel=1e-3))


class PenalisedPPO(PPO):
    """PPO with a penalty for the KL divergence from the acting policy."""

    weight = 0.0

    def loss(self, log_probability: Tensor, old_log_probability: Tensor, advantage: Tensor) -> Tensor:
        log_ratio = log_probability - old_log_probability
        penalty = self.weight * (log_ratio.exp() - 1 - log_ratio)
        return super().loss(log_probability, old_log_probability, advantage) + penalty


def test_a_subclass_replaces_the_loss_of_ppo() -> None:
    """A strong penalty keeps the policy near the acting one; without weight it changes nothing."""
    samples, reports, learned = sampled(Policy(SHORTCUT_POLICY, seed=2)), [], []
    for kind, weight in ((PPO, 0.0), (PenalisedPPO, 0.0), (PenalisedPPO, 30.0)):
        policy, algorithm = Policy(SHORTCUT_POLICY, seed=2), kind(epochs=4, minibatches=2, max_kl=1e9)
        vars(algorithm)["weight"] = weight
        reports.append(run(algorithm, policy, samples, learning_rate=0.02))
        learned.append(weights(policy))
    np.testing.assert_array_equal(learned[1], learned[0])
    assert reports[1] == reports[0]
    assert 0 < reports[2]["kl"] < 0.7 * reports[0]["kl"]


def test_a_loss_of_another_shape_is_refused() -> None:
    class Mean(PPO):
        def loss(self, log_probability: Tensor, old_log_probability: Tensor, advantage: Tensor) -> Tensor:
            return super().loss(log_probability, old_log_probability, advantage).mean()

    policy = Policy(SHORTCUT_POLICY, seed=2)
    with pytest.raises(PartError, match=r"^update.algorithm: .*:Mean' must return a loss of shape \[\d+\]$"):
        run(Mean(), policy, sampled(policy))


def test_memory_is_bounded_by_pieces_and_the_step_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a minibatch is the sum of those of its pieces."""
    policies = [Policy(SHORTCUT_POLICY, seed=2) for _ in range(2)]
    samples, before = sampled(policies[0]), weights(policies[0])
    whole = run_ppo(policies[0], samples, entropy_weight=0.1)
    monkeypatch.setattr("decima.learning.cluster.rollout.MOST_ROWS", 100)
    part = np.random.default_rng(0).permutation(len(samples))
    pieces = samples.pieces(part)
    assert np.concatenate(pieces).tolist() == part.tolist()
    rows = np.diff(samples.graphs.first_stage)
    assert len(pieces) > 2
    assert all(rows[piece].sum() <= 100 + rows.max() for piece in pieces)
    assert run_ppo(policies[1], samples, entropy_weight=0.1) == pytest.approx(whole, rel=1e-4, abs=1e-7)
    one, other = (weights(policy) - before for policy in policies)
    assert other == pytest.approx(one, abs=1e-4 * float(np.linalg.norm(one)))


def test_behaviour_cloning_reaches_the_choices_of_a_scheduler() -> None:
    name = "sjf-cp"
    policy = Policy(SHORTCUT_POLICY, seed=2)
    sequences = [batch_arrivals(LIBRARY.profiles, 5, seed) for seed in range(40)]

    def episodes(part: slice) -> list[Episode]:
        return [Episode(policy.config, CLUSTER, each) for each in sequences[part]]

    samples = record_scheduler(make_scheduler(name), episodes(slice(30)))
    optimiser, random = torch.optim.Adam(policy.parameters(), lr=4e-3), np.random.default_rng(0)
    reports = list(
        clone_epochs(
            partial(samples.evaluate, policy),
            policy,
            optimiser,
            lambda: split(random.permutation(len(samples)), 32),
            [4e-3] * 10,
            0,
            silent,
            max_gradient_norm=1.0,
        )
    )
    assert reports[0]["steps"] == math.ceil(len(samples) / 32)
    assert reports[-1]["cloning_loss"] < reports[0]["cloning_loss"] / 2
    unseen = record_scheduler(make_scheduler(name), episodes(slice(30, 40)))
    choices = policy.act(unseen.graphs)
    agrees = (choices.stage == unseen.stage) & (choices.limit == unseen.limit)
    untrained = Policy(SHORTCUT_POLICY, seed=2).act(unseen.graphs)
    agreed = (untrained.stage == unseen.stage) & (untrained.limit == unseen.limit)
    assert agrees.mean() > 0.95
    assert 1 - agrees.mean() < (1 - agreed.mean()) / 4
    own = roll_out(policy, episodes(slice(30, 40))).mean_jct_ms.mean()
    theirs = [run_episode(CLUSTER, each, make_scheduler(name)).mean_jct_ms for each in sequences[30:]]
    assert own == pytest.approx(np.mean(theirs), rel=0.02)
