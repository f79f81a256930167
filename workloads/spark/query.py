"""Queries of Spark: the DAG of a query's stages over all its Spark jobs, its measured tasks, and its runs.

There are three kinds of edges. *Shuffle*: a stage reads shuffle files of another stage that ran in the query. *Reused*:
Spark skipped the parent, as an earlier stage had left the same shuffle files; the edge starts at that stage.
*Barrier*: the driver submitted a job only after an earlier job of the query had returned its result (a broadcast, a
scalar subquery, the sampling of a range partitioning).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workloads.job import WorkloadError
from workloads.spark.reader import SparkJob, SparkStage

__all__ = [
    "TASK_COLUMNS", "QueryRuns", "SparkQuery", "StageDag", "add_run", "alike", "matched", "stage_dag",
    "stage_graph", "stages_by_output", "without_implied",
]  # fmt: skip

_Edge = tuple[int, int]

#: Columns of `SparkQuery.tasks`.
TASK_COLUMNS = (
    "stage", "partition", "executor", "slot", "launch_ms", "duration_ms", "wave", "level", "run_ms", "cpu_ms",
    "input_bytes", "input_rows", "shuffle_read_bytes", "shuffle_write_bytes",
)  # fmt: skip
#: Bytes of a megabyte (MB).
BYTES_PER_MB = 1e6


@dataclass(frozen=True, eq=False)
class StageDag:
    """DAG of one query: stages, ordered by their last RDD, and edges, (parent, child) indices in that order.

    Args:
        stage_ids: Spark's numbers of the stages.
        edges: int64 [num_edges, 2], all shuffle edges, and other edges unless a longer path implies them.
        shuffle_edges: int64 [n, 2], shuffle edges.
        reused_edges: int64 [n, 2], reused edges, including those that a longer path implies.
        barrier_edges: int64 [n, 2], barrier edges, including those that a longer path implies.
        num_outside: number of parents that ran in another query of the application, or are not in the log.
    """

    stage_ids: tuple[int, ...]
    edges: NDArray[np.int64]
    shuffle_edges: NDArray[np.int64]
    reused_edges: NDArray[np.int64]
    barrier_edges: NDArray[np.int64]
    num_outside: int = 0


@dataclass(frozen=True, eq=False)
class SparkQuery:
    """One run of a query. Times are ms since the epoch.

    A task is one row, for its first successful run. It lasts from its launch by the driver until the driver learns of
    its end. An executor with k slots counts as k executors. The wave of a task depends on everything that its executor
    ran before in the application, including failed runs.

    Args:
        name: description given by the application, else the call site, see `workloads.spark.names`.
        application_id: id of the application that ran the query.
        stages: stages that ran, ordered by their last RDD; parents come before their children.
        dag: edges between the stages.
        tasks: table with a row per task, in order of launch:

            ============================ ======== ==================================================
            stage                        int64    index in ``stages``
            partition                    int64    number of the task in the stage
            executor                     int64    index in the application's ``executors``
            slot                         int64    slot of the executor, from 0
            launch_ms, duration_ms       float64  start (since the epoch), and launch to finish
            wave                         int64    `workloads.Wave`
            level                        int64    executors that the application held at the start
            run_ms, cpu_ms               float64  time in the task's code; CPU time, with deserialization
            input_bytes, input_rows      int64    read from storage
            shuffle_read_bytes           int64    read from other stages
            shuffle_write_bytes          int64    written for other stages
            ============================ ======== ==================================================
        start_ms: start of the SQL execution, or submission of the job.
        submitted_ms: submission of the first job.
        last_job_end_ms: end of the last job.
        end_ms: end of the SQL execution or job; NaN if it is not in the log.
        num_jobs: number of Spark jobs.
        num_skipped: number of stages that the jobs listed and that did not run.
        complete: whether the query ended with success; else only the part that ran is known.
        plan: operators of its first physical plan, each before its children; empty outside of SQL.
        pool: pool of Spark's FAIR scheduler of the first job that named one; empty if none did.
        group: job group of the first job that the application put into one; empty if there is none.
        num_runs: number of attempts of its tasks that ended by themselves, with success or not.
        num_failures: number of these attempts that failed.
        size_gb: size of all its input, GB; only the ratio between runs of a query matters.
        split_mb: largest input of a scan task, MB; NaN if unknown.
        shuffle_partitions: number of tasks of a stage that reads shuffles; 0 if unknown.
    """

    name: str
    application_id: str
    stages: tuple[SparkStage, ...]
    dag: StageDag
    tasks: pd.DataFrame
    start_ms: float
    submitted_ms: float
    last_job_end_ms: float
    end_ms: float
    num_jobs: int
    num_skipped: int
    complete: bool
    plan: tuple[str, ...] = ()
    pool: str = ""
    group: str = ""
    num_runs: int = 0
    num_failures: int = 0
    size_gb: float = 1.0
    split_mb: float = float("nan")
    shuffle_partitions: int = 0

    @property
    def edges(self) -> NDArray[np.int64]:
        """All edges, int64 [num_edges, 2], (parent, child) indices in ``stages``."""
        return self.dag.edges

    @property
    def wall_ms(self) -> float:
        """Time of the query, ms, including the driver's planning before its first job."""
        return self.end_ms - self.start_ms

    @property
    def ended_ms(self) -> float:
        """End of the query, ms since the epoch; if it did not end, the end of its last finished task."""
        if np.isfinite(self.end_ms):
            return self.end_ms
        return float((self.tasks["launch_ms"] + self.tasks["duration_ms"]).max())

    @property
    def span_ms(self) -> float:
        """Time from the submission of the first job to the end of the last job, ms."""
        return self.last_job_end_ms - self.submitted_ms

    @property
    def submission_lag_ms(self) -> NDArray[np.float64]:
        """Delay by the driver before each stage, float64 [num_stages], ms.

        The delay lasts from the end of the last parent, or the submission of the first job, to the stage's submission:
        planning of jobs, broadcasts, start of stages. A list schedule of the tasks lacks it.
        """
        ready = np.full(len(self.stages), self.submitted_ms)
        for parent, child in self.edges.tolist():
            ready[child] = max(ready[child], self.stages[parent].completed_ms)
        lag: NDArray[np.float64] = np.array([stage.submitted_ms for stage in self.stages]) - ready
        return lag.clip(min=0.0)

    @property
    def driver_lag_ms(self) -> float:
        """Sum of the driver's delays along the path of stages with the largest sum, ms."""
        lag_ms = self.submission_lag_ms
        until = lag_ms.copy()
        # Spark numbers a stage after its parents.
        for parent, child in sorted(self.edges.tolist(), key=lambda edge: self.stages[edge[1]].stage_id):
            until[child] = max(until[child], until[parent] + lag_ms[child])
        finite = until[np.isfinite(until)]
        return float(finite.max()) if finite.size else 0.0

    @property
    def planning_ms(self) -> float:
        """Time from the start of the query to the submission of its first job, ms."""
        return max(self.submitted_ms - self.start_ms, 0.0)

    @property
    def result_ms(self) -> float:
        """Time from the end of the last job to the end of the query, ms; 0 if it did not end."""
        return max(self.end_ms - self.last_job_end_ms, 0.0) if self.end_ms == self.end_ms else 0.0


