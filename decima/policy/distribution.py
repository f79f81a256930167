"""Distributions of clusters and jobs as quantiles: what a policy was trained on, and evaluation settings.

A policy file may contain ``trained_on``, the distribution of the training clusters and jobs, since the output of a
network does not show whether it can be trusted. Quantiles ignore a single unusual job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, model_validator

from simulator.cluster.config import ERRORS, ClusterConfig
from workloads.arrivals import JobSequence

__all__ = ["SHARES", "TITLES", "Distribution", "Spread", "format_quantity", "summarise"]

#: Probabilities of the quantiles of a ``Spread``.
QUANTILES = (0.05, 0.5, 0.95)
#: Number of significant digits of a stored quantile.
DIGITS = 4

_Number = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class Spread(NamedTuple):
    """Quantiles 5 %, 50 % and 95 % of a quantity."""

    low: _Number
    middle: _Number
    high: _Number


class Distribution(BaseModel):
    """Distribution of clusters and jobs as quantiles: a policy's training distribution, or an evaluation setting.

    Attributes:
        arrivals: whether job sequences are batches, streams, or both.
        objective: see ``ClusterConfig.reward``; None for the mean JCT.
        executors: number of executors of all classes.
        classes: number of executor classes.
        moving_delay_s: delay of an executor that changes jobs, s.
        stages: number of stages of a job.
        tasks: number of tasks of a job.
        task_s: mean task duration of a job, s.
        work_s: number of tasks of a job times their mean duration, s.
        delay_tasks: moving delay divided by the job's mean task duration.
        jobs: number of jobs of a batch; None if there are only streams.
        load: offered load of a stream; None if there are only batches.
        job_error, stage_error, task_count_error: errors of estimates, see ``Knowledge``; 0 if exact.
        unknown: share of jobs without history that the estimator does not predict; they have typical task times.
        losses_per_hour: losses of an executor per hour; 0 without faults.
        task_failures: share of task attempts that fail.
        straggling: mean time added by stragglers, as a share of the task time.
        absent: largest share of the executors that a capacity schedule takes away.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    arrivals: Literal["batch", "stream", "both"]
    objective: str | None = None
    executors: Spread = Field(title="executors")
    classes: Spread = Field(title="classes of executors")
    moving_delay_s: Spread = Field(title="moving delay, s")
    stages: Spread = Field(title="stages of a job")
    tasks: Spread = Field(title="tasks of a job")
    task_s: Spread = Field(title="mean task duration, s")
    work_s: Spread = Field(title="work of a job, s")
    delay_tasks: Spread = Field(title="moving delay over task duration")
    jobs: Spread | None = Field(None, title="jobs of a batch")
    load: Spread | None = Field(None, title="load")
    job_error: Spread = Field(Spread(0, 0, 0), title="error of job estimates")
    stage_error: Spread = Field(Spread(0, 0, 0), title="error of stage estimates")
    task_count_error: Spread = Field(Spread(0, 0, 0), title="error of task counts")
    unknown: Spread = Field(Spread(0, 0, 0), title="jobs with typical task times")
    losses_per_hour: Spread = Field(Spread(0, 0, 0), title="losses of an executor, per hour")
    task_failures: Spread = Field(Spread(0, 0, 0), title="runs that fail")
    straggling: Spread = Field(Spread(0, 0, 0), title="time added by stragglers")
    absent: Spread = Field(Spread(0, 0, 0), title="executors that come and go")

    @model_validator(mode="after")
    def _check(self) -> Distribution:
        for name, spread in self.spreads():
            if not spread.low <= spread.middle <= spread.high:
                raise ValueError(f"{name}: expected ascending numbers, got {list(spread)}")
        if (self.jobs is None, self.load is None) != (self.arrivals == "stream", self.arrivals == "batch"):
            raise ValueError("expected jobs for batches, load for streams")
        return self

    def spreads(self) -> Iterator[tuple[str, Spread]]:
        """Yield name and quantiles of each quantity that is not None."""
        for name in TITLES:
            spread = getattr(self, name)
            if spread is not None:
                yield name, spread


#: Quantity -> its title in tables.
TITLES = {name: field.title for name, field in Distribution.model_fields.items() if field.title is not None}
#: Quantities that are shown in percent.
SHARES = ("load", "unknown", "task_failures", "straggling", "absent")


