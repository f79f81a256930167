"""Measures the tasks of one Spark application: slot, wave, parallelism level."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.job import Wave
from workloads.spark.events import EventTables, Executor, TaskOutcome

__all__ = ["measured_runs", "slots", "successful_tasks"]


def slots(executor: Executor, tables: EventTables) -> int:
    """How many tasks the executor runs at once."""
    return max(executor.cores // tables.cores_per_task, 1)


def measured_runs(tables: EventTables) -> pd.DataFrame:
    """Every run of a task that ended, in order of launch.

    To the columns of `EventTables.task_runs` come duration_ms and cpu_ms (float64), slot, wave and level
    (int64); see `workloads.spark.application.SparkQuery`.
    """
    runs = tables.task_runs().sort_values("launch_ms", kind="stable", ignore_index=True)
    slot, wave = _slots_and_waves(runs, [slots(executor, tables) for executor in tables.executors.values()])
    durations = (runs["finish_ms"] - runs["launch_ms"]).astype(float)  # a launch is never later
    return runs.assign(
        duration_ms=durations, slot=slot, wave=wave, level=_levels(runs, tables), cpu_ms=runs["cpu_ns"] / 1e6
    )


def successful_tasks(runs: pd.DataFrame) -> pd.DataFrame:
    """One row for each task, its first run that succeeded, in order of launch."""
    succeeded = runs[runs["outcome"] == TaskOutcome.SUCCESS].sort_values("finish_ms", kind="stable")
    first = succeeded.drop_duplicates(["stage_id", "partition"])
    return first.sort_values("launch_ms", kind="stable", ignore_index=True)


def _slots_and_waves(runs: pd.DataFrame, num_slots: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Put each run on the slot of its executor that became free last: the driver refills a slot at once."""
    busy_until = [[-1] * count for count in num_slots]
    seen: set[tuple[int, int, int]] = set()
    slot_of = np.zeros(len(runs), dtype=np.int64)
    wave_of = np.zeros(len(runs), dtype=np.int64)
    columns = (runs[name].tolist() for name in ("executor", "stage_id", "launch_ms", "finish_ms"))
    for row, (executor, stage, launch, finish) in enumerate(zip(*columns, strict=True)):
        ends = busy_until[executor]
        free = [slot for slot, end in enumerate(ends) if end <= launch]
        slot = max(free, key=ends.__getitem__) if free else int(np.argmin(ends))
        if ends[slot] < 0:
            wave_of[row] = Wave.FRESH
        else:
            wave_of[row] = Wave.REST if (executor, slot, stage) in seen else Wave.FIRST
        slot_of[row] = slot
        seen.add((executor, slot, stage))
        ends[slot] = max(ends[slot], finish)
    return slot_of, wave_of


def _levels(runs: pd.DataFrame, tables: EventTables) -> NDArray[np.int64]:
    """Slots that the application held when each run was launched, at least 1."""
    launch = runs["launch_ms"].to_numpy()
    first_launch = runs.groupby("executor")["launch_ms"].min()
    held = np.zeros(len(runs), dtype=np.int64)
    for executor in tables.executors.values():
        # An executor that the log does not introduce was there at its first task.
        joined = np.nanmin([executor.registered_ms, first_launch.get(executor.place, np.inf)])
        held += slots(executor, tables) * ((launch >= joined) & ~(launch >= executor.removed_ms))
    return np.maximum(held, 1)