# DAG of one run


def stages_by_output(stages: Iterable[SparkStage]) -> dict[int, list[int]]:
    """Return the ids of stages, ascending, by the number of their last RDD."""
    by_output: dict[int, list[int]] = {}
    for stage in sorted(stages, key=lambda stage: stage.stage_id):
        by_output.setdefault(stage.rdd, []).append(stage.stage_id)
    return by_output


def stage_dag(
    jobs: Sequence[SparkJob],
    stages: Mapping[int, SparkStage],
    ran: frozenset[int],
    outputs: Mapping[int, Sequence[int]],
) -> StageDag:
    """Build the DAG of one query.

    Args:
        stages: all stages of the application by id.
        ran: stages of the query that ran and had tasks.
        outputs: `stages_by_output` for all stages of the application that ran.

    Raises:
        WorkloadError: the edges form a cycle, so that the log must be wrong.
    """
    shuffle: set[_Edge] = set()
    reused: set[_Edge] = set()
    num_outside = 0
    for child in ran:
        for parent in _parents(stages[child], stages):
            source = _source(parent, stages, outputs)
            if parent.stage_id in ran:
                shuffle.add((parent.stage_id, child))
            elif source is not None and source in ran:
                reused.add((source, child))
            else:
                num_outside += 1
    barrier = set(_barriers(jobs, stages, ran))
    # RDDs are numbered in the order in which the driver creates them. These numbers, unlike those of stages, are the
    # same in every run of a query, and ascend along the edges.
    order = tuple(sorted(ran, key=lambda stage: (stages[stage].rdd, stage)))
    index_of = {stage: index for index, stage in enumerate(order)}
    kinds = (without_implied(shuffle, reused | barrier), shuffle, reused, barrier)
    return _renumbered(order, index_of, kinds, num_outside)


