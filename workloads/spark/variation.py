"""Measure how far runs of the same query differ, and how often tasks failed and executors were lost.

The logarithm of a task's duration is the sum of a mean that depends on the task, its wave and the number of executors,
and of independent errors of the run (job error), of the stage within the run, and of the task within the stage. Their
variances are estimated by the method of moments, from runs of a query on the same number of executors, with stages
weighted by their work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.imperfections import LARGEST_ERROR, Imperfections
from workloads.job import Wave
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
    found = [row for group in queries for _, tasks in group.tasks.groupby("level") for row in _moments(tasks)]
    if not found:
        return {}, "errors of estimates are unknown: no query ran twice on the same number of executors"
    freedom, job, stage, task, squares = np.array(found).T
    freedom /= freedom.sum()
    of_stage = max(freedom @ stage, 0.0) / (1 - freedom @ squares) if freedom @ squares < 1 else 0.0
    variances = {
        "job_error": freedom @ (job - of_stage * squares),
        "stage_error": of_stage,
        "task_error": freedom @ task,
        "task_count_error": _task_count_variance(queries),
    }
    errors = {name: float(np.sqrt(max(variance, 0.0))) for name, variance in variances.items()}
    errors = {name: min(round(error, 3), LARGEST_ERROR) for name, error in errors.items()}
    said = ", ".join(
        f"{name.removesuffix('_error').replace('_', ' ')} {each:g}" for name, each in errors.items()
    )
    return errors, f"runs of the same query differ, standard deviation of the logarithm: {said}"


def _moments(tasks: pd.DataFrame) -> list[tuple[float, ...]]:
    """Return second moments of the runs of a query on one number of executors; none if there is only one run.

    A row has the degrees of freedom, the variances of the runs' mean errors, of the stages' mean errors within the run
    (both without the part that is from tasks) and of the tasks' errors within the stage, and the sum of the squares of
    the stages' weights.
    """
    run, stage, wave, partition, ms = (
        tasks[name].to_numpy() for name in ("run", "stage", "wave", "partition", "duration_ms")
    )
    num_runs = len(np.unique(run))
    if num_runs < 2:
        return []
    _, task, count = np.unique(partition * (stage.max() + 1) + stage, return_inverse=True, return_counts=True)
    ended = count[task] == num_runs  # in every run
    if not ended.any():
        return []
    task, wave, ms = task[ended], wave[ended], ms[ended].clip(min=_SHORTEST_MS)
    (_, run), (_, stage) = (np.unique(each[ended], return_inverse=True) for each in (run, stage))
    cell, shape = stage * num_runs + run, (stage.max() + 1, num_runs)
    expected_ms = _means(ms, stage * len(Wave) + wave)
    total_ms = np.bincount(cell, ms).reshape(shape)
    error = np.log(total_ms / np.bincount(cell, expected_ms).reshape(shape))
    error -= error.mean(axis=1, keepdims=True)
    # A task's error without the means of the task over the runs, and of the stage in the run.
    of_task = np.log(ms / expected_ms)
    of_task -= _means(of_task, task)
    of_task -= _means(of_task, cell)
    num_tasks = np.bincount(stage) / num_runs
    unbiased = num_tasks / np.maximum(num_tasks - 1, 1) * num_runs / (num_runs - 1)
    variance, several = of_task**2 * unbiased[stage], num_tasks[stage] > 1
    typical = float(np.average(variance[several], weights=ms[several])) if several.any() else 0.0
    share = ms / total_ms.ravel()[cell]
    noise = np.bincount(stage, share**2 * np.where(several, variance, typical)) / num_runs
    weight = total_ms.sum(axis=1) / total_ms.sum()
    of_run = weight @ error
    job = of_run.var(ddof=1) - weight**2 @ noise
    within = (weight @ (error - of_run) ** 2).sum() / (num_runs - 1) - (weight * (1 - weight)) @ noise
    return [(num_runs - 1, job, within, typical, weight @ weight)]


def _means(values: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each value the mean of its group."""
    return (np.bincount(group, values) / np.maximum(np.bincount(group), 1))[group]


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
