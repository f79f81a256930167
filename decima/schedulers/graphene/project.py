"""Project: a DAG of stages with tasks that need resources. Plan: the start times of a project's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from decima.schedulers.graphene.space import ROUNDING, Dag
from workloads.errors import DecimaError

__all__ = ["Plan", "PlanError", "Project", "tasks_in_order"]


class PlanError(DecimaError, ValueError):
    """A project or a plan is infeasible. The message is one line."""


@dataclass(frozen=True, eq=False)
class Project:
    """A DAG of stages with equal tasks. Each task holds resources from its start to its end.

    An activity of resource-constrained project scheduling (RCPSP) is a stage of one task.

    Attributes:
        durations: task duration of each stage, float64 [n], any unit, at least 0.
        demands: resources of a task of each stage, float64 [n, r], at least 0.
        capacity: capacity of each resource, float64 [r], above 0.
        parents: parents of each stage, which must be complete before the stage's first task starts.
        num_tasks: number of tasks of each stage, int64 [n], at least 1; by default 1.

    Raises:
        PlanError: an attribute is out of range, a demand exceeds the capacity, or the stages form a cycle.
    """

    durations: NDArray[np.float64]
    demands: NDArray[np.float64]
    capacity: NDArray[np.float64]
    parents: Sequence[Sequence[int]]
    num_tasks: NDArray[np.int64] = field(default_factory=lambda: np.ones(0, np.int64))

    def __post_init__(self) -> None:
        durations, demands, capacity = (
            _numbers(name, getattr(self, name), dimensions)
            for name, dimensions in (("durations", 1), ("demands", 2), ("capacity", 1))
        )
        n = durations.size
        num_tasks = np.asarray(self.num_tasks)
        num_tasks = np.ones(n, np.int64) if num_tasks.size == 0 else num_tasks
        if n == 0 or capacity.size == 0:
            raise PlanError("expected at least one stage and one resource")
        if demands.shape != (n, capacity.size):
            raise PlanError(f"demands: expected {n} x {capacity.size} numbers, got {demands.shape}")
        if num_tasks.shape != (n,) or num_tasks.dtype.kind not in "iu" or num_tasks.min() < 1:
            raise PlanError(f"num_tasks: expected {n} whole numbers of at least 1")
        if not capacity.all():
            raise PlanError(f"capacity: expected numbers above 0, got {capacity.tolist()}")
        excess = np.argwhere(demands > capacity)
        if excess.size:
            stage, resource = excess[0]
            demand, most = demands[stage, resource], capacity[resource]
            raise PlanError(
                f"stage {stage} needs {demand:g} of resource {resource}, whose capacity is {most:g}"
            )
        if len(self.parents) != n:
            raise PlanError(f"parents: expected a sequence of {n} stages, got {len(self.parents)}")
        try:
            parents = tuple(
                tuple(sorted({index(parent) for parent in stage_parents})) for stage_parents in self.parents
            )
        except TypeError:
            raise PlanError("parents: expected numbers of stages") from None
        for stage, stage_parents in enumerate(parents):
            if stage_parents and not 0 <= stage_parents[0] <= stage_parents[-1] < n:
                raise PlanError(
                    f"stage {stage}: expected parents from 0 to {n - 1}, got {list(stage_parents)}"
                )
        checked = durations, demands, capacity, parents, num_tasks.astype(np.int64)
        names = ("durations", "demands", "capacity", "parents", "num_tasks")
        for name, value in zip(names, checked, strict=True):
            object.__setattr__(self, name, value)
        if self.order.size < n:
            left = set(range(n)) - set(self.order.tolist())
            stage = min(left)
            for _ in range(n):  # a walk from parent to parent ends in the cycle
                stage = next(parent for parent in parents[stage] if parent in left)
            raise PlanError(f"the stages form a cycle, which contains stage {stage}")

    def __len__(self) -> int:
        return self.durations.size

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each stage."""
        children: list[list[int]] = [[] for _ in self.parents]
        for stage, parents in enumerate(self.parents):
            for parent in parents:
                children[parent].append(stage)
        return tuple(map(tuple, children))

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Stages in a topological order, int64 [n]."""
        waits = [len(parents) for parents in self.parents]
        order = [stage for stage, count in enumerate(waits) if count == 0]
        for stage in order:
            for child in self.children[stage]:
                waits[child] -= 1
                if waits[child] == 0:
                    order.append(child)
        return np.array(order, np.int64)

    @cached_property
    def before(self) -> NDArray[np.bool_]:
        """Transitive closure, bool [n, n]: whether the row's stage must end before the column's stage starts."""
        before = np.zeros((len(self), len(self)), np.bool_)
        for stage in self.order:
            for parent in self.parents[stage]:
                before[:, stage] |= before[:, parent]
                before[parent, stage] = True
        return before

    @cached_property
    def stage_of(self) -> NDArray[np.int64]:
        """Stage of each task, int64 [N]; tasks of a stage are contiguous."""
        return np.repeat(np.arange(len(self)), self.num_tasks)

    @cached_property
    def work(self) -> NDArray[np.float64]:
        """TWork: time for which each stage would occupy its whole dominant resource, float64 [n]."""
        share: NDArray[np.float64] = (self.demands / self.capacity).max(axis=1)
        return self.durations * self.num_tasks * share

    @cached_property
    def alone(self) -> NDArray[np.float64]:
        """ExecTime: time of each stage if it has all resources, float64 [n]."""
        share = np.maximum((self.demands / self.capacity).max(axis=1), ROUNDING)
        at_once = np.floor((1 + ROUNDING) / share)
        alone: NDArray[np.float64] = self.durations * np.ceil(self.num_tasks / at_once)
        return alone

    def paths(self, lengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the length of the longest path from each stage on, including the stage, float64 [n].

        Args:
            lengths: length of each stage, float64 [n].
        """
        paths = lengths.copy()
        for stage in self.order[::-1]:
            paths[stage] += max((paths[child] for child in self.children[stage]), default=0.0)
        return paths

    @cached_property
    def lower_bound(self) -> float:
        """Lower bound of the makespan: the critical path, or the work on the scarcest resource."""
        held = (self.durations * self.num_tasks) @ self.demands / self.capacity
        return float(max(self.paths(self.alone).max(), held.max()))

    @cached_property
    def dag(self) -> Dag:
        """The project as arrays for compiled code."""
        first = np.concatenate(([0], np.cumsum(self.num_tasks)))
        edges = *_rows(self.parents), *_rows(self.children)
        return Dag(self.durations, self.demands, self.capacity, first, *edges)

    def part(self, stages: NDArray[np.int64]) -> Project:
        """Return the project of some stages, renumbered in this order, as if the other stages were complete."""
        new_index = {int(stage): index for index, stage in enumerate(stages)}
        parents = [
            [new_index[parent] for parent in self.parents[stage] if parent in new_index] for stage in stages
        ]
        durations, demands, num_tasks = self.durations[stages], self.demands[stages], self.num_tasks[stages]
        return Project(durations, demands, self.capacity, parents, num_tasks)


