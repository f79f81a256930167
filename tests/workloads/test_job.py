"""Jobs, stages and durations: derived values, and invalid arguments."""

import re
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cases import cases
from tests.refusal import one_line
from tests.workloads.strategies import job_profiles
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.sources.workload_writer import describe_stages

SECOND = TaskDurations.constant(1000.0)


def job(works_s: list[int], edges: list[tuple[int, int]]) -> JobProfile:
    """Return a job whose stages have these numbers of tasks of one second."""
    return JobProfile("job", tuple(StageProfile(work, SECOND) for work in works_s), np.array(edges))


def tables(durations: TaskDurations) -> list[dict[int, list[float]]]:
    return [{level: cell.tolist() for level, cell in durations.table(wave).items()} for wave in Wave]


def test_constants_by_wave() -> None:
    durations = TaskDurations.constant(1.0, first_ms=2.0, fresh_ms=6.0)
    assert tables(durations) == [{1: [6.0]}, {1: [2.0]}, {1: [1.0]}]
    assert durations.mean_ms == 1.0
    assert not durations.mean_is_known
    assert TaskDurations.constant(1.0).mean_is_known
    assert durations.spread == (1.0, 6.0)
    # Traces have many stages with few different durations.
    assert TaskDurations.constant(7.0) is TaskDurations.constant(7.0)
    assert TaskDurations.constant(7.0) is TaskDurations.constant(7.0, first_ms=7.0)
    assert TaskDurations.constant(7.0) is not TaskDurations.constant(7.0, fresh_ms=8.0)
    assert tables(TaskDurations.constant(1.0)) == [{1: [1.0]}] * 3
    assert tables(TaskDurations.constant(1.0, first_ms=2.0)) == [{1: [2.0]}, {1: [2.0]}, {1: [1.0]}]
    assert tables(TaskDurations.constant(1.0, fresh_ms=2.0)) == [{1: [2.0]}, {1: [1.0]}, {1: [1.0]}]


def test_samples_and_tables() -> None:
    durations = TaskDurations.sampled([1, 2, 6])
    assert tables(durations) == [{1: [1, 2, 6]}] * 3
    assert (durations.values.size, durations.mean_ms) == (3, 3.0)
    durations = TaskDurations.from_tables({10: [9]}, {}, {5: [1, 2], 10: [3]})
    assert tables(durations) == [{5: [], 10: [9]}, {5: [], 10: []}, {5: [1, 2], 10: [3]}]
    assert durations.mean_ms == (1.5 + 3) / 2
    assert TaskDurations.from_tables({10: [9]}, {5: [4], 10: [5]}, {}).mean_ms == (4 + 5) / 2
    assert TaskDurations.from_tables({10: [9]}, {}, {5: [1, 2] * 3, 10: [3] * 5}).mean_ms == (1.5 + 3) / 2
    assert TaskDurations.from_tables({}, {}, {5: [1]}, mean_ms=7).mean_ms == 7
    for mean_ms in (-1.0, np.inf):
        with pytest.raises(WorkloadError, match="the mean task duration must be between 0 and 1e\\+13 ms"):
            TaskDurations.from_tables({}, {}, {5: [1]}, mean_ms=mean_ms)
    with pytest.raises(WorkloadError, match=r"a level of rest must be a whole number, got 5\.5"):
        TaskDurations.from_tables({}, {}, {5.5: [1]})  # type: ignore[dict-item]
    values = np.array([1.0, 2.0])
    durations = TaskDurations.sampled(values)
    values[0] = 5.0
    assert durations.values.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        durations.values[0] = 5.0
    assert StageProfile(3, TaskDurations.sampled([1, 2])).work_ms == 4.5


