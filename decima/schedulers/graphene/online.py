"""Graphene as an online scheduler (OSDI 2016, section 5): each job's plan gives priorities to its tasks."""

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

#: Maximum number of planned tasks of a stage. With more tasks, a planned task represents several tasks.
MOST_TASKS = 32


class Graphene(Tetris):
    """Plan each job at its arrival; prefer tasks that are early in their plan, pack well and belong to short jobs.

    The score is ``priority * alignment - remaining * remaining work of the job``, with both terms on the same scale on
    average. The plan of a job assumes that the job has the whole cluster.

    Args:
        remaining: weight of the remaining work.
        fairness: share of the jobs that are excluded, those with the most executors; at least 0 and below 1.

    Raises:
        ValueError: a parameter is out of range.
    """

    def __init__(self, remaining: float = 0.2, fairness: float = 0.0) -> None:
        super().__init__(remaining, fairness)
        self._plans: PerJob[_Plans] = PerJob(_priorities, _joined)

    def decide(self, observation: Observation) -> Decision | None:
        """Assign the offered executors to tasks, highest score first, and return the part of the best task's stage."""
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
        """Return the priorities of each stage's next tasks in the plan, float64 [stages, tasks]."""
        plans, num_tasks = self._plans(observation), observation.num_tasks[stages][:, None]
        planned = plans.planned[stages][:, None]
        tasks = num_tasks - observation.unclaimed_tasks[stages][:, None] + next_tasks
        place = np.minimum(tasks * planned // num_tasks, planned - 1)
        found: NDArray[np.float64] = plans.priority[plans.first[stages][:, None] + place]
        return found


def project_of(profile: JobProfile, config: ClusterConfig) -> Project:
    """Return a job as a project whose resources are executors.

    Executor classes are sorted by memory, then CPU. Resource k is the number of executors at least as large as class k.
    A task takes one unit of each resource up to its smallest fitting class, so that no plan exceeds the executors.
    """
    classes = sorted(config.executor_classes, key=lambda each: (each.memory, each.cpu))
    at_least = np.cumsum([each.count for each in classes][::-1])[::-1]
    least = [next(k for k, each in enumerate(classes) if each.fits(stage)) for stage in profile.stages]
    tasks = np.array([stage.num_tasks for stage in profile.stages])
    planned = np.minimum(tasks, MOST_TASKS)
    mean_ms = np.array([stage.durations.mean_ms for stage in profile.stages])
    takes = np.arange(len(classes)) <= np.array(least)[:, None]
    # A planned task that represents several tasks takes as many executors, or longer if the cluster has fewer.
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
    """Priorities of planned tasks, float64 [N], stage by stage, the most urgent task of a stage first.

    ``first``, int64 [S]: index of each stage's first priority; ``planned``, int64 [S]: number of its priorities.
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