@dataclass(frozen=True, eq=False)
class Plan:
    """A feasible plan: start times of all tasks of a project.

    Attributes:
        project: the project.
        start: start time of each task, float64 [N], at least 0; in the order of ``project.stage_of``.

    Raises:
        PlanError: a task starts before its stage's parents are complete, or tasks exceed the capacity.
    """

    project: Project
    start: NDArray[np.float64]

    def __post_init__(self) -> None:
        project, stage_of = self.project, self.project.stage_of
        if self.start.shape != stage_of.shape or not np.isfinite(self.start).all():
            raise PlanError(f"start: expected {stage_of.size} finite numbers")
        rounding = ROUNDING * self.makespan
        if self.start.min() < -rounding:
            raise PlanError(f"a task of stage {stage_of[self.start.argmin()]} starts before 0")
        first = project.dag.first[:-1]
        begin = np.minimum.reduceat(self.start, first)
        end = np.maximum.reduceat(self.start, first) + project.durations
        for stage, parents in enumerate(project.parents):
            for parent in parents:
                if begin[stage] < end[parent] - rounding:
                    raise PlanError(
                        f"stage {stage} starts at {begin[stage]:g}, before its parent {parent} ends at {end[parent]:g}"
                    )
        # A task that ends makes room for one that starts at the same time.
        times = np.concatenate((self.start + project.durations[stage_of] - rounding, self.start))
        held = project.demands[stage_of]
        order = np.argsort(times, kind="stable")
        usage = np.concatenate((-held, held))[order].cumsum(axis=0)
        excess = np.argwhere(usage > project.capacity * (1 + 2 * ROUNDING))
        if excess.size:
            event, resource = excess[0]
            raise PlanError(
                f"at time {times[order[event]]:g}, tasks hold {usage[event, resource]:g} of resource {resource}, whose "
                f"capacity is {project.capacity[resource]:g}"
            )

    @cached_property
    def makespan(self) -> float:
        """End of the last task."""
        return float((self.start + self.project.durations[self.project.stage_of]).max())

    @cached_property
    def priority(self) -> NDArray[np.float64]:
        """Graphene's priScore of each task, float64 [N], above 0; 1 for the task that starts first."""
        count = self.start.size
        priority = np.empty(count)
        priority[tasks_in_order(self.project, self.start)] = np.arange(count, 0, -1) / count
        return priority


def tasks_in_order(project: Project, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a project's tasks sorted by ``times`` (float64 [N]), int64 [N]; on a tie, tasks of parents first."""
    rank = np.empty(len(project), np.int64)
    rank[project.order] = np.arange(len(project))
    return np.lexsort((rank[project.stage_of], times))


def _numbers(name: str, values: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    try:
        array = np.ascontiguousarray(values, np.float64)
    except (TypeError, ValueError):
        raise PlanError(f"{name}: expected numbers") from None
    if array.ndim != dimensions:
        raise PlanError(f"{name}: expected an array of {dimensions} dimensions, got {array.ndim}")
    wrong = array[~(np.isfinite(array) & (array >= 0))]
    if wrong.size:
        raise PlanError(f"{name}: expected finite numbers of at least 0, got {wrong[0]:g}")
    return array


def _rows(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row starts, int64 [n + 1], and the concatenated rows (compressed sparse rows)."""
    begins = np.cumsum([0, *map(len, rows)])
    return begins, np.array([entry for row in rows for entry in row], np.int64)