@cases(
    "levels, values, cells, message",
    ([], [1], np.zeros((3, 0, 2)), r"levels must be ascending and at least 1, got \[\]"),
    ([0], [1], [[[0, 1]]] * 3, r"levels must be ascending and at least 1, got \[0\]"),
    ([5, 5], [1], [[[0, 1]] * 2] * 3, "levels must be ascending"),
    ([10, 5], [1], [[[0, 1]] * 2] * 3, "levels must be ascending"),
    ([5.5], [1], [[[0, 1]]] * 3, "levels must be an array of int64, got float64"),
    ([[5]], [1], [[[0, 1]]] * 3, "levels must be ascending"),
    (["5"], [1], [[[0, 1]]] * 3, "levels must be an array of int64"),
    ([5], [], [[[0, 0]]] * 3, "at least one task duration"),
    ([5], [[1]], [[[0, 1]]] * 3, "at least one task duration"),
    ([5], [-1], [[[0, 1]]] * 3, "a task duration must be between 0 and 1e\\+13 ms, got -1.0"),
    ([5], [1, np.nan], [[[0, 1]]] * 3, "a task duration must be between 0 and 1e\\+13 ms, got nan"),
    ([5], [np.inf], [[[0, 1]]] * 3, "a task duration must be between 0 and 1e\\+13 ms, got inf"),
    ([5], ["1"], [[[0, 1]]] * 3, "durations must be an array of float64"),
    ([5], [None], [[[0, 1]]] * 3, "durations must be an array of float64"),
    ([5], [True], [[[0, 1]]] * 3, "durations must be an array of float64, got bool"),
    ([5], [10**400], [[[0, 1]]] * 3, "durations must be an array of numbers"),
    ([5], [1], [[[0, 1]]], r"cells must have shape \(3, 1, 2\), got \(1, 1, 2\)"),
    ([5], [1], [[[0, 2]]] * 3, "a cell lies outside the 1 durations"),
    ([5], [1], [[[-1, 1]]] * 3, "a cell lies outside the 1 durations"),
    ([5], [1], [[[1, 0]]] * 3, "a cell lies outside the 1 durations"),
    ([5, 10], [1], [[[0, 1], [0, 0]]] * 3, "no durations in any wave at parallelism level 10"),
    ([5], [1e308, 1e308], [[[0, 2]]] * 3, "a task duration must be between 0 and .*, got 1e.308"),
)
def test_impossible_durations(levels: Any, values: Any, cells: Any, message: str) -> None:
    assert re.search(message, one_line(WorkloadError, TaskDurations, levels, values, cells))


@cases(
    "arguments, message",
    ({"num_tasks": 0}, "must be a whole number of 1 to 200,000,000, got 0"),
    ({"num_tasks": 2.0}, "must be a whole number of 1 to 200,000,000, got 2.0"),
    ({"num_tasks": True}, "must be a whole number of 1 to 200,000,000, got True"),
    ({"cpu": -1}, "the cpu demand must be finite and not negative, got -1"),
    ({"memory": float("nan")}, "the memory demand must be finite and not negative, got nan"),
    ({"input_bytes": -1}, "input_bytes must be a whole number of 0 to 1,000,000,000,000,000,000, got -1"),
    ({"input_rows": float("nan")}, "input_rows must be a whole number of 0 to .*, got nan"),
    ({"shuffle_bytes": 10**18 + 1}, "shuffle_bytes must be a whole number of 0 to .*, got 1000000000000000001"),
    ({"operators": "Scan"}, "operators must be several of the type str, got 'Scan'"),
    ({"operators": ["Sort", 1]}, r"operators\[1\] must be of the type str, got 1"),
    ({"operators": ["Sort"] * 65}, "operators: expected at most 64 names, got 65"),
    ({"operators": ["Sort", ""]}, r"operators\[1\]: expected 1 to 100 printable characters, got ''"),
    ({"operators": ["a" * 101]}, r"operators\[0\]: expected 1 to 100 printable characters, got 'aaa"),
    ({"operators": ["Sort\n"]}, r"operators\[0\]: expected 1 to 100 printable characters, got .Sort.+n'"),
)
def test_impossible_stages(arguments: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"num_tasks": 1, "durations": SECOND}
    with pytest.raises(WorkloadError, match=message):
        StageProfile(**valid | arguments)


def test_stages_are_ranked_by_stages_of_the_path_then_time_then_work_then_tasks_then_number() -> None:
    tasks_and_seconds = [(1, 1), (2, 1), (1, 1), (2, 2), (3, 1), (2, 2), (2, 2), (1, 1), (1, 9), (4, 1), (2, 2)]
    profile = JobProfile(
        "job",
        tuple(StageProfile(tasks, TaskDurations.constant(1000.0 * s)) for tasks, s in tasks_and_seconds),
        np.array([(0, 1), (1, 2), (4, 7)]),
    )
    #                                           path: 3 stages, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1
    assert (profile.height_ms / 1000).tolist() == [3, 2, 1, 2, 2, 2, 2, 1, 9, 1, 2]
    assert (profile.critical_path_ms / 1000).tolist() == [4, 3, 1, 4, 4, 4, 4, 1, 9, 4, 4]
    assert profile.path_rank.tolist() == [0, 2, 9, 4, 1, 5, 6, 10, 3, 8, 7]


