"""Predictions of the JCTs of a Spark cluster's jobs under other schedulers, at the real arrival times.

The simulator runs the jobs of event logs in Spark's own modes and under other schedulers. Task durations are uncertain.
Hence each scheduler is simulated many times with different task noise. A job has the durations of its own run, without
error. If the cluster is simulated with another number of executors than in the logs, durations on numbers of executors
that the run did not have come from a model; they are multiplied by an error with mean 1, drawn for each query from the
errors of cross-validated predictions (``held_out``). All schedulers have the same draws (common random numbers), so
that shared uncertainty does not affect their differences.

If one application ran all jobs of a cluster, its executors come as in the log. The jobs are also simulated as they ran:
each application on its own executors, in its mode of Spark. The difference from the measured times is the error of the
simulation.

The time of a job is its time in the simulator plus the time of its driver: planning before its first Spark job,
fetching the result, and delays between its stages while no other job could use the slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.documents import json_text
from decima.evaluation.episodes import run_scheduler
from decima.evaluation.fit import misfits
from decima.evaluation.spark import SPARKS_OWN, TRAINING_SEEDS, WEIGHTED_FAIR, as_simulated, tuned
from decima.evaluation.spark.logged_jobs import HeldOut, LoggedJobs, jobs_by_application
from decima.registry import policy_named
from decima.schedulers.base import Scheduler
from decima.schedulers.spark import FairPools, SparkFifo, SparkPools
from simulator.cluster.config import EXACT, SPARK, ClusterConfig, Knowledge
from simulator.cluster.episode import run_episode
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence, RandomStream, random_stream, trace_arrivals
from workloads.attributes import DEFAULT_TENANT, JobAttributes
from workloads.job import JobProfile
from workloads.sources.workload_file import Workload
from workloads.spark.importing import SparkImport
from workloads.spark.query import SparkQuery

__all__ = ["SCHEDULERS", "Range", "WhatIf", "simulate_what_if"]

#: Displayed name -> scheduler; the better one of Spark's own is the reference.
SCHEDULERS = {**SPARKS_OWN, **WEIGHTED_FAIR, "srpt": "srpt", "srpt-tuned": "srpt-tuned"}
#: Number of draws on which weighted fair sharing is tuned.
TRAINING = 3
#: Percentage of the draws inside a range.
MIDDLE = 95.0


class Range(NamedTuple):
    """Mean over draws, and the range of the middle 95 % of them."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: ArrayLike) -> Range:
        """Summarise at least one value."""
        drawn = np.asarray(values, dtype=np.float64)
        low, high = np.percentile(drawn, (50 - MIDDLE / 2, 50 + MIDDLE / 2))
        return Range(float(drawn.mean()), float(low), float(high))


