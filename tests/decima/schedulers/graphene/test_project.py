"""Projects, and validation of plans."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from decima.schedulers.graphene import Plan, PlanError, Project
from tests.cases import cases
from tests.decima.schedulers.graphene.examples import project, projects
from tests.refusal import one_line

#: Two chains, 0 -> 1 -> 3 and 2 -> 3.
FINE: dict[str, Any] = {
    "durations": np.array([2.0, 3.0, 4.0, 1.0]),
    "demands": np.array([[1.0, 2.0], [2.0, 0.0], [2.0, 2.0], [4.0, 1.0]]),
    "capacity": np.array([4.0, 2.0]),
    "parents": [[], [0], [], [1, 2]],
    "num_tasks": np.array([1, 2, 1, 1]),
}


@cases(
    "change, message",
    ({"durations": np.array([2.0, -3.0, 4.0, 1.0])}, "durations: expected finite numbers of at least 0, got -3"),
    ({"durations": np.array([2.0, np.nan, 4.0, 1.0])}, "durations: expected finite numbers .* got nan"),
    ({"durations": np.array([2.0, np.inf, 4.0, 1.0])}, "durations: expected finite numbers .* got inf"),
    ({"durations": np.ones((4, 1))}, "durations: expected an array of 1 dimensions, got 2"),
    ({"durations": ["long"]}, "durations: expected numbers"),
    ({"demands": -FINE["demands"]}, "demands: expected finite numbers"),
    ({"demands": np.ones((4, 3))}, r"demands: expected 4 x 2 numbers, got \(4, 3\)"),
    ({"demands": np.ones((3, 2))}, r"demands: expected 4 x 2 numbers, got \(3, 2\)"),
    ({"capacity": np.array([4.0, 1.0])}, "stage 0 needs 2 of resource 1, whose capacity is 1"),
    ({"capacity": np.array([4.0, 0.0])}, "capacity: expected numbers above 0"),
    ({"capacity": np.array([])}, "at least one stage and one resource"),
    ({"durations": np.array([])}, "at least one stage and one resource"),
    ({"parents": [[], [0], []]}, "parents: expected a sequence of 4 stages, got 3"),
    ({"parents": [[], [4], [], []]}, "stage 1: expected parents from 0 to 3"),
    ({"parents": [[], [-1, 0], [], []]}, "stage 1: expected parents from 0 to 3"),
    ({"parents": [[], ["0"], [], []]}, "parents: expected numbers of stages"),
    ({"parents": [[], [2], [1], []]}, "cycle, which contains stage [12]"),
    ({"parents": [[], [], [2], []]}, "cycle, which contains stage 2"),
    ({"parents": [[1], [2], [3], [2]]}, "cycle, which contains stage [23]"),
    ({"num_tasks": np.array([1, 0, 1, 1])}, "num_tasks: expected 4 whole numbers of at least 1"),
    ({"num_tasks": np.array([1.0, 1.0, 1.0, 1.0])}, "num_tasks: expected 4 whole numbers"),
    ({"num_tasks": np.array([1, 1])}, "num_tasks: expected 4 whole numbers"),
)
def test_what_cannot_be_planned_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    Project(**FINE)
    assert re.search(message, one_line(PlanError, Project, **FINE | change))


#: Tasks of FINE: 0, 1, 1, 2, 3.
START = np.array([0.0, 6.0, 6.0, 2.0, 9.0])


def test_makespans_and_lower_bounds() -> None:
    Plan(Project(**FINE), np.array([0.0, 6.0, 5.0, 2.0, 9.0]))  # 1 and 2 side by side take all there is
    plan = Plan(Project(**FINE), START)
    assert (plan.makespan, plan.priority.tolist()) == (10, [1.0, 0.6, 0.4, 0.8, 0.2])
    # The parent has duration 0 and the larger index.
    assert Plan(project([1, 0], [1, 1], 1, [[1], []]), np.zeros(2)).priority.tolist() == [0.5, 1.0]
    part = Project(**FINE).part(np.array([3, 1]))
    assert (part.parents, part.num_tasks.tolist(), part.durations.tolist()) == (((1,), ()), [1, 2], [1, 3])
    assert part.demands.tolist() == [[4, 1], [2, 0]]
    assert project([2, 3, 4], [1, 1, 1], 3, [[], [0], []]).lower_bound == 5
    assert project([2, 3, 4], [1, 3, 1], 3, [[], [0], []]).lower_bound == 5
    assert project([2, 3, 4], [2, 2, 2], 3).lower_bound == 6
    # Two of the three tasks of the first stage fit side by side: it takes 4.
    assert project([2, 3], [1, 1], 2, [[], [0]], [3, 1]).lower_bound == 7
    assert project([2, 2], [[0, 3], [3, 0]], [3, 3], num_tasks=[1, 4]).lower_bound == 8
    tenths = project([1], [0.1], 0.3, num_tasks=[3])
    assert tenths.alone.tolist() == [1], "three fit side by side, whatever their sum"


@cases(
    "start, message",
    ([0, 6, 6, 2], "expected 5 finite numbers"),
    ([0, 6, 6, 2, np.nan], "expected 5 finite numbers"),
    ([-1, 6, 6, 2, 9], "a task of stage 0 starts before 0"),
    ([0, 6, 1, 2, 9], "stage 1 starts at 1, before its parent 0 ends at 2"),
    ([0, 6, 7, 2, 9], "stage 3 starts at 9, before its parent 1 ends at 10"),
    ([0, 6, 6, 1, 9], "at time 1, tasks hold 4 of resource 1, whose capacity is 2"),
)
def test_what_cannot_be_carried_out_is_no_plan(start: list[float], message: str) -> None:
    assert re.search(message, one_line(PlanError, Plan, Project(**FINE), np.array(start, float)))


def test_rounding_and_tasks_of_no_duration() -> None:
    # Ten demands of a tenth are in parallel, then three durations of 0.1 in sequence.
    tenths = project([0.1, 0.1, 0.1], [0.1] * 3, 1.0, [[], [0], [1]], [10, 10, 10])
    Plan(tenths, np.repeat([0.0, 0.1, 0.2], 10))
    with pytest.raises(PlanError):
        Plan(tenths, np.repeat([0.0, 0.1, 0.1999], 10))
    # A task of duration 0 starts during a task that takes the whole capacity; with a duration, it would not fit.
    start = np.array([0.5, 0.0])
    assert Plan(project([0.0, 1.0], [1.0, 1.0], 1.0), start).makespan == 1.0
    with pytest.raises(PlanError, match=r"at time 0\.5, tasks hold 2 of resource 0"):
        Plan(project([0.1, 1.0], [1.0, 1.0], 1.0), start)


@given(projects())
@settings(deadline=None)
def test_ancestors(project: Project) -> None:
    n = len(project)
    reach = np.zeros((n, n), bool)
    for stage, parents in enumerate(project.parents):
        reach[list(parents), stage] = True
    for middle in range(n):
        reach |= np.outer(reach[:, middle], reach[middle])
    np.testing.assert_array_equal(project.before, reach)
    assert all((np.flatnonzero(project.order == stage) > np.flatnonzero(project.order == parent)).all()
               for stage in range(n) for parent in project.parents[stage])  # fmt: skip