@given(job_profiles(), st.randoms(use_true_random=False))
def test_the_ranks_of_different_stages_do_not_depend_on_their_numbers(profile: JobProfile, random: Random) -> None:
    order = list(range(profile.num_stages))
    random.shuffle(order)
    number = {stage: place for place, stage in enumerate(order)}
    edges = np.array([(number[parent], number[child]) for parent, child in profile.edges.tolist()], dtype=np.int64)
    renumbered = JobProfile(profile.name, tuple(profile.stages[stage] for stage in order), edges)
    one, other = (
        [
            (each.height_ms[stage], each.critical_path_ms[stage], each.stages[stage].num_tasks)
            for stage in np.argsort(each.path_rank)
        ]
        for each in (profile, renumbered)
    )
    assert one == other


def test_the_graph_of_a_job() -> None:
    diamond = job([1, 2, 3, 4], [(0, 2), (0, 1), (2, 3), (1, 3)])
    assert (diamond.parents, diamond.children) == (((), (0,), (0,), (1, 2)), ((1, 2), (3,), (3,), ()))
    assert (diamond.num_stages, diamond.num_tasks, diamond.work_ms) == (4, 10, 10_000.0)
    with pytest.raises(WorkloadError, match="at least one stage"):
        JobProfile("job", ())


@given(job_profiles())
def test_a_job_survives_networkx(profile: JobProfile) -> None:
    graph = profile.to_networkx()
    entries = list(describe_stages(profile))  # plain numbers, lists and dicts, as in a workload file
    plain = nx.DiGraph(name=profile.name)
    for number, entry in enumerate(entries):
        plain.add_node(number, **{key: value for key, value in entry.items() if key != "parents"})
    plain.add_edges_from(graph.edges)
    for again in (JobProfile.from_networkx(graph), JobProfile.from_networkx(plain)):
        assert (again.name, again.parents) == (profile.name, profile.parents)
        assert list(describe_stages(again)) == entries
    assert nx.utils.graphs_equal(JobProfile.from_networkx(graph).to_networkx(), graph)
    assert JobProfile.from_networkx(graph, name="another").name == "another"


def test_a_graph_with_named_nodes_is_a_job() -> None:
    graph = nx.DiGraph([("scan", "join"), ("lookup", "join")])
    graph.add_node("join", tasks=np.int64(20), duration_ms={"fresh": {"5": [9], 10: (8, 8)}, "rest": 3}, cpu=2)
    graph.add_node("lookup", tasks=8, duration_ms=1500)
    graph.add_node(
        "scan",
        tasks=400,
        duration_ms=np.array([400.0, 700.0]),
        name="read",
        memory=0.5,
        input_bytes=7,
        operators=["Scan"],
    )
    profile = JobProfile.from_networkx(graph)
    assert [stage.name for stage in profile.stages] == ["read", "join", "lookup"]
    assert (profile.name, profile.parents) == ("", ((), (0, 2), ()))
    scan, join, lookup = profile.stages
    assert [(stage.num_tasks, stage.cpu, stage.memory) for stage in profile.stages] == [
        (400, 1.0, 0.5),
        (20, 2, 0.0),
        (8, 1.0, 0.0),
    ]
    assert [(stage.input_bytes, stage.input_rows, stage.operators) for stage in profile.stages] == [
        (7, None, ("Scan",)),
        (None, None, ()),
        (None, None, ()),
    ]
    assert tables(scan.durations) == [{1: [400, 700]}] * 3
    assert tables(join.durations) == [{5: [9], 10: [8, 8]}, {5: [], 10: []}, {5: [3], 10: [3]}]
    assert lookup.durations is TaskDurations.constant(1500.0)


TASK = {"tasks": 1, "duration_ms": 1}


