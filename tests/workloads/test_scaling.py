from __future__ import annotations

import numpy as np
import pytest

from workloads import WorkloadError, scaled, synthetic_profiles

PROFILE = synthetic_profiles(3)[2]


def test_durations_and_tasks_are_scaled_and_all_else_stays() -> None:
    found = scaled(PROFILE, 10.0, 0.3)
    np.testing.assert_array_equal(found.edges, PROFILE.edges)
    for one, other in zip(found.stages, PROFILE.stages, strict=True):
        assert one.num_tasks == max(1, round(0.3 * other.num_tasks))
        np.testing.assert_allclose(one.durations.values, 10 * other.durations.values)
        assert one.durations.mean_ms == pytest.approx(10 * other.durations.mean_ms)
        assert (one.name, one.cpu, one.memory) == (other.name, other.cpu, other.memory)


def test_a_stage_keeps_a_task() -> None:
    assert {stage.num_tasks for stage in scaled(PROFILE, tasks=1e-9).stages} == {1}


def test_whoever_asks_again_gets_the_same_object() -> None:
    assert scaled(PROFILE, 2.0, 3.0) is scaled(PROFILE, 2.0, 3.0)
    assert scaled(PROFILE) is PROFILE


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_means_nothing_is_refused(factor: float) -> None:
    with pytest.raises(WorkloadError, match="the factor on durations must be positive and finite"):
        scaled(PROFILE, factor)
    with pytest.raises(WorkloadError, match="the factor on tasks must be positive and finite"):
        scaled(PROFILE, tasks=factor)
