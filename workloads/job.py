"""Job profiles: a DAG of stages, each with its number of tasks, resource demands and measured task durations.

All classes are immutable and validated on construction, so that a simulator can run every profile. Durations are in
milliseconds (float64).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.display import count_text, plain_text
from workloads.errors import (
    LONGEST_MS,
    WorkloadError,
    check_all,
    check_instance,
    check_number,
    check_one_of,
    check_whole,
    described_value,
)

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["JobProfile", "StageProfile", "TaskDurations", "Wave", "WorkloadError"]

#: Parallelism level of durations that do not depend on the parallelism.
ANY_LEVEL = 1

_Number = TypeVar("_Number", np.int64, np.float64)


#: Maximum number of tasks of a stage and of a sequence. In a running simulation, a task takes 40 bytes.
MOST_TASKS = 200_000_000
#: Maximum number of bytes or rows that a stage reads.
MOST_BYTES = 10**18
#: Maximum number of operators of a stage, and maximum length of an operator's name.
MOST_OPERATORS, LONGEST_OPERATOR = 64, 100


class Wave(IntEnum):
    """Class of a task by the previous task of its executor, which affects its duration.

    Source: Decima (SIGCOMM 2019), section 6.2, and the published simulator's three tables of durations.
    """

    FRESH = 0
    """First task after the executor joined the job: its JVM is cold."""
    FIRST = 1
    """First task of this stage on an executor that ran another stage of the job before."""
    REST = 2
    """Further task of the stage that the executor's last task belonged to."""


