"""Graphene*: troublesome stages run together, below weighted fair shares (Decima, section 7.1 and appendix E)."""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.schedulers.fair import WeightedFair
from decima.schedulers.graphene.search import with_between
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["GrapheneStar", "troublesome_stages"]

#: Behind all that are ready, before the weight of a troublesome stage.
UNREADY, TROUBLE = 1e12, 1e15


class GrapheneStar(WeightedFair):
    """Weighted fair shares; inside a job, troublesome stages wait until all of them can start, and then go first.

    Long stages, and those that pack badly, are troublesome (see ``troublesome_stages``). They wait for those of them
    that wait for no other of them, and only while some stage of some job need not wait.

    Args:
        alpha: exponent of the shares, see ``WeightedFair``.
        long: tasks at least as long, compared with the job's longest, are troublesome.
        fragmented: stages that fill at most this share of the cluster while they run alone are troublesome.

    Raises:
        ValueError: alpha is not finite.
    """

    def __init__(self, alpha: float = -1.0, long: float = 0.8, fragmented: float = 0.2) -> None:
        super().__init__(alpha)
        self._trouble: PerJob[_Trouble] = PerJob(
            lambda profile, config: _trouble(profile, config, long, fragmented), _joined
        )

    def next_stage(self, observation: Observation) -> NDArray[np.int64]:
        """Of each job: released troublesome stages, then those that are ready, in the order in which they became so."""
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
    """Whether each stage of a job is troublesome, bool [num_stages] (Graphene, OSDI 2016, section 4.1).

    Its tasks are ``long``, compared with the longest (LongScore), or it packs badly: its work, as a share of all that
    the cluster has of the resource that it needs most of (TWork), is at most ``fragmented`` of the time that it
    takes alone (ExecTime). So is every stage between two of them.
    """
    classes, stages = config.executor_classes, profile.stages
    mean_ms = np.array([stage.durations.mean_ms for stage in stages])
    tasks = np.array([stage.num_tasks for stage in stages])
    needs = np.array([(stage.cpu, stage.memory) for stage in stages])
    capacity = np.array([(kind.count * kind.cpu, kind.count * kind.memory) for kind in classes]).sum(axis=0)
    fitting = np.array([sum(kind.count for kind in classes if kind.fits(stage)) for stage in stages])
    work = tasks * (needs / np.maximum(capacity, 1e-12)).max(axis=1)
    packs = work / np.ceil(tasks / np.maximum(fitting, 1))
    chosen = (mean_ms >= long * mean_ms.max()) | (packs <= fragmented)
    before = np.zeros((len(stages), len(stages)), dtype=bool)
    for stage, later in nx.transitive_closure_dag(profile.graph()).edges:
        before[stage, later] = True
    return with_between(chosen, before)


class _Trouble(NamedTuple):
    """Bool [S] both: the troublesome stages, and those of them that wait for no other of them."""

    all: NDArray[np.bool_]
    first: NDArray[np.bool_]


def _trouble(profile: JobProfile, config: ClusterConfig, long: float, fragmented: float) -> _Trouble:
    chosen = troublesome_stages(profile, config, long, fragmented)
    parents = profile.parents
    # Between two troublesome stages all are, so that one that waits for another has a troublesome parent.
    first = [
        bool(chosen[stage]) and not any(chosen[each] for each in parents[stage])
        for stage in range(len(chosen))
    ]
    return _Trouble(chosen, np.array(first))


def _joined(jobs: list[_Trouble]) -> _Trouble:
    return _Trouble(*(np.concatenate(arrays) for arrays in zip(*jobs, strict=True)))
