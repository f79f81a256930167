import math
from dataclasses import replace

import numpy as np
import pytest

from decima.policy import policy as policy_module
from decima.policy.config import SHORTCUT_POLICY
from decima.policy.policy import Policy
from tests.decima.learning.cluster.updates import LINEAR, linear_samples, run_ppo, run_reinforce, sampled, weights


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


def test_memory_is_bounded_by_pieces_and_the_step_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a minibatch is the sum of those of its pieces."""
    policies = [Policy(SHORTCUT_POLICY, seed=2) for _ in range(2)]
    samples, before = sampled(policies[0]), weights(policies[0])
    whole = run_ppo(policies[0], samples, entropy_weight=0.1)
    monkeypatch.setattr(policy_module, "MOST_COMPILED_ROWS", 100)
    part = np.random.default_rng(0).permutation(len(samples))
    pieces = samples.pieces(policies[1], part)
    assert np.concatenate(pieces).tolist() == part.tolist()
    rows = np.diff(samples.graphs.first_stage)
    assert len(pieces) > 2
    assert all(rows[piece].sum() <= 100 + rows.max() for piece in pieces)
    assert run_ppo(policies[1], samples, entropy_weight=0.1) == pytest.approx(whole, rel=1e-4, abs=1e-7)
    one, other = (weights(policy) - before for policy in policies)
    assert other == pytest.approx(one, abs=1e-4 * float(np.linalg.norm(one)))