@dataclass(frozen=True, eq=False)
class WhatIf:
    """Results of the simulations.

    Attributes:
        jobs: one row per job, by cluster and in order of arrival; columns ``query`` (str), ``cluster`` (int64, index
            in ``logged``), ``arrival_ms`` (float64, since the first job of all) and ``measured_ms`` (float64, from
            start to end in the log; NaN if it did not end).
        jct_ms: scheduler -> float64 [draws, jobs].
        as_it_ran_ms: simulated as the jobs ran, float64 [draws, jobs]; NaN if another scheduler than Spark's own ran
            them.
        misfits: quantities that are out of the training distribution of decima's policy.
        knowledge: what schedulers other than Spark's own know of the jobs.
    """

    logged: Sequence[LoggedJobs]
    jobs: pd.DataFrame
    jct_ms: Mapping[str, NDArray[np.float64]]
    as_it_ran_ms: NDArray[np.float64]
    held_out: HeldOut
    setting: str
    misfits: Sequence[str]
    knowledge: Knowledge = EXACT

    @property
    def sparks_own(self) -> str:
        """The better one of Spark's own modes."""
        return min(
            (name for name in self.jct_ms if name in SPARKS_OWN), key=lambda name: self.mean_jct_ms(name).mean
        )

    def mean_jct_ms(self, scheduler: str) -> Range:
        """Return the average job completion time, ms."""
        return Range.of(self.jct_ms[scheduler].mean(axis=1))

    def change(self, scheduler: str, other: str | None = None) -> Range:
        """Return the relative difference of a scheduler's mean JCT from another's, by default ``sparks_own``."""
        base = self.jct_ms[other or self.sparks_own].mean(axis=1)
        return Range.of(self.jct_ms[scheduler].mean(axis=1) / base - 1)

    def by_cluster(self) -> pd.DataFrame:
        """Summarise by cluster, in order of their first jobs.

        Columns: ``applications`` (str), ``executors`` and ``jobs`` (int64), ``ran_under`` and ``why_equal`` (str, see
        ``LoggedJobs``), ``measured_s``, ``as_it_ran_s``, and the mean JCT under each scheduler, float64, s.
        """
        result = self._means("cluster").assign(
            applications=[", ".join(app.name for app in logged.applications) for logged in self.logged],
            executors=[logged.cluster.num_executors for logged in self.logged],
            ran_under=[logged.ran_under for logged in self.logged],
            why_equal=[logged.why_equal for logged in self.logged],
        )
        texts = ["applications", "executors", "jobs", "ran_under", "why_equal"]
        return result[[*texts, "measured_s", "as_it_ran_s", *self.jct_ms]]

    def as_it_ran(self) -> pd.DataFrame:
        """Compare measured times with the simulation of the jobs as they ran, by cluster.

        Clusters without a finished job that Spark's modes scheduled are left out. Columns, over such jobs: ``jobs``
        (int64), ``measured_s`` and ``simulated_s`` (mean JCT, float64, s), and ``error`` (simulated / measured - 1).
        """
        simulated_ms = self.as_it_ran_ms.mean(axis=0)
        is_known = (self.jobs["measured_ms"] > 0).to_numpy() & np.isfinite(simulated_ms)
        groups = self.jobs.assign(simulated_ms=simulated_ms)[is_known].groupby("cluster")
        means = groups[["measured_ms", "simulated_ms"]].mean() / 1000
        result = means.set_axis(["measured_s", "simulated_s"], axis=1).assign(jobs=groups.size())
        error = result["simulated_s"] / result["measured_s"] - 1
        columns = ["jobs", "measured_s", "simulated_s", "error"]
        return pd.DataFrame(result.assign(error=error)[columns])

    def by_query(self) -> pd.DataFrame:
        """Summarise by query, largest total time first; indexed by name.

        Columns: ``jobs`` (int64), ``measured_s``, ``as_it_ran_s``, and the mean JCT under each scheduler, float64, s.
        """
        result = self._means("query")
        total = result["jobs"] * result[self.sparks_own]
        return result.loc[total.sort_values(ascending=False).index]

    def _means(self, by: str) -> pd.DataFrame:
        """Return number of jobs, measured and simulated mean JCT, and mean JCT under each scheduler by group, s."""
        predicted = {name: jct.mean(axis=0) for name, jct in self.jct_ms.items()}
        table = self.jobs.rename(columns={"measured_ms": "measured_s"})
        groups = table.assign(as_it_ran_s=self.as_it_ran_ms.mean(axis=0), **predicted).groupby(by)
        columns = ["measured_s", "as_it_ran_s", *self.jct_ms]
        return (groups[columns].mean() / 1000).assign(jobs=groups.size())[["jobs", *columns]]

    def to_json(self, **extra: Any) -> str:
        """Return all results as JSON, in seconds; ``extra`` are further entries."""
        error, bias = self.held_out.error, self.held_out.bias
        content = {
            **extra,
            "clusters": [
                {"moving_delay_s": logged.cluster.moving_delay_ms / 1000, **row}
                for logged, row in zip(self.logged, self.by_cluster().to_dict("records"), strict=True)
            ],
            "draws": len(next(iter(self.jct_ms.values()))),
            "unknown": self.knowledge.unknown,
            "estimator": str(self.knowledge.estimator),
            "held_out": {"runs": len(self.held_out.runs), "error": error.mean, "bias": bias.mean},
            "as_it_ran": self.as_it_ran().to_dict("records"),
            "sparks_own": self.sparks_own,
            "weighted_fair": self.setting,
            "outside_training": list(self.misfits),
            "schedulers": {
                name: {
                    "mean_jct_s": self.mean_jct_ms(name).mean / 1000,
                    "mean_jct_range_s": [value / 1000 for value in self.mean_jct_ms(name)[1:]],
                    "change": self.change(name).mean,
                    "change_range": list(self.change(name)[1:]),
                }
                for name in self.jct_ms
            },
            "jobs": [
                {
                    "query": query,
                    "cluster": cluster,
                    "arrival_s": arrival_ms / 1000,
                    "measured_s": measured_ms / 1000,
                    "as_it_ran_s": float(self.as_it_ran_ms[:, job].mean()) / 1000,
                    "predicted_s": {
                        name: float(jct[:, job].mean()) / 1000 for name, jct in self.jct_ms.items()
                    },
                }
                for job, (query, cluster, arrival_ms, measured_ms) in enumerate(
                    zip(*(self.jobs[name].tolist() for name in self.jobs), strict=True)
                )
            ],
        }
        return json_text(content)


