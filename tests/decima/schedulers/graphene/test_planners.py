"""Plans of all planners."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.schedulers.graphene import Plan, Project, critical_path_first, graphene, random_order, tetris
from decima.schedulers.graphene.planner import _parts, troublesome_sets
from tests.cases import cases
from tests.decima.schedulers.graphene.examples import PLANNERS, optimum, project, projects

EVERY = pytest.mark.parametrize("name", PLANNERS)


@EVERY
@given(projects())
@settings(max_examples=25, deadline=None)
def test_plans_can_be_carried_out_and_keep_to_the_bound(name: str, project: Project) -> None:
    plan = PLANNERS[name](project)
    Plan(project, plan.start)  # checked anew, as it was when it was made
    assert plan.makespan >= project.lower_bound * (1 - 1e-9)
    assert plan.start.min() == pytest.approx(0, abs=1e-9 * plan.makespan)
    np.testing.assert_array_equal(plan.start, PLANNERS[name](project).start)


@EVERY
@given(projects(most=5, most_tasks=1, whole=True))
@settings(max_examples=30, deadline=None)
def test_no_plan_beats_the_optimum(name: str, project: Project) -> None:
    best = optimum(project)
    assert project.lower_bound <= best <= PLANNERS[name](project).makespan


@EVERY
@given(projects(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_resources_have_no_order(name: str, project: Project, random: object) -> None:
    order = list(range(len(project.capacity)))
    random.shuffle(order)  # type: ignore[attr-defined]
    other = Project(
        project.durations, project.demands[:, order], project.capacity[order], project.parents, project.num_tasks
    )
    np.testing.assert_array_equal(PLANNERS[name](other).start, PLANNERS[name](project).start)


@EVERY
def test_chains_and_independent_tasks(name: str) -> None:
    chain = project([3, 1, 2], [1, 1, 1], 2, [[1], [], [0]], [1, 3, 2])
    assert PLANNERS[name](chain).start.tolist() == [2, 0, 0, 1, 5, 5]
    assert PLANNERS[name](project([2] * 6, [1] * 6, 3)).makespan == 4
    assert PLANNERS[name](project([2], [1], 3, num_tasks=[6])).start.tolist() == [0, 0, 0, 2, 2, 2]


#: A long task that is at hand, 0, and one behind a short one, 3 behind 2, fit side by side. The short one does not fit
#: beside the long one, and comes second for planners that rank by paths or by sizes.
TROUBLE = project([10, 2, 1, 10], [6, 1, 5, 4], 10, [[], [0], [], [2]])


def test_orders_of_planners() -> None:
    assert critical_path_first(TROUBLE).makespan == 21
    assert tetris(TROUBLE).makespan == 21
    assert optimum(TROUBLE) == 13
    plan = graphene(TROUBLE)
    assert (plan.makespan, plan.start.tolist()) == (13, [1, 11, 0, 1])
    # Stage 0 is longer, but stage 3 waits for stage 1, which is on the longest path.
    assert critical_path_first(project([4, 1, 2, 6], [1] * 4, 1, [[], [], [1], [2]])).start.tolist() == [9, 0, 1, 3]
    # Alignment is in shares of the capacity, and the second resource is scarce.
    plan = tetris(project([1, 1], [[60, 0.1], [50, 0.6]], [100, 1]))
    assert plan.start.tolist() == [1, 0]
    # Three tasks of which two fit in parallel take as long as four would: they pack with three quarters.
    one = project([2, 1], [1, 1], 2, num_tasks=[3, 1])
    assert (one.work.tolist(), one.alone.tolist()) == ([3, 0.5], [4, 1])


def test_random_orders_and_parts() -> None:
    tasks = project([1] * 10, [1] * 10, 1)
    one, same, other = (random_order(tasks, seed).start.tolist() for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert random_order(tasks).start.tolist() == random_order(tasks, 0).start.tolist()
    # The project contains the troublesome case twice, with interleaved stage numbers and a barrier in between.
    twice = project(
        np.repeat(TROUBLE.durations, 2).tolist(),
        np.repeat(TROUBLE.demands[:, 0], 2).tolist(),
        10,
        [[], [2, 6], [0], [2, 6, 1], [], [2, 6], [4], [2, 6, 5]],
    )
    plan = graphene(twice)
    assert (plan.makespan, plan.start.tolist()) == (26, [1, 14, 11, 24, 0, 13, 1, 14])


@given(projects())
@settings(deadline=None)
def test_troublesome_are_long_stages_and_those_that_leave_gaps(project: Project) -> None:
    expected = set()
    longest = max(project.durations)
    for step in range(1, 21):
        for other in range(1, 21):
            chosen = set()
            for stage in range(len(project)):
                long = project.durations[stage] / longest if longest else 1
                packs = project.work[stage] / project.alone[stage] if project.work[stage] else 1
                if long >= step / 20 - 1e-9 or packs <= other / 20 + 1e-9:
                    chosen.add(stage)
            between = {
                stage
                for stage in range(len(project))
                if any(project.before[stage, one] for one in chosen)
                and any(project.before[one, stage] for one in chosen)
            }
            expected.add(frozenset(chosen | between))
    found = [frozenset(np.flatnonzero(each).tolist()) for each in troublesome_sets(project)]
    assert set(found) == expected
    assert len(found) == len(expected), "none twice"


@given(projects())
@settings(deadline=None)
def test_parts_lie_between_barriers(project: Project) -> None:
    """The number of parts is as large as possible."""
    parts = _parts(project)
    assert sorted(np.concatenate(parts)) == list(range(len(project)))
    for number in range(1, len(parts)):
        one, other = np.concatenate(parts[:number]), np.concatenate(parts[number:])
        assert project.before[np.ix_(one, other)].all()
    for part in parts:
        inside = project.before[np.ix_(part, part)]
        order = np.argsort(inside.sum(axis=0), kind="stable")
        for size in range(1, len(part)):
            assert not inside[np.ix_(order[:size], order[size:])].all()


@cases("seed, plain, justified", (7, [62, 49, 57, 45], [61, 49, 56, 45]), (19, [54, 48, 44, 61], [53, 47, 44, 61]))
def test_the_search_is_as_thorough_as_it_was(seed: int, plain: list[int], justified: list[int]) -> None:
    """Makespans of its plans for projects of 20 stages; without a part of the search, some makespans are longer."""
    random, drawn = np.random.default_rng(seed), []
    for _ in plain:
        n = 20
        parents = [random.choice(stage, min(stage, 2), replace=False).tolist() for stage in range(n)]
        durations, demands = random.integers(1, 10, n), random.integers(0, 7, (n, 2))
        drawn.append(project(durations.tolist(), demands.tolist(), [10, 10], parents))
    assert [graphene(one).makespan for one in drawn] == plain
    assert [graphene(one, justified=True).makespan for one in drawn] == justified