def summarise(samples: Iterable[tuple[ClusterConfig, JobSequence]]) -> Distribution:
    """Summarise clusters and workloads as quantiles (number of tasks, task duration, load, ...).

    Args:
        samples: pairs of a cluster and a job sequence; at least one. A few samples are enough.
    """
    met = [(cluster, _as_schedulers_see(sequence, cluster)) for cluster, sequence in samples]
    jobs = [(cluster, profile) for cluster, sequence in met for profile in sequence.profiles]
    tasks = np.array([profile.num_tasks for _, profile in jobs], dtype=np.float64)
    work_ms = np.array([profile.work_ms for _, profile in jobs])
    delay_ms = np.array([cluster.moving_delay_ms for cluster, _ in jobs])
    task_ms = work_ms / tasks
    loads = [_load(cluster, sequence) for cluster, sequence in met]
    streams = [load for load in loads if load is not None]
    # Among streams, a sequence of one job is a short stream, not a batch.
    batches = [
        len(sequence)
        for (_, sequence), load in zip(met, loads, strict=True)
        if load is None and (len(sequence) > 1 or not streams)
    ]
    return Distribution(
        arrivals="batch" if not streams else "both" if batches else "stream",
        objective=None if met[0][0].reward == "jct" else met[0][0].reward,
        executors=_spread([cluster.num_executors for cluster, _ in met]),
        classes=_spread([len(cluster.executor_classes) for cluster, _ in met]),
        moving_delay_s=_spread([cluster.moving_delay_ms / 1000 for cluster, _ in met]),
        stages=_spread([profile.num_stages for _, profile in jobs]),
        tasks=_spread(tasks),
        task_s=_spread(task_ms / 1000),
        work_s=_spread(work_ms / 1000),
        delay_tasks=_spread(delay_ms / np.maximum(task_ms, 1.0)),  # clocks have a resolution of 1 ms
        jobs=_spread(batches) if batches else None,
        load=_spread(streams) if streams else None,
        **{
            name: _spread([getattr(cluster.knowledge, name) for cluster, _ in met])
            for name in ERRORS
            if name != "unknown"
        },
        unknown=_spread([_with_typical_times(cluster, sequence) for cluster, sequence in met]),
        losses_per_hour=_spread([3_600_000 / cluster.faults.executor_lifetime_ms for cluster, _ in met]),
        task_failures=_spread([cluster.faults.task_failures for cluster, _ in met]),
        straggling=_spread(
            [share * (factor - 1) for share, factor in (cluster.faults.stragglers for cluster, _ in met)]
        ),
        absent=_spread([_absent(cluster) for cluster, _ in met]),
    )


def format_quantity(name: str, value: float) -> str:
    """Format a value of a quantity for display: two significant digits; integers in full."""
    if name in SHARES:
        return f"{value:,.0%}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _as_schedulers_see(sequence: JobSequence, cluster: ClusterConfig) -> JobSequence:
    """Return a sequence whose jobs all have mean task times: estimated ones where the workload has none."""
    if all(profile.means_are_known for profile in set(sequence.profiles)):
        return sequence
    from simulator.cluster.known import known_sequence  # estimates each job alone

    return known_sequence(sequence, cluster)


def _with_typical_times(cluster: ClusterConfig, sequence: JobSequence) -> float:
    share = cluster.knowledge.unknown
    if share > 0:
        from simulator.cluster.estimates import share_unpredicted

        share *= share_unpredicted(sequence, cluster.knowledge.estimator)
    return share


def _load(cluster: ClusterConfig, sequence: JobSequence) -> float | None:
    """Return the offered load: work of all jobs but the last over executor time until the last arrival.

    None for a batch.
    """
    span_ms = float(sequence.arrival_ms[-1] - sequence.arrival_ms[0])
    if span_ms <= 0:
        return None
    work_ms = sum(profile.work_ms for profile in sequence.profiles[:-1])
    return work_ms / span_ms / cluster.num_executors


def _absent(cluster: ClusterConfig) -> float:
    """Return the largest share of the executors that the capacity schedule takes away."""
    fewest = min((executors for _, executors in cluster.faults.capacity), default=cluster.num_executors)
    return 1 - fewest / cluster.num_executors


def _spread(values: ArrayLike) -> Spread:
    # JSON has no infinity.
    finite = np.nan_to_num(np.atleast_1d(np.asarray(values, dtype=np.float64)), posinf=sys.float_info.max / 2)
    low, middle, high = (float(f"{value:.{DIGITS}g}") for value in np.quantile(finite, QUANTILES).tolist())
    return Spread(low, middle, high)
