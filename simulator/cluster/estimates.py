"""Estimates of jobs that schedulers see: task times and numbers of tasks, with their uncertainty (lognormal errors).

The true mean task time of a stage is its estimate times a factor of the job and a factor of the stage. Both factors are
log-normal, with the standard deviations of ``Knowledge``. They depend on the seed of the sequence, so that all
schedulers see the same errors. ``simulator.cluster.engine.posterior`` updates estimates when tasks finish.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import Knowledge
from simulator.cluster.estimators import FittedEstimator
from workloads.arrivals import JobSequence, RandomStream, WorkPrior, random_stream
from workloads.errors import LONGEST_MS
from workloads.job import MOST_TASKS, JobProfile, TaskDurations, Wave

if TYPE_CHECKING:
    from simulator.cluster.stage_times import Prediction

#: The work, in ms, of profiles that schedulers see is a power of this, as schedulers cache results by profile.
STEP = 2.0
#: Number of vectors of stage errors of a profile; each job has one of these vectors.
VARIANTS = 8
#: Half widths of the intervals that contain 50 and 90 % of a normal distribution, in standard deviations.
HALF_WIDTHS = (0.6745, 1.6449)
#: Smallest time whose logarithm is taken, ms.
SHORTEST_MS = 1e-3


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimate of a job at its arrival."""

    profile: JobProfile  # the estimated job, up to a factor of all its task times
    task_ms: NDArray[np.float64]  # estimated mean task time of each stage, ms: float64 [num_stages]
    log_work: float  # logarithm of the estimated work in ms
    job_var: float  # variance of the logarithm of the job's factor (true over estimated times); 0 if exact
    stage_var: float  # variance of the logarithm of each stage's factor
    is_scaled: bool  # whether schedulers see the profile scaled to the current estimate of the work
    is_predicted: bool = False  # whether a predictor made the estimate from the job's DAG
    half_widths: tuple[float, float] = (
        HALF_WIDTHS  # of the 50 and 90 % interval of the work, in standard deviations
    )

    @property
    def first_work_ms(self) -> float:
        """Estimated work when the job arrives, ms."""
        return math.exp(self.log_work)

    def work_interval_ms(self, share: Literal[50, 90] = 50) -> tuple[float, float]:
        """Return the ends of an interval for the work of a predicted job, ms.

        The errors of the stages are relative to that of the work, and do not widen the interval.

        Args:
            share: percentage of jobs whose work is in their intervals.
        """
        reach = self.half_widths[share == 90] * math.sqrt(self.job_var)
        return math.exp(self.log_work - reach), math.exp(self.log_work + reach)

    def scaled(self, scale: int) -> JobProfile:
        """Return the profile with a work of ``STEP ** scale`` ms; unchanged if its task times are exact."""
        return _scaled(self.profile, scale) if self.is_scaled else self.profile


def draw_estimates(sequence: JobSequence, knowledge: Knowledge) -> list[Estimate]:
    """Draw the estimates of all jobs of a sequence, which have their expected task times on the cluster.

    The random numbers do not depend on the size of errors: larger errors scale the same deviations.
    """
    estimates, prior = [], sequence.work_prior
    typical = typical_durations(sequence.profiles) if knowledge.unknown else None
    predictor = predictor_for(knowledge.estimator, sequence.library) if knowledge.unknown else None
    for job, profile in enumerate(sequence.profiles):
        uniform, log_factor, variant = _draws(sequence.seed, job)
        noisy = _noisy(profile, knowledge.stage_error, knowledge.task_count_error, variant)
        if uniform < knowledge.unknown:
            estimates.append(without_history(noisy, prior, typical, predictor))
        else:
            factor = math.exp(knowledge.job_error * log_factor)
            estimates.append(from_history(noisy, prior, knowledge, factor))
    return estimates


