"""Derived jobs: scaled, or with tasks of equal length."""

import numpy as np
import pytest
from hypothesis import given, settings

from tests.workloads.strategies import job_profiles
from workloads import (
    JobProfile,
    StageProfile,
    TaskDurations,
    Wave,
    WorkloadError,
    scaled,
    simplified,
    synthetic_profiles,
)

PROFILE = synthetic_profiles(3)[2]


def test_scaled_profiles_and_their_means() -> None:
    found = scaled(PROFILE, 10.0, 0.3)
    np.testing.assert_array_equal(found.edges, PROFILE.edges)
    for one, other in zip(found.stages, PROFILE.stages, strict=True):
        assert one.num_tasks == max(1, round(0.3 * other.num_tasks))
        np.testing.assert_allclose(one.durations.values, 10 * other.durations.values)
        assert one.durations.mean_ms == pytest.approx(10 * other.durations.mean_ms)
        assert (one.name, one.cpu, one.memory) == (other.name, other.cpu, other.memory)
    assert {each.num_tasks for each in scaled(PROFILE, tasks=1e-9).stages} == {1}
    assert scaled(PROFILE, 2.0, 3.0) is scaled(PROFILE, 2.0, 3.0)
    assert scaled(PROFILE) is PROFILE
    tables = [{5: [9.0], 50: [90.0]}, {5: [6.0]}, {5: [1.0, 2.0], 50: [40.0]}]
    durations = TaskDurations.from_tables(*tables, mean_ms=7.0)
    simple = simplified(JobProfile("job", (StageProfile(3, durations),))).stages[0]
    assert [simple.durations.table(wave)[1].tolist() for wave in Wave] == [[7.0]] * 3


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_means_nothing_is_refused(factor: float) -> None:
    with pytest.raises(WorkloadError, match="the factor on durations must be positive and finite"):
        scaled(PROFILE, factor)
    with pytest.raises(WorkloadError, match="the factor on tasks must be positive and finite"):
        scaled(PROFILE, tasks=factor)


@settings(max_examples=30)
@given(job_profiles())
def test_the_dag_the_tasks_and_the_work_stay(profile: JobProfile) -> None:
    plain = simplified(profile)
    assert plain.name == profile.name
    assert np.array_equal(plain.edges, profile.edges)
    for before, after in zip(profile.stages, plain.stages, strict=True):
        assert (after.num_tasks, after.name) == (before.num_tasks, before.name)
        assert (after.cpu, after.memory) == (before.cpu, before.memory)
        assert after.durations.spread == (before.durations.mean_ms,) * 2
    assert plain.work_ms == pytest.approx(profile.work_ms)