def _renumbered(
    order: Iterable[int], place: Mapping[int, int], kinds: Sequence[Iterable[_Edge]], num_outside: int
) -> StageDag:
    """Build the DAG of stages in a given order; ``kinds`` are all, shuffle, reused and barrier edges."""
    edges, shuffle, reused, barrier = (
        np.array(sorted((place[parent], place[child]) for parent, child in kind), np.int64).reshape(-1, 2)
        for kind in kinds
    )
    return StageDag(tuple(order), edges, shuffle, reused, barrier, num_outside)


def without_implied(shuffle: set[_Edge], others: set[_Edge]) -> set[_Edge]:
    """Return all shuffle edges, and the other edges that are not implied by a longer path.

    Raises:
        WorkloadError: the edges form a cycle, so that the log must be wrong.
    """
    try:
        needed = nx.transitive_reduction(nx.DiGraph([*shuffle, *others])).edges
    except nx.NetworkXError:
        raise WorkloadError("the stages form a cycle") from None
    return shuffle | {edge for edge in others if edge in needed}


def _parents(stage: SparkStage, stages: Mapping[int, SparkStage]) -> Iterator[SparkStage]:
    """Yield the parents of a stage. A parent without tasks (an empty RDD) is replaced by its own parents."""
    for stage_id in stage.parents:
        parent = stages.get(stage_id)
        if parent is None:
            continue
        if parent.num_tasks:
            yield parent
        else:
            yield from _parents(parent, stages)


def _source(
    skipped: SparkStage, stages: Mapping[int, SparkStage], outputs: Mapping[int, Sequence[int]]
) -> int | None:
    """Return the latest earlier stage with the same RDD as a skipped stage, preferably one that wrote a shuffle."""
    earlier = [stage for stage in outputs.get(skipped.rdd, ()) if stage < skipped.stage_id]
    writers = [stage for stage in earlier if stages[stage].writes_shuffle]
    return max(writers or earlier, default=None)


def _barriers(
    jobs: Sequence[SparkJob], stages: Mapping[int, SparkStage], ran: frozenset[int]
) -> Iterator[_Edge]:
    """Yield edges from the last stage of a job to the first stages of jobs that waited for this job.

    A job waits for the jobs that ended before it was submitted, unless another such job lies between them. A job that
    only writes a shuffle (adaptive execution submits each stage as one) returns nothing to the driver.
    """
    of_job = _own_stages(jobs, ran)
    returning = [
        (job, max(job.stage_ids))
        for job in jobs
        if job.stage_ids and max(job.stage_ids) in ran and not stages[max(job.stage_ids)].writes_shuffle
    ]
    for later in jobs:
        before = [(job, last) for job, last in returning if job.ended_ms <= later.submitted_ms]
        latest_start = max((job.submitted_ms for job, _ in before), default=0.0)
        first = [
            stage for stage in of_job[later.job_id] if not of_job[later.job_id] & set(stages[stage].parents)
        ]
        yield from ((last, stage) for job, last in before if job.ended_ms > latest_start for stage in first)


