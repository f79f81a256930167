"""Jobs of event logs: applications that shared a cluster, arrival times and durations of jobs; cross-validation.

Cross-validation of a workload predicts each run of a query from its other runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError
from decima.evaluation.metrics import Interval, mean_interval
from decima.schedulers.baselines import Fifo
from simulator.cluster.alone import known_profile
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import run_episode
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, Wave
from workloads.sources.tpch import LEVELS
from workloads.spark.eventlog import SparkApplication
from workloads.spark.importing import SparkImport, median_startup_ms
from workloads.spark.profiles import modelled_profile, on_warm_executors
from workloads.spark.query import QueryRuns, SparkQuery

__all__ = ["HeldOut", "LoggedJobs", "cluster_of_logs", "logged_jobs", "predict_held_out", "sharing_clusters"]

#: Start-up time of an executor if no log has one, ms.
USUAL_STARTUP_MS = 2000.0


@dataclass(frozen=True, eq=False)
class LoggedJobs:
    """Jobs of applications that shared a cluster, in order of the submission of their first Spark job.

    Attributes:
        profiles: profile of each job, with the durations of its own run. Schedulers see means over all runs of the
            query.
    """

    applications: tuple[SparkApplication, ...]
    cluster: ClusterConfig
    runs: tuple[SparkQuery, ...]
    names: tuple[str, ...]
    profiles: tuple[JobProfile, ...]

    @property
    def measured_ms(self) -> NDArray[np.float64]:
        """Time of each job from its start to its end, float64 [jobs], ms; NaN if it did not end."""
        return np.array([run.wall_ms for run in self.runs])

    @property
    def arrival_ms(self) -> NDArray[np.float64]:
        """Submission of the first Spark job of each job, float64 [jobs], ms since 1970."""
        return np.array([run.submitted_ms for run in self.runs])

    @property
    def ran_under(self) -> str:
        """Spark's scheduling mode, ``FIFO`` or ``FAIR``; empty if unknown, or with several applications."""
        if len(self.applications) > 1:
            return ""
        mode = self.applications[0].scheduler
        # Jobs without a pool share the default pool, which is FIFO inside.
        return "FIFO" if mode == "FAIR" and not any(run.pool for run in self.runs) else mode

    def periods(self) -> list[slice]:
        """Split the jobs before each job that arrives in an empty cluster.

        Such a job often waited for the jobs before it, such as the next of several batches. Each period is therefore
        simulated separately, from an empty cluster.
        """
        ends = np.maximum.accumulate([run.ended_ms for run in self.runs])
        begins = [0, *(1 + np.flatnonzero(self.arrival_ms[1:] > ends[:-1])).tolist(), len(self.runs)]
        return [slice(first, last) for first, last in pairwise(begins)]


def logged_jobs(
    imported: SparkImport, executors: int | None = None, moving_delay_ms: float | None = None
) -> list[LoggedJobs]:
    """Group the jobs of event logs by cluster, see ``cluster_of_logs``."""
    name_of = {id(run): name for name, group in imported.queries.items() for run in group.runs}
    means = dict(zip(imported.queries, imported.workload.profiles, strict=True))
    jobs = []
    for applications in sharing_clusters(imported.applications):
        runs = sorted((run for app in applications for run in app.queries), key=lambda run: run.submitted_ms)
        if not runs:
            continue
        cluster = cluster_of_logs(applications, executors, moving_delay_ms)
        # All slots of one application have the same parallelism level, whichever job uses them.
        levels = () if len(applications) == 1 else LEVELS
        # Contention stays in the durations, as they are simulated on the same cluster.
        model = replace(imported.model, contention={})
        names = tuple(name_of[id(run)] for run in runs)
        profiles = []
        for name, run in zip(names, runs, strict=True):
            profile = modelled_profile(model, QueryRuns((run,)), levels=levels, name=name)
            profile = _with_means(profile, known_profile(means[name], cluster))
            profiles.append(on_warm_executors(profile) if cluster.moving_delay_ms == 0 else profile)
        jobs.append(LoggedJobs(tuple(applications), cluster, tuple(runs), names, tuple(profiles)))
    return jobs


def _with_means(profile: JobProfile, known: JobProfile) -> JobProfile:
    """Return the job with the mean durations of another profile of its query."""
    stages = tuple(
        replace(stage, durations=replace(stage.durations, mean_ms=other.durations.mean_ms))
        for stage, other in zip(profile.stages, known.stages, strict=True)
    )
    return replace(profile, stages=stages)


def sharing_clusters(applications: Sequence[SparkApplication]) -> list[list[SparkApplication]]:
    """Group applications that shared a cluster: they overlapped in time, under the same master.

    A private master, such as ``local[4]`` or ``local-cluster[..]``, shares nothing. Applications that ran one after
    the other could not take executors from each other.
    """
    groups: list[list[SparkApplication]] = []
    open_until: dict[str | int, tuple[float, list[SparkApplication]]] = {}
    for app in sorted(applications, key=_began_ms):
        master = id(app) if app.master.startswith("local") else app.master
        until_ms, group = open_until.get(master, (-math.inf, []))
        if _began_ms(app) >= until_ms:
            until_ms, group = -math.inf, []
            groups.append(group)
        group.append(app)
        open_until[master] = max(until_ms, _ended_ms(app)), group
    return groups


def cluster_of_logs(
    applications: Sequence[SparkApplication],
    executors: int | None = None,
    moving_delay_ms: float | None = None,
) -> ClusterConfig:
    """Return the cluster of applications that shared one.

    By default it has the largest number of task slots at any time. The default moving delay is 0 if one application ran
    all jobs, else the median start-up time of executors.

    Raises:
        CompareError: the logs have no executor.
    """
    count = executors or _most_slots(applications)
    if count == 0:
        raise CompareError("the logs contain no executor: give their number by --executors")
    delay_ms = moving_delay_ms
    if delay_ms is None:
        startup_ms = median_startup_ms(applications)
        usual_ms = USUAL_STARTUP_MS if math.isnan(startup_ms) else startup_ms
        delay_ms = 0.0 if len(applications) == 1 else usual_ms
    if delay_ms == 0:
        return ClusterConfig(count, moving_delay_ms=0.0, warmup_delay_ms=0.0)
    return ClusterConfig(count, moving_delay_ms=delay_ms)


def _most_slots(applications: Sequence[SparkApplication]) -> int:
    changes = []
    for app in applications:
        for each in app.executors:
            begins = each.registered_ms if math.isfinite(each.registered_ms) else app.start_ms
            ends = each.removed_ms if math.isfinite(each.removed_ms) else app.end_ms
            changes.append((begins, each.slots))
            if math.isfinite(ends):
                changes.append((ends, -each.slots))
    # Of simultaneous changes, departures come first.
    return max(accumulate((change for _, change in sorted(changes)), initial=0))


def _began_ms(app: SparkApplication) -> float:
    known = [app.start_ms, *(query.start_ms for query in app.queries)]
    return min((each for each in known if math.isfinite(each)), default=0.0)


def _ended_ms(app: SparkApplication) -> float:
    if math.isfinite(app.end_ms):
        return app.end_ms
    return max((query.ended_ms for query in app.queries), default=_began_ms(app))


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
        cluster = ClusterConfig(executors, moving_delay_ms=0.0)
        if (run.tasks["wave"] != Wave.FRESH).all():
            profile, cluster = on_warm_executors(profile), replace(cluster, warmup_delay_ms=0.0)
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
