"""Jobs, stages and executors as plain objects, for the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulator.cluster.durations import task_noise
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, StageProfile

__all__ = ["NEVER_STARTED", "Commitment", "Executor", "Job", "Source", "Stage", "jobs_of"]

#: What a record says of a task: start and finish in ms, executor, wave, parallelism.
TaskRun = tuple[float, float, int, int, int]
NEVER_STARTED: TaskRun = (math.nan, math.nan, -1, -1, 0)


@dataclass(eq=False)
class Job:
    """A job of the sequence, whether it is in the cluster or not."""

    number: int
    profile: JobProfile
    arrival_ms: float
    stages: list[Stage] = field(default_factory=list)
    completion_ms: float = math.nan


@dataclass(eq=False)
class Stage:
    """A stage of a job. Its tasks start in order; it is ready when all its parents are complete."""

    job: Job
    number: int
    profile: StageProfile
    luck: list[list[float]]  # of its tasks
    rank: float = math.inf  # ascending in the order in which stages become ready; infinite before
    parents: list[Stage] = field(default_factory=list)
    children: list[Stage] = field(default_factory=list)
    runs: list[TaskRun] = field(default_factory=list)
    finished: int = 0

    @property
    def unstarted(self) -> int:
        """Tasks that have not started."""
        return self.profile.num_tasks - len(self.runs)

    @property
    def ready(self) -> bool:
        """Whether all its parents are complete."""
        return self.rank < math.inf

    @property
    def complete(self) -> bool:
        """Whether all its tasks are finished."""
        return self.finished == self.profile.num_tasks


@dataclass(eq=False)
class Executor:
    """An executor: on a stage of its job, or in the pool of its job, or in the common pool, or on its way."""

    number: int
    kind: int
    job: Job | None = None
    stage: Stage | None = None
    warm: Stage | None = None  # what its JVM worked on last, if it is up

    @property
    def source(self) -> Source:
        """Whose commitments it carries out."""
        return self.stage or self.job, self.kind

    def detach(self) -> None:
        """Leave stage and job; the JVM is gone."""
        self.job = self.stage = self.warm = None


#: Executors of one class on a stage, in the pool of a job, or in the common pool.
Source = tuple[Stage | Job | None, int]

#: Of one executor: whose turn it will be, and what for; no stage: to be idle.
Commitment = tuple[Source, Stage | None]


def jobs_of(sequence: JobSequence) -> list[Job]:
    """All jobs with their stages."""
    jobs: list[Job] = []
    for profile, arrival_ms in zip(sequence.profiles, sequence.arrival_ms.tolist(), strict=True):
        job = Job(len(jobs), profile, arrival_ms)
        luck = iter(task_noise(sequence.seed, job.number, profile.num_tasks).T.tolist())
        for number, stage in enumerate(profile.stages):
            tasks = [next(luck) for _ in range(stage.num_tasks)]
            job.stages.append(Stage(job, number, stage, tasks))
        for child, parents in zip(job.stages, profile.parents, strict=True):
            child.parents = [job.stages[parent] for parent in parents]
        for parent, children in zip(job.stages, profile.children, strict=True):
            parent.children = [job.stages[child] for child in children]
        jobs.append(job)
    return jobs
