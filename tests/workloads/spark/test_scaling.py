"""Profiles at levels and sizes that were not measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.workloads.spark.runs import Stage, make_run
from workloads.job import JobProfile, Wave
from workloads.spark.model import SparkModel
from workloads.spark.profiles import modelled_profile, scaled_profile
from workloads.spark.query import SparkQuery, matched

MODEL = SparkModel(connection_ms=2, remote_ms_per_mb=10, first_ms=100, fresh_ms=1000)
SPLIT_MB = 10.0
STAGES = [
    Stage(8, input_mb=4.0, rate=3.0),
    Stage(1, input_mb=0.002),
    Stage(16, shuffle_mb=2.0, parents=(0, 1), rate=0.5),
    Stage(16, shuffle_mb=0.0001, parents=(2,)),
    Stage(1, shuffle_mb=0.0001, parents=(3,)),
]


def sample(executors: int = 1, stages: list[Stage] = STAGES, size_gb: float = 1.0) -> SparkQuery:
    run = make_run(MODEL, stages, executors)
    return replace(run, size_gb=size_gb, split_mb=SPLIT_MB, shuffle_partitions=16)


def scaled(size_gb: float, runs: list[SparkQuery] | None = None, **options: int) -> JobProfile:
    partitions, split_mb = options.get("partitions", 16), options.get("split_mb", SPLIT_MB)
    return scaled_profile(
        MODEL,
        matched(runs or [sample()], same_tasks=False),
        size_gb=size_gb,
        split_mb=split_mb,
        shuffle_partitions=partitions,
        levels=(1, 10, 100),
        name="scaled",
    )


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


def test_levels_between_measured_ones_are_interpolated():
    """A stage that is twice as slow as the model says at 1 executor, and as it says at 5."""
    slow = make_run(MODEL, STAGES, 1, slower=2.0)
    profile = modelled_profile(MODEL, matched([slow, make_run(MODEL, STAGES, 5)]), levels=(3, 50))
    at = {level: rest_ms(profile, 2, level) for level in (1, 3, 5, 50)}
    by_model = {level: float(MODEL.task_ms(0.0, 2.0, True, level, rate=0.5)) for level in at}
    assert at[1] / at[5] == pytest.approx(2 * by_model[1] / by_model[5], rel=0.1)
    assert min(at[1], at[5]) < at[3] < max(at[1], at[5])
    assert at[50] / at[5] == pytest.approx(by_model[50] / by_model[5], rel=0.3)


def test_contention_is_taken_out():
    model = SparkModel(contention={2: 1.5})
    slow = make_run(model, STAGES, 2, slower=1.5)
    durations = modelled_profile(model, matched([slow])).stages[0].durations.table(Wave.REST)[2]
    assert durations.mean() == pytest.approx(
        make_run(model, STAGES, 2).tasks.query("stage == 0 and wave == 2")["duration_ms"].mean()
    )


def test_the_measured_size_comes_out_as_measured():
    profile = scaled(1.0)
    assert tasks(profile) == [8, 1, 16, 16, 1]
    assert profile.name == "scaled"
    assert profile.edges.tolist() == [[0, 2], [1, 2], [2, 3], [3, 4]]
    run = sample()
    for stage in (0, 2, 3):
        measured = run.tasks[(run.tasks["stage"] == stage) & (run.tasks["wave"] == Wave.REST)]
        assert rest_ms(profile, stage, 1) == pytest.approx(measured["duration_ms"].mean(), abs=1)


def test_larger_inputs_have_more_tasks_or_longer_ones():
    profile = scaled(10.0)
    assert tasks(profile) == [75, 1, 16, 16, 1]  # 7.5 splits of 10 MB, ten times
    assert rest_ms(profile, 0, 1) == pytest.approx(rest_ms(scaled(1.0), 0, 1), rel=0.1)
    assert rest_ms(profile, 2, 1) == pytest.approx(MODEL.task_ms(0.0, 20.0, True, 1, rate=0.5), rel=0.1)
    assert rest_ms(profile, 1, 1) == pytest.approx(rest_ms(scaled(1.0), 1, 1), rel=0.01)


def test_another_cut_changes_the_number_and_the_length_of_tasks():
    profile = scaled(10.0, partitions=200, split_mb=30)
    assert tasks(profile) == [25, 1, 200, 200, 1]
    expected = MODEL.task_ms(0.0, 2.0 * 10 * 16 / 200, True, 1, rate=0.5)
    assert rest_ms(profile, 2, 1) == pytest.approx(expected, rel=0.1)


def test_work_inflates_in_stages_that_read_shuffles():
    profile = scaled(10.0)
    assert rest_ms(profile, 0, 100) == rest_ms(profile, 0, 1)
    added = rest_ms(profile, 2, 100) - rest_ms(profile, 2, 1)
    assert added == pytest.approx(99 * 2 + 0.99 * 10 * 20, rel=0.1)


def test_two_sizes_tell_how_stages_grow():
    """The second reader of shuffles reads an aggregate that does not grow, the first half as fast."""
    larger = [
        Stage(16, input_mb=4.0, rate=3.0),
        STAGES[1],
        Stage(16, shuffle_mb=2.0 * 2**0.5, parents=(0, 1), rate=0.5),
        *STAGES[3:],
    ]
    profile = scaled(16.0, [sample(), sample(stages=larger, size_gb=2.0)])
    assert tasks(profile) == [124, 1, 16, 16, 1]  # 15.5 splits, eight times
    assert rest_ms(profile, 2, 1) == pytest.approx(MODEL.task_ms(0.0, 8.0, True, 1, rate=0.5), rel=0.1)
    assert rest_ms(profile, 3, 1) == pytest.approx(MODEL.task_ms(0.0, 0.0001, True, 1), abs=1)


def test_the_known_mean_is_that_on_ten_warm_executors():
    stage = scaled(1.0).stages[2]
    expected = float(MODEL.task_ms(0.0, 2.0, True, 10, rate=0.5)) + 100 * 10 / 16
    assert stage.durations.mean_ms == pytest.approx(expected, rel=0.05)


def test_a_stage_of_which_only_first_tasks_are_known():
    profile = scaled(1.0, [sample(executors=16)])
    assert rest_ms(profile, 4, 1) == pytest.approx(MODEL.task_ms(0.0, 0.0001, True, 1), rel=0.1)


def test_a_model_in_which_stages_take_no_time():
    """Whatever parameters somebody sets, measured durations stay what they are."""
    nothing = MODEL.having({parameter.name: 0.0 for parameter in MODEL.parameters()})
    profile = modelled_profile(nothing, matched([sample()]), levels=(1, 50))
    for stage in (0, 2, 3):
        assert rest_ms(profile, stage, 50) == pytest.approx(rest_ms(profile, stage, 1), abs=1)


def test_durations_are_whole_and_spread_as_measured():
    cell = scaled(1.0).stages[0].durations.table(Wave.REST)[1]
    assert np.array_equal(cell, np.rint(cell))
    durations = sample().tasks.query("stage == 0 and wave == 2")["duration_ms"]
    assert np.ptp(cell) == pytest.approx(np.ptp(durations), rel=0.3)
