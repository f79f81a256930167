import math
from typing import Any

import numpy as np
import pytest

from decima.policy import NotFiniteError, Policy
from decima.policy.config import SHORTCUT_POLICY
from tests.decima.learning.cluster.updates import (
    LINEAR,
    advantages,
    linear_samples,
    run_ppo,
    run_reinforce,
    sampled,
    weights,
)


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


def test_pieces_do_not_show_and_gradients_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = [Policy(SHORTCUT_POLICY, seed=2) for _ in range(2)]
    samples = sampled(policies[0])
    for policy, rows in zip(policies, (100, 100_000), strict=True):
        monkeypatch.setattr("decima.policy.policy.MOST_COMPILED_ROWS", rows)
        run_reinforce(policy, samples, entropy_weight=0.1)
    np.testing.assert_allclose(weights(policies[0]), weights(policies[1]), atol=1e-5)
    policy = Policy(SHORTCUT_POLICY, seed=2)
    samples, before = sampled(policy), weights(policy)
    report = run_reinforce(policy, samples, advantage=100 * advantages(samples), max_gradient_norm=0.25)
    assert report["gradient_norm"] > 1
    assert np.linalg.norm(weights(policy) - before) == pytest.approx(0.25, rel=1e-3)


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
