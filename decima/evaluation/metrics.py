"""Metrics of an episode, and their means over experiments with 95 % confidence intervals.

Intervals are Student's t. Quantiles and maxima are far from normal: theirs are bootstrap intervals over the experiments
(bias-corrected and accelerated, BCa).

Results are tidy tables, with one row per scheduler and sequence (``runs``), or per job (``jobs``). To add a metric,
add an entry to ``METRICS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

    from simulator.cluster.metrics import EpisodeMetrics
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "METRICS", "RELATIVE", "SHOWN", "TENANT_METRICS", "Interval", "Metric", "ShownMetric", "bootstrap_interval", "ci95",
    "compare_metrics", "mean_interval", "measure", "metrics_of", "paired_change", "summarise",
]  # fmt: skip

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
    from scipy.special import stdtrit  # slow to import, and needed for intervals only

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


def paired_change(values: ArrayLike, reference: ArrayLike, weights: ArrayLike | None = None) -> Interval:
    """Return the relative difference of two means of paired values, with its interval; NaN if the second is 0.

    For ``weights`` see ``mean_interval``.
    """
    ours, theirs = np.asarray(values), np.asarray(reference)
    difference, half_width = mean_interval(ours - theirs, weights)
    mean = mean_interval(theirs, weights).mean
    return Interval(difference / mean, half_width / mean) if mean else Interval(math.nan, math.nan)


def bootstrap_interval(values: ArrayLike) -> Interval:
    """Return the mean of independent values and half of its 95 % bootstrap interval (BCa, 9999 resamples, seed 0).

    Args:
        values: float [n]; the mean is NaN if n = 0, the interval if n < 2.
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = mean_interval(sample).mean
    if sample.size < 2 or not np.isfinite(sample).all():
        return Interval(mean, math.nan)
    if np.ptp(sample) == 0:
        return Interval(mean, 0.0)
    from scipy.stats import bootstrap

    bootstrapped = bootstrap(
        (sample,), np.mean, confidence_level=CONFIDENCE, random_state=np.random.default_rng(0)
    )
    low, high = bootstrapped.confidence_interval
    return Interval(mean, float(high - low) / 2)


class Metric(NamedTuple):
    """A quantity of an episode.

    Attributes:
        form: number format in displayed tables.
        of: function of the ``EpisodeMetrics`` of a complete episode that returns the value; NaN if undefined. On
            DeepRM's grid, a function of N episodes, see ``GRID_METRICS``.
        interval: whether tables and summaries always have a confidence interval of the mean.
        name: name for ``--show``; empty if it cannot be chosen.
        is_tail: whether it is a quantile or a maximum, with bootstrap intervals.
        more_is_better: whether a larger value is better.
        per_job: whether it is averaged over all jobs, so that experiments are weighted by their numbers of jobs.
        meaning: description in results.
    """

    heading: str
    form: str
    of: Callable[[Any], Any]
    interval: bool = False
    name: str = ""
    is_tail: bool = False
    more_is_better: bool = False
    per_job: bool = False
    meaning: str = ""

    @property
    def is_share(self) -> bool:
        """Whether it is a share of 1, whose differences are shown in percentage points."""
        return self.form.endswith("%")

    def mean(self, values: ArrayLike, weights: ArrayLike | None = None) -> Interval:
        """Return the mean over experiments with its interval, see ``mean_interval``."""
        return bootstrap_interval(values) if self.is_tail else mean_interval(values, weights)

    def best(self, means: Mapping[str, float]) -> str | None:
        """Return the scheduler with the best mean, the first one on a tie; None if no mean is known."""
        sign = -1 if self.more_is_better else 1
        costs = {name: sign * mean for name, mean in means.items() if not math.isnan(mean)}
        return min(costs, key=costs.__getitem__, default=None)


#: Columns of ``METRICS`` that take the times of the jobs alone -> function of the known slowdowns, float64 [jobs].
RELATIVE: dict[str, Callable[[NDArray[np.float64]], np.float64]] = {
    "slowdown": np.mean,
    "worst_slowdown": np.max,
}


def _percentile(percent: int) -> Metric:
    return Metric(
        f"p{percent} JCT",
        ".1f",
        lambda episode: episode.jct_percentile_ms(percent) / 1000,
        name=f"p{percent}",
        is_tail=True,
    )


def _takes_episodes(episode: EpisodeMetrics) -> float:
    """Return NaN: the metric takes further episodes, see ``decima.evaluation.fairness`` and ``guarantee_metrics``."""
    return math.nan