def _own_stages(jobs: Sequence[SparkJob], ran: frozenset[int]) -> dict[int, set[int]]:
    """Return the stages that ran, by the first job that listed them."""
    of_job: dict[int, set[int]] = {}
    taken: set[int] = set()
    for job in sorted(jobs, key=lambda job: job.job_id):
        of_job[job.job_id] = (set(job.stage_ids) & ran) - taken
        taken |= of_job[job.job_id]
    return of_job


# Runs of one query


@dataclass(frozen=True, eq=False)
class QueryRuns:
    """Runs of one query with matched stages: an index means the same stage in all runs.

    Args:
        runs: at least one run, as returned by `matched` and `alike`.
    """

    runs: tuple[SparkQuery, ...]

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """Table with a row per task of all runs.

        ====================== ======== ============================================================
        run                    int64    index in ``runs``
        stage, partition       int64    index of the stage; number of the task in the stage
        wave                   int64    `workloads.Wave`
        level                  int64    executors that the application held
        duration_ms            float64  launch to finish
        input_mb, shuffle_mb   float64  read from storage and from other stages
        input_rows             int64    read from storage
        size_gb                float64  input size of the run
        num_tasks              int64    tasks of the stage in the run
        reads_shuffle          bool     whether the stage reads shuffle files of other stages
        ====================== ======== ============================================================
        """
        return pd.concat([_tasks(*run) for run in enumerate(self.runs)], ignore_index=True)

    @cached_property
    def operators(self) -> list[tuple[str, ...]]:
        """Operators of each stage, from the first run with a plan; empty for a stage of which none is known."""
        stages_of = zip(*(run.stages for run in sorted(self.runs, key=lambda run: not run.plan)), strict=True)
        return [next((stage.operators for stage in of_runs if stage.operators), ()) for of_runs in stages_of]

    @cached_property
    def amounts_read(self) -> list[dict[str, int]]:
        """Bytes and rows that each stage reads in a run, on average, by names of fields of `StageProfile`.

        The bytes read from files are the sizes of the files if these are known: unlike the bytes that tasks read, such
        as those of some columns, they are known before a stage runs. Empty for all stages if no task read anything, as
        then the log lacks the metrics of tasks.
        """
        amounts = self.tasks[["run", "stage", "input_rows"]].assign(
            input_bytes=self.tasks["input_mb"] * BYTES_PER_MB,
            shuffle_bytes=self.tasks["shuffle_mb"] * BYTES_PER_MB,
        )
        names = ["input_bytes", "input_rows", "shuffle_bytes"]
        if not amounts[names].to_numpy().any():
            return [{} for _ in self.runs[0].stages]
        means = amounts.groupby(["stage", "run"])[names].sum().groupby("stage").mean()
        means = means.reindex(range(len(self.runs[0].stages)), fill_value=0.0).round()
        read = [{name: int(row[name]) for name in names} for _, row in means.iterrows()]
        for of_stage, of_runs in zip(read, zip(*(run.stages for run in self.runs), strict=True), strict=True):
            sizes = [stage.file_bytes for stage in of_runs if stage.file_bytes is not None]
            if sizes:
                of_stage["input_bytes"] = round(sum(sizes) / len(sizes))
        return read

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Data edges, and the barriers common to all runs, int64 [num_edges, 2], ascending.

        Barriers in only some runs are accidental: of jobs submitted together, one may end before another begins.
        """
        graphs = [stage_graph(run, run.edges) for run in self.runs]
        barriers = {edge for run in self.runs for edge in _pairs(run.dag.barrier_edges)}
        obeyed = {edge for edge in barriers if all(nx.has_path(graph, *edge) for graph in graphs)}
        dag = self.runs[0].dag
        edges = sorted(without_implied(set(_pairs(dag.shuffle_edges)), {*_pairs(dag.reused_edges), *obeyed}))
        return np.array(edges, dtype=np.int64).reshape(-1, 2)


def _pairs(edges: NDArray[np.int64]) -> list[_Edge]:
    return [(parent, child) for parent, child in edges.tolist()]


def _tasks(number: int, run: SparkQuery) -> pd.DataFrame:
    tasks = {str(name): column.to_numpy() for name, column in run.tasks.items()}
    stage, num_tasks = tasks["stage"], np.array([stage.num_tasks for stage in run.stages])
    reads_shuffle = np.zeros(len(run.stages), dtype=bool)
    dag = run.dag
    for reader in (dag.shuffle_edges[:, 1], dag.reused_edges[:, 1], stage[tasks["shuffle_read_bytes"] > 0]):
        reads_shuffle[reader] = True
    return pd.DataFrame(
        {
            "run": number,
            **{name: tasks[name] for name in ("stage", "partition", "wave", "level", "duration_ms")},
            "input_rows": tasks["input_rows"],
            "input_mb": tasks["input_bytes"] / BYTES_PER_MB,
            "shuffle_mb": tasks["shuffle_read_bytes"] / BYTES_PER_MB,
            "size_gb": run.size_gb,
            "num_tasks": num_tasks[stage],
            "reads_shuffle": reads_shuffle[stage],
        }
    )


def matched(runs: Iterable[SparkQuery], *, same_tasks: bool = True) -> QueryRuns:
    """Match the stages of runs of one query by operators, numbers of tasks and data edges.

    Args:
        same_tasks: whether matched stages must have equally many tasks; False for runs on different data.

    Raises:
        WorkloadError: there are no runs, or their DAGs differ.
    """
    groups = alike(runs, same_tasks=same_tasks)
    if not groups:
        raise WorkloadError("expected at least one run of the query")
    if len(groups) > 1:
        first, other = groups[0].runs[0], groups[1].runs[0]
        raise WorkloadError(
            f"{other.name} of {other.application_id} has a different DAG than {first.name} of {first.application_id}"
        )
    return groups[0]


def alike(runs: Iterable[SparkQuery], *, same_tasks: bool = True) -> list[QueryRuns]:
    """Group runs by their DAG, and match the stages of each group; for the arguments see `matched`."""
    groups: list[list[SparkQuery]] = []
    for run in runs:
        add_run(groups, run, same_tasks=same_tasks)
    return [QueryRuns(tuple(group)) for group in groups]


def add_run(groups: list[list[SparkQuery]], run: SparkQuery, *, same_tasks: bool = True) -> SparkQuery:
    """Add a run to the group with its DAG, or to a new group; return the run with its stages in the group's order."""
    for group in groups:
        if (ordered := _in_order_of(group[0], run, same_tasks)) is not None:
            group.append(ordered)
            return ordered
    groups.append([run])
    return run


