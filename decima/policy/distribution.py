"""Training distributions of policies as quantiles, and how far outside of them a policy can be trusted.

A policy file may contain ``trained_on``, the distribution of the training clusters and jobs, since the output of a
network does not show whether it can be trusted. Quantiles ignore a single unusual job.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, model_validator

from decima.policy.about import TRAINED_ON, read_about
from decima.policy.archive import checked
from decima.policy.files import policy_path
from simulator.cluster.config import ERRORS, ClusterConfig
from workloads.arrivals import JobSequence

__all__ = [
    "QUANTITIES", "Distribution", "DistributionQuantity", "Spread", "format_quantity", "read_trained_on", "summarise",
]  # fmt: skip

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
        job_error, stage_error, task_count_error, unknown: errors of estimates, see ``Knowledge``; 0 if exact.
        losses_per_hour: losses of an executor per hour; 0 without faults.
        task_failures: share of task attempts that fail.
        straggling: mean time added by stragglers, as a share of the task time.
        absent: largest share of the executors that a capacity schedule takes away.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    arrivals: Literal["batch", "stream", "both"]
    objective: str | None = None
    executors: Spread
    classes: Spread
    moving_delay_s: Spread
    stages: Spread
    tasks: Spread
    task_s: Spread
    work_s: Spread
    delay_tasks: Spread
    jobs: Spread | None = None
    load: Spread | None = None
    job_error: Spread = Spread(0, 0, 0)
    stage_error: Spread = Spread(0, 0, 0)
    task_count_error: Spread = Spread(0, 0, 0)
    unknown: Spread = Spread(0, 0, 0)
    losses_per_hour: Spread = Spread(0, 0, 0)
    task_failures: Spread = Spread(0, 0, 0)
    straggling: Spread = Spread(0, 0, 0)
    absent: Spread = Spread(0, 0, 0)

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
        for quantity in QUANTITIES:
            spread = getattr(self, quantity.name)
            if spread is not None:
                yield quantity.name, spread


class DistributionQuantity(NamedTuple):
    """One quantity of a ``Distribution``, and its tolerances: how far outside training a policy can be trusted.

    Attributes:
        name: attribute of ``Distribution``.
        title: title in tables.
        text: format string of messages.
        down: largest factor by which a setting's median may be below the training's 5 % quantile.
        up: largest factor by which a setting's median may be above the training's 95 % quantile.
        shares: whether the quantity is displayed in percent.
        inside: values up to this one are inside any training distribution.
    """

    name: str
    title: str
    text: str
    down: float
    up: float
    shares: bool = False
    inside: float = 0.0


#: Quantities with tolerances, from measurements of policies that were trained on TPC-H with 50 executors, in batches of
#: 20 or in streams. Percentages are mean JCTs relative to the rule ``srpt`` on the same three sequences. Jobs
#: are embedded TPC-H in batches of 20 and streams 4 s apart, unless stated. Up to about +10 % counts as in
#: distribution; a larger loss, and any value far from the measured ones, is out of distribution.
#:
#: - Executors (trained on 50): batches +12 % on 10, +1 % on 25, -4 % on 100, +4 % on 200; +13 % on 250, +36 % on 500,
#:   +52 % on 5. With published profiles 0 % on 10, +3 % on 200.
#: - Classes: the policy trained on four classes has the same gain on one and two, to within 5 %; policies trained on a
#:   single class are out of distribution with more.
#: - Moving delay (trained on 2 s): batches -1 % at 1 s, +8 % at 0.5 s, +26 % at 0.25 s, +53 % at 0; streams +3 % at
#:   1 s, +18 % at 0.5 s, +107 % at 0. Longer ones, up to 8 s, at most +8 % with all four policies of a single class.
#: - Stages: jobs cut down to one, or eight times as many in a row: no loss above 10 %.
#: - Tasks: a sixteenth to eight times as many, -5 to +13 %. The bounds of work follow from tasks and durations.
#: - Durations: a sixteenth to twice as long: no loss above 10 %; four times +6 % in batches, +27 % in streams; eight
#:   times +28 % and +71 %. Longer tasks act like a shorter moving delay, so ``delay_tasks`` has the inverse bounds. In
#:   training the longest tasks are at least three times as long as the median.
#: - Jobs of a batch (trained on 20): one -10 %, five 0 %, 100 +8 %, 200 +18 %, which is still 18 % below fair.
#: - Load: jobs 60 to 1 s apart, loads of 5 to 300 %, -9 to 0 %.
#: - Errors of estimates: not measured; a policy trained with exact knowledge is out of distribution with errors.
#: - Faults (``decima reproduce faults``, trained without any): with executors lost 12 times an hour, 2 % of attempts
#:   failing or 5 % slower by a factor of four, policies keep their gain over fair sharing.
#: - Capacity (trained on a constant one): from 50 to 10 executors and back every 90 s, ``srpt-tuned`` and the
#:   policies of batches and of streams are 17 to 29 % below fair sharing, as with a constant capacity.
#: - Arrivals: policies of batches and of streams are within 3 % of each other on both, so arrivals are not checked.
QUANTITIES = (
    DistributionQuantity("executors", "executors", "{} executors", 5, 4),
    DistributionQuantity("classes", "classes of executors", "{} classes of executors", math.inf, 1),
    DistributionQuantity("moving_delay_s", "moving delay, s", "a moving delay of {} s", 2, 8),
    DistributionQuantity("stages", "stages of a job", "jobs have {} stages", 4, 4),
    DistributionQuantity("tasks", "tasks of a job", "jobs have {} tasks", 4, 4),
    DistributionQuantity("task_s", "mean task duration, s", "tasks take {} s", 8, 1),
    DistributionQuantity("work_s", "work of a job, s", "jobs have {} s of work", 4, 4),
    DistributionQuantity(
        "delay_tasks", "moving delay over task duration", "a move takes as long as {} tasks", 1, 8
    ),
    DistributionQuantity("jobs", "jobs of a batch", "batches of {} jobs", 20, 10),
    DistributionQuantity("load", "load", "a load of {}", math.inf, 10, shares=True),
    DistributionQuantity(
        "job_error", "error of job estimates", "estimates of jobs have an error of {}", math.inf, 1.5
    ),
    DistributionQuantity(
        "stage_error", "error of stage estimates", "estimates of stages have an error of {}", math.inf, 1.5
    ),
    DistributionQuantity(
        "task_count_error", "error of task counts", "numbers of tasks have an error of {}", math.inf, 1.5
    ),
    DistributionQuantity(
        "unknown", "jobs without history", "{} of the jobs have no history", math.inf, 1.5, shares=True
    ),
    DistributionQuantity(
        "losses_per_hour",
        "losses of an executor, per hour",
        "executors are lost {} times an hour",
        math.inf,
        2,
        inside=12,
    ),
    DistributionQuantity(
        "task_failures", "runs that fail", "{} of the runs fail", math.inf, 2, shares=True, inside=0.02
    ),
    DistributionQuantity(
        "straggling",
        "time added by stragglers",
        "stragglers add {} of the time",
        math.inf,
        2,
        shares=True,
        inside=0.15,
    ),
    DistributionQuantity(
        "absent",
        "executors that come and go",
        "{} of the executors come and go",
        math.inf,
        1,
        shares=True,
        inside=0.8,
    ),
)


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
        **{name: _spread([getattr(cluster.knowledge, name) for cluster, _ in met]) for name in ERRORS},
        losses_per_hour=_spread([3_600_000 / cluster.faults.executor_lifetime_ms for cluster, _ in met]),
        task_failures=_spread([cluster.faults.task_failures for cluster, _ in met]),
        straggling=_spread(
            [share * (factor - 1) for share, factor in (cluster.faults.stragglers for cluster, _ in met)]
        ),
        absent=_spread([_absent(cluster) for cluster, _ in met]),
    )


def read_trained_on(path: str | Path) -> Distribution | None:
    """Return the training distribution of a policy; None if the policy file does not contain it.

    Args:
        path: path of a policy file, or name of a shipped policy.

    Raises:
        PolicyFileError: the file, its text or its training distribution is malformed.
    """
    about = read_about(path)
    if TRAINED_ON not in about:
        return None
    return checked(policy_path(path), Distribution, about[TRAINED_ON], f"about.{TRAINED_ON}")


def format_quantity(quantity: DistributionQuantity, value: float) -> str:
    """Format a quantity for display: two significant digits; integers in full."""
    if quantity.shares:
        return f"{value:,.0%}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _as_schedulers_see(sequence: JobSequence, cluster: ClusterConfig) -> JobSequence:
    """Return a sequence whose jobs all have mean task times: estimated ones where the workload has none."""
    if all(profile.means_are_known for profile in set(sequence.profiles)):
        return sequence
    from simulator.cluster.known import known_sequence  # estimates each job alone

    return known_sequence(sequence, cluster)


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
