"""Projects to plan, and plain Python definitions of planning."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from decima.schedulers.graphene import Plan, Project, critical_path_first, graphene, random_order, tetris

PLANNERS: dict[str, Callable[[Project], Plan]] = {
    "random": random_order,
    "tetris": tetris,
    "critical-path": critical_path_first,
    "graphene": graphene,
    "justified": lambda project: graphene(project, justified=True),
}


def project(
    durations: Sequence[float],
    demands: Sequence[float] | Sequence[Sequence[float]],
    capacity: float | Sequence[float],
    parents: Sequence[Sequence[int]] = (),
    num_tasks: Sequence[int] = (),
) -> Project:
    """Return a project from lists; demands and capacity may be of one resource."""
    needs, there = np.array(demands, float), np.array(capacity, float)
    return Project(
        np.array(durations, float),
        needs.reshape(len(durations), -1),
        there.reshape(-1),
        parents or [()] * len(durations),
        np.array(num_tasks, np.int64),
    )


@st.composite
def projects(draw: st.DrawFn, most: int = 8, most_tasks: int = 4, whole: bool = False) -> Project:
    """Draw DAGs of up to ``most`` stages, in any order.

    Args:
        draw: hypothesis' draw function.
        most: maximum number of stages.
        most_tasks: maximum number of tasks of each stage.
        whole: whether all numbers are integers.
    """
    n, resources = draw(st.integers(1, most)), draw(st.integers(1, 3))
    numbers = st.integers(0, 6)
    times = numbers if whole else st.one_of(numbers, st.floats(0, 100))
    shares = numbers.map(lambda number: number / 6)
    if not whole:
        shares = st.one_of(shares, st.floats(0, 1))
    capacity = 6.0 if whole else draw(st.floats(0.1, 1000))
    demands = [[draw(shares) * capacity for _ in range(resources)] for _ in range(n)]
    place = draw(st.permutations(range(n)))
    parents: list[list[int]] = [[] for _ in range(n)]
    for one, other in itertools.combinations(range(n), 2):
        if draw(st.integers(0, 2)) == 0:
            parents[place[other]].append(place[one])
    return project(
        [draw(times) for _ in range(n)],
        [[min(demand, capacity) for demand in row] for row in demands],
        [capacity] * resources,
        parents,
        [draw(st.integers(1, most_tasks)) for _ in range(n)],
    )


def serial(project: Project, sequence: Sequence[int]) -> list[int]:
    """Return the start of each task if the tasks of these stages are placed one by one, as early as possible."""
    usage: dict[int, np.ndarray] = {}
    starts: dict[int, list[int]] = {stage: [] for stage in range(len(project))}
    for stage in sequence:
        duration, demand = int(project.durations[stage]), project.demands[stage]
        ends = [start + int(project.durations[each]) for each in project.parents[stage] for start in starts[each]]
        start = max(ends, default=0)
        while any((usage.get(time, 0) + demand > project.capacity).any() for time in range(start, start + duration)):
            start += 1
        for time in range(start, start + duration):
            usage[time] = usage.get(time, 0) + demand
        starts[stage].append(start)
    return [start for stage in range(len(project)) for start in starts[stage]]


def orders(project: Project) -> list[tuple[int, ...]]:
    """Yield all topological orders of the stages."""
    return [
        order
        for order in itertools.permutations(range(len(project)))
        if all(order.index(parent) < order.index(stage) for stage in order for parent in project.parents[stage])
    ]


def optimum(project: Project) -> int:
    """Return the shortest makespan of a project of single tasks, which a serial schedule has (Sprecher et al.,
    1995).
    """
    return min(max(serial(project, order) + project.durations) for order in orders(project))
