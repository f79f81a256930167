"""Forests that predict task times of stages from the DAG of a job."""

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from simulator.cluster.stage_times import LEAF, SHARE, TREES, fit_forest, num_tasks, stage_features
from workloads import embedded_tpch

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
