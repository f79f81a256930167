"""Estimates that schedulers have of jobs: task times and numbers of tasks, with their uncertainty.

The true mean task time of a stage is its estimate times a factor of the job and a factor of the stage. Both are
log-normal; their standard deviations are those of ``Knowledge``. Errors are drawn from the seed of the sequence, so all
schedulers meet the same. ``simulator.cluster.engine.posterior`` updates the estimates while tasks finish.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import Knowledge
from workloads.arrivals import JobSequence, RandomStream, WorkPrior, random_stream
from workloads.job import LONGEST_MS, MOST_TASKS, JobProfile, TaskDurations, Wave

__all__ = ["STEP", "Estimate", "draw_estimates", "from_history", "typical_durations", "without_history"]

#: Work of the profiles that schedulers see is a power of this, ms: they keep results by profile.
STEP = 2.0
#: Vectors of stage errors that a profile has. Each job meets one of them.
VARIANTS = 8
#: Times that are shorter count as this long where a logarithm is taken, ms.
SHORTEST_MS = 1e-3


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimate of a job at its arrival.

    Attributes:
        profile: the job as it is estimated, but for a factor of all its task times.
        task_ms: estimated task time of each stage, ms: float64 [num_stages].
        log_work: logarithm of the estimated work, ms.
        job_var: variance of the logarithm of the job's factor, by which its true task times are longer than estimated;
            0 if it is exact.
        stage_var: variance of the logarithm of the factor of each stage.
        is_scaled: whether the profile that schedulers see is scaled to the best estimate of the job's work.
    """

    profile: JobProfile
    task_ms: NDArray[np.float64]
    log_work: float
    job_var: float
    stage_var: float
    is_scaled: bool

    @property
    def first_work_ms(self) -> float:
        """Work that is expected when the job arrives, ms."""
        return math.exp(self.log_work)

    def scaled(self, scale: int) -> JobProfile:
        """Return the profile with a work of ``STEP ** scale`` ms; as it is if its task times are exact."""
        return _scaled(self.profile, scale) if self.is_scaled else self.profile


def draw_estimates(sequence: JobSequence, knowledge: Knowledge) -> list[Estimate]:
    """Return what schedulers are told of the jobs of a sequence.

    The draws do not depend on the size of the errors: a job that is estimated too long by a small error is estimated
    too long by a large one.

    Args:
        sequence: the jobs, with the task times that are expected on the cluster.
        knowledge: the errors.
    """
    estimates, prior = [], sequence.work_prior
    typical = typical_durations(sequence.profiles) if knowledge.unknown else None
    for job, profile in enumerate(sequence.profiles):
        uniform, log_factor, variant = _draws(sequence.seed, job)
        is_unknown = uniform < knowledge.unknown
        told = _told(profile, knowledge.stage_error, knowledge.task_count_error, variant)
        if is_unknown:
            estimates.append(without_history(told, prior, typical))
        else:
            estimates.append(from_history(told, prior, knowledge, math.exp(knowledge.job_error * log_factor)))
    return estimates


@lru_cache(maxsize=10_000)
def _draws(seed: int, job: int) -> tuple[float, float, int]:
    """Return a uniform number, a standard normal one, and the number of a variant; all schedulers draw the same."""
    random = random_stream(seed, RandomStream.ESTIMATES, job)
    return random.random(), random.standard_normal(), int(random.integers(VARIANTS))


def from_history(
    profile: JobProfile, prior: WorkPrior | None, knowledge: Knowledge, factor: float = 1.0
) -> Estimate:
    """Return the estimate of a job that history knows.

    History and the distributions of the workload are two sources: of a job's factor, and of those of its stages.

    Args:
        profile: the job as history tells it, but for a factor.
        prior: distributions of the workload; None if they are not known.
        knowledge: how far history is from the truth.
        factor: of all task times.
    """
    job_var, stage_var = knowledge.job_error**2, knowledge.stage_error**2
    if prior is not None and stage_var > 0:
        weight = stage_var / (stage_var + prior.stage_sd_log**2)
        profile, stage_var = _evened(profile, weight), weight * prior.stage_sd_log**2
    num_tasks, task_ms = _tasks(profile)
    work_ms = max(float(num_tasks @ task_ms) * factor, SHORTEST_MS)
    log_work, is_scaled = math.log(work_ms), job_var + stage_var > 0
    if prior is not None and job_var > 0:
        # Errors of the stages make the job's work a less certain witness of its factor.
        shares = num_tasks * task_ms * (factor / work_ms)
        work_var = prior.sd_log**2 + stage_var * float(shares @ shares)
        weight = job_var / (job_var + work_var)
        shift, job_var = weight * (prior.mean_log_ms - log_work), weight * work_var
        log_work, factor = log_work + shift, factor * math.exp(shift)
    return Estimate(profile, task_ms * factor, log_work, job_var, stage_var, is_scaled)


def without_history(profile: JobProfile, prior: WorkPrior, typical: TaskDurations | None = None) -> Estimate:
    """Return the estimate of a job of which stages and numbers of tasks are known only: typical times of the workload.

    Args:
        profile: the job; its task times do not count.
        prior: distributions of the workload.
        typical: see ``typical_durations``; by default durations that are all the same.
    """
    task_ms = np.full(profile.num_stages, math.exp(prior.task_log_ms))
    log_work = prior.task_log_ms + math.log(profile.num_tasks)
    job_var, stage_var = prior.task_sd_log**2, prior.stage_sd_log**2
    shape = _with_durations(profile, TaskDurations.constant(1.0) if typical is None else typical)
    return Estimate(shape, task_ms, log_work, job_var, stage_var, is_scaled=True)


