"""Profiles at levels and sizes that were not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.workloads.spark.runs import Stage, make_run
from workloads.job import JobProfile, Wave
from workloads.spark.model import SparkModel
from workloads.spark.profiles import modelled_profile, scaled_profile
from workloads.spark.query import matched

MODEL = SparkModel(connection_ms=2, remote_ms_per_mb=10, first_ms=100, fresh_ms=1000)
SPLIT_MB = 10.0
STAGES = [
    Stage(8, input_mb=4.0, rate=3.0),
    Stage(1, input_mb=0.002),
    Stage(16, shuffle_mb=2.0, parents=(0, 1), rate=0.5),
    Stage(16, shuffle_mb=0.0001, parents=(2,)),
    Stage(1, shuffle_mb=0.0001, parents=(3,)),
]


def tasks(profile: JobProfile) -> list[int]:
    return [stage.num_tasks for stage in profile.stages]


def rest_ms(profile: JobProfile, stage: int, level: int) -> float:
    return float(profile.stages[stage].durations.table(Wave.REST)[level].mean())


def test_measured_levels_are_kept_and_others_added():
    one, four = make_run(MODEL, STAGES, 1), make_run(MODEL, STAGES, 4)
    profile = modelled_profile(MODEL, matched([one, four]), levels=(2, 8))
    shuffle = profile.stages[2].durations
    assert shuffle.levels.tolist() == [1, 2, 4, 8]
    measured = one.tasks[(one.tasks["stage"] == 2) & (one.tasks["wave"] == Wave.REST)]["duration_ms"]
    assert shuffle.table(Wave.REST)[1].tolist() == measured.tolist()
    for level in (2, 8):
        expected = float(MODEL.task_ms(0.0, 2.0, True, level, rate=0.5))
        assert rest_ms(profile, 2, level) == pytest.approx(expected, rel=0.05)
        assert shuffle.table(Wave.FIRST)[level].mean() == pytest.approx(expected + 100, rel=0.05)
        assert shuffle.table(Wave.FRESH)[level].mean() == pytest.approx(expected + 1000, rel=0.05)


def test_the_mean_is_left_to_the_cluster():
    profile = modelled_profile(MODEL, matched([make_run(MODEL, STAGES, 2)]))
    assert not any(stage.durations.mean_is_known for stage in profile.stages)


def test_contention_is_taken_out():
    model = SparkModel(contention={2: 1.5})
    slow = make_run(model, STAGES, 2, slower=1.5)
    durations = modelled_profile(model, matched([slow])).stages[0].durations.table(Wave.REST)[2]
    assert durations.mean() == pytest.approx(
        make_run(model, STAGES, 2).tasks.query("stage == 0 and wave == 2")["duration_ms"].mean()
    )


def test_larger_inputs_have_more_tasks_or_longer_ones():
    run = replace(make_run(MODEL, STAGES), split_mb=SPLIT_MB, shuffle_partitions=16)
    measured, profile = (
        scaled_profile(
            MODEL,
            matched([run]),
            size_gb=size,
            split_mb=SPLIT_MB,
            shuffle_partitions=16,
            levels=(1, 10),
            name="mine",
        )
        for size in (1.0, 10.0)
    )
    assert (profile.name, tasks(measured)) == ("mine", [8, 1, 16, 16, 1])
    assert profile.edges.tolist() == [[0, 2], [1, 2], [2, 3], [3, 4]]
    assert tasks(profile) == [75, 1, 16, 16, 1]  # 7.5 splits of 10 MB, ten times
    assert rest_ms(profile, 0, 1) == pytest.approx(rest_ms(measured, 0, 1), rel=0.1)
    assert rest_ms(profile, 2, 1) == pytest.approx(MODEL.task_ms(0.0, 20.0, True, 1, rate=0.5), rel=0.1)
    assert rest_ms(profile, 1, 1) == pytest.approx(rest_ms(measured, 1, 1), rel=0.01)
