"""Pandas tables of an episode: task runs, moves, resources, jobs, metrics; methods of the record describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.cluster.log import count_within
from simulator.cluster.record import of_known

if TYPE_CHECKING:
    from simulator.cluster.log import EpisodeLog
    from simulator.cluster.record import EpisodeRecord

__all__ = ["jobs", "jobs_in_system", "metrics", "moves", "resources", "tasks"]


def tasks(log: EpisodeLog) -> pd.DataFrame:
    """Return ``EpisodeLog.tasks``."""
    table = pd.DataFrame(
        {
            "job": log.task_job,
            "stage": log.task_stage,
            "task": log.of_runs(count_within(np.repeat(np.arange(log.stage_size.size), log.stage_size))),
            "executor": log.task_executor,
            "wave": log.task_wave,
            "parallelism": log.task_parallelism,
            "start_ms": log.task_start_ms,
            "finish_ms": log.task_finish_ms,
        }
    )
    if len(log.config.executor_classes) > 1:
        of_runs = np.where(log.task_executor < 0, -1, log.executor_class[log.task_executor])
        table.insert(4, "executor_class", of_runs)
    if log.config.faults.active:
        table["outcome"] = log.task_outcome
    return table


def moves(log: EpisodeLog) -> pd.DataFrame:
    """Return ``EpisodeLog.moves``."""
    return pd.DataFrame(
        {
            "executor": log.move_executor,
            "job": log.move_job,
            "depart_ms": log.move_depart_ms,
            "arrive_ms": log.move_arrive_ms,
        }
    )


def resources(log: EpisodeLog) -> pd.DataFrame:
    """Return ``EpisodeLog.resources``."""
    ran = log.task_executor >= 0
    executor = log.task_executor[ran]
    weights: dict[str, NDArray[np.float64]] = {}
    for resource in ("cpu", "memory"):
        size, demand = log.resource(resource)
        weights |= {f"{resource}_held": size[executor], f"{resource}_demanded": demand[ran]}
    for index in range(len(log.config.executor_classes)):
        weights[f"class_{index}"] = (log.executor_class[executor] == index).astype(np.float64)
    finish = np.minimum(log.task_finish_ms[ran], log.end_ms)
    times, step = np.unique(np.concatenate([log.task_start_ms[ran], finish]), return_inverse=True)
    columns = {
        name: np.cumsum(np.bincount(step, np.concatenate([value, -value]), minlength=times.size))
        for name, value in weights.items()
    }
    # Rounding errors would leave small numbers instead of 0.
    return pd.DataFrame(columns, index=pd.Index(times, name="time_ms")).round(9) + 0.0


def jobs(record: EpisodeRecord) -> pd.DataFrame:
    """Return ``EpisodeRecord.jobs``."""
    table = pd.DataFrame(
        {
            "name": [profile.name for profile in record.sequence.profiles],
            "arrival_ms": record.sequence.arrival_ms,
            "completion_ms": record.completion_ms,
            "jct_ms": record.jct_ms,
            "work_ms": record.work_ms,
            "busy_ms": record.busy_ms,
            "moving_ms": record.moving_ms,
            "slowdown": record.slowdown,
            "work_inflation": record.work_inflation,
        }
    ).rename_axis("job")
    if record.sequence.attributes:
        table["weight"] = record.sequence.weight
        table["tenant"] = [attributes.tenant for attributes in record.sequence.attributes]
        table["deadline_ms"], table["tardiness_ms"] = record.deadline_ms, record.tardiness_ms
    if record.config.signal:
        table["carbon"] = record.job_carbon
    return table


def jobs_in_system(record: EpisodeRecord) -> pd.Series[int]:
    """Return ``EpisodeRecord.jobs_in_system``."""
    ended = np.sort(record.ended_ms[~np.isnan(record.ended_ms)])
    arrived = record.sequence.arrival_ms[record.sequence.arrival_ms <= record.end_ms]
    times = np.unique(np.concatenate([arrived, ended]))
    counts = np.searchsorted(arrived, times, "right") - np.searchsorted(ended, times, "right")
    return pd.Series(counts, index=pd.Index(times, name="time_ms"), name="jobs")


def metrics(record: EpisodeRecord) -> pd.Series[float]:
    """Return ``EpisodeRecord.metrics``."""
    optional: list[str] = []
    if record.sequence.attributes:
        optional += ["weighted_mean_jct_ms", "deadline_misses", "mean_tardiness_ms"]
    if record.config.signal:
        optional += ["executor_hours", "energy_kwh", "carbon"]
    faults: dict[str, float] = {}
    if record.config.faults.active:
        first = record.task_start_ms.size - record.lost_task.size
        faults = {
            "failed_jobs": float(record.failed_job.size),
            "lost_runs": float(record.lost_task.size),
            "lost_ms": float((record.task_finish_ms[first:] - record.task_start_ms[first:]).sum()),
        }
    return pd.Series(
        {
            "mean_jct_ms": record.mean_jct_ms,
            **{f"p{percent}_jct_ms": record.jct_percentile_ms(percent) for percent in (50, 95, 99)},
            "makespan_ms": record.makespan_ms,
            "utilisation": record.utilisation,
            "mean_jobs_in_system": record.mean_jobs_in_system,
            "mean_slowdown": record.mean_slowdown,
            "mean_work_inflation": of_known(np.mean, record.work_inflation),
            "worst_slowdown": record.worst_slowdown,
            "busy_ms": float(record.busy_ms.sum()),
            "moving_ms": float(record.moving_ms.sum()),
            "completed_jobs": float(np.count_nonzero(~np.isnan(record.jct_ms))),
            **faults,
            **{name: getattr(record, name) for name in optional},
        },
        name="metrics",
    )