@cases(
    "nodes, edges, message",
    ({}, [], "a job needs at least one stage"),
    ({"a": TASK, "b": {"tasks": 1}}, [], "node 'b': the attribute 'duration_ms' is required"),
    ({"a": TASK}, ["ab"], "node 'b': the attribute 'tasks' is required"),
    ({7: TASK | {"task": 2}}, [], r"node 7: an attribute must be .*, got 'task' \(did you mean 'tasks'\?\)"),
    ({"a": TASK | {"tasks": 0}}, [], "node 'a': the number of tasks must be a whole number of 1 to .*, got 0"),
    ({"a": TASK | {"cpu": "2"}}, [], "node 'a': the cpu demand must be a number, got '2'"),
    ({"a": TASK | {"name": 3}}, [], "node 'a': name must be of the type str, got 3"),
    ({"a": TASK | {"duration_ms": -1}}, [], "node 'a': a task duration must be between 0 and .*, got -1"),
    ({"a": TASK | {"duration_ms": True}}, [], "node 'a': a task duration must be a number, got True"),
    ({"a": TASK | {"duration_ms": "5"}}, [], "node 'a': durations must be an array of float64"),
    ({"a": TASK | {"duration_ms": {"last": 1}}}, [], "node 'a': a key of the durations must be .*, got 'last'"),
    ({"a": TASK | {"duration_ms": {"mean_ms": 1}}}, [], "node 'a': expected measurements of at least one wave"),
    ({"a": TASK | {"duration_ms": {"rest": {"x": [1]}}}}, [], "node 'a': a level of rest must be a whole number"),
    ({"a": TASK, "b": TASK}, ["ab", "ba"], "the nodes form a cycle: 'a' -> 'b' -> 'a'"),
    ({"a": TASK}, ["aa"], "the nodes form a cycle: 'a' -> 'a'"),
)
def test_impossible_graphs(nodes: dict[Any, dict[str, Any]], edges: list[str], message: str) -> None:
    graph = nx.DiGraph(map(tuple, edges))
    for node, attributes in nodes.items():
        graph.add_node(node, **attributes)
    assert re.fullmatch(f"{message}.*", one_line(WorkloadError, JobProfile.from_networkx, graph))


def test_an_undirected_graph_is_no_job() -> None:
    assert "graph must be of the type DiGraph" in one_line(WorkloadError, JobProfile.from_networkx, nx.Graph())


@given(job_profiles())
def test_critical_paths_are_the_longest_paths(profile: JobProfile) -> None:
    for found, lengths in (
        (profile.critical_path_ms, [stage.work_ms for stage in profile.stages]),
        (profile.height_ms, [stage.durations.mean_ms for stage in profile.stages]),
    ):
        graph: nx.DiGraph = nx.DiGraph()
        graph.add_node("end")
        for stage in range(profile.num_stages):
            for other in (*profile.children[stage], "end"):
                graph.add_edge(stage, other, weight=lengths[stage])
        for stage in range(profile.num_stages):
            reached = graph.subgraph(nx.descendants(graph, stage) | {stage})
            assert found[stage] == pytest.approx(nx.dag_longest_path_length(reached))


@cases(
    "edges, message",
    ([(0, 1), (1, 2), (2, 0)], "the stages form a cycle: 0 -> 1 -> 2"),
    ([(1, 1)], "the stages form a cycle: 1"),
    ([(0, 1), (0, 1)], "the same edge is given twice"),
    ([(0, 3)], "edge 0 -> 3 leaves the 3 stages"),
    ([(-1, 0)], "edge -1 -> 0 leaves the 3 stages"),
    ([0, 1], r"edges must have shape \(number of edges, 2\), got \(2,\)"),
    ([(0, 1, 2)], r"edges must have shape \(number of edges, 2\), got \(1, 3\)"),
    ([(0, 0.5)], "edges must be an array of int64, got float64"),
    ([(0, float("nan"))], "edges must be an array of int64, got float64"),
    ([(0, 2**63)], "edges must be an array of int64"),
    ([("0", "1")], "edges must be an array of int64"),
    ([(0, 1), (2,)], "edges must be an array of numbers"),
)
def test_impossible_dags(edges: Any, message: str) -> None:
    assert re.search(message, one_line(WorkloadError, JobProfile, "job", (StageProfile(1, SECOND),) * 3, edges))
