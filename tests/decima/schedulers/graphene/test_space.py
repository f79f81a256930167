"""Placement of tasks in resources and time: compiled code against plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.schedulers.graphene import Project
from decima.schedulers.graphene.space import list_schedule, mirrored, serial_schedule, surrounded
from tests.decima.schedulers.graphene.examples import project, projects, serial

FORWARD, BACKWARD = 0, 1


@given(projects(whole=True), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_tasks_are_placed_in_the_first_gap(project: Project, random: object) -> None:
    """Tasks of several stages are placed alternately."""
    tasks = list(project.stage_of)
    sequence: list[int] = []
    while tasks:
        ready = [stage for stage in tasks if not set(project.parents[stage]) & set(tasks)]
        sequence.append(random.choice(ready))  # type: ignore[attr-defined]
        tasks.remove(sequence[-1])
    assert serial_schedule(project.dag, np.array(sequence)).tolist() == serial(project, sequence)


def longest_first(project: Project, chosen: set[int]) -> list[int]:
    """Return stages of a set in topological order; among candidates the longest first, on a tie the first."""
    left, order = set(chosen), []
    while left:
        ready = [stage for stage in sorted(left) if not set(project.parents[stage]) & left]
        order.append(max(ready, key=lambda stage: project.durations[stage]))
        left.remove(order[-1])
    return order


@given(projects(whole=True))
@settings(deadline=None)
def test_of_a_set_the_longest_task_comes_first(project: Project) -> None:
    """The whole project is one set, placed forward."""
    sets = np.zeros(len(project), np.int64)
    start = surrounded(project.dag, mirrored(project.dag), sets, np.array([(0, FORWARD)]))
    order = longest_first(project, set(range(len(project))))
    sequence = [stage for stage in order for _ in range(project.num_tasks[stage])]
    assert start.tolist() == serial(project, sequence)


@given(projects(whole=True), st.data())
@settings(deadline=None)
def test_backward_is_forward_in_a_mirror(project: Project, data: st.DataObject) -> None:
    sets = np.array([data.draw(st.integers(0, 2)) for _ in range(len(project))])
    ways = [data.draw(st.integers(0, 1)) for _ in range(3)]
    # A set that goes forward must wait for no later one, nor one that goes backward be waited for; else tasks that
    # are there already would not leave room, in either case alike.
    passes = np.array([(number, way) for number, way in enumerate(ways) if (sets == number).any()])
    turned = passes * [1, -1] + [0, 1]
    mirror = mirrored(project.dag)
    one = surrounded(project.dag, mirror, sets, passes)
    other = surrounded(mirror, project.dag, sets, turned)
    durations = project.durations[project.stage_of]
    end = (one + durations).max()
    np.testing.assert_array_equal(one, end - (other + durations))


def test_sets_lie_close_around_what_is_there() -> None:
    """0 -> 1 -> 2; 3 and 4 have no parents, 3 is short. 1 takes the whole capacity of the one resource."""
    dag = project([1, 5, 2, 1, 3], [1, 4, 2, 3, 2], 4, [[], [0], [1], [], []])
    sets = np.array([1, 0, 2, 3, 4])
    mirror = mirrored(dag.dag)

    def starts(*passes: tuple[int, int]) -> list[float]:
        return [float(time) for time in surrounded(dag.dag, mirror, sets, np.array(passes))]

    nothing = pytest.approx(np.nan, nan_ok=True)
    assert starts((0, FORWARD)) == [nothing, 0, nothing, nothing, nothing]
    assert starts((0, FORWARD), (1, BACKWARD), (2, FORWARD)) == [0, 1, 6, nothing, nothing]
    assert starts((0, BACKWARD), (3, FORWARD), (1, BACKWARD)) == [0, 1, nothing, 6, nothing]
    # 3 fits beside 0, going forward; going backward it comes before it.
    assert starts((0, FORWARD), (1, BACKWARD), (3, FORWARD)) == [0, 1, nothing, 0, nothing]
    assert starts((0, FORWARD), (2, FORWARD), (3, BACKWARD)) == [nothing, 1, 6, 0, nothing]
    # 4 fits beside 2, and ends no later than what is there if it goes backward.
    assert starts((0, FORWARD), (2, FORWARD), (4, FORWARD)) == [nothing, 0, 5, nothing, 5]
    assert starts((0, FORWARD), (2, FORWARD), (4, BACKWARD)) == [nothing, 3, 8, nothing, 0]


def events(project: Project, priority: list[float] | None) -> list[float]:
    """Return the start of each task if the best fitting task starts at each event; by alignment without priorities."""
    stage_of = project.stage_of.tolist()
    start: dict[int, float] = {}
    now = 0.0
    while len(start) < len(stage_of):
        ends = {task: start[task] + project.durations[stage_of[task]] for task in start}
        done = {task for task in ends if ends[task] <= now and (ends[task] > start[task] or start[task] < now)}
        complete = {
            stage
            for stage in range(len(project))
            if all(task in done for task, each in enumerate(stage_of) if each == stage)
        }
        free = project.capacity - sum(
            (project.demands[stage_of[task]] for task in start if task not in done), np.zeros(len(project.capacity))
        )
        able = [
            task
            for task, stage in enumerate(stage_of)
            if task not in start
            and (task == 0 or stage_of[task - 1] != stage or task - 1 in start)
            and set(project.parents[stage]) <= complete
            and (project.demands[stage] <= free).all()
        ]
        if able:
            if priority is None:
                shares = [round(project.demands[stage_of[task]] @ free, 6) for task in able]
            else:
                shares = [priority[task] for task in able]
            start[able[int(np.argmax(shares))]] = now
        else:
            now = min(end for task, end in ends.items() if task not in done)
    return [start[task] for task in range(len(stage_of))]


@given(projects(whole=True), st.data())
@settings(deadline=None)
def test_lists_are_worked_off_event_by_event(project: Project, data: st.DataObject) -> None:
    """All durations are positive, since zero durations would need another clock in plain Python."""
    project = Project(project.durations + 1, project.demands, project.capacity, project.parents, project.num_tasks)
    priority = data.draw(st.lists(st.integers(0, 9), min_size=project.stage_of.size, max_size=project.stage_of.size))
    urgent = np.array(priority, float)
    assert list_schedule(project.dag, urgent, False).tolist() == events(project, priority)
    assert list_schedule(project.dag, urgent, True).tolist() == events(project, None)


def test_tasks_of_no_duration_take_no_time() -> None:
    chain = project([0, 0, 3], [1, 1, 1], 1, [[], [0], [1]], [3, 1, 1])
    assert list_schedule(chain.dag, np.zeros(5), False).tolist() == [0] * 5
    assert serial_schedule(chain.dag, chain.stage_of).tolist() == [0] * 5
