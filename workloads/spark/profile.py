"""Job profiles from measured runs on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.spark.application import SparkQuery
from workloads.spark.dag import without_implied

__all__ = ["common_edges", "match_stages", "on_warm_executors", "same_dag", "to_profile"]


def to_profile(runs: Sequence[SparkQuery], *, name: str | None = None) -> JobProfile:
    """Pool runs of one query into a job profile: durations by wave and by the number of executors held.

    Stages are matched by their operators, numbers of tasks and data edges. A barrier is kept if all runs
    obeyed it: where jobs are submitted at once, one may by chance end before another begins.

    Args:
        runs: at least one.
        name: name of the profile; that of the first run if omitted.

    Raises:
        WorkloadError: no runs, runs whose stages do not match, or a stage of which no task ended.
    """
    if not runs:
        raise WorkloadError("a job profile needs at least one run of the query")
    matchings = [match_stages(runs[0], run) for run in runs]
    columns = ("stage", "wave", "level", "duration_ms")
    tasks = pd.concat(
        [
            run.tasks[[*columns]].assign(stage=run.tasks["stage"].map(places))
            for run, places in zip(runs, matchings, strict=True)
        ]
    )
    places, waves, levels, durations = (tasks[name].to_numpy() for name in columns)
    stages = []
    for place, stage in enumerate(runs[0].stages):
        here = places == place
        if not here.any():
            raise WorkloadError(f"{runs[0].name}: no task of stage {stage.stage_id} ended")
        of_waves = (here & (waves == wave) for wave in Wave)
        tables = (_by_level(levels[rows], durations[rows]) for rows in of_waves)
        stages.append(StageProfile(stage.num_tasks, TaskDurations.from_tables(*tables), stage.name))
    edges = common_edges(runs, matchings)
    return JobProfile(runs[0].name if name is None else name, tuple(stages), edges)


def on_warm_executors(profile: JobProfile) -> JobProfile:
    """Return the same job where its executors need no new JVM: no task takes as long as a fresh executor's.

    At a level where only fresh executors were measured, nothing better is known: these durations stay, as first ones.
    """
    return replace(profile, stages=tuple(map(_warm, profile.stages)))


def _warm(stage: StageProfile) -> StageProfile:
    fresh, first, rest = (stage.durations.table(wave) for wave in Wave)
    first = {level: each if each.size or rest[level].size else fresh[level] for level, each in first.items()}
    known = ({level: each.tolist() for level, each in table.items() if each.size} for table in (first, rest))
    return replace(stage, durations=TaskDurations.from_tables({}, *known, mean_ms=stage.durations.mean_ms))


def _by_level(levels: NDArray[np.int64], durations: NDArray[np.float64]) -> dict[int, list[float]]:
    return {int(level): durations[levels == level].tolist() for level in np.unique(levels)}


def match_stages(model: SparkQuery, run: SparkQuery, *, same_tasks: bool = True) -> dict[int, int]:
    """The place in ``model`` of each stage of ``run``.

    Args:
        model: one run of the query.
        run: another.
        same_tasks: stages that match have equally many tasks; not so where the runs read different data.

    Raises:
        WorkloadError: the runs have different DAGs.
    """
    ours, theirs = _data_graph(run, same_tasks), _data_graph(model, same_tasks)
    if ours.nodes.data() == theirs.nodes.data() and ours.edges == theirs.edges:
        return {place: place for place in theirs}
    # Jobs that are submitted at the same time (broadcasts) number their RDDs as it happens.
    matching: dict[int, int] | None = nx.vf2pp_isomorphism(ours, theirs, node_label="shape")
    if matching is None:
        raise WorkloadError(
            f"{run.name} of {run.application_id} has another DAG than {model.name} of {model.application_id}"
        )
    return matching


def same_dag(one: SparkQuery, other: SparkQuery, *, same_tasks: bool = True) -> bool:
    """Whether `match_stages` can match two runs."""
    try:
        match_stages(one, other, same_tasks=same_tasks)
    except WorkloadError:
        return False
    return True


def _data_graph(query: SparkQuery, with_tasks: bool) -> nx.DiGraph[int]:
    """Shuffle and reused edges, without the barriers, which depend on timing."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    for place, stage in enumerate(query.stages):
        graph.add_node(place, shape=(stage.name, stage.num_tasks if with_tasks else None))
    graph.add_edges_from([*query.dag.shuffle_edges.tolist(), *query.dag.reused_edges.tolist()])
    return graph


def common_edges(runs: Sequence[SparkQuery], matchings: Sequence[dict[int, int]]) -> NDArray[np.int64]:
    """The data edges, and those barriers that hold in every run, as places in the first.

    Args:
        runs: of one query, at least one.
        matchings: of each run, what `match_stages` gave with the first as the model.

    Returns:
        int64 [num_edges, 2], (parent, child), ascending.
    """
    graphs: list[nx.DiGraph[int]] = []
    barriers: set[tuple[int, int]] = set()
    for run, places in zip(runs, matchings, strict=True):
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(places.values())
        graph.add_edges_from((places[parent], places[child]) for parent, child in run.edges.tolist())
        graphs.append(graph)
        barriers |= {(places[parent], places[child]) for parent, child in run.dag.barrier_edges.tolist()}
    obeyed = {edge for edge in barriers if all(nx.has_path(graph, *edge) for graph in graphs)}
    shuffle = {(parent, child) for parent, child in runs[0].dag.shuffle_edges.tolist()}
    reused = {(parent, child) for parent, child in runs[0].dag.reused_edges.tolist()}
    edges = sorted(without_implied(shuffle, reused | obeyed))
    return np.array(edges, dtype=np.int64).reshape(-1, 2)
