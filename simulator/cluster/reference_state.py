"""Reference simulator: jobs, stages and executors as plain objects."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.draws import COPY, Purpose, chance, job_key, longer_ms
from simulator.cluster.engine.posterior import posterior, records
from simulator.cluster.estimates import Estimate
from simulator.cluster.outcome import Outcome
from workloads.arrivals import JobSequence, task_noise
from workloads.job import JobProfile, StageProfile, Wave

#: A task run: start and finish in ms, executor, wave, parallelism.
TaskRun = tuple[float, float, int, int, int]
_NOT_RUN: TaskRun = (math.nan, math.nan, -1, -1, 0)
#: A lost task run: stage, task, run, and its outcome.
LostRun = tuple["Stage", int, TaskRun, Outcome]


@dataclass(eq=False)
class Job:
    """State of a job of the sequence."""

    number: int
    profile: JobProfile
    arrival_ms: float
    stages: list[Stage] = field(default_factory=list)
    completion_ms: float = math.nan
    failed: bool = False
    key: int = 0

    def noise(self, seed: int) -> list[list[tuple[float, float]]]:
        """Draw the noise of all tasks: a list of pairs for each stage; see ``task_noise``."""
        noise = iter(task_noise(seed, self.number, self.profile.num_tasks).T.tolist())
        noises = [[tuple(next(noise)) for _ in range(stage.num_tasks)] for stage in self.profile.stages]
        key = job_key(seed, self.number)
        for stage in self.stages:
            for task in stage.attempts:
                noises[stage.number][task] = stage.later_noise(task, key)
        return noises

    def draw_noise(self, seed: int) -> None:
        """Redraw the noise of tasks that have not started."""
        for stage, noise in zip(self.stages, self.noise(seed), strict=True):
            stage.noise = noise
        self.key = job_key(seed, self.number)


@dataclass(eq=False)
class Stage:
    """State of a stage. Its tasks start in order; it is ready when all its parents are complete."""

    job: Job
    number: int
    profile: StageProfile
    noise: list[tuple[float, float]] = field(default_factory=list)  # of each task, see `task_noise`
    path_rank: int = 0  # order of stages that become ready at the same time
    rank: float = math.inf  # ascending in the order in which stages become ready; infinite until then
    parents: list[Stage] = field(default_factory=list)
    children: list[Stage] = field(default_factory=list)
    runs: dict[int, TaskRun] = field(default_factory=dict)  # runs of tasks that run or have finished
    done: set[int] = field(default_factory=set)  # tasks that have finished
    without_output: set[int] = field(default_factory=set)  # finished tasks whose output is lost
    returned: list[int] = field(default_factory=list)  # tasks whose run was lost; the last one runs next
    attempts: Counter[int] = field(default_factory=Counter)  # number of lost runs of each task
    failures: Counter[int] = field(default_factory=Counter)  # number of failed runs of each task
    copies: dict[int, TaskRun] = field(default_factory=dict)  # second (speculative) runs of running tasks
    copied: set[int] = field(default_factory=set)  # tasks whose current attempt has been copied
    late_ms: float = 0.0  # run time after which a task is copied; 0 if not known yet
    finished_ms: float = 0.0  # executor time of finished tasks
    factor: float = 1.0  # factor of task times, drawn in forks where estimates have errors

    def finish_task(self, executor: Executor, now_ms: float) -> None:
        """Record that an executor has finished its task of the stage."""
        self.done.add(executor.task)
        self.finished_ms += now_ms - executor.start_ms
        executor.start_ms = math.nan

    @property
    def unstarted(self) -> int:
        """Number of tasks that have not started."""
        return self.profile.num_tasks - len(self.runs)

    @property
    def finished(self) -> int:
        """Number of tasks that have finished."""
        return len(self.done)

    def next_task_number(self) -> int:
        """Return the number of the next task: the one whose run was lost last, else the first that never started."""
        return self.returned.pop() if self.returned else len(self.runs)

    def later_noise(self, task: int, key: int, copy: int = 0) -> tuple[float, float]:
        """Draw the noise of the current attempt at a task, which is not the first, or of its copy (``copy=COPY``)."""
        return self.chance(task, Purpose.LEVEL + copy, key), self.chance(task, Purpose.DURATION + copy, key)

    def chance(self, task: int, purpose: int, key: int) -> float:
        """Return the uniform random number for a purpose and the current attempt at a task."""
        before = sum(stage.num_tasks for stage in self.job.profile.stages[: self.number])
        return chance(key, before + task, self.attempts[task], purpose)

    def requeue(self, task: int) -> TaskRun:
        """Queue a task to run again; return its lost run."""
        self.attempts[task] += 1
        self.copied.discard(task)
        self.noise[task] = self.later_noise(task, self.job.key)
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
        """Whether all parents of the stage are complete."""
        return self.rank < math.inf

    @property
    def complete(self) -> bool:
        """Whether all tasks of the stage have finished."""
        return self.finished == self.profile.num_tasks


@dataclass(eq=False)
class Executor:
    """State of an executor: on a stage of its job, in the pool of its job, in a common pool, or moving."""

    number: int
    class_id: int
    job: Job | None = None
    stage: Stage | None = None
    warm: Stage | None = None  # stage of the last task that its JVM ran; None for a new JVM
    start_ms: float = math.nan  # start of the running task; NaN without one
    task: int = -1  # task that the executor started last
    is_copy: bool = False  # whether that run began as a speculative copy
    occupation: int = 0  # number of stages and moves so far; a process that began earlier is void
    away: bool = False  # whether the executor is out of the cluster

    @property
    def source(self) -> Source:
        """Source whose commitments the executor carries out."""
        return self.stage or self.job, self.class_id

    def detach(self) -> None:
        """Leave stage and job; the JVM ends."""
        self.job = self.stage = self.warm = None
        self.occupation += 1


#: A source: executors of one class on a stage, in the pool of a job, or in the common pool.
Source = tuple[Stage | Job | None, int]


def jobs_of(sequence: JobSequence) -> list[Job]:
    """Create the state of all jobs of a sequence, with their stages and noise."""
    jobs: list[Job] = []
    for profile, arrival_ms in zip(sequence.profiles, sequence.arrival_ms.tolist(), strict=True):
        job = Job(len(jobs), profile, arrival_ms)
        job.stages = [Stage(job, index, stage) for index, stage in enumerate(profile.stages)]
        job.draw_noise(sequence.seed)
        for child, parents in zip(job.stages, profile.parents, strict=True):
            child.parents = [job.stages[parent] for parent in parents]
        for parent, children in zip(job.stages, profile.children, strict=True):
            parent.children = [job.stages[child] for child in children]
        jobs.append(job)
    return jobs


def estimate(
    job: Job, first: Estimate, executors: list[Executor], now_ms: float
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Return the current estimates of a job, ``BELIEF`` [1], and of its stages, ``ESTIMATE`` [num_stages]."""
    belief, stages = records(first)
    for stage, row in zip(job.stages, stages, strict=True):
        row["finished"], row["finished_ms"] = stage.finished, stage.finished_ms
        running = [
            now_ms - executor.start_ms
            for executor in executors
            if executor.stage is stage and executor.start_ms >= 0
        ]
        row["running"], row["running_ms"] = len(running), sum(running)
    posterior(belief, stages)
    return belief, stages