@dataclass(frozen=True, eq=False, repr=False)
class TaskDurations:
    """Measured task durations of one stage, by wave and by the number of executors that the job held.

    A simulator chooses a cell (wave, level) and draws one of its values uniformly. An empty cell falls back:
    fresh -> first (plus the cluster's warm-up delay) -> rest; first -> fresh -> rest; rest -> first -> fresh.

    Args:
        levels: parallelism levels, int64 [num_levels], ascending, at least 1.
        values: all durations, float64 [num_values], ms, finite and not negative.
        cells: int64 [3, num_levels, 2]; ``values[start:stop]`` of each (wave, level). Cells may overlap.
        mean_ms: mean duration of a task as schedulers see it. If omitted, it is the mean of the rest wave, each level
            counted once, and a cluster replaces it by the expected duration on its executors
            (``simulator.cluster.known.known_profile``). Published profiles give it: the published simulator averages
            all measurements, and its agent's features and the recorded episodes depend on that.

    Raises:
        WorkloadError: an array has a wrong shape, a table is empty, or a duration is negative or not finite.
    """

    levels: NDArray[np.int64]
    values: NDArray[np.float64]
    cells: NDArray[np.int64]
    mean_ms: float = float("nan")
    #: ``mean_ms`` as given; NaN if it was omitted.
    given_mean_ms: float = field(init=False)

    def __post_init__(self) -> None:
        levels = _frozen_array(self.levels, np.int64, "levels")
        values = _frozen_array(self.values, np.float64, "durations")
        cells = _frozen_array(self.cells, np.int64, "cells")
        if levels.ndim != 1 or not levels.size or levels[0] < 1 or (np.diff(levels) <= 0).any():
            raise WorkloadError(f"parallelism levels must be ascending and at least 1, got {levels.tolist()}")
        if values.ndim != 1 or not values.size:
            raise WorkloadError("a stage needs at least one task duration")
        if not ((values >= 0) & (values <= LONGEST_MS)).all():
            wrong = values[~((values >= 0) & (values <= LONGEST_MS))][0]
            raise WorkloadError(f"a task duration must be between 0 and {LONGEST_MS:g} ms, got {wrong}")
        if cells.shape != (3, levels.size, 2):
            raise WorkloadError(f"cells must have shape (3, {levels.size}, 2), got {cells.shape}")
        if (cells < 0).any() or (cells > values.size).any() or (cells[..., 1] < cells[..., 0]).any():
            raise WorkloadError(f"a cell lies outside the {values.size} durations")
        empty = (cells[..., 1] == cells[..., 0]).all(axis=0)
        if empty.any():
            raise WorkloadError(f"no durations in any wave at parallelism level {levels[empty][0]}")
        check_number(self.mean_ms, "the mean task duration", WorkloadError)
        given = float(self.mean_ms)
        with np.errstate(over="ignore"):  # refused below
            mean = _mean_of_rest(values, cells) if math.isnan(given) else given
        if not 0 <= mean <= LONGEST_MS:
            raise WorkloadError(f"the mean task duration must be between 0 and {LONGEST_MS:g} ms, got {mean}")
        for name, value in (("levels", levels), ("values", values), ("cells", cells)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "mean_ms", mean)
        object.__setattr__(self, "given_mean_ms", given)

    @classmethod
    def constant(
        cls, rest_ms: float, *, first_ms: float | None = None, fresh_ms: float | None = None
    ) -> TaskDurations:
        """Return constant durations for each wave, ms, at any parallelism; an omitted wave equals the next one."""
        rest_ms = check_number(rest_ms, "rest_ms", WorkloadError)
        first_ms = rest_ms if first_ms is None else check_number(first_ms, "first_ms", WorkloadError)
        fresh_ms = first_ms if fresh_ms is None else check_number(fresh_ms, "fresh_ms", WorkloadError)
        return _constant(fresh_ms, first_ms, rest_ms)

    @classmethod
    def sampled(cls, durations_ms: ArrayLike) -> TaskDurations:
        """Return durations drawn from ``durations_ms`` (float [n], ms) in every wave, at any parallelism."""
        values = np.atleast_1d(_frozen_array(durations_ms, np.float64, "durations"))
        return cls(np.array([ANY_LEVEL]), values, np.array([[[0, values.size]]] * 3))

    @classmethod
    def parse(cls, durations_ms: Any) -> TaskDurations:
        """Return the durations that an entry ``duration_ms`` of a workload file describes.

        Args:
            durations_ms: a number, ms, if all tasks take the same time; numbers of which each task draws one; a dict by
                wave (``fresh``, ``first``, ``rest``), each again a number, numbers, or a dict of numbers by parallelism
                level, and optionally ``mean_ms``; or ``TaskDurations``, which are returned unchanged. A wave without
                levels holds at all levels of the other waves.

        Raises:
            WorkloadError: the entry has another form, or a number is out of range.
        """
        if isinstance(durations_ms, TaskDurations):
            return durations_ms
        if isinstance(durations_ms, Real):
            return cls.constant(check_number(durations_ms, "a task duration", WorkloadError))
        if not isinstance(durations_ms, Mapping):
            return cls.sampled(durations_ms)
        names = [wave.name.lower() for wave in Wave]
        for key in durations_ms:
            check_one_of(key, [*names, "mean_ms"], "a key of the durations", WorkloadError)
        waves = [durations_ms.get(name, {}) for name in names]
        by_level = [wave for wave in waves if isinstance(wave, Mapping)]
        if len(by_level) == len(waves) and not any(by_level):
            raise WorkloadError("expected measurements of at least one wave")
        levels = {_level(level) for wave in by_level for level in wave} or {ANY_LEVEL}
        tables: list[dict[int, Any]] = [
            {_level(level): measured for level, measured in wave.items()}
            if isinstance(wave, Mapping)
            else dict.fromkeys(levels, [wave] if isinstance(wave, Real) else wave)
            for wave in waves
        ]
        return cls.from_tables(*tables, mean_ms=durations_ms.get("mean_ms", math.nan))

    @classmethod
    def from_tables(
        cls,
        fresh: Mapping[int, Sequence[float]],
        first: Mapping[int, Sequence[float]],
        rest: Mapping[int, Sequence[float]],
        *,
        mean_ms: float = float("nan"),
    ) -> TaskDurations:
        """Build durations from a dict ``{level: [ms, ..]}`` for each wave; missing levels are empty cells."""
        for name, table in (("fresh", fresh), ("first", first), ("rest", rest)):
            check_instance(table, dict, name, WorkloadError)
            for level in table:
                check_whole(level, f"a level of {name}", WorkloadError)
        levels = sorted(set(fresh) | set(first) | set(rest))
        values: list[float] = []
        cells: list[tuple[int, int]] = []
        for table in (fresh, first, rest):
            for level in levels:
                start = len(values)
                try:
                    values.extend(table.get(level, ()))
                except TypeError:
                    raise WorkloadError(f"durations at level {level} must be an array of numbers") from None
                cells.append((start, len(values)))
        return cls(np.array(levels), np.array(values), np.reshape(cells, (3, len(levels), 2)), mean_ms)

    def table(self, wave: Wave) -> dict[int, NDArray[np.float64]]:
        """Return the durations of one wave, ``{level: float64 [n]}``, ms; an empty cell is an empty array."""
        return {
            int(level): self.values[start:stop]
            for level, (start, stop) in zip(self.levels, self.cells[wave], strict=True)
        }

    def __repr__(self) -> str:
        return f"TaskDurations({count_text(self.values.size, 'duration')}, mean {self.mean_ms:g} ms)"

    @cached_property
    def mean_is_known(self) -> bool:
        """Whether the mean is the same on every cluster, as it was given, or as all waves and levels are equal."""
        same_cell = bool((self.cells == self.cells[0, 0]).all())
        return not math.isnan(self.given_mean_ms) or same_cell or self.spread[0] == self.spread[1]

    @property
    def spread(self) -> tuple[float, float]:
        """Shortest and longest duration, ms."""
        return float(self.values.min()), float(self.values.max())


