"""Jobs, stages and executors as plain objects, for the reference."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.chance import Purpose, chance, job_key
from simulator.cluster.config import ClusterConfig
from simulator.cluster.durations import longer_ms, task_noise
from simulator.cluster.engine.posterior import posterior, records
from simulator.cluster.estimates import Estimate
from simulator.cluster.faults import Outcome
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, StageProfile, Wave

__all__ = [
    "Executor",
    "Job",
    "LostRun",
    "Source",
    "Stage",
    "delay_factor",
    "estimate",
    "jobs_of",
    "log_of",
    "redrawn_ms",
]

#: What a record says of a task: start and finish in ms, executor, wave, parallelism.
TaskRun = tuple[float, float, int, int, int]
_NOT_RUN: TaskRun = (math.nan, math.nan, -1, -1, 0)
#: A run that was lost: the stage, the task, the run, how it ended.
LostRun = tuple["Stage", int, TaskRun, Outcome]


@dataclass(eq=False)
class Job:
    """A job of the sequence, whether it is in the cluster or not."""

    number: int
    profile: JobProfile
    arrival_ms: float
    stages: list[Stage] = field(default_factory=list)
    completion_ms: float = math.nan
    failed: bool = False
    key: int = 0

    def noise(self, seed: int) -> list[list[tuple[float, float]]]:
        """Draw the noise of all tasks, see ``task_noise``: of each stage a list of pairs."""
        noise = iter(task_noise(seed, self.number, self.profile.num_tasks).T.tolist())
        luck = [[tuple(next(noise)) for _ in range(stage.num_tasks)] for stage in self.profile.stages]
        key = job_key(seed, self.number)
        for stage in self.stages:
            for task in stage.attempts:
                luck[stage.number][task] = stage.later_luck(task, key)
        return luck

    def draw_noise(self, seed: int) -> None:
        """Draw the noise of tasks that have not started."""
        for stage, luck in zip(self.stages, self.noise(seed), strict=True):
            stage.luck = luck
        self.key = job_key(seed, self.number)


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
    runs: dict[int, TaskRun] = field(default_factory=dict)  # of tasks that run or have finished
    done: set[int] = field(default_factory=set)  # tasks that have finished
    without_output: set[int] = field(default_factory=set)  # finished tasks whose output is lost
    returned: list[int] = field(default_factory=list)  # tasks whose run was lost, the next to run last
    attempts: Counter[int] = field(default_factory=Counter)  # lost runs of tasks
    failures: Counter[int] = field(default_factory=Counter)  # failed runs of tasks
    finished_ms: float = 0.0  # executor time of finished tasks

    def finish_task(self, executor: Executor, now_ms: float) -> None:
        """An executor is done with its task of the stage."""
        self.done.add(executor.task)
        self.finished_ms += now_ms - executor.start_ms
        executor.start_ms = math.nan

    @property
    def unstarted(self) -> int:
        """Tasks that have not started."""
        return self.profile.num_tasks - len(self.runs)

    @property
    def finished(self) -> int:
        """Tasks that have finished."""
        return len(self.done)

    def next_task_number(self) -> int:
        """Take the next task: the one whose run was lost last, or the first that never started."""
        return self.returned.pop() if self.returned else len(self.runs)

    def later_luck(self, task: int, key: int) -> tuple[float, float]:
        """Draw the noise of an attempt after the first."""
        return self.chance(task, Purpose.LEVEL, key), self.chance(task, Purpose.DURATION, key)

    def chance(self, task: int, purpose: Purpose, key: int) -> float:
        """Return a uniform number of a purpose for the current attempt at a task."""
        before = sum(stage.num_tasks for stage in self.job.profile.stages[: self.number])
        return chance(key, before + task, self.attempts[task], purpose)

    def give_back(self, task: int) -> TaskRun:
        """Let a task wait for another run; returns the one that is lost."""
        self.attempts[task] += 1
        self.luck[task] = self.later_luck(task, self.job.key)
        self.returned.append(task)
        run = self.runs.pop(task)
        if task in self.done:
            self.done.remove(task)
            self.finished_ms -= run[1] - run[0]
        if not all(parent.complete for parent in self.parents):
            self.rank = math.inf
        return run

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
    task: int = -1  # what it runs, if it is on a stage
    occupation: int = 0  # grows when it begins or leaves a stage or a move; the end of an older one is void
    away: bool = False  # whether it is not in the cluster

    @property
    def source(self) -> Source:
        """Whose commitments it carries out."""
        return self.stage or self.job, self.kind

    def detach(self) -> None:
        """Leave stage and job; the JVM is gone."""
        self.job = self.stage = self.warm = None
        self.occupation += 1


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


def log_of(jobs: list[Job], moves: list[tuple[int, int, float]], lost: list[LostRun]) -> dict[str, Any]:
    """Return the arrays of an ``EpisodeRecord``; ``moves``: executor, job, and departure in ms."""
    stages = [stage for job in jobs for stage in job.stages]
    places = [(stage, task) for stage in stages for task in range(stage.profile.num_tasks)]
    number = {place: number for number, place in enumerate(places)}
    runs = [stage.runs.get(task, _NOT_RUN) for stage, task in places] + [run for _, _, run, _ in lost]
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
        "lost_task": np.array([number[stage, task] for stage, task, _, _ in lost], dtype=np.int64),
        "lost_outcome": np.array([outcome for _, _, _, outcome in lost], dtype=np.int8),
    }


def delay_factor(config: ClusterConfig, stage: Stage, task: int, key: int) -> float:
    """Return the factor by which the current attempt at a task takes longer."""
    share, factor = config.faults.stragglers
    return factor if share > 0 and stage.chance(task, Purpose.STRAGGLES, key) < share else 1.0


def redrawn_ms(
    config: ClusterConfig, jobs: list[Job], seed: int, now_ms: float
) -> dict[tuple[int, int, int, int], float]:
    """Draw durations of running tasks anew, ms by (job, stage, task, attempt), given that they end after ``now_ms``."""
    given = {}
    for job in jobs:
        for stage, noise in zip(job.stages, job.noise(seed), strict=True):
            for task, (start_ms, finish_ms, _, wave, parallelism) in stage.runs.items():
                if finish_ms > now_ms and task not in stage.done:
                    factor = delay_factor(config, stage, task, job_key(seed, job.number))
                    since_ms = start_ms + (now_ms - start_ms) / factor if factor > 1 else now_ms
                    run = Wave(wave), parallelism, noise[task], start_ms, since_ms
                    task_ms = longer_ms(config, stage.profile.durations, *run)
                    if task_ms is not None and start_ms + task_ms * factor > now_ms:
                        given[job.number, stage.number, task, stage.attempts[task]] = task_ms * factor
    return given
