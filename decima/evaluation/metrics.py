"""Metrics of an episode, and their means over experiments with confidence intervals (Student's t).

Results are tidy tables, with one row per scheduler and sequence (``runs``), or per job (``jobs``). To add a metric,
add an entry to ``METRICS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # scipy.stats takes a second to import

if TYPE_CHECKING:
    import pandas as pd

    from simulator.cluster.record import EpisodeRecord

__all__ = ["METRICS", "Interval", "Metric", "ci95", "mean_interval", "measure", "paired_change", "summarise"]

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean and half its 95 % confidence interval; NaN if undefined."""

    mean: float
    half_width: float


def mean_interval(values: ArrayLike, weights: ArrayLike | None = None) -> Interval:
    """Return the mean of independent values and half of its 95 % confidence interval.

    Args:
        values: float [n]; differences, for paired measurements. The mean is NaN if n = 0, the interval if n < 2.
        weights: float [n], positive: group sizes, if values are means of groups. The mean is then a ratio of two
            sums.
    """
    sample = np.asarray(values, dtype=np.float64)
    count = sample.size
    if count == 0:
        return Interval(math.nan, math.nan)
    if weights is None:
        mean = float(sample.mean())
        error = float(sample.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    else:
        # The error of a ratio estimator is that of the deviations, weighted by their shares.
        shares = np.asarray(weights, dtype=np.float64)
        mean = float(np.average(sample, weights=shares))
        deviations = shares / shares.mean() * (sample - mean)
        error = float(np.sqrt(np.square(deviations).sum() / (count * (count - 1)))) if count > 1 else math.nan
    return Interval(mean, float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error)


def paired_change(values: ArrayLike, reference: ArrayLike) -> Interval:
    """Return the relative difference of two means of paired values, with its interval; NaN if the second is 0."""
    ours, others = np.asarray(values), np.asarray(reference)
    difference, half_width = mean_interval(ours - others)
    mean = float(others.mean())
    return Interval(difference / mean, half_width / mean) if mean else Interval(math.nan, math.nan)


class Metric(NamedTuple):
    """A quantity of an episode.

    Attributes:
        heading: heading in displayed tables.
        form: number format in displayed tables.
        of: function of a complete episode that returns the value; NaN if undefined.
        interval: whether tables and summaries have a confidence interval of the mean.
    """

    heading: str
    form: str
    of: Callable[[EpisodeRecord], float]
    interval: bool = False


def _load(record: EpisodeRecord) -> float:
    last_ms = float(record.sequence.arrival_ms[-1])
    return record.busy_until(last_ms) / (last_ms * record.config.num_executors) if last_ms else math.nan


def _slowdown(record: EpisodeRecord) -> float:
    known = record.slowdown[~np.isnan(record.slowdown)]
    return float(known.mean()) if known.size else math.nan


#: Column of ``runs`` -> metric. Seconds end in ``_s``, shares of 1 are shown as percent.
#:
#: * ``mean_jct_s``, ``p95_jct_s``: mean and 95th percentile of the job completion time (JCT).
#: * ``makespan_s``: last end of a job - first arrival.
#: * ``utilisation``: busy executor time over the time of executors in the cluster.
#: * ``load``: share of the time until the last arrival in which executors run tasks; NaN in a batch.
#: * ``fragmentation``: share of the memory of busy executors that their tasks do not demand.
#: * ``decisions``, ``guarded``: number of decisions, including those the engine takes on the scheduler's behalf, and
#:   of those that the guard of a learned policy changes.
#: * ``slowdown``: mean over the jobs of ``EpisodeRecord.slowdown``.
#: * ``failed_jobs``: number of jobs that failed. They have no JCT and no slowdown.
METRICS: dict[str, Metric] = {
    "mean_jct_s": Metric("Mean JCT", ".1f", lambda record: record.mean_jct_ms / 1000, interval=True),
    "p95_jct_s": Metric("p95 JCT", ".1f", lambda record: record.jct_percentile_ms(95) / 1000),
    "makespan_s": Metric("Makespan", ".1f", lambda record: record.makespan_ms / 1000, interval=True),
    "utilisation": Metric("Utilised", ".1%", lambda record: record.utilisation),
    "load": Metric("Load", ".1%", _load),
    "fragmentation": Metric("Unused", ".1%", lambda record: record.fragmentation["memory"]),
    "decisions": Metric("Decisions", ",.0f", lambda record: record.num_decisions),
    "guarded": Metric("Guarded", ",.0f", lambda record: record.num_guarded),
    "slowdown": Metric("Slowdown", ".1f", _slowdown),
    "failed_jobs": Metric("Failed", ",.0f", lambda record: record.failed_job.size),
}


def measure(record: EpisodeRecord) -> dict[str, float]:
    """Return all ``METRICS`` of a complete episode."""
    return {name: metric.of(record) for name, metric in METRICS.items()}


def ci95(metric: str) -> str:
    """Return the column with half of the metric's 95 % confidence interval."""
    return f"{metric[:-2]}_ci95_s" if metric.endswith("_s") else f"{metric}_ci95"


def summarise(
    runs: pd.DataFrame, schedulers: Iterable[str], reference: str | None = None
) -> dict[str, dict[str, float]]:
    """Average metrics over experiments.

    Args:
        runs: one row per scheduler and seed; columns ``scheduler``, ``seed``, and some of ``METRICS``.
        schedulers: names to summarise, in order.
        reference: scheduler to compare with.

    Returns:
        Scheduler -> means; NaN if undefined:

        * the metrics, some with half of a confidence interval, such as ``mean_jct_ci95_s`` (95 %, Student's t over
        the
          experiments; NaN with one experiment).
        * ``difference_s``, ``difference_ci95_s``: mean JCT minus that of the reference, paired by experiment.
        * ``difference``, ``difference_ci95``: the same as fractions of the reference's mean JCT.
    """
    others = runs.loc[runs["scheduler"] == reference, "mean_jct_s"].to_numpy()
    rows: dict[str, dict[str, float]] = {}
    for name in schedulers:
        mine, row = runs[runs["scheduler"] == name], rows.setdefault(name, {})
        for metric in (each for each in METRICS if each in runs):
            row[metric] = float(mine[metric].mean())
            if METRICS[metric].interval:
                row[metric], row[ci95(metric)] = mean_interval(mine[metric])
        ours, unknown = mine["mean_jct_s"].to_numpy(), Interval(math.nan, math.nan)
        row["difference_s"], row["difference_ci95_s"] = (
            mean_interval(ours - others) if others.size else unknown
        )
        row["difference"], row["difference_ci95"] = paired_change(ours, others) if others.size else unknown
    return rows