@lru_cache(maxsize=4096, typed=True)
def _level(key: Any) -> Any:
    """Return a parallelism level, which is text as a key in JSON."""
    return int(key) if isinstance(key, str) and re.fullmatch("[1-9][0-9]{0,8}", key) else key


def _mean_of_rest(values: NDArray[np.float64], cells: NDArray[np.int64]) -> float:
    """Return the mean duration of the rest wave, ms; each level is counted once."""
    if values.min() == values.max():
        return float(values.mean())
    sizes = cells[::-1, :, 1] - cells[::-1, :, 0]  # an empty cell falls back: rest, first, fresh
    wave_used = 2 - np.argmax(sizes > 0, axis=0)
    means = [values[slice(*cells[wave, level])].mean() for level, wave in enumerate(wave_used)]
    return float(np.mean(means))


@lru_cache(maxsize=4096)
def _constant(fresh_ms: float, first_ms: float, rest_ms: float) -> TaskDurations:
    """Return cached durations, as traces have many stages with few different durations, in whole seconds."""
    cells = np.array([[[0, 1]], [[1, 2]], [[2, 3]]])
    return TaskDurations(np.array([ANY_LEVEL]), np.array([fresh_ms, first_ms, rest_ms], float), cells)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class StageProfile:
    """One stage: tasks that run the same code on different partitions, in parallel.

    The size of the input and the operators are only used to predict the durations of jobs that have not run.

    Args:
        num_tasks: number of tasks, at least 1.
        durations: measured durations of the tasks.
        name: display name; any string.
        cpu: number of cores that a task demands of its executor.
        memory: memory that a task demands of its executor, in the unit of the cluster's executor classes.
        input_bytes: bytes that all tasks together read from storage, or the size of the files that they read if known;
            at most ``MOST_BYTES``; None if unknown.
        input_rows: rows that they read from storage; None if unknown.
        shuffle_bytes: bytes that they read from other stages; None if unknown.
        operators: operators that a task runs, such as ``Scan parquet``, ``Filter`` and ``Exchange``: at most
            ``MOST_OPERATORS`` names of at most ``LONGEST_OPERATOR`` characters; empty if unknown.

    Raises:
        WorkloadError: there is no task, a demand is negative or not finite, a size is not a whole number, or there are
            too many operators, or one with a name that is empty, too long or has control characters.
    """

    num_tasks: int
    durations: TaskDurations
    name: str = ""
    cpu: float = 1.0
    memory: float = 0.0
    input_bytes: int | None = None
    input_rows: int | None = None
    shuffle_bytes: int | None = None
    operators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        num_tasks = check_whole(self.num_tasks, "the number of tasks", WorkloadError, 1, MOST_TASKS)
        object.__setattr__(self, "num_tasks", num_tasks)
        check_instance(self.durations, TaskDurations, "durations", WorkloadError)
        check_instance(self.name, str, "name", WorkloadError)
        for name in ("cpu", "memory"):
            demand = check_number(getattr(self, name), f"the {name} demand", WorkloadError)
            if not math.isfinite(demand) or demand < 0:
                raise WorkloadError(f"the {name} demand must be finite and not negative, got {demand}")
        for name in ("input_bytes", "input_rows", "shuffle_bytes"):
            if (size := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_whole(size, name, WorkloadError, 0, MOST_BYTES))
        if self.operators != ():
            object.__setattr__(self, "operators", _checked_operators(self.operators))

    def __repr__(self) -> str:
        tasks = f"{count_text(self.num_tasks, 'task')} of {self.durations.mean_ms / 1000:.3g} s"
        return f"StageProfile({plain_text(self.name)!r}, {tasks})"

    @property
    def work_ms(self) -> float:
        """Expected executor time of the whole stage, ms: tasks x mean duration, see ``TaskDurations.mean_ms``."""
        return float(self.num_tasks * self.durations.mean_ms)


