"""Graphene*: weighted fair shares, and simultaneous starts of troublesome stages (Decima, section 7.1, appendix E)."""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.schedulers.fair import WeightedFair
from decima.schedulers.graphene.planner import with_between
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["GrapheneStar", "troublesome_stages"]

#: Sort keys, by which stages that are not ready come last and troublesome stages first.
UNREADY, TROUBLE = 1e12, 1e15


class GrapheneStar(WeightedFair):
    """Weighted fair shares; within a job, troublesome stages wait until all of them can start, and then go first.

    Troublesome stages are long or pack badly, see ``troublesome_stages``. A job's troublesome stages wait until all of
    them without a troublesome parent can start. They wait only while another stage of any job is schedulable.

    Args:
        alpha: exponent of the shares, see ``WeightedFair``.
        long: a stage is troublesome if its tasks take at least this fraction of the job's longest tasks.
        fragmented: a stage is troublesome if it fills at most this share of the cluster while it runs alone.

    Raises:
        ValueError: alpha is out of range.
    """

    def __init__(self, alpha: float = -1.0, long: float = 0.8, fragmented: float = 0.2) -> None:
        super().__init__(alpha)
        self._trouble: PerJob[_Trouble] = PerJob(
            lambda profile, config: _trouble(profile, config, long, fragmented), _joined
        )

    def next_stage(self, observation: Observation) -> NDArray[np.int64]:
        """Return each job's next stage: first troublesome stages that need not wait, then stages by their ranks."""
        trouble, job, ready = self._trouble(observation), observation.stage_job, observation.ready_rank
        available = (ready >= 0) | (observation.remaining_tasks == 0)
        waiting = np.bincount(job, trouble.first & ~available, minlength=len(observation.jobs)) > 0
        allowed = np.flatnonzero(observation.schedulable & ~(trouble.all & waiting[job]))
        if not allowed.size:
            return observation.next_stage
        urgency = np.where(ready >= 0, ready, UNREADY) - TROUBLE * trouble.all
        order = allowed[np.lexsort((urgency[allowed], job[allowed]))]
        jobs, first = np.unique(job[order], return_index=True)
        stages = np.full(len(observation.jobs), -1)
        stages[jobs] = order[first]
        return stages


def troublesome_stages(
    profile: JobProfile, config: ClusterConfig, long: float, fragmented: float
) -> NDArray[np.bool_]:
    """Return whether each stage of a job is troublesome, bool [num_stages] (Graphene, OSDI 2016, section 4.1).

    A stage is troublesome if its tasks are long (LongScore); if it packs badly, that is its work on its dominant
    resource over the cluster's capacity (TWork) is at most ``fragmented`` times its time alone (ExecTime); or if it is
    between two troublesome stages.
    """
    classes, stages = config.executor_classes, profile.stages
    mean_ms = np.array([stage.durations.mean_ms for stage in stages])
    tasks = np.array([stage.num_tasks for stage in stages])
    needs = np.array([(stage.cpu, stage.memory) for stage in stages])
    capacity = np.array([(each.count * each.cpu, each.count * each.memory) for each in classes]).sum(axis=0)
    fitting = np.array([sum(each.count for each in classes if each.fits(stage)) for stage in stages])
    work = tasks * (needs / np.maximum(capacity, 1e-12)).max(axis=1)
    packs = work / np.ceil(tasks / np.maximum(fitting, 1))
    chosen = (mean_ms >= long * mean_ms.max()) | (packs <= fragmented)
    before = np.zeros((len(stages), len(stages)), dtype=bool)
    for stage, later in nx.transitive_closure_dag(profile.graph()).edges:
        before[stage, later] = True
    return with_between(chosen, before)


class _Trouble(NamedTuple):
    """Masks, bool [S] each: all troublesome stages, and the first ones, without a troublesome parent."""

    all: NDArray[np.bool_]
    first: NDArray[np.bool_]


def _trouble(profile: JobProfile, config: ClusterConfig, long: float, fragmented: float) -> _Trouble:
    chosen = troublesome_stages(profile, config, long, fragmented)
    parents = profile.parents
    # Parents are enough instead of ancestors, as all stages between two troublesome stages are troublesome.
    first = [
        bool(each) and not chosen[list(above)].any() for each, above in zip(chosen, parents, strict=True)
    ]
    return _Trouble(chosen, np.array(first))


def _joined(jobs: list[_Trouble]) -> _Trouble:
    return _Trouble(*(np.concatenate(arrays) for arrays in zip(*jobs, strict=True)))
