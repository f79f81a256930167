"""Graphene as a scheduler (OSDI 2016, section 5): plans tell what is urgent in a job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.graphene.project import Project
from decima.schedulers.graphene.search import graphene
from decima.schedulers.tetris import Tetris, demands
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["Graphene", "project_of"]

#: Tasks of a stage that are planned one by one; of more, each stands for several.
MOST_TASKS = 32


class Graphene(Tetris):
    """Jobs are planned when they arrive; a stage goes that its plan starts soon, that packs well, of a short job.

    The score is ``priority * alignment - remaining * what is left of the job``, both scaled to be alike on average. A
    plan has the whole cluster to itself.

    Args:
        remaining: how much the work that a job has left counts.
        fairness: share of the jobs, from 0 to below 1, that are passed over, as they hold the most executors.

    Raises:
        ValueError: a parameter out of range.
    """

    def __init__(self, remaining: float = 0.2, fairness: float = 0.0) -> None:
        super().__init__(remaining, fairness)
        self._plans: PerJob[_Plans] = PerJob(_priorities, _joined)

    def decide(self, observation: Observation) -> Decision | None:
        """What the stage of the best task gets, if tasks take executors one by one, the best score first."""
        stages = self.candidates(observation)
        unclaimed = observation.unclaimed_tasks[stages][:, None]
        next_tasks = np.arange(min(observation.offered, int(unclaimed.max())))
        urgency = self._urgency(observation, stages, next_tasks)
        needs, offered = demands(observation)
        score = (needs[stages] @ offered)[:, None] * urgency
        score -= self.penalty(observation, stages, needs, float(score[:, 0].mean()))[:, None]
        score[next_tasks >= unclaimed] = -np.inf
        taken = np.argsort(-score, axis=None, kind="stable")[: observation.offered] // next_tasks.size
        stage = int(stages[taken[0]])
        count = int((taken == taken[0]).sum())
        return Decision(stage, observation.held(int(observation.stage_job[stage])) + count)

    def _urgency(
        self, observation: Observation, stages: NDArray[np.int64], next_tasks: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """How soon each of the next tasks of each stage starts in the plan of its job, float64 [stages, tasks]."""
        plans, num_tasks = self._plans(observation), observation.num_tasks[stages][:, None]
        planned = plans.planned[stages][:, None]
        tasks = num_tasks - observation.unclaimed_tasks[stages][:, None] + next_tasks
        place = np.minimum(tasks * planned // num_tasks, planned - 1)
        found: NDArray[np.float64] = plans.priority[plans.first[stages][:, None] + place]
        return found


def project_of(profile: JobProfile, config: ClusterConfig) -> Project:
    """A job to be planned: what it takes are executors.

    Classes are sorted by memory, then cpu. What only the larger ones can run takes one of those, and one of all that
    are at least as large as each smaller class, so that as many tasks run at once as can.
    """
    classes = sorted(config.executor_classes, key=lambda kind: (kind.memory, kind.cpu))
    at_least = np.cumsum([kind.count for kind in classes][::-1])[::-1]
    least = [
        next(place for place, kind in enumerate(classes) if kind.fits(stage)) for stage in profile.stages
    ]
    tasks = np.array([stage.num_tasks for stage in profile.stages])
    planned = np.minimum(tasks, MOST_TASKS)
    mean_ms = np.array([stage.durations.mean_ms for stage in profile.stages])
    takes = np.arange(len(classes)) <= np.array(least)[:, None]
    # A task that stands for several takes as many executors, or if there are not as many, as much longer.
    stands_for = tasks / planned
    most = at_least[least]
    return Project(
        durations=mean_ms * np.maximum(stands_for / most, 1.0),
        demands=takes * np.minimum(stands_for, most)[:, None],
        capacity=at_least.astype(np.float64),
        parents=profile.parents,
        num_tasks=planned,
    )


class _Plans(NamedTuple):
    """Priorities of planned tasks, float64 [N], stage by stage, the most urgent first.

    Those of a stage begin at ``first``, int64 [S], and are ``planned`` many, int64 [S].
    """

    priority: NDArray[np.float64]
    first: NDArray[np.int64]
    planned: NDArray[np.int64]


def _priorities(profile: JobProfile, config: ClusterConfig) -> _Plans:
    project = project_of(profile, config)
    priority = graphene(project).priority
    order = np.lexsort((-priority, project.stage_of))
    return _Plans(priority[order], project.dag.first[:-1], project.num_tasks)


def _joined(jobs: list[_Plans]) -> _Plans:
    begins = np.cumsum([0, *(len(job.priority) for job in jobs[:-1])])
    first = [job.first + begin for job, begin in zip(jobs, begins, strict=True)]
    return _Plans(
        np.concatenate([job.priority for job in jobs]),
        np.concatenate(first),
        np.concatenate([job.planned for job in jobs]),
    )
