"""Job profiles that include the driver's time: to replay a measured run, and to predict other runs.

Between the stages of a query the driver plans, broadcasts and submits jobs, and the cluster waits for it. A profile of
the tasks alone lacks that time. Here it consists of stages, too. Their tasks demand no core, and the tasks of executors
no memory, so that a cluster of two executor classes keeps them apart: one class with cores, and one without, of which
each executor is a thread of a driver.

A profile begins with a stage of the driver, its planning before the first job, which has a task for each of its
`DRIVER_THREADS` and so gives the job all of them at once. Then come the stages by Spark's numbers, the order in which
Spark serves ready stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.job import JobProfile, StageProfile, TaskDurations
from workloads.spark.query import SparkQuery

__all__ = ["DRIVER_THREADS", "replay_profile", "with_driver"]

#: Delays that one driver can have at the same time, such as broadcasts.
DRIVER_THREADS = 8


def replay_profile(run: SparkQuery, planning_ms: float | None = None) -> JobProfile:
    """Return a profile that replays one run: each task has its own duration, and tasks keep their order.

    A profile draws durations at random if there are several. So every task is a stage with one duration, and a stage of
    the driver is between the tasks of a Spark stage and those of its parents.

    Args:
        run: the run.
        planning_ms: before the first job, ms; by default the time from the query's start to its first job.
    """
    built = _Builder()
    planning = built.planning(run.submitted_ms - run.start_ms if planning_ms is None else planning_ms)
    tasks = {stage: rows["duration_ms"].tolist() for stage, rows in run.tasks.groupby("stage")}
    numbers: dict[int, list[int]] = {}
    for place in _submission_order(run, run.edges):
        parents = run.edges[run.edges[:, 1] == place, 0].tolist()
        before = [number for parent in parents for number in numbers[parent]]
        opened = built.driver_stage([run.submission_lag_ms[place]], before or [planning])
        stages = (StageProfile(1, TaskDurations.constant(ms), run.stages[place].name) for ms in tasks[place])
        numbers[place] = [built.stage(stage, [opened]) for stage in stages]
    return built.profile(run.name)


def with_driver(
    profile: JobProfile,
    runs: Sequence[SparkQuery],
    planning_ms: ArrayLike | None = None,
    *,
    driver: bool = True,
) -> JobProfile:
    """Return a profile with the driver's delays, which are drawn from those of the runs.

    Args:
        profile: made from the runs by `workloads.spark.scaling.to_profile`.
        runs: at least one, with matched stages.
        planning_ms: before the first job, float [n], ms, of which one is drawn; by default the times from the
            runs' start to their first job.
        driver: add the delays; else only demands and order of the stages are as with them.
    """
    built = _Builder()
    planned_ms = [run.submitted_ms - run.start_ms for run in runs] if planning_ms is None else planning_ms
    first = [built.planning(planned_ms)] if driver else []
    lags = np.array([run.submission_lag_ms for run in runs]) * driver
    numbers: dict[int, int] = {}
    for place in _submission_order(runs[0], profile.edges):
        parents = [numbers[parent] for parent in profile.parents[place]] or first
        if lags[:, place].any():
            parents = [built.driver_stage(lags[:, place], parents)]
        numbers[place] = built.stage(profile.stages[place], parents)
    return built.profile(profile.name)


class _Builder:
    """Collect stages; a stage's parents must be added before."""

    def __init__(self) -> None:
        self._stages: list[StageProfile] = []
        self._edges: list[tuple[int, int]] = []

    def stage(self, stage: StageProfile, parents: Iterable[int]) -> int:
        """Add a stage of executors; return its number."""
        return self._add(replace(stage, cpu=1.0, memory=0.0), parents)

    def driver_stage(self, delay_ms: ArrayLike, parents: Iterable[int], num_tasks: int = 1) -> int:
        durations = TaskDurations.sampled(delay_ms)
        return self._add(StageProfile(num_tasks, durations, "driver", cpu=0.0, memory=1.0), parents)

    def planning(self, delay_ms: ArrayLike) -> int:
        return self.driver_stage(delay_ms, (), DRIVER_THREADS)

    def _add(self, stage: StageProfile, parents: Iterable[int]) -> int:
        self._stages.append(stage)
        self._edges.extend((parent, len(self._stages) - 1) for parent in parents)
        return len(self._stages) - 1

    def profile(self, name: str) -> JobProfile:
        return JobProfile(name, tuple(self._stages), np.array(self._edges, dtype=np.int64).reshape(-1, 2))


def _submission_order(run: SparkQuery, edges: NDArray[np.int64]) -> list[int]:
    """Return the places of the stages by Spark's numbers, parents first."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(run.stages)))
    graph.add_edges_from(edges.tolist())
    return list(nx.lexicographical_topological_sort(graph, key=lambda place: run.stages[place].stage_id))