def redrawn_factors(
    seed: int, job: int, belief: NDArray[np.void], stages: NDArray[np.void], mean_ms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Draw mean task times of a job's stages from the posterior, relative to the true ones: float64 [num_stages].

    Args:
        belief: estimate of the job, ``BELIEF`` [1].
        stages: estimates of the stages, ``ESTIMATE`` [num_stages].
        mean_ms: true mean task times, float64 [num_stages], ms.
    """
    stage_var, job_var = float(belief["stage_var"][0]), float(belief["log_sd"][0]) ** 2
    if stage_var + job_var == 0:
        return np.ones(len(stages))
    # The variance of a stage is share² * job_var + share * stage_var, see `posterior`; share is 1 without observations.
    variance = stages["log_sd"] ** 2
    share = 2 * variance / (stage_var + np.sqrt(stage_var**2 + 4 * job_var * variance))
    random = random_stream(seed, RandomStream.TASK_TIMES, job)
    log = share * math.sqrt(job_var) * random.standard_normal()
    log += np.sqrt(share * stage_var) * random.standard_normal(len(stages))
    drawn_ms = np.minimum(stages["mean_ms"] * np.exp(log), LONGEST_MS)
    return np.asarray(drawn_ms / np.maximum(mean_ms, SHORTEST_MS))


@lru_cache(maxsize=10_000)
def _draws(seed: int, job: int) -> tuple[float, float, int]:
    """Return the random numbers of a job's errors, equal for all schedulers: uniform, standard normal, variant."""
    random = random_stream(seed, RandomStream.ESTIMATES, job)
    return random.random(), random.standard_normal(), int(random.integers(VARIANTS))


def from_history(
    profile: JobProfile, prior: WorkPrior | None, knowledge: Knowledge, factor: float = 1.0
) -> Estimate:
    """Estimate a job with history: combine its recorded task times with the distributions of the workload.

    Args:
        profile: the job as recorded in the history, up to a common factor.
        prior: distributions of the workload; None if unknown.
        knowledge: standard deviations of the errors of the history.
        factor: common factor of all task times.
    """
    job_var, stage_var = knowledge.job_error**2, knowledge.stage_error**2
    if prior is not None and stage_var > 0:
        weight = stage_var / (stage_var + prior.stage_sd_log**2)
        profile, stage_var = _shrunk(profile, weight), weight * prior.stage_sd_log**2
    num_tasks, task_ms = _tasks(profile)
    work_ms = max(float(num_tasks @ task_ms) * factor, SHORTEST_MS)
    log_work, is_scaled = math.log(work_ms), job_var + stage_var > 0
    if prior is not None and job_var > 0:
        # Errors of the stages make the job's work less informative on its factor.
        shares = num_tasks * task_ms * (factor / work_ms)
        work_var = prior.sd_log**2 + stage_var * float(shares @ shares)
        weight = job_var / (job_var + work_var)
        shift, job_var = weight * (prior.mean_log_ms - log_work), weight * work_var
        log_work, factor = log_work + shift, factor * math.exp(shift)
    return Estimate(profile, task_ms * factor, log_work, job_var, stage_var, is_scaled)


def predictor_for(
    estimator: str | FittedEstimator, profiles: tuple[JobProfile, ...], also_dag_only: bool = False
) -> FittedEstimator | None:
    """Return the predictor of an estimator for jobs without history.

    Args:
        estimator: see ``Knowledge``.
        profiles: jobs of the workload, to which ``forest`` is fitted.
        also_dag_only: see ``predictor_of``.

    Returns:
        None: all jobs have typical times, as asked for, or as the workload has too few jobs.
    """
    if estimator == "typical":
        return None
    if isinstance(estimator, FittedEstimator):
        return estimator
    if not profiles:
        return None
    from simulator.cluster.predictor import predictor_of  # compiled code is slow to import

    return predictor_of(profiles, also_dag_only)


def share_unpredicted(sequence: JobSequence, estimator: str | FittedEstimator) -> float:
    """Return the share of the jobs that have typical task times if they are without history, see ``Knowledge``."""
    predictor = predictor_for(estimator, sequence.library)
    if predictor is None:
        return 1.0
    return float(np.mean([predictor.predict(profile) is None for profile in sequence.profiles]))


def has_plan(profile: JobProfile) -> bool:
    """Return whether bytes or operators of any stage are known."""
    return any(stage.operators or stage.input_bytes is not None for stage in profile.stages)


@lru_cache(maxsize=10_000)
def dag_only(profile: JobProfile) -> JobProfile:
    """Return a job without bytes, rows and operators of its stages; itself if it has none."""
    stages = tuple(
        replace(stage, input_bytes=None, input_rows=None, shuffle_bytes=None, operators=())
        if stage.operators or stage.input_bytes is not None
        else stage
        for stage in profile.stages
    )
    return profile if stages == profile.stages else replace(profile, stages=stages)


def without_history(
    profile: JobProfile,
    prior: WorkPrior,
    typical: TaskDurations | None = None,
    predictor: FittedEstimator | None = None,
) -> Estimate:
    """Estimate a job without history: predicted task times of its stages, else typical task times of the workload.

    Args:
        profile: the job; its task times are not used.
        prior: distributions of the workload.
        typical: durations by wave and parallelism, relative to their mean; see ``typical_durations``. By default all
            durations are equal.
        predictor: source of predictions; jobs that it does not predict have typical times, as without a predictor.
    """
    durations = TaskDurations.constant(1.0) if typical is None else typical
    prediction = None if predictor is None else predictor.predict(profile)
    if prediction is None:
        task_ms = np.full(profile.num_stages, math.exp(prior.task_log_ms))
        log_work = prior.task_log_ms + math.log(profile.num_tasks)
        job_var, stage_var = prior.task_sd_log**2, prior.stage_sd_log**2
        shape = _with_durations(profile, durations)
        return Estimate(shape, task_ms, log_work, job_var, stage_var, is_scaled=True)
    task_ms = prediction.task_ms
    log_work = math.log(max(float(_tasks(profile)[0] @ task_ms), SHORTEST_MS))
    shape = _with_task_ms(profile, durations, prediction)
    return Estimate(
        *(shape, task_ms, log_work, prediction.job_var, prediction.stage_var),
        is_scaled=True,
        is_predicted=True,
        half_widths=prediction.half_widths,
    )


@lru_cache(maxsize=5_000)
def _with_task_ms(profile: JobProfile, durations: TaskDurations, prediction: Prediction) -> JobProfile:
    from simulator.cluster.stage_times import predicted_durations  # compiled code is slow to import

    of_stages = predicted_durations(durations, prediction)
    stages = [
        replace(stage, durations=of_stage) for stage, of_stage in zip(profile.stages, of_stages, strict=True)
    ]
    return replace(profile, stages=tuple(stages))


@lru_cache(maxsize=64)
def typical_durations(profiles: tuple[JobProfile, ...]) -> TaskDurations:
    """Return typical durations by wave and parallelism level, averaged over all tasks of the jobs; the mean is 1 ms."""
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
    """Return a job's task times by wave and level: [total in the cell, total at mean task times], ms."""
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
def _noisy(profile: JobProfile, stage_error: float, task_count_error: float, variant: int) -> JobProfile:
    """Return a profile with errors of its stages' task times and numbers of tasks."""
    if stage_error == task_count_error == 0:
        return profile
    # Independent of the seed and the job's number, so that sequences share results that are cached by profile.
    random = random_stream(variant, RandomStream.ESTIMATES, zlib.crc32(profile.name.encode()))
    logs = random.standard_normal((2, profile.num_stages))
    stages = []
    for stage, (log_ms, log_tasks) in zip(profile.stages, logs.T.tolist(), strict=True):
        durations = _multiplied(stage.durations, math.exp(stage_error * log_ms))
        tasks = round(stage.num_tasks * math.exp(task_count_error * log_tasks))
        stages.append(replace(stage, num_tasks=min(max(tasks, 1), MOST_TASKS), durations=durations))
    return replace(profile, stages=tuple(stages))


@lru_cache(maxsize=5_000)
def _shrunk(profile: JobProfile, weight: float) -> JobProfile:
    """Return a profile whose stages have task times moved towards the job's mean, with a weight from 0 to 1."""
    num_tasks, task_ms = _tasks(profile)
    apart = np.log(np.maximum(task_ms, SHORTEST_MS) / max(num_tasks @ task_ms / num_tasks.sum(), SHORTEST_MS))
    factors = np.exp(-weight * apart).tolist()
    stages = [
        replace(stage, durations=_multiplied(stage.durations, factor))
        for stage, factor in zip(profile.stages, factors, strict=True)
    ]
    return replace(profile, stages=tuple(stages))


@lru_cache(maxsize=5_000)
def _tasks(profile: JobProfile) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the number of tasks and the mean task time, ms, of each stage: float64 [num_stages] each."""
    stages = profile.stages
    return (
        np.array([stage.num_tasks for stage in stages], dtype=np.float64),
        np.array([stage.durations.mean_ms for stage in stages]),
    )


@lru_cache(maxsize=10_000)
def _scaled(profile: JobProfile, scale: int) -> JobProfile:
    factor = STEP**scale / max(profile.work_ms, SHORTEST_MS)
    stages = [replace(stage, durations=_multiplied(stage.durations, factor)) for stage in profile.stages]
    return replace(profile, stages=tuple(stages))


def _multiplied(durations: TaskDurations, factor: float) -> TaskDurations:
    """Return durations times a factor, reduced to a few values."""
    durations = _condensed(durations)
    values = np.minimum(np.append(durations.values, durations.mean_ms) * factor, LONGEST_MS)
    return TaskDurations(durations.levels, values[:-1], durations.cells, float(values[-1]))


@lru_cache(maxsize=4096)
def _condensed(durations: TaskDurations) -> TaskDurations:
    """Reduce durations to few values with the same means and variances, as thousands of profiles are kept."""
    spans = durations.cells.reshape(-1, 2)
    start, count = spans[:, 0], spans[:, 1] - spans[:, 0]
    filled = count > 0
    start, count = start[filled], count[filled]
    # Cells may overlap, so their values are gathered first.
    first = np.cumsum(count) - count
    values = durations.values[np.repeat(start - first, count) + np.arange(count.sum())]
    mean_ms = np.add.reduceat(values, first) / count
    sd_ms = np.sqrt(np.add.reduceat((values - np.repeat(mean_ms, count)) ** 2, first) / count)
    # Several short values and a long one: one short value would be negative if the deviation exceeds the mean.
    relative = np.divide(sd_ms, mean_ms, out=np.zeros_like(mean_ms), where=mean_ms > 0)
    short = np.maximum(np.ceil(relative**2), 1)
    size = np.zeros(len(spans), dtype=np.int64)
    size[filled] = short + 1
    end = np.cumsum(size)
    few = np.repeat(np.maximum(mean_ms - sd_ms / np.sqrt(short), 0.0), size[filled])
    few[end[filled] - 1] = mean_ms + sd_ms * np.sqrt(short)
    cells = np.stack([end - size, end], axis=1).reshape(durations.cells.shape)
    return TaskDurations(durations.levels, np.minimum(few, LONGEST_MS), cells, durations.mean_ms)
