"""Jobs, stages and executors as plain objects, for the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.durations import longer_ms, task_noise
from simulator.cluster.engine.posterior import posterior, records
from simulator.cluster.estimates import Estimate
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, StageProfile, Wave

__all__ = [
    "Executor",
    "Job",
    "Source",
    "Stage",
    "estimate",
    "jobs_of",
    "log_of",
    "redrawn_ms",
]

#: What a record says of a task: start and finish in ms, executor, wave, parallelism.
TaskRun = tuple[float, float, int, int, int]
_NEVER_STARTED: TaskRun = (math.nan, math.nan, -1, -1, 0)


@dataclass(eq=False)
class Job:
    """A job of the sequence, whether it is in the cluster or not."""

    number: int
    profile: JobProfile
    arrival_ms: float
    stages: list[Stage] = field(default_factory=list)
    completion_ms: float = math.nan

    def noise(self, seed: int) -> list[list[tuple[float, float]]]:
        """Draw the noise of all tasks, see ``task_noise``: of each stage a list of pairs."""
        noise = iter(task_noise(seed, self.number, self.profile.num_tasks).T.tolist())
        return [[tuple(next(noise)) for _ in range(stage.num_tasks)] for stage in self.profile.stages]

    def draw_noise(self, seed: int) -> None:
        """Draw the noise of tasks that have not started."""
        for stage, luck in zip(self.stages, self.noise(seed), strict=True):
            stage.luck = luck


@dataclass(eq=False)
class Stage:
    """A stage of a job. Its tasks start in order; it is ready when all its parents are complete."""

    job: Job
    number: int
    profile: StageProfile
    luck: list[tuple[float, float]] = field(default_factory=list)  # of its tasks, see `task_noise`
    rank: float = math.inf  # ascending in the order in which stages become ready; infinite before
    parents: list[Stage] = field(default_factory=list)
    children: list[Stage] = field(default_factory=list)
    runs: list[TaskRun] = field(default_factory=list)
    finished: int = 0
    finished_ms: float = 0.0  # executor time of finished tasks

    def finish_task(self, executor: Executor, now_ms: float) -> None:
        """An executor is done with a task of the stage."""
        self.finished += 1
        self.finished_ms += now_ms - executor.start_ms
        executor.start_ms = math.nan

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
    start_ms: float = math.nan  # when the task that it runs started; NaN if it runs none

    @property
    def source(self) -> Source:
        """Whose commitments it carries out."""
        return self.stage or self.job, self.kind

    def detach(self) -> None:
        """Leave stage and job; the JVM is gone."""
        self.job = self.stage = self.warm = None


#: Executors of one class on a stage, in the pool of a job, or in the common pool.
Source = tuple[Stage | Job | None, int]


def jobs_of(sequence: JobSequence) -> list[Job]:
    """All jobs with their stages."""
    jobs: list[Job] = []
    for profile, arrival_ms in zip(sequence.profiles, sequence.arrival_ms.tolist(), strict=True):
        job = Job(len(jobs), profile, arrival_ms)
        job.stages = [Stage(job, number, stage) for number, stage in enumerate(profile.stages)]
        job.draw_noise(sequence.seed)
        for child, parents in zip(job.stages, profile.parents, strict=True):
            child.parents = [job.stages[parent] for parent in parents]
        for parent, children in zip(job.stages, profile.children, strict=True):
            parent.children = [job.stages[child] for child in children]
        jobs.append(job)
    return jobs


def estimate(
    job: Job, told: Estimate, executors: list[Executor], now_ms: float
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Return the best estimates of a job and its stages, ``BELIEF`` [1] and ``ESTIMATE`` [num_stages]."""
    belief, stages = records(told)
    for stage, row in zip(job.stages, stages, strict=True):
        row["finished"], row["finished_ms"] = stage.finished, stage.finished_ms
        running = [now_ms - each.start_ms for each in executors if each.stage is stage and each.start_ms >= 0]
        row["running"], row["running_ms"] = len(running), sum(running)
    posterior(belief, stages)
    return belief, stages


def log_of(jobs: list[Job], moves: list[tuple[int, int, float]]) -> dict[str, Any]:
    """Return the arrays of an ``EpisodeRecord``; ``moves``: executor, job, and departure in ms."""
    stages = [stage for job in jobs for stage in job.stages]
    runs = [run for stage in stages for run in stage.runs + [_NEVER_STARTED] * stage.unstarted]
    start_ms, finish_ms, executor, wave, parallelism = zip(*runs, strict=True)
    departures = np.array(moves, dtype="i4, i8, f8")
    return {
        "task_start_ms": np.array(start_ms),
        "task_finish_ms": np.array(finish_ms),
        "task_executor": np.array(executor, dtype=np.int32),
        "task_wave": np.array(wave, dtype=np.int8),
        "task_parallelism": np.array(parallelism, dtype=np.int32),
        "completion_ms": np.array([job.completion_ms for job in jobs]),
        "move_executor": departures["f0"],
        "move_job": departures["f1"],
        "move_depart_ms": departures["f2"],
    }


def redrawn_ms(
    config: ClusterConfig, jobs: list[Job], seed: int, now_ms: float
) -> dict[tuple[int, int, int], float]:
    """Draw the durations of running tasks anew, ms by (job, stage, task), given that they end after ``now_ms``."""
    given = {}
    for job in jobs:
        for stage, noise in zip(job.stages, job.noise(seed), strict=True):
            for task, (start_ms, finish_ms, _, wave, parallelism) in enumerate(stage.runs):
                if finish_ms > now_ms:
                    run = Wave(wave), parallelism, noise[task], start_ms, now_ms
                    task_ms = longer_ms(config, stage.profile.durations, *run)
                    if task_ms is not None:
                        given[job.number, stage.number, task] = task_ms
    return given