def _num_overruled(record: EpisodeRecord) -> int:
    """Return the number of decisions that guarantees changed."""
    return 0 if record.kept is None else len(record.kept.overruled)


#: Column of ``runs`` -> metric. Seconds end in ``_s``, shares of 1 are shown as percent.
#:
#: * ``mean_jct_s``, ``p50_jct_s``, ``p95_jct_s``, ``p99_jct_s``: mean and percentiles of the job completion time (JCT).
#: * ``makespan_s``: last end of a job - first arrival.
#: * ``utilisation``: busy executor time over the time of executors in the cluster.
#: * ``load``: share of the time until the last arrival in which executors run tasks; NaN in a batch.
#: * ``fragmentation``: share of the memory of busy executors that their tasks do not demand.
#: * ``decisions``, ``guarded``: number of decisions, including those the engine takes on the scheduler's behalf, and
#:   of those that the guard of a learned policy changes.
#: * ``slowdown``, ``worst_slowdown``: mean and maximum over the jobs of ``EpisodeMetrics.slowdown``.
#: * ``failed_jobs``: number of jobs that failed. They have no JCT and no slowdown.
#: * ``weighted_jct_s``, ``deadline_misses``, ``tardiness_s``, ``executor_hours``, ``energy_kwh``, ``carbon`` (NaN
#:   without a signal): see ``EpisodeMetrics``.
#: * ``unfairness``, ``jain``: largest finish-time fairness of a tenant, and Jain's index of the tenants' finish-time
#:   fairness, see ``decima.evaluation.fairness``; NaN unless they are shown, or with fewer than two tenants.
#: * ``overruled``: decisions that guarantees changed. ``late_jobs``, ``latest_ratio``, ``lateness_s``,
#:   ``below_floor_s``, ``above_ceiling``: whether they were kept, see ``decima.evaluation.guarantee_metrics``.
METRICS: dict[str, Metric] = {
    "mean_jct_s": Metric(
        "Mean JCT", ".1f", lambda episode: episode.record.mean_jct_ms / 1000, interval=True, name="mean"
    ),
    "p95_jct_s": _percentile(95),
    "makespan_s": Metric(
        "Makespan", ".1f", lambda episode: episode.record.makespan_ms / 1000, interval=True, name="makespan"
    ),
    "utilisation": Metric(
        "Utilised", ".1%", lambda episode: episode.utilisation, name="utilised", more_is_better=True
    ),
    "load": Metric("Load", ".1%", lambda episode: episode.load, name="load"),
    "fragmentation": Metric("Unused", ".1%", lambda episode: episode.fragmentation["memory"], name="unused"),
    "decisions": Metric("Decisions", ",.0f", lambda episode: episode.record.num_decisions),
    "guarded": Metric("Guarded", ",.0f", lambda episode: episode.record.num_guarded),
    "slowdown": Metric("Slowdown", ".1f", lambda episode: episode.mean_slowdown, name="slowdown"),
    "failed_jobs": Metric("Failed", ",.0f", lambda episode: episode.record.failed_job.size),
    "p50_jct_s": _percentile(50),
    "p99_jct_s": _percentile(99),
    "worst_slowdown": Metric(
        "Worst slowdown", ".1f", lambda episode: episode.worst_slowdown, name="worst-slowdown", is_tail=True
    ),
    "weighted_jct_s": Metric(
        "Weighted JCT", ".1f", lambda episode: episode.weighted_mean_jct_ms / 1000, name="weighted"
    ),
    "deadline_misses": Metric("Misses", ".1%", lambda episode: episode.deadline_misses, name="misses"),
    "tardiness_s": Metric(
        "Tardiness", ".1f", lambda episode: episode.mean_tardiness_ms / 1000, name="tardiness"
    ),
    "executor_hours": Metric("Executor h", ".2f", lambda episode: episode.executor_hours, name="hours"),
    "energy_kwh": Metric("Energy kWh", ".2f", lambda episode: episode.energy_kwh, name="energy"),
    "carbon": Metric("Carbon", ",.0f", lambda episode: episode.carbon, name="carbon"),
    "unfairness": Metric("Unfairness", ".2f", _takes_episodes, name="unfairness", is_tail=True),
    "jain": Metric("Jain", ".3f", _takes_episodes, name="jain", more_is_better=True),
    "overruled": Metric(
        "Overruled", ",.0f", lambda episode: _num_overruled(episode.record), name="overruled"
    ),
    "late_jobs": Metric("Late jobs", ".1f", _takes_episodes, name="late"),
    "latest_ratio": Metric("Latest / fair", ".2f", _takes_episodes, name="latest", is_tail=True),
    "lateness_s": Metric("Lateness", ".1f", _takes_episodes, name="lateness", is_tail=True),
    "below_floor_s": Metric("Below floor", ".1f", _takes_episodes, name="below-floor", is_tail=True),
    "above_ceiling": Metric("Above ceiling", ".1f", _takes_episodes, name="above-ceiling", is_tail=True),
}
#: Metrics of ``decima.evaluation.fairness``.
TENANT_METRICS = ("unfairness", "jain")
#: Name for ``--show`` -> column of ``runs``.
SHOWN = {metric.name: column for column, metric in METRICS.items() if metric.name}


