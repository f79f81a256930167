"""Forests that predict task times of stages from the DAG of a job."""

from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from simulator.cluster.estimates import dag_only
from simulator.cluster.stage_times import FEATURES, LEAF, SHARE, TREES, fit_forest, num_tasks, stage_features
from tests.cases import cases
from workloads import JobProfile, StageProfile, TaskDurations, embedded_tpch

QUERIES = embedded_tpch(sizes=["2g", "20g"])


def test_a_forest_has_the_values_of_the_library_that_fits_it() -> None:
    forest = fit_forest(QUERIES)
    fitted = RandomForestRegressor(TREES, min_samples_leaf=LEAF, max_features=SHARE, random_state=0)
    sizes = [profile.num_stages for profile in QUERIES]
    log_ms = np.log([stage.durations.mean_ms for profile in QUERIES for stage in profile.stages])
    features = np.concatenate([stage_features(profile) for profile in QUERIES])
    fitted.fit(features, log_ms, np.repeat([1 / size for size in sizes], sizes))
    predicted = np.concatenate([forest.log_ms(stage_features(profile), num_tasks(profile))[0] for profile in QUERIES])
    np.testing.assert_allclose(predicted, fitted.predict(features), rtol=1e-6)


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
    fitted = RandomForestRegressor(TREES, min_samples_leaf=LEAF, max_features=SHARE, random_state=0)
    features = np.concatenate([stage_features(profile)[:, :23] for profile in without])
    log_ms = np.log([stage.durations.mean_ms for profile in QUERIES for stage in profile.stages])
    sizes = [profile.num_stages for profile in QUERIES]
    trees = fitted.fit(features, log_ms, np.repeat([1 / size for size in sizes], sizes)).estimators_
    is_leaf = forest.nodes["feature"] < 0
    values = np.concatenate([tree.tree_.value[:, 0, 0] for tree in trees])
    np.testing.assert_array_equal(forest.nodes["number"][is_leaf], values[is_leaf])
    # A job without operators and bytes has a prediction by the others' forest.
    assert np.isfinite(with_all.log_ms(stage_features(without[0]), num_tasks(without[0]))[0]).all()


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
