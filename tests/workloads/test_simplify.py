"""Jobs whose tasks all take the mean of their stage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.workloads.strategies import job_profiles
from workloads import JobProfile, StageProfile, TaskDurations, Wave, simplified


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


def test_the_mean_is_what_schedulers_know_not_that_of_the_waves() -> None:
    tables = [{5: [9.0], 50: [90.0]}, {5: [6.0]}, {5: [1.0, 2.0], 50: [40.0]}]
    durations = TaskDurations.from_tables(*tables, mean_ms=7.0)
    stage = simplified(JobProfile("job", (StageProfile(3, durations),))).stages[0]
    assert [stage.durations.table(wave)[1].tolist() for wave in Wave] == [[7.0]] * 3