def metrics_of(runs: pd.DataFrame) -> Mapping[str, Metric]:
    """Return the metrics of tidy results: ``GRID_METRICS`` if they have job sets of DeepRM's grid, else ``METRICS``."""
    if "set" not in runs:
        return METRICS
    from decima.evaluation.grid_metrics import GRID_METRICS

    return GRID_METRICS


def measure(record: EpisodeRecord, without: Container[str] = ()) -> dict[str, float]:
    """Return ``METRICS`` of a complete episode; NaN for metrics that need further episodes.

    Args:
        without: columns to leave out, such as ``RELATIVE``.
    """
    from simulator.cluster.metrics import EpisodeMetrics  # tables of results need no episodes

    episode = EpisodeMetrics(record)
    return {name: metric.of(episode) for name, metric in METRICS.items() if name not in without}


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

        * the metrics, some with half of a confidence interval, such as ``mean_jct_ci95_s`` (95 %, Student's t).
        * ``difference_s``, ``difference_ci95_s``: mean JCT minus that of the reference, paired by experiment.
        * ``difference``, ``difference_ci95``: the same as fractions of the reference's mean JCT.
    """
    compared = compare_metrics(runs, schedulers, reference, ["mean_jct_s"])
    rows: dict[str, dict[str, float]] = {}
    for name, jct in compared.items():
        mine, row = runs[runs["scheduler"] == name], rows.setdefault(name, {})
        for metric in (name for name in METRICS if name in runs):
            row[metric] = float(mine[metric].mean())
            if METRICS[metric].interval:
                row[metric], row[ci95(metric)] = mean_interval(mine[metric])
        row["difference_s"], row["difference_ci95_s"] = jct["mean_jct_s"].difference
        row["difference"], row["difference_ci95"] = jct["mean_jct_s"].change
    return rows


class ShownMetric(NamedTuple):
    """A metric of one scheduler over the experiments.

    Attributes:
        mean: mean over the experiments, with its interval.
        difference: mean minus that of the reference, paired by experiment, with its interval; NaN without a reference.
        change: the difference as a fraction of the reference's mean; NaN if that is 0.
    """

    mean: Interval
    difference: Interval
    change: Interval


def compare_metrics(
    runs: pd.DataFrame,
    schedulers: Iterable[str],
    reference: str | None,
    columns: Iterable[str],
) -> dict[str, dict[str, ShownMetric]]:
    """Average metrics over experiments, and compare them with those of a reference scheduler.

    Args:
        runs: one row per scheduler and experiment, in the same order of experiments for each scheduler; columns
            ``scheduler``, those to average, and ``jobs`` (number of jobs) if one of them is ``Metric.per_job``.
        schedulers: names, in order.
        reference: scheduler to compare with; None for no comparison.
        columns: names of metrics.

    Returns:
        Scheduler -> metric -> its values.
    """
    columns, unknown = tuple(columns), Interval(math.nan, math.nan)
    by_scheduler = {str(name): rows for name, rows in runs.groupby("scheduler", sort=False, observed=True)}
    none = runs.iloc[:0]
    rows: dict[str, dict[str, ShownMetric]] = {}
    for name in schedulers:
        ours, theirs = by_scheduler.get(name, none), by_scheduler.get(str(reference), none)
        row = rows.setdefault(name, {})
        for column in columns:
            metric = metrics_of(runs)[column]
            values, base = (table[column].to_numpy(float) for table in (ours, theirs))
            weights = ours["jobs"].to_numpy(float) if metric.per_job else None
            difference = metric.mean(values - base, weights) if base.size else unknown
            scale = mean_interval(base, weights).mean
            change = Interval(*(part / scale for part in difference)) if scale else unknown
            row[column] = ShownMetric(metric.mean(values, weights), difference, change)
    return rows