def _in_order_of(first: SparkQuery, run: SparkQuery, same_tasks: bool) -> SparkQuery | None:
    """Return a run with its stages in the order of the run ``first``; None if their DAGs differ."""
    ours, theirs = _data_graph(run, same_tasks), _data_graph(first, same_tasks)
    if ours.nodes.data() == theirs.nodes.data() and ours.edges == theirs.edges:
        return run
    # Jobs that are submitted together (broadcasts) number their RDDs in random order.
    matching: dict[int, int] | None = nx.vf2pp_isomorphism(ours, theirs, node_label="shape")
    if matching is None:
        return None
    stages = tuple(run.stages[stage] for stage in sorted(matching, key=matching.__getitem__))
    dag = run.dag
    kinds = [_pairs(kind) for kind in (dag.edges, dag.shuffle_edges, dag.reused_edges, dag.barrier_edges)]
    dag = _renumbered((stage.stage_id for stage in stages), matching, kinds, dag.num_outside)
    return replace(
        run, stages=stages, dag=dag, tasks=run.tasks.assign(stage=run.tasks["stage"].map(matching))
    )


def _data_graph(query: SparkQuery, with_tasks: bool) -> nx.DiGraph[int]:
    """Return the graph of shuffle and reused edges, without barriers, which depend on timing."""
    graph = stage_graph(query, np.concatenate([query.dag.shuffle_edges, query.dag.reused_edges]))
    for index, stage in enumerate(query.stages):
        graph.nodes[index]["shape"] = stage.name, stage.num_tasks if with_tasks else None
    return graph


def stage_graph(query: SparkQuery, edges: NDArray[np.int64]) -> nx.DiGraph[int]:
    """Return a graph whose nodes are the indices of a query's stages."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(query.stages)))
    graph.add_edges_from(edges.tolist())
    return graph
