"""Predictions of the JCTs of a Spark cluster's jobs under other schedulers, at the real arrival times.

The simulator runs the jobs of event logs in Spark's own modes and under other schedulers. Task durations are uncertain.
Hence each scheduler is simulated many times with different task noise, and the durations of each query are multiplied
by an error drawn from the errors of cross-validated predictions (``held_out``). All schedulers have the same draws
(common random numbers), so that shared uncertainty does not affect their differences.

The time of a job is its time in the simulator plus the time of its driver: planning before its first Spark job,
fetching the result, and delays between its stages while no other job could use the slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from decima.evaluation.conditions import CompareError, Conditions, misfits
from decima.evaluation.run import run_scheduler
from decima.evaluation.spark import SPARKS_OWN, TRAINING_SEEDS, WEIGHTED_FAIR, as_simulated, tuned
from decima.evaluation.spark.logged_jobs import HeldOut, LoggedJobs
from decima.outputs import json_text
from decima.registry import LEARNED, policy_named
from decima.schedulers.base import Scheduler
from decima.schedulers.spark import SparkFifo, SparkPools
from simulator.cluster.episode import run_episode
from workloads.arrivals import JobSequence, RandomStream, random_stream, trace_arrivals
from workloads.job import scaled
from workloads.sources.workload_file import Workload
from workloads.spark.importing import SparkImport
from workloads.spark.query import SparkQuery

__all__ = ["SCHEDULERS", "Range", "WhatIf", "simulate_what_if"]

#: Displayed name -> scheduler; the better one of Spark's own is the reference.
SCHEDULERS = {**SPARKS_OWN, **WEIGHTED_FAIR, "priced-srpt": "priced-srpt", LEARNED: LEARNED}
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
        misfits: quantities that are out of the training distribution of decima's policy.
    """

    logged: Sequence[LoggedJobs]
    jobs: pd.DataFrame
    jct_ms: Mapping[str, NDArray[np.float64]]
    held_out: HeldOut
    setting: str
    misfits: Sequence[str]

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

        Columns: ``applications`` (str), ``executors`` and ``jobs`` (int64), ``ran_under`` (str), ``measured_s``, and
        the mean JCT under each scheduler, float64, s.
        """
        result = self._means("cluster").assign(
            applications=[", ".join(app.name for app in each.applications) for each in self.logged],
            executors=[each.cluster.num_executors for each in self.logged],
            ran_under=[each.ran_under for each in self.logged],
        )
        return result[["applications", "executors", "jobs", "ran_under", "measured_s", *self.jct_ms]]

    def as_they_ran(self) -> tuple[float, float] | None:
        """Return measured and predicted mean JCT in the mode that Spark ran in, s.

        The mean is over finished jobs of logs with a known mode; None if there are none.
        """
        measured, predicted = [], []
        for number, each in enumerate(self.logged):
            name = f"Spark {each.ran_under}"
            if name in self.jct_ms:
                mine = ((self.jobs["cluster"] == number) & self.jobs["measured_ms"].notna()).to_numpy()
                measured += self.jobs["measured_ms"][mine].tolist()
                predicted += self.jct_ms[name][:, mine].mean(axis=0).tolist()
        return (float(np.mean(measured)) / 1000, float(np.mean(predicted)) / 1000) if measured else None

    def by_query(self) -> pd.DataFrame:
        """Summarise by query, largest total time first; indexed by name.

        Columns: ``jobs`` (int64), ``measured_s``, and the mean JCT under each scheduler, float64, s.
        """
        result = self._means("query")
        total = result["jobs"] * result[self.sparks_own]
        return result.loc[total.sort_values(ascending=False).index]

    def _means(self, by: str) -> pd.DataFrame:
        """Return number of jobs, measured mean JCT and mean JCT under each scheduler by group, s."""
        predicted = {name: jct.mean(axis=0) for name, jct in self.jct_ms.items()}
        groups = self.jobs.rename(columns={"measured_ms": "measured_s"}).assign(**predicted).groupby(by)
        means = groups[["measured_s", *self.jct_ms]].mean() / 1000
        return means.assign(jobs=groups.size())[["jobs", "measured_s", *self.jct_ms]]

    def to_json(self, **extra: Any) -> str:
        """Return all results as JSON, in seconds; ``extra`` are further entries."""
        error, bias = self.held_out.error, self.held_out.bias
        content = {
            **extra,
            "clusters": [
                {"moving_delay_s": each.cluster.moving_delay_ms / 1000, **row}
                for each, row in zip(self.logged, self.by_cluster().to_dict("records"), strict=True)
            ],
            "draws": len(next(iter(self.jct_ms.values()))),
            "held_out": {"runs": len(self.held_out.runs), "error": error.mean, "bias": bias.mean},
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
) -> WhatIf:
    """Run the jobs of event logs again under each scheduler, at least one of which is Spark's own.

    ``held_out`` are cross-validated predictions of the logs' runs. ``seed`` is of the first of ``num_draws``
    simulations of each scheduler.

    Raises:
        CompareError: there are no jobs, a scheduler fails, or none is Spark's own.
    """
    if not logged:
        raise CompareError("the logs contain no jobs")
    if not set(schedulers) & set(SPARKS_OWN):
        raise CompareError(f"one of the schedulers must be {' or '.join(SPARKS_OWN)}")
    # An error is the ratio of measured to predicted time, a factor on durations.
    errors = (held_out.runs["measured_ms"] / held_out.runs["predicted_ms"]).to_numpy(dtype=np.float64)
    largest = max(logged, key=lambda each: len(each.runs))
    training = (
        _sequence(largest, slice(None), _factors(errors, TRAINING_SEEDS + draw), TRAINING_SEEDS + draw)
        for draw in range(TRAINING)
    )
    specs, setting = tuned(schedulers, largest.cluster, training)
    first = np.cumsum([0, *(len(each.runs) for each in logged)])
    jct_ms = {name: np.empty((num_draws, first[-1])) for name in specs}
    total, done = num_draws * len(specs), 0
    for draw in range(num_draws):
        factor = _factors(errors, seed + draw)
        for name, spec in specs.items():
            for begin, each in zip(first[:-1], logged, strict=True):
                for period in each.periods():
                    sequence = _sequence(each, period, factor, seed + draw)
                    jct_ms[name][draw, begin + np.arange(len(each.runs))[period]] = _jct_ms(
                        each, period, sequence, name, spec
                    )
            done += 1
            on_step(done, total)
    conditions = Conditions(_as_they_came(imported.workload, largest), largest.cluster, num_experiments=1)
    policies = [policy for spec in specs.values() if (policy := policy_named(spec)) is not None]
    outside = [text for policy in policies for text in misfits(policy, conditions)]
    return WhatIf(tuple(logged), _as_measured(logged), jct_ms, held_out, setting, outside)


def _jct_ms(
    logged: LoggedJobs, period: slice, sequence: JobSequence, name: str, spec: str
) -> NDArray[np.float64]:
    """Simulate a period and return its JCTs, from a job's start to its end, float64 [jobs], ms."""
    runs = logged.runs[period]
    cluster, of_simulator = as_simulated(logged.cluster, name, spec)
    own = _sparks_order(name, runs) if logged.cluster.moving_delay_ms == 0 else None
    record = (
        run_scheduler(cluster, sequence, of_simulator) if own is None else run_episode(cluster, sequence, own)
    )
    lag_ms = np.array([run.driver_lag_ms for run in runs])
    around_ms = np.array([run.planning_ms + run.result_ms for run in runs])
    alone = _share_alone(np.asarray(sequence.arrival_ms), record.completion_ms)
    return np.asarray(record.jct_ms + around_ms + alone * lag_ms)