@dataclass(frozen=True, eq=False, repr=False)
class JobProfile:
    """A job: a DAG of stages with edges ``parent -> child``; a stage starts when all its parents are complete.

    Args:
        name: display name; any string.
        stages: at least one stage; the number of a stage is its index.
        edges: int64 [num_edges, 2], (parent, child) stage numbers.

    Raises:
        WorkloadError: there is no stage, an edge is duplicate or leads to an unknown stage, or edges form a cycle.
    """

    name: str
    stages: tuple[StageProfile, ...]
    edges: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))

    def __post_init__(self) -> None:
        check_instance(self.name, str, "name", WorkloadError)
        stages = check_all(self.stages, StageProfile, "stages", WorkloadError)
        if not stages:
            raise WorkloadError("a job needs at least one stage")
        edges = _frozen_array(self.edges, np.int64, "edges")
        edges = edges if edges.size else np.zeros((0, 2), dtype=np.int64)
        if edges.ndim != 2 or edges.shape[1] != 2:
            raise WorkloadError(f"edges must have shape (number of edges, 2), got {edges.shape}")
        outside = (edges < 0) | (edges >= len(stages))
        if outside.any():
            parent, child = edges[outside.any(axis=1)][0]
            raise WorkloadError(f"edge {parent} -> {child} leaves the {len(stages)} stages")
        if len(set(map(tuple, edges.tolist()))) != len(edges):
            raise WorkloadError("the same edge is given twice")
        object.__setattr__(self, "stages", stages)
        object.__setattr__(self, "edges", edges)
        is_sorted = bool((edges[:, 0] < edges[:, 1]).all())  # parents first: there is no cycle
        if not is_sorted:
            try:
                _ = self.children_first
            except CycleError as error:
                *cycle, _ = error.args[1]  # from child to parent
                first = cycle.index(min(cycle)) + 1
                text = " -> ".join(map(str, reversed(cycle[first:] + cycle[:first])))
                raise WorkloadError(f"the stages form a cycle: {text}") from None

    def __repr__(self) -> str:
        counts = f"{count_text(self.num_stages, 'stage')}, {count_text(self.num_tasks, 'task')}"
        return f"JobProfile({plain_text(self.name)!r}, {counts}, {self.work_ms / 1000:.1f} s of work)"

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stages)

    @cached_property
    def means_are_known(self) -> bool:
        """Whether the mean task durations of all stages are the same on every cluster."""
        return all(stage.durations.mean_is_known for stage in self.stages)

    @property
    def num_tasks(self) -> int:
        """Number of tasks over all stages."""
        return sum(stage.num_tasks for stage in self.stages)

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Parents of each stage, ascending."""
        return self._neighbours(of=1, other=0)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each stage, ascending."""
        return self._neighbours(of=0, other=1)

    @cached_property
    def work_ms(self) -> float:
        """Total work T_i: expected executor time of all stages, ms; see ``TaskDurations.mean_ms``."""
        return float(sum(stage.work_ms for stage in self.stages))

    @cached_property
    def critical_path_ms(self) -> NDArray[np.float64]:
        """Critical path from each stage, in work: cp(v) = work(v) + max cp(child); float64 [num_stages], ms.

        This is executor time, as if one executor ran all tasks of a stage; ``height_ms`` is elapsed time. Source:
        Decima, appendix G.
        """
        return self._longest_path([stage.work_ms for stage in self.stages])

    @cached_property
    def height_ms(self) -> NDArray[np.float64]:
        """Minimum time from the start of each stage to the end of the job, with unlimited executors.

        This is the longest path of mean task durations; float64 [num_stages], ms.
        """
        return self._longest_path([stage.durations.mean_ms for stage in self.stages])

    @cached_property
    def path_rank(self) -> NDArray[np.int64]:
        """Rank of each stage by the longest path from it to the end of the job, 0 for the longest; int64 [num_stages].

        The longest path has the most stages; of paths with equally many stages, it takes the longest time
        (``height_ms``). Of equal paths, the path with more work comes first, then the stage with more tasks, then the
        stage with the lower number. So the order of different stages does not depend on their numbers.
        """
        num_tasks = np.array([stage.num_tasks for stage in self.stages])
        depth = self._longest_path([1.0] * self.num_stages)
        path_rank = np.empty(self.num_stages, dtype=np.int64)
        order = np.lexsort((-num_tasks, -self.critical_path_ms, -self.height_ms, -depth))
        path_rank[order] = np.arange(self.num_stages)
        path_rank.setflags(write=False)
        return path_rank

    @cached_property
    def children_first(self) -> list[int]:
        """The stages in an order in which children come before their parents."""
        if (self.edges[:, 0] < self.edges[:, 1]).all():  # the usual case, found fast
            return list(reversed(range(self.num_stages)))
        return list(TopologicalSorter(dict(enumerate(self.children))).static_order())

    def _longest_path(self, lengths: list[float]) -> NDArray[np.float64]:
        path = np.array(lengths)
        for stage in self.children_first:
            path[stage] += max((path[child] for child in self.children[stage]), default=0.0)
        path.setflags(write=False)
        return path

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph[Any], name: str | None = None) -> JobProfile:
        """Build a job from a networkx graph: its nodes are stages, its edges lead from parents to children.

        Node attributes have the names of a stage's keys in a workload file. ``tasks`` and ``duration_ms`` (ms, in any
        form that ``TaskDurations.parse`` reads) are required; ``cpu``, ``memory``, ``name``, ``input_bytes``,
        ``input_rows``, ``shuffle_bytes`` and ``operators`` are optional. By default a stage has the name of its node if
        that is a string. Stages are numbered in the order of ``graph.nodes``.

        Args:
            graph: the DAG; attributes of edges are ignored.
            name: display name of the job; by default ``graph.name``.

        Raises:
            WorkloadError: the graph is not directed, has a cycle or no node; or an attribute is missing, unknown or
                invalid. The message names the node.

        Examples:
            >>> import networkx as nx
            >>> graph = nx.DiGraph([("scan", "join"), ("lookup", "join")], name="nightly")
            >>> graph.add_node("scan", tasks=400, duration_ms=[400, 450, 700])
            >>> graph.add_node("lookup", tasks=8, duration_ms=1500)
            >>> graph.add_node("join", tasks=200, duration_ms={"fresh": 1400, "rest": 800}, cpu=2)
            >>> JobProfile.from_networkx(graph)
            JobProfile('nightly', 3 stages, 608 tasks, 378.7 s of work)
        """
        from workloads.networkx_jobs import from_networkx

        return from_networkx(graph, name)

    def to_networkx(self) -> nx.DiGraph[int]:
        """Return the DAG as a networkx graph, from which ``from_networkx`` builds an equal job.

        Its name is that of the job. Nodes are the numbers of the stages, with the attributes ``name`` (str), ``tasks``
        (int), ``duration_ms`` (``TaskDurations``, ms), ``cpu`` and ``memory`` (float), and what is known of bytes, rows
        and operators.
        """
        from workloads.networkx_jobs import to_networkx

        return to_networkx(self)

    def _neighbours(self, *, of: int, other: int) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in self.stages]
        for edge in self.edges.tolist():
            lists[edge[of]].append(edge[other])
        return tuple(tuple(sorted(neighbours)) for neighbours in lists)


