"""Bounds of a policy's settings."""

import pytest
import torch
from pydantic import ValidationError

from decima.policy import NeuralScheduler, Policy, PolicyConfig
from decima.policy.presets import GENERAL_POLICY, PROFILED_POLICY
from decima.policy.scheduler import RULES
from decima.registry import make_scheduler
from decima.schedulers.base import Kind
from tests.cases import cases

FEATURES = {"stage_features": [{"name": "unclaimed_tasks"}]}


@cases(
    "name, largest, too_much",
    ("hidden", (4,) * 8, (4,) * 9), ("head_hidden", (4,) * 8, (4,) * 9), ("num_limits", 10_000, 10_001),
    ("num_limits", 1, 0), ("limit_scale", 1e-3, 0.0),
)  # fmt: skip
def test_bounds_of_settings(name: str, largest: object, too_much: object) -> None:
    assert getattr(PolicyConfig.model_validate({**FEATURES, name: largest}), name) == largest
    with pytest.raises(ValidationError, match=name):
        PolicyConfig.model_validate({**FEATURES, name: too_much})


def test_a_policy_whose_heads_end_in_zeros_counts_as_its_rule() -> None:
    following = Policy(GENERAL_POLICY)
    assert NeuralScheduler(following).kind == Kind.RULE
    tuned = GENERAL_POLICY.model_copy(update={"rule": "srpt-tuned"})
    assert NeuralScheduler(Policy(tuned)).kind == Kind.TUNED_RULE
    constants = GENERAL_POLICY.model_copy(update={"rule_constants": {"source_factor": 0.5}})
    assert NeuralScheduler(Policy(constants)).kind == Kind.TUNED_RULE
    kinds = {rule: NeuralScheduler(Policy(GENERAL_POLICY.model_copy(update={"rule": rule}))).kind for rule in RULES}
    assert kinds == {rule: make_scheduler(rule).kind for rule in RULES}
    torch.nn.init.ones_(following.networks["limit_head"][-1].weight)
    assert NeuralScheduler(following).kind == Kind.NETWORK
    assert NeuralScheduler(Policy(PROFILED_POLICY)).kind == Kind.NETWORK