def simulate_what_if(
    imported: SparkImport,
    held_out: HeldOut,
    logged: Sequence[LoggedJobs],
    schedulers: Mapping[str, str] = SCHEDULERS,
    num_draws: int = 20,
    seed: int = 0,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    knowledge: Knowledge = EXACT,
) -> WhatIf:
    """Run the jobs of event logs again under each scheduler, at least one of which is Spark's own.

    ``held_out`` are cross-validated predictions of the logs' runs. ``seed`` is of the first of ``num_draws``
    simulations of each scheduler. ``knowledge`` is what schedulers know of the jobs; jobs without history are estimated
    from the other jobs of the logs, or by a model file.

    Raises:
        CompareError: there are no jobs, a scheduler fails, or none is Spark's own.
    """
    if not logged:
        raise CompareError("the logs contain no jobs")
    if not set(schedulers) & set(SPARKS_OWN):
        raise CompareError(f"one of the schedulers must be {' or '.join(SPARKS_OWN)}")
    errors = _error_factors(held_out)
    largest = max(logged, key=lambda of_cluster: len(of_cluster.runs))
    training = (
        _sequence(largest, slice(None), _drawn(errors, TRAINING_SEEDS + draw), TRAINING_SEEDS + draw)
        for draw in range(TRAINING)
    )
    specs, setting = tuned(schedulers, largest.cluster, training)
    job_of = {id(run): job for job, run in enumerate(run for of_cluster in logged for run in of_cluster.runs)}
    in_periods, as_it_ran = (
        [
            (
                of_logged,
                period,
                of_logged.cluster_in(period),
                [job_of[id(run)] for run in of_logged.runs[period]],
            )
            for of_logged in group
            for period in of_logged.periods()
        ]
        for group in (logged, jobs_by_application(imported))
    )
    jct_ms = {name: np.empty((num_draws, len(job_of))) for name in specs}
    as_it_ran_ms = np.full((num_draws, len(job_of)), np.nan)
    for draw in range(num_draws):
        factor = _drawn(errors, seed + draw)
        for of_logged, period, cluster, jobs in in_periods:
            sequence = replace(
                _sequence(of_logged, period, factor, seed + draw),
                library=tuple(dict.fromkeys(of_logged.profiles)),
            )
            cluster = replace(cluster, knowledge=knowledge)
            for name, spec in specs.items():
                jct_ms[name][draw, jobs] = _jct_ms(of_logged, period, cluster, sequence, name, spec)
        for of_logged, period, cluster, jobs in as_it_ran:
            as_it_ran_ms[draw, jobs] = _as_it_ran_ms(of_logged, period, cluster, seed + draw)
        on_step(draw + 1, num_draws)
    workload = _as_they_came(imported.workload, largest)
    conditions = Conditions(workload=workload, cluster=largest.cluster, num_experiments=1)
    policies = [policy for spec in specs.values() if (policy := policy_named(spec)) is not None]
    outside = [text for policy in policies for text in misfits(policy, conditions)]
    return WhatIf(
        *(tuple(logged), _as_measured(logged), jct_ms, as_it_ran_ms, held_out, setting, outside, knowledge)
    )


