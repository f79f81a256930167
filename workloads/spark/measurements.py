"""Runs of a query as tables of what its stages read and how long their tasks took, for fitting and scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from workloads.job import Wave, WorkloadError
from workloads.spark.application import SparkQuery
from workloads.spark.profile import match_stages

__all__ = ["Sample", "matched_tasks", "stage_measurements"]

_BYTES_PER_MB = 1e6


@dataclass(frozen=True, eq=False)
class Sample:
    """One run of a query, on how much data, and how that was cut into tasks.

    Args:
        run: the run.
        size_gb: size of all input, GB; what counts is the ratio between the samples of a query.
        split_mb: most that a scan's task read, MB; NaN if it is not known.
        shuffle_partitions: tasks of a stage that reads shuffles; 0 if that is not known.
    """

    run: SparkQuery
    size_gb: float = 1.0
    split_mb: float = float("nan")
    shuffle_partitions: int = 0


def matched_tasks(samples: Sequence[Sample]) -> pd.DataFrame:
    """The tasks of all samples of one query.

    Returns:
        One row for each task:

        ====================== ======== ============================================================
        sample                 int64    place in ``samples``
        stage                  int64    place in the stages of the first sample's run
        wave                   int64    `workloads.Wave`
        level                  int64    executors held
        duration_ms            float64  launch to finish
        input_mb, shuffle_mb   float64  read from storage and from other stages
        size_gb                float64  of the sample
        num_tasks              int64    tasks of the stage in the sample
        reads_shuffle          bool     the stage waits for the shuffle files of others
        ====================== ======== ============================================================

    Raises:
        WorkloadError: no samples, or samples whose stages do not match.
    """
    if not samples:
        raise WorkloadError("expected at least one run of the query")
    return pd.concat(
        [_tasks(number, sample, samples[0].run) for number, sample in enumerate(samples)], ignore_index=True
    )


def _tasks(number: int, sample: Sample, first: SparkQuery) -> pd.DataFrame:
    run, tasks = sample.run, sample.run.tasks
    num_tasks = {place: stage.num_tasks for place, stage in enumerate(run.stages)}
    readers = {*run.dag.shuffle_edges[:, 1].tolist(), *run.dag.reused_edges[:, 1].tolist()}
    readers.update(tasks.loc[tasks["shuffle_read_bytes"] > 0, "stage"].unique().tolist())
    return pd.DataFrame(
        {
            "sample": number,
            "stage": tasks["stage"].map(match_stages(first, run, same_tasks=False)),
            "wave": tasks["wave"],
            "level": tasks["level"],
            "duration_ms": tasks["duration_ms"],
            "input_mb": tasks["input_bytes"] / _BYTES_PER_MB,
            "shuffle_mb": tasks["shuffle_read_bytes"] / _BYTES_PER_MB,
            "size_gb": sample.size_gb,
            "num_tasks": tasks["stage"].map(num_tasks),
            "reads_shuffle": tasks["stage"].isin(readers),
        }
    )


def stage_measurements(tasks: pd.DataFrame) -> pd.DataFrame:
    """Means of what `matched_tasks` gives.

    Returns:
        One row for each sample, stage and level, with these columns and ``size_gb``, ``num_tasks`` and
        ``reads_shuffle`` as there:

        ====================== ======== ============================================================
        fresh, first, rest     float64  mean duration of the wave's tasks, ms; NaN where there are none
        num_rest               int64    tasks of the last wave
        input_mb, shuffle_mb   float64  read by a task of the stage in the sample, whatever the level
        ====================== ======== ============================================================
    """
    keys = ["sample", "stage", "level"]
    waves = {int(wave): wave.name.lower() for wave in Wave}
    table = tasks.pivot_table(index=keys, columns="wave", values="duration_ms")
    table = table.reindex(columns=list(waves)).rename(columns=waves)
    table["num_rest"] = (tasks["wave"] == Wave.REST).groupby([tasks[key] for key in keys]).sum()
    stages = tasks.groupby(["sample", "stage"])
    same = stages[["size_gb", "num_tasks", "reads_shuffle"]].first()
    return table.join(same.join(stages[["input_mb", "shuffle_mb"]].mean())).reset_index()
