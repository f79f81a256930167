"""Cross-validation of a workload from event logs: each run of a query is predicted from its other runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from decima.evaluation.metrics import Interval, mean_interval
from decima.schedulers.fifo import Fifo
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import run_episode
from workloads.arrivals import JobSequence
from workloads.job import Wave
from workloads.spark.importing import SparkImport
from workloads.spark.profiles import modelled_profile, on_warm_executors
from workloads.spark.query import QueryRuns, SparkQuery

__all__ = ["HeldOut", "predict_held_out"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Measured runs, and predictions of each from the other runs of its query.

    Attributes:
        runs: one row per predicted run; columns ``query`` and ``application`` (str), ``executors`` (int64), and
            float64: ``measured_ms`` and ``predicted_ms``, from the query's start to its end, and ``driver_ms``, the
            driver's time in the other runs, which the prediction lacks (planning, delays between stages, fetching the
            result).
    """

    runs: pd.DataFrame

    @property
    def error(self) -> Interval:
        """Mean absolute error of the predictions, as a fraction of the measured times."""
        return mean_interval((self.runs["predicted_ms"] / self.runs["measured_ms"] - 1).abs())

    @property
    def bias(self) -> Interval:
        """Mean signed error: negative if predictions are too short."""
        return mean_interval(self.runs["predicted_ms"] / self.runs["measured_ms"] - 1)

    @property
    def driver_share(self) -> float:
        """Mean share of the driver's own time in the measured times."""
        return float((self.runs["driver_ms"] / self.runs["measured_ms"]).mean())

    def with_driver(self) -> HeldOut:
        """Return predictions with the driver's own time added."""
        return HeldOut(self.runs.assign(predicted_ms=self.runs["predicted_ms"] + self.runs["driver_ms"]))


def predict_held_out(
    imported: SparkImport, num_seeds: int = 3, on_step: Callable[[int, int], None] = lambda done, total: None
) -> HeldOut:
    """Predict each run that was alone on its executors, from a workload of the query's other runs.

    The model of the logs supplies task durations for numbers of executors without other runs. A prediction averages
    ``num_seeds`` simulations.
    """
    alone = {id(run) for app in imported.applications for run in _alone(app.queries)}
    pairs = [
        (name, run, QueryRuns(tuple(other for other in group.runs if other is not run)))
        for name, group in imported.queries.items()
        for run in group.runs
        if run.complete and len(group.runs) > 1 and id(run) in alone
    ]
    rows = []
    for done, (name, run, others) in enumerate(pairs):
        on_step(done, len(pairs))
        executors = int(run.tasks["level"].max())
        profile = modelled_profile(imported.model, others, levels=[executors], name=name)
        if (run.tasks["wave"] != Wave.FRESH).all():
            profile = on_warm_executors(profile)
            cluster = ClusterConfig(executors, moving_delay_ms=0.0, warmup_delay_ms=0.0)
        else:
            cluster = ClusterConfig(executors, moving_delay_ms=0.0)
        predicted = [
            run_episode(cluster, JobSequence((profile,), np.zeros(1), seed), Fifo()).mean_jct_ms
            for seed in range(num_seeds)
        ]
        slower = imported.model.contention.get(executors, 1.0)
        driver_ms = np.mean([each.planning_ms + each.driver_lag_ms + each.result_ms for each in others.runs])
        times = (run.wall_ms, float(np.mean(predicted)) * slower, float(driver_ms))
        rows.append((name, run.application_id, executors, *times))
    columns = ["query", "application", "executors", "measured_ms", "predicted_ms", "driver_ms"]
    return HeldOut(pd.DataFrame(rows, columns=columns))


def _alone(queries: Sequence[SparkQuery]) -> list[SparkQuery]:
    """Return queries that did not overlap with other queries of the application, in the given order."""
    return [
        query
        for query in queries
        if not any(
            other is not query and other.start_ms < query.end_ms and query.start_ms < other.end_ms
            for other in queries
        )
    ]