def _sparks_order(name: str, runs: Sequence[SparkQuery]) -> Scheduler | None:
    """Return the scheduler of Spark's own mode within one application; None for other schedulers."""
    if name not in SPARKS_OWN:
        return None
    if SPARKS_OWN[name] == "fifo":
        return SparkFifo([run.num_jobs > 1 for run in runs])
    # FAIR is simulated with one pool per job, whatever the pools in the log are.
    return SparkPools(
        [f"{run.pool} {number}" if run.pool else str(number) for number, run in enumerate(runs)]
    )


def _share_alone(arrival_ms: NDArray[np.float64], completion_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each job's time in the system in which it is the only job, float64 [jobs]."""
    times = np.unique(np.concatenate([arrival_ms, completion_ms]))
    live = np.searchsorted(np.sort(arrival_ms), times, "right") - np.searchsorted(
        np.sort(completion_ms), times, "right"
    )
    alone_ms = np.concatenate([[0.0], np.cumsum(np.diff(times) * (live[:-1] == 1))])
    inside_ms = np.interp(completion_ms, times, alone_ms) - np.interp(arrival_ms, times, alone_ms)
    return np.asarray(inside_ms / np.maximum(completion_ms - arrival_ms, 1e-9))


def _factors(errors: NDArray[np.float64], seed: int) -> Callable[[str], float]:
    """Return a function of a query's name that draws one error factor for all its runs."""
    random = random_stream(seed, RandomStream.MODEL_ERRORS)
    return cache(lambda query: float(random.choice(errors)) if len(errors) else 1.0)


def _sequence(logged: LoggedJobs, period: slice, factor: Callable[[str], float], seed: int) -> JobSequence:
    """Return the jobs of a period with drawn durations."""
    pairs = zip(logged.names[period], logged.profiles[period], strict=True)
    profiles = tuple(scaled(profile, durations=factor(name)) for name, profile in pairs)
    arrival_ms = logged.arrival_ms[period]
    return trace_arrivals(profiles, arrival_ms - arrival_ms[0], seed)


def _as_they_came(workload: Workload, logged: LoggedJobs) -> Workload:
    """Return the jobs of a cluster as a workload with arrivals."""
    named = {profile.name: profile for profile in workload.profiles}
    arrival_ms = logged.arrival_ms - logged.arrival_ms[0]
    return replace(workload, sequence=trace_arrivals([named[name] for name in logged.names], arrival_ms, 0))


def _as_measured(logged: Sequence[LoggedJobs]) -> pd.DataFrame:
    tables = [
        pd.DataFrame(
            {
                "query": each.names,
                "cluster": number,
                "arrival_ms": each.arrival_ms,
                "measured_ms": each.measured_ms,
            }
        )
        for number, each in enumerate(logged)
    ]
    jobs = pd.concat(tables, ignore_index=True)
    return jobs.assign(arrival_ms=jobs["arrival_ms"] - jobs["arrival_ms"].min())
