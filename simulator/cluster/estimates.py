"""What schedulers know of jobs: estimates of task times and numbers of tasks, and how uncertain they are.

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

from simulator.cluster.knowledge import Knowledge
from workloads.arrivals import JobSequence, RandomStream, WorkPrior, random_stream
from workloads.job import LONGEST_MS, MOST_TASKS, JobProfile, TaskDurations, Wave

__all__ = ["STEP", "Estimate", "draw_estimates", "estimate_of"]

#: Work of the profiles that schedulers see is a power of this, ms: they keep results by profile.
STEP = 1.25
#: Vectors of stage errors that a profile has. Each job meets one of them.
VARIANTS = 8
#: Times that are shorter count as this long where a logarithm is taken, ms.
SHORTEST_MS = 1e-3


@dataclass(frozen=True, eq=False)
class Estimate:
    """What is known of a job when it arrives.

    Attributes:
        profile: the job as it is estimated.
        task_ms: estimated task time of each stage, ms: float64 [num_stages].
        log_work: logarithm of the estimated work, ms.
        prior_log: mean of the logarithm of the job's factor, by which its true task times are longer than estimated.
        prior_var: its variance; 0 if it is exact.
        stage_var: variance of the logarithm of the factor of each stage.
        is_scaled: whether the profile that schedulers see is scaled to the best estimate of the job's factor.
    """

    profile: JobProfile
    task_ms: NDArray[np.float64]
    log_work: float
    prior_log: float = 0.0
    prior_var: float = 0.0
    stage_var: float = 0.0
    is_scaled: bool = False

    @property
    def first_work_ms(self) -> float:
        """Work that is expected when the job arrives, ms."""
        return math.exp(self.log_work + self.prior_log + (self.prior_var + self.stage_var) / 2)

    def scaled(self, scale: int) -> JobProfile:
        """Return the profile with a work of ``STEP ** scale`` ms; as it is if its factor is exact."""
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
    has_errors = not replace(knowledge, unknown=0.0).is_exact
    for job, profile in enumerate(sequence.profiles):
        random = random_stream(sequence.seed, RandomStream.ESTIMATES, job)
        is_unknown = random.random() < knowledge.unknown
        log_factor, variant = random.standard_normal(), int(random.integers(VARIANTS))
        if is_unknown:
            told = _told(profile, None, knowledge.task_count_error, variant)
            estimates.append(_of_unknown(told, prior))
        else:
            if has_errors:
                profile = _told(profile, knowledge.stage_error, knowledge.task_count_error, variant)
            factor = math.exp(knowledge.job_error * log_factor)
            estimates.append(estimate_of(profile, factor, knowledge, prior))
    return estimates


def estimate_of(
    profile: JobProfile, factor: float, knowledge: Knowledge, prior: WorkPrior | None
) -> Estimate:
    """Return the estimate of a job with history.

    Two sources tell the job's factor: the estimate itself, and the distribution of work in the workload.

    Args:
        profile: the job as it is estimated, but for the factor.
        factor: of all its task times.
        knowledge: how far such estimates are from the truth.
        prior: the distribution of work; None if it is not known.
    """
    task_ms = np.array([stage.durations.mean_ms for stage in profile.stages]) * factor
    work_ms = task_ms * [stage.num_tasks for stage in profile.stages]
    log_work = math.log(max(work_ms.sum(), SHORTEST_MS))
    job_var, stage_var = knowledge.job_error**2, knowledge.stage_error**2
    prior_log, prior_var = 0.0, job_var
    if prior is not None and job_var > 0:
        # Errors of the stages make the job's work a less certain witness of its factor.
        shares = work_ms / max(work_ms.sum(), SHORTEST_MS)
        work_var = prior.sd_log**2 + stage_var * float(shares @ shares)
        weight = job_var / (job_var + work_var)
        prior_log, prior_var = weight * (prior.mean_log_ms - log_work), weight * work_var
    return Estimate(profile, task_ms, log_work, prior_log, prior_var, stage_var, job_var > 0)


def _of_unknown(profile: JobProfile, prior: WorkPrior) -> Estimate:
    """Return the estimate of a job without history: all its tasks take the typical time of the workload."""
    task_ms = np.full(profile.num_stages, math.exp(prior.task_log_ms))
    log_work = prior.task_log_ms + math.log(profile.num_tasks)
    return Estimate(
        profile, task_ms, log_work, 0.0, prior.task_sd_log**2, prior.stage_sd_log**2, is_scaled=True
    )


@lru_cache(maxsize=5_000)
def _told(
    profile: JobProfile, stage_error: float | None, task_count_error: float, variant: int
) -> JobProfile:
    """Return a profile with errors of its stages; without any stage error, all tasks take the same time."""
    # Neither the seed nor the job's place: sequences share the results that schedulers keep by profile.
    random = random_stream(variant, RandomStream.ESTIMATES, zlib.crc32(profile.name.encode()))
    logs = random.standard_normal((2, profile.num_stages))
    stages = []
    for stage, (log_ms, log_tasks) in zip(profile.stages, logs.T.tolist(), strict=True):
        if stage_error is None:
            durations = TaskDurations.constant(1.0)
        else:
            durations = _times(_moments(stage.durations), math.exp(stage_error * log_ms))
        tasks = round(stage.num_tasks * math.exp(task_count_error * log_tasks))
        stages.append(replace(stage, num_tasks=min(max(tasks, 1), MOST_TASKS), durations=durations))
    return replace(profile, stages=tuple(stages))


@lru_cache(maxsize=10_000)
def _scaled(profile: JobProfile, scale: int) -> JobProfile:
    factor = STEP**scale / max(profile.work_ms, SHORTEST_MS)
    stages = [replace(stage, durations=_times(stage.durations, factor)) for stage in profile.stages]
    return replace(profile, stages=tuple(stages))


def _times(durations: TaskDurations, factor: float) -> TaskDurations:
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
