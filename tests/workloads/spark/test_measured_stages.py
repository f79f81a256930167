"""Estimates from single stages: parameters of the model, and differences of a stage from the model."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.cases import cases
from tests.workloads.spark.runs import MODEL, Stage, measured_run
from workloads.job import Wave, WorkloadError
from workloads.spark import model as spark_model, profiles
from workloads.spark.model import SparkModel, fit, stage_means
from workloads.spark.profiles import modelled_profile, scaled_profile
from workloads.spark.query import SparkQuery, matched

FRESH, FIRST, REST = Wave
SCAN, SHUFFLE = Stage(4), Stage(4, parents=(0,))


def stage_of(*rows: tuple[Wave, int, float, float], reads: bool = False, **of_sample: float) -> profiles._MeasuredStage:
    """Return the measured stage of some tasks: wave, level, duration (ms), MB read."""
    return stages_of(replace(run_of(*rows, reads=reads), **of_sample), reads=reads)


def run_of(*rows: tuple[Wave, int, float, float], reads: bool, num_tasks: int = 4):
    if not reads:
        tasks = [(0, wave, level, duration, mb, 0.0) for wave, level, duration, mb in rows]
        return measured_run([Stage(num_tasks)], tasks)
    scan = (0, FRESH, 1, 1000.0, 1.0, 0.0)
    tasks = [(1, wave, level, duration, 0.0, mb) for wave, level, duration, mb in rows]
    return measured_run([Stage(1), Stage(num_tasks, parents=(0,))], [scan, *tasks])


def stages_of(*runs: SparkQuery, reads: bool = False) -> profiles._MeasuredStage:
    return profiles._stages(MODEL, matched(runs, same_tasks=False))[-1 if reads else 0]


def test_rates_factors_and_levels_of_a_stage():
    # 10 MB take 100 ms besides 40 ms in a typical stage, 260 ms here: 2.6 times as much, except for the ridge.
    stage = stage_of((REST, 1, 300.0, 10.0), (REST, 1, 300.0, 10.0))
    assert stage.rate == pytest.approx(1 + 100 * 160 / (100**2 + (0.25 * 40) ** 2))
    assert stage.factors.tolist() == pytest.approx([300 / (40 + stage.rate * 100)])
    assert stage.levels.tolist() == [1.0]
    assert stage_of((REST, 1, 1.0, 10.0)).rate == 0.0  # never negative
    stage = stage_of((REST, 1, 300.0, 0.0))
    assert (stage.rate, stage.factors.tolist(), stage.growth) == (1.0, pytest.approx([300 / 40]), 0.0)
    run = run_of((REST, 1, 40.0, 0.0), (REST, 3, 90.0, 0.0), reads=False)
    again = run_of((REST, 1, 160.0, 0.0), reads=False)
    stage = stages_of(run, again)
    assert (stage.levels.tolist(), stage.factors.tolist()) == ([1.0, 3.0], pytest.approx([2.0, 90 / 40]))
    stage = stage_of((REST, 2, 80.0, 0.0), (FIRST, 1, 999.0, 0.0))
    assert (stage.levels.tolist(), stage.factors.tolist()) == ([2.0], [2.0])
    assert stage.first_ms == pytest.approx(999 - 999 * 40 / 140)
    stage = stage_of((REST, 1, 50.0, 0.0), (FIRST, 1, 80.0, 0.0), (FRESH, 1, 450.0, 0.0))
    assert (stage.first_ms, stage.fresh_ms) == (30.0, 400.0)
    shorter = stage_of((REST, 1, 50.0, 0.0), (FIRST, 1, 40.0, 0.0), (FRESH, 1, 30.0, 0.0))
    assert (shorter.first_ms, shorter.fresh_ms) == (0.0, 0.0)
    odd = stage_of((REST, 1, 50.0, 0.0), (FIRST, 1, 80.0, 0.0), (FRESH, 1, 60.0, 0.0))
    assert (odd.first_ms, odd.fresh_ms) == (30.0, 30.0)  # a new JVM is never faster
    # The model's later task is shorter by 40 / (40 + 100), and for fresh ones by 40 / (40 + 900).
    first = stage_of((FRESH, 1, 2000.0, 0.0), (FIRST, 1, 280.0, 0.0))
    assert first.factors.tolist() == pytest.approx([280 * 40 / 140 / 40])
    assert (first.first_ms, first.fresh_ms) == (pytest.approx(280 - 80), pytest.approx(2000 - 80))
    fresh = stage_of((FRESH, 1, 1880.0, 0.0))
    assert fresh.factors.tolist() == pytest.approx([2.0])
    assert (fresh.first_ms, fresh.fresh_ms) == (100.0, 1800.0)
    assert fresh.spread.tolist() == [1.0]


def test_tasks_of_no_time_and_the_spread_of_a_level():
    nothing = SparkModel(**{parameter.name: 0.0 for parameter in MODEL.parameters()})
    [stage] = profiles._stages(nothing, matched([run_of((REST, 1, 0.0, 0.0), reads=False)]))
    assert stage.factors.tolist() == pytest.approx([0.01])
    assert stage.rest_ms(nothing, stage.load, [1]).tolist() == pytest.approx([0.01])
    [stage] = profiles._stages(nothing, matched([run_of((REST, 1, 7.0, 0.0), reads=False)]))
    assert stage.rest_ms(nothing, stage.load, [1, 9]).tolist() == pytest.approx([7.0, 7.0])
    run = measured_run([Stage(1), Stage(1, parents=(0,))], [(0, REST, 1, 10.0, 0.0, 0.0)])
    with pytest.raises(WorkloadError, match="q: no task of stage 1 ended"):
        profiles._stages(MODEL, matched([run]))
    # A stage that is slower at another level, with the same relative spread.
    rows = [(REST, level, 10.0 * level * x, 0.0) for level in (1, 5) for x in (1.0, 2.0, 3.0)]
    spread = stage_of(*rows).spread
    once = np.quantile(np.repeat([0.5, 1.0, 1.5], 2), (np.arange(6) + 0.5) / 6)
    assert spread.tolist() == pytest.approx(once / once.mean())
    short = stage_of((REST, 1, 0.0, 0.0), (REST, 1, 1.0, 0.0)).spread  # the mean is half a millisecond
    assert short.tolist() == pytest.approx([0.5, 1.5])


def test_loads_and_contention_of_stages():
    small, large = (run_of((REST, 1, 50.0, 2.0), reads=True), run_of((REST, 1, 90.0, 8.0), reads=True, num_tasks=3))
    runs = [replace(large, size_gb=4.0), replace(small, size_gb=1.0)]
    stage = stages_of(*runs, reads=True)
    assert stage.load == profiles._Load(3, 0.0, 8.0, True)
    assert stage.run is runs[0]
    assert stage.growth == pytest.approx(math.log(3 * 8 / (4 * 2), 4))
    [stage] = profiles._stages(
        SparkModel(scan_overhead_ms=40, contention={2: 4.0}),
        matched([run_of((REST, 2, 160.0, 0.0), (REST, 1, 40.0, 0.0), reads=False)]),
    )
    assert stage.factors.tolist() == pytest.approx([1.0, 1.0])
    load = measured(16, 3.0, reads=True, shuffle_partitions=16).on(4.0, 10.0, 8)
    assert (load.num_tasks, load.input_mb, load.shuffle_mb, load.reads_shuffle) == (8, 0.0, 12.0, True)
    assert measured(2, 3.0, reads=True, shuffle_partitions=16).on(4.0, 10.0, 8).num_tasks == 2


@cases("mb, reads, growth", (0.02, False, 1.0), (0.015, False, 0.0), (0.015, True, 1.0), (0.0, True, 0.0))
def test_tables_of_next_to_nothing_do_not_grow(mb, reads, growth):
    assert stage_of((REST, 1, 50.0, mb), reads=reads).growth == growth  # 4 tasks: 0.08 and 0.06 MB


@pytest.mark.parametrize(("larger", "growth"), [(4.0, 1.0), (2.0, 0.5), (9.0, 1.0), (0.5, 0.0)])
def test_growth_is_between_0_and_1(larger, growth):
    runs = [replace(run_of((REST, 1, 50.0, mb), reads=True), size_gb=size) for mb, size in ((1.0, 1.0), (larger, 4.0))]
    assert stages_of(*runs, reads=True).growth == pytest.approx(growth)


def measured(num_tasks: int, mb: float, reads: bool = False, **changes: float) -> profiles._MeasuredStage:
    load = profiles._Load(num_tasks, 0.0 if reads else mb, mb if reads else 0.0, reads)
    ones = np.ones(1)
    growth = changes.pop("growth", 1.0)
    run = replace(run_of(reads=False), **({"size_gb": 2.0} | changes))
    return profiles._MeasuredStage(load, run, growth, 1.0, ones, ones, first_ms=5.0, fresh_ms=9.0, spread=ones)


@cases(
    "stage, on, num_tasks, input_mb",
    (measured(4, 3.0, split_mb=10.0), (2.0, 10.0), 4, 3.0),  # 3.5 splits
    (measured(4, 3.0, split_mb=10.0), (4.0, 10.0), 7, 3.0 * 2 * 4 / 7),
    (measured(4, 3.0, split_mb=10.0), (2.0, 5.0), 7, 3.0 * 4 / 7),
    (measured(4, 3.0), (2.0, 5.0), 3, 4.0),  # 12 MB, if splits are unknown
    (measured(1, 8.0, split_mb=10.0), (2.0, 10.0), 1, 8.0),
    (measured(1, 8.0, split_mb=10.0), (8.0, 10.0), 4, 8.0),
    (measured(2, 3.0, split_mb=10.0, growth=0.5), (8.0, 10.0), 3, 3.0 * 2 * 2 / 3),
    (measured(1, 8.0), (0.002, 10.0), 1, 0.008),
)
def test_a_scan_has_as_many_tasks_as_its_table_has_splits(stage, on, num_tasks, input_mb):
    load = stage.on(*on, 99)
    assert (load.num_tasks, load.shuffle_mb, load.reads_shuffle) == (num_tasks, 0.0, False)
    assert load.input_mb == pytest.approx(input_mb)


def test_tables_are_spread_and_profiles_keep_what_was_measured():
    stage = profiles._MeasuredStage(
        load=profiles._Load(2, 0.0, 1.0, True), run=run_of(reads=False), growth=1.0, rate=2.0,
        levels=np.array([1.0, 5.0]), factors=np.array([1.0, 2.0]), first_ms=5.4, fresh_ms=9.4,
        spread=np.array([0.5, 1.5]),
    )  # fmt: skip
    at = {level: 20 + 2 * 25 + 1.5 * (level - 1) + 8 * (1 - 1 / level) for level in (1, 3, 8)}
    means = [at[1], at[3] * 1.5, at[8] * 2]
    assert stage.rest_ms(MODEL, stage.load, [1, 3, 8]).tolist() == pytest.approx(means)
    fresh, first, rest = stage.tables(MODEL, stage.load, [1, 3, 8])
    for level, mean in zip((1, 3, 8), means, strict=True):
        assert fresh[level] == [round(mean + 9.4)]
        assert first[level] == [round(mean + 5.4)]
        assert rest[level] == [np.rint(mean * 0.5), np.rint(mean * 1.5)]
    run = measured_run(
        [Stage(2, name="scan"), Stage(3, parents=(0,), name="sum")],
        [(0, FRESH, 1, 10.0, 0, 0), (0, REST, 1, 7.0, 0, 0), *[(1, FIRST, 1, 5.0, 0, 1)] * 3],
    )
    profile = modelled_profile(MODEL, matched([run]), levels=(4,), name="mine")
    scan, last = profile.stages
    assert (profile.name, scan.name, last.name, last.num_tasks) == ("mine", "scan", "sum", 3)
    assert scan.durations.table(FRESH)[1].tolist() == [10.0]
    assert scan.durations.table(REST)[1].tolist() == [7.0]
    assert last.durations.table(FIRST)[1].tolist() == [5.0] * 3
    assert scan.durations.levels.tolist() == last.durations.levels.tolist() == [1, 4]
    assert scan.durations.mean_ms == 7.0
    assert profile.edges.tolist() == [[0, 1]]


@cases(
    "values, found",
    ([4.0], [1.0]),
    ([1.0, 3.0], [0.75, 1.25]),  # quartiles of the line between the two
    ([0.0, 0.0, 0.0], [1.0]),
    ([2.0] * 9, [1.0] * 8),
)
def test_few_values_stand_for_the_spread(values, found):
    assert profiles._quantiles(np.array(values)).tolist() == pytest.approx(found)


def test_the_known_mean_counts_first_tasks_of_ten_executors():
    def mean_ms(num_tasks: int) -> float:
        run = run_of((REST, 1, 40.0, 0.0), reads=False, num_tasks=num_tasks)
        [stage] = scaled_profile(MODEL, matched([run]), size_gb=1, split_mb=1, shuffle_partitions=1).stages
        assert stage.num_tasks == 1  # it reads nothing
        return stage.durations.mean_ms

    assert mean_ms(4) == 40.0 + 100.0
    run = run_of((REST, 1, 120.0, 1.0), reads=True, num_tasks=40)
    profile = scaled_profile(
        MODEL,
        matched([replace(run, shuffle_partitions=40)]),
        size_gb=1,
        split_mb=1,
        shuffle_partitions=20,
        levels=(7, 3),
    )
    stage, durations = profiles._stages(MODEL, matched([run]))[1], profile.stages[1].durations
    expected = MODEL.task_ms(0.0, 2.0, True, 10.0, stage.rate) * stage.factors[0] + 100 * 10 / 20
    assert (durations.mean_ms, durations.levels.tolist()) == (pytest.approx(float(expected), abs=0.051), [3, 7])
    assert profile.name == "q"


def test_defaults_and_surpluses_of_the_model():
    # The defaults were fitted to the recordings of the embedded TPC-H set.
    values = {parameter.name: (parameter.value, parameter.unit) for parameter in SparkModel().parameters()}
    assert values == {
        "scan_overhead_ms": (30.0, "ms"), "scan_ms_per_mb": (12.0, "ms/MB"), "shuffle_overhead_ms": (22.0, "ms"),
        "shuffle_ms_per_mb": (29.0, "ms/MB"), "remote_ms_per_mb": (2.0, "ms/MB"), "connection_ms": (1.4, "ms"),
        "first_ms": (110.0, "ms"), "fresh_ms": (1300.0, "ms"),
    }  # fmt: skip
    assert dict(SparkModel().contention) == {}
    queries = [
        [(0, FIRST, 1, first, 0.0, 0.0), (0, FRESH, 1, first, 0.0, 0.0)] + [(0, REST, 1, 60.0, 0.0, 0.0)] * 3
        for first in (70.0, 85.0, 1e6)
    ]
    model = fitted(*queries, stages=[Stage(5)])
    assert (model.first_ms, model.fresh_ms) == (25.0, 25.0)
    assert (
        fitted([(0, FIRST, 1, 5.0, 0.0, 0.0), *[(0, REST, 1, 60.0, 0.0, 0.0)] * 3], stages=[Stage(4)]).first_ms == 0.0
    )
    runs = []
    for at_two in (60.0, 100.0, 900.0):
        tasks = [[(0, REST, level, ms, 1.0, 0.0)] * 3 for level, ms in ((1, 50.0), (2, at_two))]
        runs.append(matched([measured_run([Stage(3)], rows) for rows in tasks]))
    model = fit(runs, shared_machine=True)
    assert dict(model.contention) == pytest.approx({1: 1.0, 2: 2.0})
    assert model.scan_ms_per_mb == pytest.approx((50.0 - 30.0) / 1.0)
    with pytest.raises(TypeError):
        model.contention[1] = 2.0  # type: ignore[index]


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.5])
def test_a_parameter_may_be_small(value):
    assert SparkModel(connection_ms=value).connection_ms == value


def test_fits_and_terms():
    # Several lines: the line nearest to most of the values, in units of each scale.
    one = {"a": np.ones(5)}
    assert spark_model._fit_terms(one, np.array([1.0, 2.0, 3.0, 4.0, 1000.0]), np.ones(5)) == pytest.approx(
        {"a": 3.0}, abs=0.1
    )
    heavy = np.array([1.0, 1.0, 10.0, 10.0, 10.0])
    assert spark_model._fit_terms(one, np.array([1.0, 1.0, 3.0, 3.0, 3.0]), heavy) == pytest.approx({"a": 1.0}, abs=0.1)
    terms = {"a": np.array([1.0, 2.0, 3.0, 4.0, 5.0]), "b": np.array([4.0, 1.0, 5.0, 1.0, 3.0])}
    both = 2 * terms["a"] + 0.5 * terms["b"]
    assert spark_model._fit_terms(terms, both, 1 + both) == pytest.approx({"a": 2.0, "b": 0.5})
    terms = {"a": np.array([1.0, 2.0, 3.0, 4.0]), "b": np.array([1.0, 0.0, 1.0, 0.0])}
    found = spark_model._fit_terms(terms, 2 * terms["a"] - terms["b"], np.ones(4))
    assert found["b"] == 0.0
    assert 1.5 < found["a"] <= 2.01
    both = spark_model._fit_terms(terms, -terms["a"] - terms["b"], np.ones(4))
    assert both == {"a": 0.0, "b": 0.0}
    term = np.array([1.0, 2.0, 3.0, 5.0])
    assert spark_model._fit_terms({"a": term[:1]}, term[:1], term[:1]) == {}
    assert spark_model._fit_terms({"a": term[:2]}, term[:2], term[:2]) == pytest.approx({"a": 1.0})
    assert spark_model._fit_terms({"a": term[:3], "b": term[2::-1]}, term[:3], term[:3]) == {}
    assert spark_model._fit_terms({"a": term, "b": term[::-1]}, term, term) == pytest.approx({"a": 1.0, "b": 0.0})
    assert spark_model._fit_terms({}, term, term) == {}
    falling = [(0, REST, 1, 8.0 * mb - 3.0, mb, 0.0) for mb in range(1, 10)]
    assert fitted(falling, stages=[Stage(9)]).scan_overhead_ms == 0.0


def fitted(*queries: list[tuple[int, Wave, int, float, float, float]], stages: list[Stage]) -> SparkModel:
    return fit([matched([measured_run(stages, rows)]) for rows in queries])


def line(num: int, spread: float = 1.0) -> list[tuple[int, Wave, int, float, float, float]]:
    """Return scan tasks on the line of 70 ms and 5 ms/MB, around 10 MB."""
    sizes = 10.0 + spread * np.linspace(-1.0, 1.0, num)
    return [(0, REST, 1, 70.0 + 5.0 * mb, mb, 0.0) for mb in sizes.tolist()]


@pytest.mark.parametrize(("num", "spread", "told"), [(8, 4.0, True), (7, 4.0, False), (8, 1.7, True), (8, 1.3, False)])
def test_a_line_needs_eight_tasks_that_read_more_and_less(num, spread, told):
    """The standard deviation of eight such sizes is 0.65 of their spread; a tenth of 10 MB is needed."""
    model = fitted(line(num, spread), stages=[Stage(num)])
    assert model.scan_overhead_ms == pytest.approx(70.0 if told else SparkModel().scan_overhead_ms)
    assert model.scan_ms_per_mb == pytest.approx(5.0 if told else (120 - 30) / 10)


def test_overheads_and_rates_are_told_apart():
    shuffled = [(1, REST, 1, 9.0 + 3.0 * mb, 0.0, float(mb)) for mb in range(1, 10)]
    model = fitted([*line(9, 5.0), *shuffled], stages=[Stage(9), Stage(9, parents=(0,))])
    assert (model.scan_overhead_ms, model.shuffle_overhead_ms) == pytest.approx((70.0, 9.0))
    assert (model.scan_ms_per_mb, model.shuffle_ms_per_mb) == pytest.approx((5.0, 3.0))
    rows = [(0, REST, 1, 500.0, 1.0, 1.0)] * 3
    model = fitted(rows, stages=[Stage(3)])
    assert (model.scan_ms_per_mb, model.shuffle_ms_per_mb) == (12.0, 29.0)
    # A shuffle of 2 MB on 4 executors: 22 ms and three connections of 1.4 ms, 2 ms/MB for three quarters.
    rows = [(0, REST, 4, 50.0, 1.0, 0.0), *[(1, REST, 4, 100.0, 0.0, 2.0)] * 3]
    model = fitted(rows, stages=[Stage(1), Stage(3, parents=(0,))])
    assert model.shuffle_ms_per_mb == pytest.approx((100 - 22 - 3 * 1.4 - 2 * 2 * 0.75) / 2)
    short = [(0, REST, 4, 50.0, 1.0, 0.0), *[(1, REST, 4, 1.0, 0.0, 2.0)] * 3]
    assert fitted(short, stages=[Stage(1), Stage(3, parents=(0,))]).shuffle_ms_per_mb == 0.0


@pytest.mark.parametrize(("tasks", "told"), [(2, False), (3, True)])
def test_a_stage_needs_three_later_tasks(tasks, told):
    rows = [(0, FIRST, 1, 90.0, 1.0, 0.0), (0, FRESH, 1, 500.0, 1.0, 0.0)] + [(0, REST, 1, 60.0, 1.0, 0.0)] * tasks
    model, default = fitted(rows, stages=[Stage(tasks + 2)]), SparkModel()
    assert model.first_ms == (30.0 if told else default.first_ms)
    assert model.fresh_ms == (440.0 if told else default.fresh_ms)
    assert model.scan_ms_per_mb == (30.0 if told else default.scan_ms_per_mb)


@pytest.mark.parametrize(("mb", "told"), [(0.1, False), (0.11, True)])
def test_rates_come_from_stages_that_read_much(mb, told):
    rows = [(0, REST, 1, 30.0 + 50.0 * mb, mb, 0.0)] * 4
    assert fitted(rows, stages=[Stage(4)]).scan_ms_per_mb == pytest.approx(50.0 if told else 12.0)


def test_what_stages_read_and_whether_they_wait_for_shuffles():
    scans = [(0, REST, 2, 50.0, 1.0, 0.0), (0, REST, 2, 70.0, 3.0, 0.0)]
    others = [(1, FIRST, 2, 5.0, 0.0, 0.0), (2, FRESH, 1, 9.0, 0.0, 4.0)]
    run = measured_run([Stage(2), Stage(1, parents=(0,)), Stage(1)], scans + others)
    tasks = matched([run, replace(run, size_gb=2.0)]).tasks
    assert tasks["run"].tolist() == [0] * 4 + [1] * 4
    assert tasks["reads_shuffle"].tolist()[:4] == [False, False, True, True]
    assert tasks["size_gb"].tolist() == [1.0] * 4 + [2.0] * 4
    table = stage_means(tasks)
    assert table[["run", "stage", "level"]].to_numpy().tolist() == [
        [0, 0, 2], [0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 1, 2], [1, 2, 1],
    ]  # fmt: skip
    assert table["num_rest"].tolist()[:3] == [2, 0, 0]
    assert table["num_tasks"].tolist()[:3] == [2, 1, 1]
    assert table.loc[0, ["rest", "input_mb", "shuffle_mb"]].tolist() == [60.0, 2.0, 0.0]
    assert table.loc[2, ["fresh", "input_mb", "shuffle_mb"]].tolist() == [9.0, 0.0, 4.0]
    assert np.isnan(table.loc[1, "rest"])
    assert math.isnan(run.split_mb)
    assert (run.size_gb, run.shuffle_partitions) == (1.0, 0)