def _checked_operators(values: Any) -> tuple[str, ...]:
    operators = check_all(values, str, "operators", WorkloadError)
    if len(operators) > MOST_OPERATORS:
        raise WorkloadError(f"operators: expected at most {MOST_OPERATORS} names, got {len(operators)}")
    for index, name in enumerate(operators):
        if not 0 < len(name) <= LONGEST_OPERATOR or not name.isprintable():
            raise WorkloadError(
                f"operators[{index}]: expected 1 to {LONGEST_OPERATOR} printable characters, "
                f"got {described_value(name)}"
            )
    return tuple(map(sys.intern, operators))  # the stages of a workload have few different operators


def _frozen_array(value: ArrayLike, dtype: type[_Number], what: str) -> NDArray[_Number]:
    """Copy an array to a read-only one of type ``dtype``; raise if that cannot represent the values."""
    try:
        array = np.asarray(value)
        if array.dtype == dtype:
            result = array.copy()
        else:
            with np.errstate(invalid="ignore"):  # NaN becomes some integer, which is refused below
                result = array.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        raise WorkloadError(f"{what} must be an array of numbers") from None
    if array.dtype != dtype and (
        array.dtype.kind not in "iuf" or not np.array_equal(array, result, equal_nan=True)
    ):
        raise WorkloadError(f"{what} must be an array of {np.dtype(dtype).name}, got {array.dtype}")
    result.setflags(write=False)
    return result