def _jct_ms(
    logged: LoggedJobs, period: slice, cluster: ClusterConfig, sequence: JobSequence, name: str, spec: str
) -> NDArray[np.float64]:
    """Simulate a period under a scheduler; return its JCTs, from a job's start to its end, float64 [jobs], ms."""
    cluster, of_simulator = as_simulated(cluster, name, spec)
    spark_order = _sparks_order(name, logged.runs[period]) if cluster.moving_delay_ms == 0 else None
    record = (
        run_scheduler(cluster, sequence, of_simulator)
        if spark_order is None
        else run_episode(cluster, sequence, spark_order)
    )
    return _from_start_to_end_ms(logged, period, record)


def _as_it_ran_ms(
    logged: LoggedJobs, period: slice, cluster: ClusterConfig, seed: int
) -> NDArray[np.float64] | float:
    """Simulate a period of one application in its mode of Spark; return JCTs as ``_jct_ms``, NaN for other modes."""
    runs = logged.runs[period]
    sequence = _sequence(logged, period, lambda query: 1.0, seed)
    cluster = replace(cluster, semantics=SPARK)
    scheduler: Scheduler
    if logged.ran_under == "FIFO":
        scheduler = _fifo(runs)
    elif logged.ran_under == "FAIR":
        pools = tuple(JobAttributes(tenant=run.pool or DEFAULT_TENANT) for run in runs)
        sequence, scheduler = replace(sequence, attributes=pools), FairPools()
    else:
        return math.nan
    return _from_start_to_end_ms(logged, period, run_episode(cluster, sequence, scheduler))


def _from_start_to_end_ms(logged: LoggedJobs, period: slice, record: EpisodeRecord) -> NDArray[np.float64]:
    """Return the times of jobs from start to end, with the time of their drivers, float64 [jobs], ms."""
    runs, arrival_ms = logged.runs[period], logged.arrival_ms[period]
    until_submitted_ms = logged.submitted_ms[period] - arrival_ms
    lag_ms = np.array([run.driver_lag_ms for run in runs])
    around_ms = np.array([run.planning_ms + run.result_ms for run in runs])
    alone = _share_alone(np.asarray(record.sequence.arrival_ms), record.completion_ms)
    return np.asarray(record.jct_ms - until_submitted_ms + around_ms + alone * lag_ms)


def _sparks_order(name: str, runs: Sequence[SparkQuery]) -> Scheduler | None:
    """Return the scheduler of Spark's own mode within one application; None for other schedulers."""
    if name not in SPARKS_OWN:
        return None
    if SPARKS_OWN[name] == "fifo":
        return _fifo(runs)
    # FAIR is simulated with one pool per job, whatever the pools in the log are.
    return SparkPools([f"{run.pool} {index}" if run.pool else str(index) for index, run in enumerate(runs)])


def _fifo(runs: Sequence[SparkQuery]) -> SparkFifo:
    return SparkFifo([run.num_jobs > 1 for run in runs])


