"""The DAG of a query's stages: which stage waits for which, over all Spark jobs of the query.

There are three kinds of edges. *Shuffle*: a stage reads the shuffle files of another that ran in the query.
*Reused*: Spark skipped the parent, since an earlier stage had left the same shuffle files; the edge comes
from that stage. *Barrier*: the driver submitted a job only after an earlier job of the query had returned its
result (a broadcast, a scalar subquery, the sampling of a range partitioning).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from workloads.job import WorkloadError
from workloads.spark.events import Job, Stage

__all__ = ["StageDag", "stage_dag", "stages_by_output", "without_implied"]

_Edge = tuple[int, int]


@dataclass(frozen=True, eq=False)
class StageDag:
    """Stages of one query, ordered by their last RDD, and their edges, (parent, child) places in that order.

    Args:
        stage_ids: Spark's numbers of the stages.
        edges: int64 [num_edges, 2], all shuffle edges, and the others unless a longer path implies them.
        shuffle_edges: int64 [n, 2].
        reused_edges: int64 [n, 2], with those that a longer path implies.
        barrier_edges: int64 [n, 2], likewise.
        num_outside: parents that ran in another query of the application, or that the log does not show.
    """

    stage_ids: tuple[int, ...]
    edges: NDArray[np.int64]
    shuffle_edges: NDArray[np.int64]
    reused_edges: NDArray[np.int64]
    barrier_edges: NDArray[np.int64]
    num_outside: int


def stages_by_output(stages: Iterable[Stage]) -> dict[int, list[int]]:
    """Stage ids, ascending, by the last RDD of the stage: who could have left the shuffle files of an RDD."""
    found: dict[int, list[int]] = {}
    for stage in sorted(stages, key=lambda stage: stage.stage_id):
        found.setdefault(stage.rdd, []).append(stage.stage_id)
    return found


def stage_dag(
    jobs: Sequence[Job],
    stages: Mapping[int, Stage],
    ran: frozenset[int],
    outputs: Mapping[int, Sequence[int]],
) -> StageDag:
    """The DAG of one query.

    Args:
        jobs: the query's jobs.
        stages: every stage of the application by its id.
        ran: the query's stages that ran and had tasks.
        outputs: `stages_by_output` of all stages of the application that ran.

    Raises:
        WorkloadError: the edges form a cycle, which no true log does.
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
    # RDDs are numbered as the driver makes them. Unlike the stages' own numbers, theirs are the same in every
    # run of a query, and ascend along the edges.
    order = tuple(sorted(ran, key=lambda stage: (stages[stage].rdd, stage)))
    place = {stage: number for number, stage in enumerate(order)}

    def edge_array(edges: set[_Edge]) -> NDArray[np.int64]:
        places = sorted((place[parent], place[child]) for parent, child in edges)
        return np.array(places, dtype=np.int64).reshape(-1, 2)

    return StageDag(
        stage_ids=order,
        edges=edge_array(without_implied(shuffle, reused | barrier)),
        shuffle_edges=edge_array(shuffle),
        reused_edges=edge_array(reused),
        barrier_edges=edge_array(barrier),
        num_outside=num_outside,
    )


def without_implied(shuffle: set[_Edge], others: set[_Edge]) -> set[_Edge]:
    """All shuffle edges, and those of the others that no longer path implies.

    Raises:
        WorkloadError: the edges form a cycle, which no true log does.
    """
    try:
        needed = nx.transitive_reduction(nx.DiGraph([*shuffle, *others])).edges
    except nx.NetworkXError:
        raise WorkloadError("the stages form a cycle") from None
    return shuffle | {edge for edge in others if edge in needed}


def _parents(stage: Stage, stages: Mapping[int, Stage]) -> Iterator[Stage]:
    """The stage's parents; a parent without tasks (an empty RDD) stands for its own parents."""
    for stage_id in stage.parents:
        parent = stages.get(stage_id)
        if parent is None:
            continue
        if parent.num_tasks:
            yield parent
        else:
            yield from _parents(parent, stages)


def _source(skipped: Stage, stages: Mapping[int, Stage], outputs: Mapping[int, Sequence[int]]) -> int | None:
    """Which stage ran earlier with the same last RDD as the skipped one: the latest that wrote a shuffle."""
    earlier = [stage for stage in outputs.get(skipped.rdd, ()) if stage < skipped.stage_id]
    writers = [stage for stage in earlier if stages[stage].writes_shuffle]
    return max(writers or earlier, default=None)


def _barriers(jobs: Sequence[Job], stages: Mapping[int, Stage], ran: frozenset[int]) -> Iterator[_Edge]:
    """Edges from the last stage of a job to the first stages of the jobs that waited for it.

    A job waits for those that ended before it was submitted, except where another such job stands between.
    Jobs that only write a shuffle (adaptive execution submits each stage so) hand nothing to the driver.
    """
    own = _own_stages(jobs, ran)
    returning = [
        (job, max(job.stage_ids))
        for job in jobs
        if job.stage_ids and max(job.stage_ids) in ran and not stages[max(job.stage_ids)].writes_shuffle
    ]
    for later in jobs:
        before = [(job, last) for job, last in returning if job.ended_ms <= later.submitted_ms]
        latest_start = max((job.submitted_ms for job, _ in before), default=0.0)
        first = [stage for stage in own[later.job_id] if not own[later.job_id] & set(stages[stage].parents)]
        yield from ((last, stage) for job, last in before if job.ended_ms > latest_start for stage in first)


def _own_stages(jobs: Sequence[Job], ran: frozenset[int]) -> dict[int, set[int]]:
    """The stages that ran, by the first job that listed them."""
    own: dict[int, set[int]] = {}
    taken: set[int] = set()
    for job in sorted(jobs, key=lambda job: job.job_id):
        own[job.job_id] = (set(job.stage_ids) & ran) - taken
        taken |= own[job.job_id]
    return own