def log_of(jobs: list[Job], moves: list[tuple[int, int, float]], lost: list[LostRun]) -> dict[str, Any]:
    """Return the arrays of an ``EpisodeRecord``; ``moves`` are executor, job, and departure time in ms."""
    stages = [stage for job in jobs for stage in job.stages]
    places = [(stage, task) for stage in stages for task in range(stage.profile.num_tasks)]
    number = {run: index for index, run in enumerate(places)}
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


def delay_factor(config: ClusterConfig, stage: Stage, task: int, key: int, is_copy: bool) -> float:
    """Return the straggler factor of the current attempt at a task, or of its copy; 1 if it is not slow."""
    share, factor = config.faults.stragglers
    purpose = Purpose.STRAGGLES + COPY * is_copy
    return factor if share > 0 and stage.chance(task, purpose, key) < share else 1.0


def redrawn_ms(
    config: ClusterConfig,
    executors: list[Executor],
    seed: int,
    now_ms: float,
    factors: dict[Job, list[float]],
) -> dict[tuple[int, int, int, int, bool], float]:
    """Redraw durations of running tasks, given that they end after ``now_ms``.

    Args:
        factors: factors of the task times of each stage of live jobs.

    Returns:
        Duration in ms by (job, stage, task, attempt, whether the run is a copy).
    """
    given = {}
    noises = {executor.job: executor.job.noise(seed) for executor in executors if executor.job}
    for executor in executors:
        stage, task, is_copy = executor.stage, executor.task, executor.is_copy
        if stage is None or not executor.start_ms >= 0:
            continue
        runs = stage.runs if stage.runs[task][2] == executor.number else stage.copies
        start_ms, finish_ms, _, wave, parallelism = runs[task]
        if finish_ms > now_ms:
            key = job_key(seed, stage.job.number)
            noise = stage.later_noise(task, key, COPY) if is_copy else noises[stage.job][stage.number][task]
            factor = factors[stage.job][stage.number] * delay_factor(config, stage, task, key, is_copy)
            since_ms = start_ms + (now_ms - start_ms) / factor if factor != 1 else now_ms
            run = Wave(wave), parallelism, noise, start_ms, since_ms
            task_ms = longer_ms(config, stage.profile.durations, *run)
            if task_ms is not None and start_ms + task_ms * factor > now_ms:
                given[stage.job.number, stage.number, task, stage.attempts[task], is_copy] = task_ms * factor
    return given