def _share_alone(arrival_ms: NDArray[np.float64], completion_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each job's time in the system in which it is the only job, float64 [jobs]."""
    times = np.unique(np.concatenate([arrival_ms, completion_ms]))
    live = np.searchsorted(np.sort(arrival_ms), times, "right") - np.searchsorted(
        np.sort(completion_ms), times, "right"
    )
    alone_ms = np.concatenate([[0.0], np.cumsum(np.diff(times) * (live[:-1] == 1))])
    inside_ms = np.interp(completion_ms, times, alone_ms) - np.interp(arrival_ms, times, alone_ms)
    return np.asarray(inside_ms / np.maximum(completion_ms - arrival_ms, 1e-9))


def _error_factors(held_out: HeldOut) -> NDArray[np.float64]:
    """Return the errors of cross-validated predictions as factors on durations, float64 [runs], with mean 1.

    An error is measured over predicted time. Outliers, such as runs in a cold JVM, are moved to three standard
    deviations of the logarithms (estimated from the median absolute deviation), so that they do not change the others.
    """
    measured_ms, predicted_ms = (held_out.runs[name] for name in ("measured_ms", "predicted_ms"))
    measured = (measured_ms > 0) & (predicted_ms > 0)
    if not measured.any():
        return np.ones(1)
    logs = np.log((measured_ms / predicted_ms)[measured].to_numpy(dtype=np.float64))
    logs -= np.median(logs)
    most = 3 * 1.4826 * np.median(np.abs(logs))
    factors = np.exp(logs.clip(-most, most))
    return np.asarray(factors / factors.mean())


def _drawn(errors: NDArray[np.float64], seed: int) -> Callable[[str], float]:
    """Return a function of a query's name that draws one error factor for all its runs."""
    random = random_stream(seed, RandomStream.MODEL_ERRORS)
    return cache(lambda query: float(random.choice(errors)))


def _sequence(logged: LoggedJobs, period: slice, factor: Callable[[str], float], seed: int) -> JobSequence:
    """Return the jobs of a period; durations that their own runs lack are multiplied by their query's factor."""
    jobs = zip(logged.names[period], logged.profiles[period], logged.modelled[period], strict=True)
    profiles = [
        _with_errors(profile, levels, factor(name)) if any(map(len, levels)) else profile
        for name, profile, levels in jobs
    ]
    arrival_ms = logged.arrival_ms[period]
    return trace_arrivals(profiles, arrival_ms - arrival_ms[0], seed)


def _with_errors(profile: JobProfile, levels: Sequence[NDArray[np.int64]], factor: float) -> JobProfile:
    """Multiply the durations at the given parallelism levels of each stage by a factor; schedulers do not know it."""
    stages = []
    for stage, modelled in zip(profile.stages, levels, strict=True):
        known = stage.durations
        values = np.array(known.values)
        for first, end in known.cells[:, np.isin(known.levels, modelled)].reshape(-1, 2).tolist():
            values[first:end] *= factor
        durations = replace(known, values=values, mean_ms=known.given_mean_ms)
        stages.append(replace(stage, durations=durations))
    return replace(profile, stages=tuple(stages))


def _as_they_came(workload: Workload, logged: LoggedJobs) -> Workload:
    """Return the jobs of a cluster as a workload with arrivals."""
    named = {profile.name: profile for profile in workload.profiles}
    arrival_ms = logged.arrival_ms - logged.arrival_ms[0]
    return replace(workload, sequence=trace_arrivals([named[name] for name in logged.names], arrival_ms, 0))


def _as_measured(logged: Sequence[LoggedJobs]) -> pd.DataFrame:
    tables = [
        pd.DataFrame(
            {
                "query": logged_jobs.names,
                "cluster": index,
                "arrival_ms": logged_jobs.submitted_ms,
                "measured_ms": logged_jobs.measured_ms,
            }
        )
        for index, logged_jobs in enumerate(logged)
    ]
    jobs = pd.concat(tables, ignore_index=True)
    return jobs.assign(arrival_ms=jobs["arrival_ms"] - jobs["arrival_ms"].min())
