"""Jobs whose tasks all take the mean of their stage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from simulator import ClusterConfig, run_episode
from tests.simulator.cluster.build import Greedy
from tests.workloads.strategies import job_profiles
from workloads import (
    JobProfile,
    JobSequence,
    StageProfile,
    TaskDurations,
    Wave,
    simplified,
    synthetic_profiles,
)


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


def test_neither_waves_nor_parallelism_nor_luck_matter_any_more() -> None:
    profile = simplified(synthetic_profiles(1)[0])
    means = np.repeat(
        [stage.durations.mean_ms for stage in profile.stages], [stage.num_tasks for stage in profile.stages]
    )
    for executors in (1, 7, 60):
        config = ClusterConfig(num_executors=executors, moving_delay_ms=0.0)
        for seed in (0, 1):
            record = run_episode(config, JobSequence((profile,), np.zeros(1), seed), Greedy())
            assert record.task_finish_ms - record.task_start_ms == pytest.approx(means)
