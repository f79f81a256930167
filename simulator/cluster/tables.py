"""Pandas tables of an episode: task runs, moves, resources, jobs, metrics; methods of the record describe them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.cluster.metrics import EpisodeMetrics, of_known
from simulator.cluster.record import EpisodeRecord, count_within

__all__ = ["jobs", "jobs_in_system", "metrics", "moves", "resources", "tasks"]


def tasks(record: EpisodeRecord) -> pd.DataFrame:
    """Return ``EpisodeRecord.tasks``."""
    table = pd.DataFrame(
        {
            "job": record.task_job,
            "stage": record.task_stage,
            "task": record.of_runs(
                count_within(np.repeat(np.arange(record.stage_size.size), record.stage_size))
            ),
            "executor": record.task_executor,
            "wave": record.task_wave,
            "parallelism": record.task_parallelism,
            "start_ms": record.task_start_ms,
            "finish_ms": record.task_finish_ms,
        }
    )
    if len(record.config.executor_classes) > 1:
        of_runs = np.where(record.task_executor < 0, -1, record.executor_class[record.task_executor])
        table.insert(4, "executor_class", of_runs)
    if record.config.faults.active:
        num_tasks = record.task_start_ms.size - record.lost_task.size
        table["outcome"] = np.concatenate([np.zeros(num_tasks, dtype=np.int8), record.lost_outcome])
    return table


def moves(record: EpisodeRecord) -> pd.DataFrame:
    """Return ``EpisodeRecord.moves``."""
    return pd.DataFrame(
        {
            "executor": record.move_executor,
            "job": record.move_job,
            "depart_ms": record.move_depart_ms,
            "arrive_ms": record.move_arrive_ms,
        }
    )


def resources(record: EpisodeRecord) -> pd.DataFrame:
    """Return resources of busy executors and demands of their tasks over time, as step functions.

    A row holds from its index (``time_ms``, float64, ms) to the next one. Columns, float64: ``cpu_held``,
    ``cpu_demanded``, ``memory_held``, ``memory_demanded``, and numbers of busy executors by class: ``class_0``,
    ``class_1``, .. Source: Decima, appendix F.
    """
    episode = EpisodeMetrics(record)
    ran = record.task_executor >= 0
    executor = record.task_executor[ran]
    weights: dict[str, NDArray[np.float64]] = {}
    for resource in ("cpu", "memory"):
        size, demand = episode.resource(resource)
        weights |= {f"{resource}_held": size[executor], f"{resource}_demanded": demand[ran]}
    for index in range(len(record.config.executor_classes)):
        weights[f"class_{index}"] = (record.executor_class[executor] == index).astype(np.float64)
    finish = np.minimum(record.task_finish_ms[ran], record.end_ms)
    times, step = np.unique(np.concatenate([record.task_start_ms[ran], finish]), return_inverse=True)
    columns = {
        name: np.cumsum(np.bincount(step, np.concatenate([value, -value]), minlength=times.size))
        for name, value in weights.items()
    }
    # Rounding errors would leave small numbers instead of 0.
    return pd.DataFrame(columns, index=pd.Index(times, name="time_ms")).round(9) + 0.0


def jobs(record: EpisodeRecord) -> pd.DataFrame:
    """Return ``EpisodeRecord.jobs``."""
    episode = EpisodeMetrics(record)
    table = pd.DataFrame(
        {
            "name": [profile.name for profile in record.sequence.profiles],
            "arrival_ms": record.sequence.arrival_ms,
            "completion_ms": record.completion_ms,
            "jct_ms": record.jct_ms,
            "work_ms": episode.work_ms,
            "busy_ms": episode.busy_ms,
            "moving_ms": episode.moving_ms,
            "slowdown": episode.slowdown,
            "work_inflation": episode.work_inflation,
        }
    ).rename_axis("job")
    if record.sequence.attributes:
        table["weight"] = record.sequence.weight
        table["tenant"] = [attributes.tenant for attributes in record.sequence.attributes]
        table["deadline_ms"], table["tardiness_ms"] = episode.deadline_ms, episode.tardiness_ms
    if record.config.signal:
        table["carbon"] = episode.job_carbon
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
    episode = EpisodeMetrics(record)
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
            **{f"p{percent}_jct_ms": episode.jct_percentile_ms(percent) for percent in (50, 95, 99)},
            "makespan_ms": record.makespan_ms,
            "utilisation": episode.utilisation,
            "mean_jobs_in_system": episode.mean_jobs_in_system,
            "mean_slowdown": episode.mean_slowdown,
            "mean_work_inflation": of_known(np.mean, episode.work_inflation),
            "worst_slowdown": episode.worst_slowdown,
            "busy_ms": float(episode.busy_ms.sum()),
            "moving_ms": float(episode.moving_ms.sum()),
            "completed_jobs": float(np.count_nonzero(~np.isnan(record.jct_ms))),
            **faults,
            **{name: getattr(episode, name) for name in optional},
        },
        name="metrics",
    )