@lru_cache(maxsize=64)
def typical_durations(profiles: tuple[JobProfile, ...]) -> TaskDurations:
    """Return how durations depend on wave and parallelism level, over all tasks of some jobs; their mean is 1 ms."""
    total: dict[tuple[Wave, int], NDArray[np.float64]] = {}
    for profile in profiles:
        for cell, times in _cell_times(profile).items():
            total[cell] = total.get(cell, 0.0) + times
    tables: list[dict[int, list[float]]] = [{} for _ in Wave]
    for (wave, level), (in_cell_ms, work_ms) in total.items():
        tables[wave][level] = [float(in_cell_ms / work_ms)]
    return TaskDurations.from_tables(*tables, mean_ms=1.0)


@lru_cache(maxsize=4096)
def _cell_times(profile: JobProfile) -> dict[tuple[Wave, int], NDArray[np.float64]]:
    """Return by wave and level what the tasks of a job take there, and what they take on average, ms."""
    times: dict[tuple[Wave, int], NDArray[np.float64]] = {}
    for stage in profile.stages:
        for wave in Wave:
            for level, values in stage.durations.table(wave).items():
                if values.size:
                    tasks_ms = np.array([float(values.mean()), max(stage.durations.mean_ms, SHORTEST_MS)])
                    times[wave, level] = times.get((wave, level), 0.0) + stage.num_tasks * tasks_ms
    return times


@lru_cache(maxsize=5_000)
def _with_durations(profile: JobProfile, durations: TaskDurations) -> JobProfile:
    stages = [replace(stage, durations=durations) for stage in profile.stages]
    return replace(profile, stages=tuple(stages))


@lru_cache(maxsize=5_000)
def _told(profile: JobProfile, stage_error: float, task_count_error: float, variant: int) -> JobProfile:
    """Return a profile with errors of its stages."""
    if stage_error == task_count_error == 0:
        return profile
    # Neither the seed nor the job's place: sequences share the results that schedulers keep by profile.
    random = random_stream(variant, RandomStream.ESTIMATES, zlib.crc32(profile.name.encode()))
    logs = random.standard_normal((2, profile.num_stages))
    stages = []
    for stage, (log_ms, log_tasks) in zip(profile.stages, logs.T.tolist(), strict=True):
        durations = _times(stage.durations, math.exp(stage_error * log_ms))
        tasks = round(stage.num_tasks * math.exp(task_count_error * log_tasks))
        stages.append(replace(stage, num_tasks=min(max(tasks, 1), MOST_TASKS), durations=durations))
    return replace(profile, stages=tuple(stages))


@lru_cache(maxsize=5_000)
def _evened(profile: JobProfile, weight: float) -> JobProfile:
    """Return a profile whose stages have task times nearer to the job's mean, by a weight from 0 to 1."""
    num_tasks, task_ms = _tasks(profile)
    apart = np.log(np.maximum(task_ms, SHORTEST_MS) / max(num_tasks @ task_ms / num_tasks.sum(), SHORTEST_MS))
    factors = np.exp(-weight * apart).tolist()
    stages = [
        replace(stage, durations=_times(stage.durations, factor))
        for stage, factor in zip(profile.stages, factors, strict=True)
    ]
    return replace(profile, stages=tuple(stages))


@lru_cache(maxsize=5_000)
def _tasks(profile: JobProfile) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numbers of tasks and the task times, ms, of the stages."""
    stages = profile.stages
    return (
        np.array([stage.num_tasks for stage in stages], dtype=np.float64),
        np.array([stage.durations.mean_ms for stage in stages]),
    )


@lru_cache(maxsize=10_000)
def _scaled(profile: JobProfile, scale: int) -> JobProfile:
    factor = STEP**scale / max(profile.work_ms, SHORTEST_MS)
    stages = [replace(stage, durations=_times(stage.durations, factor)) for stage in profile.stages]
    return replace(profile, stages=tuple(stages))


def _times(durations: TaskDurations, factor: float) -> TaskDurations:
    """Return durations that are longer by a factor, with as few values as possible."""
    durations = _moments(durations)
    values = np.minimum(np.append(durations.values, durations.mean_ms) * factor, LONGEST_MS)
    return TaskDurations(durations.levels, values[:-1], durations.cells, float(values[-1]))


@lru_cache(maxsize=4096)
def _moments(durations: TaskDurations) -> TaskDurations:
    """Return durations with the same means and variances, of few values: thousands of profiles are made of them."""
    values: list[float] = []
    cells = np.zeros_like(durations.cells)
    for wave in Wave:
        for place, (start, stop) in enumerate(durations.cells[wave].tolist()):
            first, cell = len(values), durations.values[start:stop]
            if stop > start:
                mean_ms, sd_ms = float(cell.mean()), float(cell.std())
                short = max(math.ceil((sd_ms / mean_ms) ** 2), 1) if mean_ms > 0 else 1
                values += [max(mean_ms - sd_ms / math.sqrt(short), 0.0)] * short
                values += [mean_ms + sd_ms * math.sqrt(short)]
            cells[wave, place] = first, len(values)
    return TaskDurations(durations.levels, np.minimum(values, LONGEST_MS), cells, durations.mean_ms)
