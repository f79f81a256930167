"""Jobs from networkx graphs, and graphs from jobs; networkx is slow to import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np

from workloads.errors import WorkloadError, check_instance, check_one_of
from workloads.job import JobProfile, StageProfile, TaskDurations

__all__ = ["from_networkx", "to_networkx"]

#: Optional attributes of a node that a stage may lack, besides its demands and its name.
_READ = ("input_bytes", "input_rows", "shuffle_bytes", "operators")


def from_networkx(graph: nx.DiGraph[Any], name: str | None = None) -> JobProfile:
    """Build a job from a graph, see ``JobProfile.from_networkx``."""
    check_instance(graph, nx.DiGraph, "graph", WorkloadError)
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        raise WorkloadError(f"the nodes form a cycle: {' -> '.join(map(repr, [*cycle, cycle[0]]))}")
    stages = []
    for node, attributes in graph.nodes(data=True):
        try:
            stages.append(_stage_of(node, attributes))
        except WorkloadError as error:
            raise WorkloadError(f"node {node!r:.60}: {error}") from None
    index = {node: stage for stage, node in enumerate(graph)}
    edges = [(index[edge[0]], index[edge[1]]) for edge in graph.edges]
    return JobProfile(graph.name if name is None else name, tuple(stages), np.array(edges, dtype=np.int64))


def to_networkx(job: JobProfile) -> nx.DiGraph[int]:
    """Return the DAG of a job as a graph, see ``JobProfile.to_networkx``."""
    graph: nx.DiGraph[int] = nx.DiGraph(name=job.name)
    for index, stage in enumerate(job.stages):
        graph.add_node(
            index,
            name=stage.name,
            tasks=stage.num_tasks,
            duration_ms=stage.durations,
            cpu=stage.cpu,
            memory=stage.memory,
            **{key: value for key in _READ if (value := getattr(stage, key)) not in (None, ())},
        )
    graph.add_edges_from(job.edges.tolist())
    return graph


def _stage_of(node: Any, attributes: Mapping[str, Any]) -> StageProfile:
    """Return the stage that the attributes of a node describe."""
    for key in attributes:
        check_one_of(
            key, ("tasks", "duration_ms", "name", "cpu", "memory", *_READ), "an attribute", WorkloadError
        )
    for key in ("tasks", "duration_ms"):
        if key not in attributes:
            raise WorkloadError(f"the attribute {key!r} is required")
    return StageProfile(
        attributes["tasks"],
        TaskDurations.parse(attributes["duration_ms"]),
        attributes.get("name", node if isinstance(node, str) else ""),
        attributes.get("cpu", 1.0),
        attributes.get("memory", 0.0),
        **{key: attributes[key] for key in _READ if key in attributes},
    )
