"""Bounds of a policy's settings."""

import pytest
from pydantic import ValidationError

from decima.policy import PolicyConfig
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
