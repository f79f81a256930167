"""Guarantees in comparisons: schedulers with and without them, and whether they were kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from decima.evaluation.tuning import TUNED
from decima.schedulers.guarantees.spec import split_guarantees

if TYPE_CHECKING:
    import pandas as pd

    from decima.evaluation.conditions import Conditions
    from decima.schedulers.guarantees.spec import Guarantees
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "GUARANTEE_METRICS",
    "check_tenants",
    "fair_rule",
    "guarantee_entry",
    "guarantee_metrics",
    "most_executors",
    "with_guarantees",
]

#: Metrics of schedulers with guarantees, NaN for others; see ``guarantee_metrics``.
GUARANTEE_METRICS = ("late_jobs", "latest_ratio", "lateness_s", "below_floor_s", "above_ceiling")


def with_guarantees(schedulers: Mapping[str, str], guarantees: Guarantees) -> dict[str, str]:
    """Return displayed name -> name of schedulers, each followed by the same with guarantees.

    Schedulers that are tuned on results, and those that have guarantees, are left alone.
    """
    found = {}
    for name, spec in schedulers.items():
        found[name] = spec
        if guarantees and spec not in TUNED and not split_guarantees(spec)[1]:
            found[f"{name}{guarantees.suffix}"] = f"{spec}{guarantees.suffix}"
    return found


def check_tenants(conditions: Conditions, schedulers: Iterable[str]) -> None:
    """Check that the tenants in the guarantees of some schedulers' names exist.

    Raises:
        SchedulerError: an unknown tenant.
    """
    for spec in schedulers:
        if (found := split_guarantees(spec)[1]).floor or found.ceiling:
            found.check_tenants(each.name for each in conditions.sequence(conditions.seed).tenants)


def guarantee_entry(runs: pd.DataFrame) -> dict[str, list[float]]:
    """Return the entry of a scheduler with guarantees in a comparison's JSON: by experiment, from its ``runs``."""
    names = ("decisions", "overruled", *GUARANTEE_METRICS)
    return {name: runs[name].tolist() for name in names if not runs[name].isna().all()}


def fair_rule(config: ClusterConfig) -> str:
    """Return the rule for fair sharing on a cluster: that of Spark if executors are offered after each task."""
    return "spark-fair" if config.semantics.offer_after_tasks else "fair"


def guarantee_metrics(
    record: EpisodeRecord, guarantees: Guarantees, fair: Callable[[], EpisodeRecord]
) -> dict[str, float]:
    """Return whether the guarantees were kept in an episode.

    Args:
        record: the episode.
        guarantees: those of its scheduler.
        fair: returns the episode of the same jobs under ``fair_rule``, with the same task noise.

    Returns:
        ``late_jobs``: jobs later than the factor; ``latest_ratio``: largest JCT over that under fair sharing;
        ``lateness_s``: largest time by which a job is later than the factor, s, 0 for none; ``below_floor_s``: see
        ``Kept``; ``above_ceiling``: largest number of executors of a tenant above its ceiling. Only those of the given
        guarantees.
    """
    found: dict[str, float] = {}
    if np.isfinite(guarantees.no_later_than):
        fair_ms = fair().jct_ms
        late_ms = record.jct_ms - guarantees.no_later_than * fair_ms
        found["late_jobs"] = float(np.count_nonzero(late_ms > 0))
        found["latest_ratio"] = float(np.nanmax(record.jct_ms / np.maximum(fair_ms, 1e-9)))
        found["lateness_s"] = max(float(np.nanmax(late_ms)), 0.0) / 1000
    if guarantees.floor:
        found["below_floor_s"] = record.kept.below_floor_ms / 1000
    if guarantees.ceiling:
        most = record.config.num_executors
        above = (
            most_executors(record, tenant) - max(int(share * most + 1e-9), 1)
            for tenant, share in guarantees.ceiling.items()
        )
        found["above_ceiling"] = float(max(0, *above))
    return found


def most_executors(record: EpisodeRecord, tenant: str) -> int:
    """Return the largest number of executors that run tasks of a tenant, or move to its jobs, at once."""
    mine = np.array([each.tenant == tenant for each in record.sequence.attributes], dtype=bool)
    if not mine.any():
        return 0
    tasks, moves = mine[record.task_job], mine[record.move_job]
    begin_ms = np.concatenate([record.task_start_ms[tasks], record.move_depart_ms[moves]])
    end_ms = np.concatenate([record.task_finish_ms[tasks], record.move_arrive_ms[moves]])
    steps = np.repeat([-1, 1], [end_ms.size, begin_ms.size])  # ends come first
    order = np.lexsort((steps, np.concatenate([end_ms, begin_ms])))
    return int(np.cumsum(steps[order]).max(initial=0))
