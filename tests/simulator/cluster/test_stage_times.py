"""Forests that predict task times of stages from the DAG of a job."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from simulator.cluster.estimates import dag_only, typical_durations
from simulator.cluster.stage_times import (
    FEATURES,
    LEAF,
    SHARE,
    TREES,
    Prediction,
    fit_forest,
    log_rest_ratio,
    log_task_ms,
    num_tasks,
    predicted_durations,
    stage_features,
)
from tests.cases import cases
from workloads import JobProfile, StageProfile, TaskDurations, embedded_tpch
from workloads.job import Wave

QUERIES = embedded_tpch(sizes=["2g", "20g"])


def fitted_to(profiles: list[JobProfile], features: np.ndarray) -> RandomForestRegressor:
    sizes = [profile.num_stages for profile in profiles]
    log_ms = np.concatenate([log_task_ms(profile) for profile in profiles])
    fitted = RandomForestRegressor(TREES, min_samples_leaf=LEAF, max_features=SHARE, random_state=0)
    return fitted.fit(features, log_ms, np.repeat([1 / size for size in sizes], sizes))


def test_a_forest_has_the_values_of_the_library_that_fits_it() -> None:
    forest = fit_forest(QUERIES)
    features = np.concatenate([stage_features(profile) for profile in QUERIES])
    fitted = fitted_to(QUERIES, features)
    predicted = [forest.predict(stage_features(profile), num_tasks(profile)) for profile in QUERIES]
    log_ms, log_ratio = (np.concatenate(parts) for parts in list(zip(*predicted, strict=True))[:2])
    np.testing.assert_allclose(log_ms, fitted.predict(features), rtol=1e-6)
    # The ratio of a stage is the mean over trees of the mean over stages of its leaf.
    sizes = [profile.num_stages for profile in QUERIES]
    weight = np.repeat([1 / size for size in sizes], sizes)
    typical = typical_durations(tuple(QUERIES))
    true = np.concatenate([log_rest_ratio(profile, typical) for profile in QUERIES])
    first_stage = [
        np.average(true[leaf == leaf[0]], weights=weight[leaf == leaf[0]]) for leaf in fitted.apply(features).T
    ]
    assert log_ratio[0] == pytest.approx(np.mean(first_stage), abs=1e-6)


TYPICAL = TaskDurations.from_tables({4: [3.0]}, {4: [1.0], 16: [2.0]}, {4: [0.6], 16: [0.8]}, mean_ms=1.0)


def test_durations_have_the_predicted_mean_and_ratio() -> None:
    prediction = Prediction(np.array([50.0, 7.0]), np.array([0.5, 1.0]), 0.1, 0.1)
    shorter, typical = predicted_durations(TYPICAL, prediction)
    assert [shorter.mean_ms, typical.mean_ms] == [50.0, 7.0]
    assert [float(values.mean()) for values in shorter.table(Wave.REST).values()] == pytest.approx([15.0, 20.0])
    assert shorter.table(Wave.FIRST)[16] == pytest.approx([100.0])
    assert not shorter.table(Wave.FRESH)[16].size
    for wave in Wave:
        for level, values in typical.table(wave).items():
            assert values == pytest.approx(7 * TYPICAL.table(wave)[level])
    job = JobProfile("", (StageProfile(1, shorter), StageProfile(1, typical)))
    np.testing.assert_allclose(log_rest_ratio(job, TYPICAL), np.log([0.5, 1.0]), atol=1e-9)


def test_without_measurements_the_ratio_is_typical() -> None:
    other_level = TaskDurations.from_tables({}, {}, {8: [30.0]}, mean_ms=10.0)
    other_wave = TaskDurations.from_tables({}, {4: [30.0]}, {}, mean_ms=10.0)
    job = JobProfile("", (StageProfile(1, other_level), StageProfile(1, other_wave)))
    assert log_rest_ratio(job, TYPICAL).tolist() == [0, 0]
    constant = [JobProfile("", (StageProfile(tasks, TaskDurations.constant(tasks)),)) for tasks in range(1, 9)]
    assert not fit_forest(constant).nodes["rest"].any()


def test_the_ratio_of_a_stage_is_predicted_by_its_place() -> None:
    """Stages behind others are slower, and most of all in their first wave; the forest predicts it for another job."""
    random = np.random.default_rng(0)

    def job() -> JobProfile:
        prediction = Prediction(np.array([10.0, 20.0]), np.array([1.0, 0.3]), 0.1, 0.1)
        durations = predicted_durations(TYPICAL, prediction)
        stages = tuple(StageProfile(int(random.integers(10, 100)), times) for times in durations)
        return JobProfile("", stages, np.array([[0, 1]]))

    forest, unseen = fit_forest([job() for _ in range(20)]), job()
    log_ms, log_ratio, _ = forest.predict(stage_features(unseen), num_tasks(unseen))
    np.testing.assert_allclose(log_ms, np.log([10, 20]), atol=1e-3)
    assert log_ratio[1] - log_ratio[0] == pytest.approx(math.log(0.3), abs=1e-3)


def features_of(*stages: StageProfile, edges: tuple[tuple[int, int], ...] = ()) -> dict[str, np.ndarray]:
    """Return the features of a job by name."""
    profile = JobProfile("", stages, np.array(edges, dtype=np.int64).reshape(-1, 2))
    return dict(zip(FEATURES, stage_features(profile).T, strict=True))


def stage(tasks: int = 1, **known: Any) -> StageProfile:
    return StageProfile(tasks, TaskDurations.constant(1.0), **known)


def test_features_that_no_job_has_change_nothing() -> None:
    without = [dag_only(profile) for profile in QUERIES]
    forest, with_all = fit_forest(without), fit_forest(QUERIES)
    assert forest.nodes["feature"].max() < 23 <= with_all.nodes["feature"].max()
    # The first 23 features alone give the same trees.
    features = np.concatenate([stage_features(profile)[:, :23] for profile in without])
    trees = fitted_to(without, features).estimators_
    is_leaf = forest.nodes["feature"] < 0
    values = np.concatenate([tree.tree_.value[:, 0, 0] for tree in trees])
    np.testing.assert_array_equal(forest.nodes["number"][is_leaf], values[is_leaf])
    # A job without operators and bytes has a prediction by the others' forest.
    assert np.isfinite(with_all.predict(stage_features(without[0]), num_tasks(without[0]))[0]).all()


def test_bytes_count_on_all_paths_and_are_missing_if_unknown() -> None:
    read = [stage(4, input_bytes=1000), stage(2, input_bytes=50), stage(10), stage(1)]
    features = features_of(*read, edges=((0, 2), (1, 2), (2, 3)))
    expected = {
        "log bytes": [1000, 50, np.nan, np.nan],
        "log bytes per task": [250, 25, np.nan, np.nan],
        "log bytes of ancestors": [0, 0, 1050, 1050],
        "log bytes of ancestors per task": [0, 0, 105, 1050],
        "log bytes of the job": [1050] * 4,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(np.expm1(features[name]), values, rtol=1e-5)
    assert all(np.isnan(features_of(stage())[name]).all() for name in expected)
    chain = tuple((index, index + 1) for index in range(299))
    both = tuple((index, index + 2) for index in range(298))
    endless = features_of(*[stage(input_bytes=10**18)] * 300, edges=chain + both)
    assert np.isfinite(endless["log bytes of ancestors"]).all()


@cases(
    "kind, names",
    ("scan", ("Scan parquet", "FileScan", "BatchScan orders")),
    ("exchange", ("Exchange", "BroadcastExchange", "AQEShuffleRead", "reduceByKey", "partitionBy")),
    ("join by merging", ("SortMergeJoin",)),
    ("join by hashing", ("BroadcastHashJoin", "ShuffledHashJoin")),
    ("join by loops", ("BroadcastNestedLoopJoin", "CartesianProduct")),
    ("aggregate", ("HashAggregate", "ObjectHashAggregate", "SortAggregate")),
    ("sort", ("Sort", "TakeOrderedAndProject")),
    ("window", ("Window", "WindowGroupLimit")),
    ("python", ("BatchEvalPython", "ArrowEvalPython", "FlatMapGroupsInPandas")),
    ("generate", ("Generate", "Expand")),
    ("write", ("WriteFiles", "Execute InsertIntoHadoopFsRelationCommand")),
    ("cache", ("InMemoryTableScan",)),
    ("filter", ("Filter", "Project", "ColumnarToRow")),
    ("function", ("mapPartitions", "DeserializeToObject", "treeAggregate", "zip")),
    ("other operators", ("WholeStageCodegen", "CometNativeThing", "\N{SNOWMAN}")),
)
def test_operators_are_counted_by_kind(kind: str, names: tuple[str, ...]) -> None:
    known = features_of(stage(operators=names))
    assert (known["operators"], known[kind]) == (len(names), len(names))
    kinds = FEATURES[FEATURES.index("operators") + 1 :]
    assert sum(known[name] for name in kinds) == len(names)
    assert all(np.isnan(features_of(stage())[name]).all() for name in ("operators", *kinds))
