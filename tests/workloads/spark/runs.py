"""Synthetic runs of queries whose task durations follow a model, for tests of fitting and scaling."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from workloads import SparkModel, Wave
from workloads.spark.query import TASK_COLUMNS, SparkQuery, StageDag
from workloads.spark.reader import SparkStage

#: A model of round numbers, unlike the default one.
MODEL = SparkModel(
    scan_overhead_ms=40,
    scan_ms_per_mb=10,
    shuffle_overhead_ms=20,
    shuffle_ms_per_mb=25,
    remote_ms_per_mb=8,
    connection_ms=1.5,
    first_ms=100,
    fresh_ms=900,
)


@dataclass(frozen=True)
class Stage:
    """A stage of a synthetic run; input sizes of tasks vary by half around the mean, from the first to the last."""

    num_tasks: int
    input_mb: float = 0.0
    shuffle_mb: float = 0.0
    parents: tuple[int, ...] = ()
    rate: float = 1.0
    name: str = ""


def make_run(
    model: SparkModel, stages: list[Stage], executors: int = 1, *, slower: float = 1.0, name: str = "q"
) -> SparkQuery:
    """Return one run: each executor's first task of a stage is in the first wave, in the first stage fresh.

    These tasks read the mean amount of their stage.
    """
    tables = [_tasks(model, place, stage, executors, slower) for place, stage in enumerate(stages)]
    return _query(stages, pd.concat(tables, ignore_index=True), name)


def measured_run(stages: list[Stage], rows: list[tuple[int, Wave, int, float, float, float]]) -> SparkQuery:
    """Return one run of the given tasks: stage, wave, level, duration (ms), MB from storage, MB of shuffles."""
    columns = ["stage", "wave", "level", "duration_ms", "input_bytes", "shuffle_read_bytes"]
    tasks = pd.DataFrame(rows, columns=columns)
    tasks[columns[-2:]] = (tasks[columns[-2:]] * 1e6).round().astype(np.int64)
    tasks = tasks.assign(partition=tasks.groupby("stage").cumcount(), input_rows=tasks["input_bytes"] // 1000)
    return _query(stages, tasks, "q")


def _query(stages: list[Stage], tasks: pd.DataFrame, name: str) -> SparkQuery:
    edges = np.array(
        [(parent, child) for child, stage in enumerate(stages) for parent in stage.parents], dtype=np.int64
    ).reshape(-1, 2)
    none = np.zeros((0, 2), dtype=np.int64)
    return SparkQuery(
        name=name,
        application_id=f"app-{name}",
        stages=tuple(
            SparkStage(place, stage.name or f"stage {place}", stage.num_tasks, 0.0, 1.0)
            for place, stage in enumerate(stages)
        ),
        dag=StageDag(tuple(range(len(stages))), edges, edges, none, none, 0),
        tasks=tasks,
        start_ms=0.0,
        submitted_ms=0.0,
        last_job_end_ms=1.0,
        end_ms=1.0,
        num_jobs=1,
        num_skipped=0,
        complete=True,
    )


def _tasks(model: SparkModel, place: int, stage: Stage, executors: int, slower: float) -> pd.DataFrame:
    number = np.arange(stage.num_tasks)
    vary = np.linspace(0.5, 1.5, stage.num_tasks) if stage.num_tasks > 1 else np.ones(1)
    early = Wave.FIRST if place else Wave.FRESH
    rank = np.argsort(np.argsort(np.abs(vary - 1), kind="stable"))
    wave = np.where(rank < executors, early, Wave.REST)
    input_mb, shuffle_mb = stage.input_mb * vary, stage.shuffle_mb * vary
    duration = model.task_ms(input_mb, shuffle_mb, bool(stage.parents), executors, stage.rate)
    duration = duration + np.where(wave == Wave.FIRST, model.first_ms, 0.0)
    duration = duration + np.where(wave == Wave.FRESH, model.fresh_ms, 0.0)
    columns = {
        "stage": place,
        "partition": number,
        "executor": number % executors,
        "slot": 0,
        "launch_ms": 0.0,
        "duration_ms": duration * slower,
        "wave": wave,
        "level": executors,
        "run_ms": 0.0,
        "cpu_ms": 0.0,
        "input_bytes": np.rint(input_mb * 1e6).astype(np.int64),
        "input_rows": np.rint(input_mb * 1e3).astype(np.int64),
        "shuffle_read_bytes": np.rint(shuffle_mb * 1e6).astype(np.int64),
        "shuffle_write_bytes": 0,
    }
    return pd.DataFrame(columns)[list(TASK_COLUMNS)]
