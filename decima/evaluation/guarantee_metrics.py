"""Schedulers with guarantees in comparisons, and metrics of violations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from decima.evaluation.variants import TUNED
from decima.registry import split_guarantees

if TYPE_CHECKING:
    import pandas as pd

    from decima.evaluation.conditions import Conditions
    from decima.schedulers.guarantees import Guarantees
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "GUARANTEE_METRICS", "check_tenants", "guarantee_entry", "guarantee_metrics", "most_executors", "with_guarantees",
]  # fmt: skip

#: Metrics of schedulers with guarantees, NaN for others; see ``guarantee_metrics``.
GUARANTEE_METRICS = ("late_jobs", "latest_ratio", "lateness_s", "below_floor_s", "above_ceiling")


def with_guarantees(schedulers: Mapping[str, str], guarantees: Guarantees | None) -> dict[str, str]:
    """Add a variant with guarantees after each scheduler. Keys are displayed names, values are names.

    Tuned schedulers and schedulers that already have guarantees get no variant.
    """
    extended = {}
    for name, spec in schedulers.items():
        extended[name] = spec
        if guarantees and spec not in TUNED and not split_guarantees(spec)[1]:
            extended[f"{name}{guarantees.suffix}"] = f"{spec}{guarantees.suffix}"
    return extended


def check_tenants(conditions: Conditions, schedulers: Iterable[str]) -> None:
    """Check that the jobs have all tenants that guarantees in scheduler names mention.

    Raises:
        SchedulerError: unknown tenant.
    """
    for spec in schedulers:
        guarantees = split_guarantees(spec)[1]
        if guarantees and (guarantees.floor or guarantees.ceiling):
            guarantees.check_tenants(tenant.name for tenant in conditions.sequence(conditions.seed).tenants)


def guarantee_entry(runs: pd.DataFrame) -> dict[str, list[float]]:
    """Return metrics of guarantees by experiment, for the JSON; ``runs`` are the rows of one scheduler."""
    names = ("decisions", "overruled", *GUARANTEE_METRICS)
    return {name: runs[name].tolist() for name in names if not runs[name].isna().all()}


def guarantee_metrics(
    record: EpisodeRecord, guarantees: Guarantees, fair: Callable[[], EpisodeRecord]
) -> dict[str, float]:
    """Measure violations of guarantees in an episode.

    ``fair`` returns the episode of the same jobs and task noise under ``fair_rule``.

    Returns:
        Metrics of the given guarantees. ``no_later_than``: ``late_jobs``, number of jobs that are later than the factor
        allows; ``latest_ratio``, largest ratio of JCT to JCT under fair sharing; ``lateness_s``, largest lateness, s,
        0 if no job is late. ``floor``: ``below_floor_s``, see ``Kept``. ``ceiling``: ``above_ceiling``, largest number
        of executors of a tenant above its ceiling.
    """
    metrics: dict[str, float] = {}
    if np.isfinite(guarantees.no_later_than):
        fair_ms = fair().jct_ms
        late_ms = record.jct_ms - guarantees.no_later_than * fair_ms
        metrics["late_jobs"] = float(np.count_nonzero(late_ms > 0))
        metrics["latest_ratio"] = float(np.nanmax(record.jct_ms / np.maximum(fair_ms, 1e-9)))
        metrics["lateness_s"] = max(float(np.nanmax(late_ms)), 0.0) / 1000
    if guarantees.floor and record.kept is not None:
        metrics["below_floor_s"] = record.kept.below_floor_ms / 1000
    if guarantees.ceiling:
        most = record.config.num_executors
        above = (
            most_executors(record, tenant) - max(int(share * most + 1e-9), 1)
            for tenant, share in guarantees.ceiling.items()
        )
        metrics["above_ceiling"] = float(max(0, *above))
    return metrics


def most_executors(record: EpisodeRecord, tenant: str) -> int:
    """Return the largest number of executors that run tasks of a tenant or move to its jobs at the same time."""
    mine = np.array([job.tenant == tenant for job in record.sequence.attributes], dtype=bool)
    if not mine.any():
        return 0
    tasks, moves = mine[record.task_job], mine[record.move_job]
    begin_ms = np.concatenate([record.task_start_ms[tasks], record.move_depart_ms[moves]])
    end_ms = np.concatenate([record.task_finish_ms[tasks], record.move_arrive_ms[moves]])
    steps = np.repeat([-1, 1], [end_ms.size, begin_ms.size])  # ends before simultaneous starts
    order = np.lexsort((steps, np.concatenate([end_ms, begin_ms])))
    return int(np.cumsum(steps[order]).max(initial=0))
