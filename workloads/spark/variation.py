"""Measure how far runs of the same query differ, and how often tasks failed and executors were lost.

The logarithm of a task's duration is the sum of a mean that depends on the task, its wave and the number of executors,
and of independent errors of the run (job error), of the stage within the run, and of the task within the stage. Their
variances are estimated by the method of moments, from runs of a query on the same number of executors, with stages
weighted by their work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from workloads.imperfections import LARGEST_ERROR, Imperfections
from workloads.spark.eventlog import SparkApplication
from workloads.spark.query import QueryRuns, alike

__all__ = ["measure_imperfections"]

#: Shorter durations are below the resolution of the clock of Spark's logs, ms.
_SHORTEST_MS = 1.0
_MS_PER_HOUR = 3_600_000


def measure_imperfections(
    queries: Sequence[QueryRuns], applications: Iterable[SparkApplication]
) -> tuple[Imperfections, list[str]]:
    """Measure differences between runs, and failures.

    Args:
        queries: the runs of each query; incomplete runs are left out.
        applications: for failed tasks and lost executors.

    Returns:
        The measurements, and two lines that describe them. Errors are None if no query ran twice on the same number of
        executors.
    """
    complete = [group for group in queries if group.runs[0].complete]
    errors, line = _errors(complete)
    counts = [(0, 0, 0, 0.0), *map(_failures, applications)]
    failed, ended, lost, lived_ms = (sum(each) for each in zip(*counts, strict=True))
    measured = Imperfections(
        **errors,
        task_failures=failed / ended if ended > failed else None,
        executor_lifetime_s=lived_ms / 1000 / lost if lost and lived_ms > 0 else None,
    )
    failures = (
        f"{failed:,} of {ended:,} runs of tasks failed, "
        f"{lost:,} executors were lost in {lived_ms / _MS_PER_HOUR:.3g} executor hours"
    )
    return measured, [line, failures]


def _errors(queries: Sequence[QueryRuns]) -> tuple[dict[str, float], str]:
    """Return the errors by name, and a line that describes them."""
    found = [
        each for group in queries for _, tasks in group.tasks.groupby("level") for each in _moments(tasks)
    ]
    if not found:
        return {}, "errors of estimates are unknown: no query ran twice on the same number of executors"
    free = np.array([each.free for each in found])

    def mean(values: Iterable[float]) -> float:
        return float(np.average(list(values), weights=free))

    within = mean(each.stage_free for each in found)
    stage = max(mean(each.stage for each in found) - mean(each.stage_noise for each in found), 0.0)
    stage = stage / within if within > 0 else 0.0
    job = mean(each.job - each.job_noise - stage * (1 - each.stage_free) for each in found)
    variances = {
        "job_error": job,
        "stage_error": stage,
        "task_error": mean(each.task for each in found),
        "task_count_error": _task_count_variance(queries),
    }
    errors = {
        name: min(round(float(np.sqrt(max(variance, 0.0))), 3), LARGEST_ERROR)
        for name, variance in variances.items()
    }
    said = ", ".join(
        f"{name.replace('_error', '').replace('_', ' ')} {each:g}" for name, each in errors.items()
    )
    return errors, f"runs of the same query differ, standard deviation of the logarithm: {said}"


class _Moments(NamedTuple):
    """Second moments of the runs of a query on the same number of executors, and their expected noise.

    Attributes:
        free: degrees of freedom, the number of runs less 1.
        job, job_noise: variance of a run's mean error, and the part of it that is from tasks.
        stage, stage_noise: variance of a stage's mean error within the run, and the part of it that is from tasks.
        stage_free: share of the variance of stages that is seen within runs; the rest is in ``job``.
        task: variance of tasks within a stage.
    """

    free: int
    job: float
    job_noise: float
    stage: float
    stage_noise: float
    stage_free: float
    task: float


def _moments(tasks: pd.DataFrame) -> list[_Moments]:
    """Return the moments of tasks of one query and level; none if there is only one run."""
    runs = tasks["run"].nunique()
    tasks = tasks[tasks.groupby(["stage", "partition"])["run"].transform("nunique") == runs]
    if runs < 2 or tasks.empty:
        return []
    stage, run = tasks["stage"], tasks["run"]
    known_ms = tasks["duration_ms"].clip(lower=_SHORTEST_MS)
    expected_ms = known_ms.groupby([stage, tasks["wave"]]).transform("mean")
    total_ms = known_ms.groupby([stage, run]).sum()
    error: pd.Series[float] = (total_ms / expected_ms.groupby([stage, run]).sum()).map(np.log)
    error -= error.groupby("stage").transform("mean")
    # What is left of a task's error without the means of the task and of the stage in the run.
    log: pd.Series[float] = (known_ms / expected_ms).map(np.log)
    log -= log.groupby([stage, tasks["partition"]]).transform("mean")
    log -= log.groupby([stage, run]).transform("mean")
    num_tasks = stage.map(stage.value_counts()) / runs
    several = num_tasks > 1
    variance = (log**2 * num_tasks / (num_tasks - 1).clip(lower=1) * runs / (runs - 1))[several]
    task = float(np.average(variance, weights=known_ms[several])) if several.any() else 0.0
    share = known_ms / known_ms.groupby([stage, run]).transform("sum")
    noise = (share**2 * variance.reindex(share.index, fill_value=task)).groupby(stage).sum() / runs
    weight = total_ms.groupby("stage").sum() / total_ms.sum()
    of_run = (error * weight).groupby("run").sum()
    of_stage = error - of_run
    return [
        _Moments(
            free=runs - 1,
            job=float(of_run.var(ddof=1)),
            job_noise=float((weight**2 * noise).sum()),
            stage=float((of_stage**2 * weight).sum() / (runs - 1)),
            stage_noise=float((weight * (1 - weight) * noise).sum()),
            stage_free=float(1 - (weight**2).sum()),
            task=task,
        )
    ]


def _task_count_variance(queries: Sequence[QueryRuns]) -> float:
    """Return the variance of the logarithm of a stage's number of tasks between runs of a name with the same DAG."""
    by_name: dict[str, list[QueryRuns]] = {}
    for group in queries:
        by_name.setdefault(group.runs[0].name, []).append(group)
    total, free = 0.0, 0
    for groups in by_name.values():
        # Runs in one group have equally many tasks.
        same = (
            alike((run for group in groups for run in group.runs), same_tasks=False)
            if len(groups) > 1
            else groups
        )
        for group in same:
            counts = np.log([[stage.num_tasks for stage in run.stages] for run in group.runs])
            total += float(((counts - counts.mean(axis=0)) ** 2).sum())
            free += (len(counts) - 1) * counts.shape[1]
    return total / free if free else 0.0


def _failures(app: SparkApplication) -> tuple[int, int, int, float]:
    """Return failed runs of tasks, ended runs of tasks, lost executors, and the executors' total time, ms."""
    end_ms = (
        app.end_ms if np.isfinite(app.end_ms) else max((run.ended_ms for run in app.queries), default=np.nan)
    )
    bounds = [
        (
            each.registered_ms if np.isfinite(each.registered_ms) else app.start_ms,
            each.removed_ms if np.isfinite(each.removed_ms) else end_ms,
        )
        for each in app.executors
        if each.slots
    ]
    lived_ms = float(np.nansum([max(end - begin, 0.0) for begin, end in bounds]))
    return app.report.failed_tasks, app.num_runs, app.report.lost_executors, lived_ms
