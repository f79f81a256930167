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
from decima.schedulers.fifo import Fifo
from simulator.cluster.config import ClusterConfig, ExecutorClass
from simulator.cluster.episode import run_episode
from simulator.cluster.faults import Faults
from simulator.cluster.known import known_profile
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, TaskDurations, Wave
from workloads.sources.tpch import LEVELS
from workloads.spark.eventlog import SparkApplication
from workloads.spark.importing import SparkImport, median_startup_ms
from workloads.spark.profiles import modelled_profile, on_warm_executors
from workloads.spark.query import QueryRuns, SparkQuery

__all__ = [
    "HeldOut", "LoggedJobs", "cluster_of_logs", "jobs_by_application", "logged_jobs", "predict_held_out",
    "sharing_clusters",
]  # fmt: skip

#: Start-up time of an executor if no log has one, ms.
USUAL_STARTUP_MS = 2000.0


@dataclass(frozen=True, eq=False)
class LoggedJobs:
    """Jobs of applications that shared a cluster, in order of arrival.

    Attributes:
        cluster: the cluster with its largest number of executors.
        arrival_ms: time from which each job takes executors, float64 [jobs], ms since 1970: its submission; on a shared
            cluster also before an application's first submission, as its executors start while its driver prepares.
        profiles: profile of each job, with the durations of its own run. Schedulers see means over all runs of the
            query.
        modelled: for each job and stage, parallelism levels without a measured duration of the own run, int64 [n], if
            the cluster has another number of executors than in the logs; else empty, as a job that ran is known.
        slots: task slots as executors came and left in the log, float64 [changes, 2], time in ms since 1970 and number
            from then on, ascending; empty if the cluster has all its executors at any time.
    """

    applications: tuple[SparkApplication, ...]
    cluster: ClusterConfig
    runs: tuple[SparkQuery, ...]
    arrival_ms: NDArray[np.float64]
    names: tuple[str, ...]
    profiles: tuple[JobProfile, ...]
    modelled: tuple[tuple[NDArray[np.int64], ...], ...]
    slots: NDArray[np.float64]

    @property
    def measured_ms(self) -> NDArray[np.float64]:
        """Time of each job from its start to its end, float64 [jobs], ms; NaN if it did not end."""
        return np.array([run.wall_ms for run in self.runs])

    @property
    def submitted_ms(self) -> NDArray[np.float64]:
        """Submission of the first Spark job of each job, float64 [jobs], ms since 1970."""
        return np.array([run.submitted_ms for run in self.runs])

    @property
    def waited_ms(self) -> NDArray[np.float64]:
        """Time from each job's arrival until ``slots`` has an executor, float64 [jobs], ms."""
        since_ms, counts = self.slots.T
        come_ms = since_ms[counts > 0]
        following = np.searchsorted(come_ms, self.arrival_ms)
        there = (self._slots_at(self.arrival_ms) > 0) | (following == len(come_ms))
        next_ms = self.arrival_ms.copy()
        next_ms[~there] = come_ms[following[~there]]
        return next_ms - self.arrival_ms

    @property
    def ran_under(self) -> str:
        """Spark's scheduling mode, ``FIFO`` or ``FAIR``, or ``decima``; empty with several applications.

        A log that does not name the mode counts as ``FIFO``, Spark's default.
        """
        if len(self.applications) > 1:
            return ""
        mode = self.applications[0].scheduler or "FIFO"
        # Jobs without a pool share the default pool, which is FIFO inside.
        return "FIFO" if mode == "FAIR" and not any(run.pool for run in self.runs) else mode

    @property
    def why_equal(self) -> str:
        """Reason why the order of jobs changes nothing, as the log shows; empty if it matters."""
        if all(period.stop - period.start == 1 for period in self.periods()):
            return "jobs never overlap"
        begin_ms, end_ms = [], []
        for run in self.runs:
            launch_ms, stage = run.tasks["launch_ms"].to_numpy(), run.tasks["stage"].to_numpy()
            ready_ms = np.array([made.submitted_ms for made in run.stages])[stage]
            begin_ms.append(np.fmin(ready_ms, launch_ms))
            end_ms.append(launch_ms + run.tasks["duration_ms"].to_numpy())
        times_ms = np.unique(np.concatenate([*begin_ms, *end_ms]))
        unfinished = _present(np.concatenate(begin_ms), np.concatenate(end_ms), times_ms)
        live = _present(self.arrival_ms, np.array([run.ended_ms for run in self.runs]), times_ms)
        waits = (unfinished > self._slots_at(times_ms)) & (live > 1)
        return "" if waits.any() else "a slot is always free"

    def _slots_at(self, times_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the number of task slots at given times, float64 [times]."""
        since_ms, counts = self.slots.T
        if not counts.size:
            return np.full(len(times_ms), float(self.cluster.num_executors))
        return np.concatenate([[0.0], counts])[np.searchsorted(since_ms, times_ms, "right")]

    def periods(self) -> list[slice]:
        """Split the jobs before each job that arrives in an empty cluster.

        Such a job often waited for the jobs before it, such as the next of several batches. Each period is therefore
        simulated separately, from an empty cluster.
        """
        ends = np.maximum.accumulate([run.ended_ms for run in self.runs])
        begins = [0, *(1 + np.flatnonzero(self.arrival_ms[1:] > ends[:-1])).tolist(), len(self.runs)]
        return [slice(first, last) for first, last in pairwise(begins)]

    def cluster_in(self, period: slice) -> ClusterConfig:
        """Return the cluster of a period, whose executors come as in the log.

        Executors that leave during the period are kept: Spark releases idle ones, which another scheduler may need.
        """
        runs = self.runs[period]
        begin_ms, end_ms = self.arrival_ms[period][0], max(run.ended_ms for run in runs)
        since_ms, counts = self.slots.T
        later = (since_ms > begin_ms) & (since_ms < end_ms)
        times_ms = np.concatenate([[0.0], since_ms[later] - begin_ms])
        most = np.maximum.accumulate([*self._slots_at(np.array([begin_ms])), *counts[later]]).astype(int)
        if most[-1] == 0:
            return self.cluster
        joins = np.diff(most, prepend=-1) > 0
        capacity = tuple(zip(times_ms[joins].tolist(), most[joins].tolist(), strict=True))
        faults = Faults(capacity=capacity) if len(capacity) > 1 else self.cluster.faults
        return replace(self.cluster, executor_classes=(ExecutorClass(int(most[-1])),), faults=faults)


def _present(
    begin_ms: NDArray[np.float64], end_ms: NDArray[np.float64], at_ms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return how many of the intervals [begin, end) contain each time, int64 [times]."""
    return np.searchsorted(np.sort(begin_ms), at_ms, "right") - np.searchsorted(
        np.sort(end_ms), at_ms, "right"
    )


def logged_jobs(
    imported: SparkImport, executors: int | None = None, moving_delay_ms: float | None = None
) -> list[LoggedJobs]:
    """Group the jobs of event logs by cluster, see ``cluster_of_logs``.

    If one application ran all jobs of a cluster, and ``executors`` is not given, its executors come as in the log.
    """
    groups = sharing_clusters(imported.applications)
    return _logged(imported, groups, executors, moving_delay_ms)


def jobs_by_application(imported: SparkImport) -> list[LoggedJobs]:
    """Return the jobs of each application on the executors that it had, as they came in the log.

    Applications whose logs have no executor are left out.
    """
    with_slots = [app for app in imported.applications if any(executor.slots for executor in app.executors)]
    return _logged(imported, [[app] for app in with_slots])


def _logged(
    imported: SparkImport,
    groups: Sequence[Sequence[SparkApplication]],
    executors: int | None = None,
    moving_delay_ms: float | None = None,
) -> list[LoggedJobs]:
    name_of = {id(run): name for name, group in imported.queries.items() for run in group.runs}
    means = dict(zip(imported.queries, imported.workload.profiles, strict=True))
    # Contention stays in the durations, as they are simulated on the same cluster.
    model = replace(imported.model, contention={})
    jobs = []
    for applications in groups:
        if not any(app.queries for app in applications):
            continue
        cluster = cluster_of_logs(applications, executors, moving_delay_ms)
        arrivals = [
            arrival for app in applications for arrival in _arrivals(app, cluster, len(applications) > 1)
        ]
        arrival_ms, runs = zip(*sorted(arrivals, key=lambda arrival: arrival[0]), strict=True)
        levels = LEVELS if len(applications) > 1 else (executors,) if executors else ()
        names = tuple(name_of[id(run)] for run in runs)
        num_logged = max(_slots_over_time(applications).values(), default=0)
        is_resized = executors is not None and executors != num_logged
        profiles, modelled = [], []
        for name, run in zip(names, runs, strict=True):
            profile = modelled_profile(model, QueryRuns((run,)), levels=levels, name=name)
            if len(applications) == 1 and executors:
                # All slots of one application have the same parallelism level, whichever job uses them.
                profile = _at_level(profile, executors)
            profile = _with_means(profile, known_profile(means[name], cluster))
            measured = run.tasks.groupby("stage")["level"].unique()
            modelled.append(
                tuple(
                    np.setdiff1d(stage.durations.levels if is_resized else [], measured[index])
                    for index, stage in enumerate(profile.stages)
                )
            )
            profiles.append(_with_cold_starts(profile, run) if cluster.moving_delay_ms == 0 else profile)
        as_logged = not executors and len(applications) == 1
        slots = np.array(list(_slots_over_time(applications).items()) if as_logged else np.empty((0, 2)))
        logged = LoggedJobs(
            applications=tuple(applications),
            cluster=cluster,
            runs=runs,
            arrival_ms=np.array(arrival_ms),
            names=names,
            profiles=tuple(profiles),
            modelled=tuple(modelled),
            slots=slots,
        )
        jobs.append(logged)
    return jobs


def _arrivals(app: SparkApplication, cluster: ClusterConfig, shared: bool) -> list[tuple[float, SparkQuery]]:
    """Return the time from which each job of an application takes executors, ms since 1970, with its run."""
    runs = sorted(app.queries, key=lambda run: run.submitted_ms)
    arrival_ms = [run.submitted_ms for run in runs]
    if runs and shared and app.start_ms < arrival_ms[0]:
        arrival_ms[0] = max(app.start_ms, arrival_ms[0] - cluster.moving_delay_ms)
    return list(zip(arrival_ms, runs, strict=True))


def _with_cold_starts(profile: JobProfile, run: SparkQuery) -> JobProfile:
    """Return the same job on a cluster in which executors keep their JVM, with the cold starts of its own run.

    Durations of the fresh wave become durations of the first wave, in the proportion of the run: a job that warmed up
    new executors in the log does so under every scheduler.
    """
    stage_of, wave, level = (run.tasks[name].to_numpy() for name in ("stage", "wave", "level"))
    stages = []
    for index, stage in enumerate(profile.stages):
        fresh, first, rest = (stage.durations.table(wave) for wave in Wave)
        for modelled in set(fresh) - set(level[stage_of == index].tolist()):
            num_fresh, num_first = (
                int(((stage_of == index) & (wave == wave_id)).sum()) for wave_id in (Wave.FRESH, Wave.FIRST)
            )
            fresh[modelled] = np.repeat(fresh[modelled], num_fresh)
            first[modelled] = np.repeat(first[modelled], num_first if num_fresh else 1)
        either = {level: [*fresh[level], *first[level]] for level in fresh}
        tables = (
            {level: list(durations) for level, durations in table.items() if len(durations)}
            for table in (either, rest)
        )
        durations = TaskDurations.from_tables({}, *tables, mean_ms=stage.durations.given_mean_ms)
        stages.append(replace(stage, durations=durations))
    return replace(profile, stages=tuple(stages))


def _at_level(profile: JobProfile, level: int) -> JobProfile:
    """Return the job with the durations of one parallelism level, whatever number of executors it holds."""
    stages = []
    for stage in profile.stages:
        measured, here = stage.durations, stage.durations.levels == level
        durations = replace(measured, levels=measured.levels[here], cells=measured.cells[:, here])
        stages.append(replace(stage, durations=durations))
    return replace(profile, stages=tuple(stages))


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
    count = executors or max(_slots_over_time(applications).values(), default=0)
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


def _slots_over_time(applications: Sequence[SparkApplication]) -> dict[float, int]:
    """Return the number of task slots from each change on, by its time in ms since 1970, ascending."""
    changes = []
    for app in applications:
        for executor in app.executors:
            begins = executor.registered_ms if math.isfinite(executor.registered_ms) else app.start_ms
            ends = executor.removed_ms if math.isfinite(executor.removed_ms) else app.end_ms
            changes.append((begins if math.isfinite(begins) else -math.inf, executor.slots))
            if math.isfinite(ends):
                changes.append((ends, -executor.slots))
    changes.sort()
    counts = accumulate(change for _, change in changes)
    return dict(zip((time_ms for time_ms, _ in changes), counts, strict=True))


def _began_ms(app: SparkApplication) -> float:
    times_ms = [app.start_ms, *(query.start_ms for query in app.queries)]
    return min((time_ms for time_ms in times_ms if math.isfinite(time_ms)), default=0.0)


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
    """Predict each pooled run that was alone on its executors, from a workload of the query's other pooled runs.

    The model of the logs supplies task durations for numbers of executors without other runs. A prediction averages
    ``num_seeds`` simulations.
    """
    alone = {id(run) for app in imported.applications for run in _alone(app.queries)}
    pairs = [
        (name, run, QueryRuns(tuple(other for other in group.runs if other is not run)))
        for name, group in imported.pooled.items()
        for run in group.runs
        if run.complete and len(group.runs) > 1 and id(run) in alone
    ]
    rows = []
    for done, (name, run, training) in enumerate(pairs):
        on_step(done, len(pairs))
        executors = int(run.tasks["level"].max())
        profile = modelled_profile(imported.model, training, levels=[executors], name=name)
        cluster = ClusterConfig(executors, moving_delay_ms=0.0)
        if (run.tasks["wave"] != Wave.FRESH).all():
            profile, cluster = on_warm_executors(profile), replace(cluster, warmup_delay_ms=0.0)
        predicted = [
            run_episode(cluster, JobSequence((profile,), np.zeros(1), seed), Fifo()).mean_jct_ms
            for seed in range(num_seeds)
        ]
        slower = imported.model.contention.get(executors, 1.0)
        driver_ms = np.mean([run.planning_ms + run.driver_lag_ms + run.result_ms for run in training.runs])
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
