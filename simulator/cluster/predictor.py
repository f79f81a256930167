"""Predictions for jobs without history by forests, each of which was fitted without the templates that it predicts.

A prediction for a job must not come from the job itself, nor from one of the same template, such as the same query on
more data. So ``predictor_of`` splits the templates of a workload into groups, and fits a forest to the jobs of all
other groups for each of them (cross-fitting). ``simulator.cluster.estimator_file`` writes predictors to files.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.cluster.estimates import HALF_WIDTHS, dag_only, has_plan
from simulator.cluster.estimators import FittedEstimator
from simulator.cluster.stage_times import (
    Forest,
    Prediction,
    fit_forest,
    log_task_ms,
    num_tasks,
    stage_features,
)
from simulator.compiled import compiled, inner
from workloads.display import count_text
from workloads.job import JobProfile, StageProfile, TaskDurations

__all__ = ["Accuracy", "CrossFit", "Predictor", "predictor_of", "template_keys", "templates"]

#: Numbers of groups of templates, and of templates below which no forest is fitted.
GROUPS, FEWEST_TEMPLATES = 5, 5
#: Number of jobs to which a forest is fitted at most, drawn at random.
MOST_JOBS = 2_000
#: Largest number of stages of a job that is predicted, as a larger job would take more than 10 ms.
MOST_STAGES = 1_000
#: Power of the variance between trees, and shares of their usual variance that are tried, see ``_variances``.
POWER, SHARES = 1.5, (0.1, 0.3, 1.0, 3.0)
#: Smallest factor of variances, smallest variance between trees, and largest variance of a job's error.
SMALLEST_FACTOR, SMALLEST_VARIANCE, MOST_VARIANCE = 0.1, 1e-6, 4.0
#: Largest half width of an interval, in standard deviations.
MOST_HALF_WIDTH = 10.0
#: Endings of a job's name: the number that importers give to further queries of the same name, such as `` (2)``; and a
#: size of the input, such as ``-100g``.
_NUMBER = re.compile(r" \(\d{1,9}\)$")
_SIZE = re.compile(r"[-_ ]?\d{1,9}(\.\d{1,9})? ?[kmgt]b?$", re.IGNORECASE)


@dataclass(frozen=True)
class Accuracy:
    """Errors of predictions for jobs of templates to which the forest was not fitted.

    Attributes:
        jobs: number of predicted jobs.
        work_sd: root mean square of the errors of the logarithm of a job's work.
        stage_sd: root mean square of the errors of the logarithm of a stage's task time relative to its job's work;
            stages are weighted by their numbers of tasks.
        within_50, within_90: shares of the jobs whose work is in the 50 and in the 90 % interval of the prediction.
            These intervals are fitted to jobs of other groups of templates.
    """

    jobs: int
    work_sd: float
    stage_sd: float
    within_50: float
    within_90: float

    def __str__(self) -> str:
        """Describe the errors in words; error factors are those of one standard deviation."""
        return (
            f"of {count_text(self.jobs, 'job')} whose template the forest has not seen, the work is off by a "
            f"factor of {math.exp(self.work_sd):.2f} (standard deviation {self.work_sd:.2f} of its logarithm), the "
            f"task time of a stage by {math.exp(self.stage_sd):.2f} ({self.stage_sd:.2f}); {self.within_50:.0%} are "
            f"in the 50 % interval, {self.within_90:.0%} in the 90 % interval"
        )


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Forests that were fitted without a group of templates each, with the variances of their errors.

    Attributes:
        forests: for each group of templates, a forest fitted to the jobs of all other groups; the last one is fitted to
            all jobs.
        job_var: variance of the error of the logarithm of a job's work: a constant, and a factor of the variance
            between the trees to the power of ``POWER``.
        stage_var: variance of the logarithm of a stage's error relative to its job.
        half_widths: half widths of the 50 and 90 % interval of a job's work, in standard deviations (``_half_widths``).
        lowest, highest: bounds of each feature outside of which jobs are unlike those of the fit, float64 [features].
        accuracy: errors for jobs of templates that a forest has not seen.
    """

    forests: tuple[Forest, ...]
    job_var: tuple[float, float]
    stage_var: float
    half_widths: tuple[float, float]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    accuracy: Accuracy


@dataclass(frozen=True, eq=False)
class Predictor(FittedEstimator):
    """Predictions for the jobs of a workload and for others, by a forest that was fitted without the job's template.

    Attributes:
        fits: forests that use all that is known of the jobs; and, if there is a second entry, forests that only use
            DAGs and numbers of tasks, for jobs of which no more is known.
        group: group of each template, by each of its keys (``template_keys``).
        jobs, templates: numbers of jobs and templates of the workload.
        name: name of the file that contains the predictor, or of the estimator.
    """

    fits: tuple[CrossFit, ...]
    group: Mapping[int, int]
    jobs: int
    templates: int
    name: str = "forest"

    def __str__(self) -> str:
        return self.name

    def predict(self, profile: JobProfile) -> Prediction | None:
        """Predict the task times of a job; its own task times are not used. The last results are cached.

        Returns:
            The prediction; None if the job is too large or unlike all jobs of the fit: it has more than ``MOST_STAGES``
            stages, or a feature of a stage is out of bounds.
        """
        return _predict(self, profile)

    def has_template(self, name: str) -> bool:
        """Return whether a job of this name is of a template of the fit: the name without number and size is known."""
        return _name_key(name) in self.group

    def warm_up(self) -> None:
        """Load compiled code, so that the first prediction takes no longer than others."""
        job = JobProfile("", (StageProfile(1, TaskDurations.constant(1.0)),))
        self.fits[-1].forests[-1].predict(stage_features(job), num_tasks(job))
        template_keys(job)


@lru_cache(maxsize=5_000)
def _predict(predictor: Predictor, profile: JobProfile) -> Prediction | None:
    if profile.num_stages > MOST_STAGES:
        return None
    fit = predictor.fits[0 if has_plan(profile) else -1]
    features = stage_features(profile)
    if (features < fit.lowest).any() or (features > fit.highest).any():
        return None
    groups = [predictor.group[key] for key in template_keys(profile) if key in predictor.group]
    forest = fit.forests[groups[0] if groups else -1]
    log_ms, log_ratio, between_trees = forest.predict(features, num_tasks(profile))
    job_var = float(_job_variance(fit.job_var, between_trees))
    return Prediction(np.exp(log_ms), np.exp(log_ratio), job_var, fit.stage_var, fit.half_widths)


@lru_cache(maxsize=8)
def predictor_of(profiles: tuple[JobProfile, ...], also_dag_only: bool = False) -> Predictor | None:
    """Fit the predictor of a workload's jobs. The last ones are cached.

    Args:
        profiles: the jobs.
        also_dag_only: whether to fit also forests that use only DAGs and numbers of tasks, if more is known of the
            jobs.

    Returns:
        The predictor; None if the jobs are of too few templates.
    """
    keys = [template_keys(profile) for profile in profiles]
    template = np.array(templates(keys), dtype=np.int64)
    num_templates = int(template.max(initial=-1)) + 1
    if num_templates < FEWEST_TEMPLATES:
        return None
    group = template % GROUPS
    sample = _sample(template.tolist())
    jobs = [profiles[job] for job in sample]
    fits = [_cross_fit(jobs, template[sample])]
    without_data = [dag_only(job) for job in jobs]
    if also_dag_only and without_data != jobs:
        fits.append(_cross_fit(without_data, template[sample]))
    return Predictor(
        fits=tuple(fits),
        group={key: int(group[job]) for job in range(len(profiles)) for key in keys[job]},
        jobs=len(profiles),
        templates=num_templates,
    )


def _cross_fit(jobs: Sequence[JobProfile], template: NDArray[np.int64]) -> CrossFit:
    """Fit forests to jobs of templates, int64 [jobs]."""
    group = template % GROUPS
    forests = [
        fit_forest([job for job, other in zip(jobs, group, strict=True) if other != index])
        for index in range(GROUPS)
    ]
    errors = np.array([_errors(forests[index], job) for job, index in zip(jobs, group, strict=True)])
    job_var, stage_var = _variances(errors)
    return CrossFit(
        forests=(*forests, fit_forest(jobs)),
        job_var=job_var,
        stage_var=stage_var,
        half_widths=_half_widths(errors, template, job_var),
        **_bounds(jobs),
        accuracy=_accuracy(errors, template),
    )


def _errors(forest: Forest, profile: JobProfile) -> tuple[float, float, float]:
    """Return the errors of a forest for a job whose task times are known.

    Returns:
        Error of the logarithm of the job's work; variance of that logarithm between the trees; mean square of the
        stages' errors relative to the job's, weighted by numbers of tasks.
    """
    tasks, true_log_ms = num_tasks(profile), log_task_ms(profile)
    log_ms, _, between_trees = forest.predict(stage_features(profile), tasks)
    job_error = math.log((tasks @ np.exp(true_log_ms)) / (tasks @ np.exp(log_ms)))
    apart = (true_log_ms - log_ms - job_error) ** 2
    return job_error, between_trees, float(np.average(apart, weights=tasks))


def _job_variance(job_var: tuple[float, float], between_trees: ArrayLike) -> NDArray[np.float64]:
    """Return the variance of the logarithm of a job's work, for ``CrossFit.job_var``."""
    constant, factor = job_var
    return np.minimum(constant + factor * np.power(between_trees, POWER), MOST_VARIANCE)


def _variances(errors: NDArray[np.float64]) -> tuple[tuple[float, float], float]:
    """Return ``CrossFit.job_var`` and ``stage_var`` for errors (``_errors``), float64 [jobs, 3].

    The variance of a job's error is proportional to the sum of a share of the usual variance between the trees and of a
    power of the variance between the trees. For each share, one factor puts half of the errors into their 50 %
    intervals, and another one 90 % into their 90 % intervals. The share is that for which the two factors agree best.
    """
    job_error, between_trees, stage_error = errors.T
    usual = max(float(np.median(between_trees)), SMALLEST_VARIANCE)
    candidates = []
    for share in SHARES:
        relative = job_error**2 / (share * usual + usual * (between_trees / usual) ** POWER)
        factor_50, factor_90 = (
            max(float(np.quantile(relative, level)) / half_width**2, SMALLEST_FACTOR)
            for level, half_width in zip((0.5, 0.9), HALF_WIDTHS, strict=True)
        )
        candidates.append((abs(math.log(factor_90 / factor_50)), share, math.sqrt(factor_50 * factor_90)))
    _, share, factor = min(candidates)
    return (factor * share * usual, factor * usual ** (1 - POWER)), float(stage_error.mean())


def _deviation(errors: NDArray[np.float64], job_var: tuple[float, float]) -> NDArray[np.float64]:
    """Return the absolute errors of the work of jobs, in standard deviations, float64 [jobs]."""
    job_error, between_trees, _ = errors.T
    variance = np.maximum(_job_variance(job_var, between_trees), SMALLEST_VARIANCE)
    return np.asarray(np.abs(job_error) / np.sqrt(variance))


def _half_widths(
    errors: NDArray[np.float64], template: NDArray[np.int64], job_var: tuple[float, float]
) -> tuple[float, float]:
    """Return the half widths of intervals that contain 50 and 90 % of jobs of other templates, in standard deviations.

    They are quantiles of the errors (``_errors``), float64 [jobs, 3], of jobs of templates, int64 [jobs]. A high
    quantile of the errors of few templates is too small on average. So the second one is larger by the ratio of the
    quantiles of Student's t-distribution and of the normal distribution.
    """
    from scipy.special import stdtrit  # slow to import

    half_50, half_90 = np.quantile(_deviation(errors, job_var), (0.5, 0.9))
    freedom = max(len(np.unique(template)) - 1, 1)
    half_90 *= stdtrit(freedom, 0.95) / HALF_WIDTHS[1]
    return min(float(half_50), MOST_HALF_WIDTH), min(float(half_90), MOST_HALF_WIDTH)


def _accuracy(errors: NDArray[np.float64], template: NDArray[np.int64]) -> Accuracy:
    """Summarise errors (``_errors``), float64 [jobs, 3], of jobs of templates, int64 [jobs]."""
    job_error, _, stage_error = errors.T
    is_within = np.zeros((len(errors), 2), dtype=bool)
    for index in range(GROUPS):
        held_out = template % GROUPS == index
        job_var, _ = _variances(errors[~held_out])
        half_widths = _half_widths(errors[~held_out], template[~held_out], job_var)
        is_within[held_out] = _deviation(errors[held_out], job_var)[:, None] <= half_widths
    within_50, within_90 = is_within.mean(axis=0).tolist()
    return Accuracy(
        jobs=len(errors),
        work_sd=float(np.sqrt((job_error**2).mean())),
        stage_sd=float(np.sqrt(stage_error.mean())),
        within_50=within_50,
        within_90=within_90,
    )


def _bounds(profiles: Sequence[JobProfile]) -> dict[str, NDArray[np.float64]]:
    """Return ``CrossFit.lowest`` and ``highest``: the range of the features of jobs, three times as wide."""
    features = np.concatenate([stage_features(profile) for profile in profiles])
    # A feature may be missing (NaN) in some jobs; one that is missing in all jobs has no bounds.
    lowest, highest = np.fmin.reduce(features), np.fmax.reduce(features)
    reach = np.maximum(highest - lowest, 1.0)
    return {
        "lowest": np.nan_to_num(lowest - reach, nan=-np.inf),
        "highest": np.nan_to_num(highest + reach, nan=np.inf),
    }


def template_keys(profile: JobProfile) -> tuple[int, int]:
    """Return hashes that identify the template of a job: of its name without number and size, and of its DAG.

    The hash of a DAG with its numbers of tasks does not depend on the order of stages. It is that of the test of
    Weisfeiler and Leman. Both hashes are the same in all processes and on all machines.
    """
    tasks = np.array([stage.num_tasks for stage in profile.stages], dtype=np.uint64)
    with np.errstate(over="ignore"):  # without compilation, NumPy warns when a number wraps
        return _name_key(profile.name), int(_dag_hash(tasks, profile.edges))


def _name_key(name: str) -> int:
    template = _SIZE.sub("", _NUMBER.sub("", name))
    return int.from_bytes(blake2b(template.encode(errors="surrogatepass"), digest_size=8).digest())


@inner
def _mixed(number):  # type: ignore[no-untyped-def]
    """Return a hash of a uint64: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    number += np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@compiled
def _dag_hash(tasks, edges):  # type: ignore[no-untyped-def]
    """Return a hash of a DAG, for numbers of tasks, uint64 [stages], and edges, int64 [edges, 2]."""
    labels = tasks.copy()
    for _ in range(3):  # labels are refined by those of the neighbours
        above, below = np.zeros_like(labels), np.zeros_like(labels)
        for edge in range(edges.shape[0]):
            parent, child = edges[edge, 0], edges[edge, 1]
            above[child] += _mixed(labels[parent])
            below[parent] += _mixed(labels[child])
        for stage in range(labels.size):
            labels[stage] = _mixed(_mixed(_mixed(labels[stage]) + above[stage]) + below[stage])
    total = np.uint64(labels.size)
    for stage in range(labels.size):
        total += _mixed(labels[stage])
    return total


def templates(keys: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the template of each job, as a number from 0.

    Jobs are of one template if they share a key: their names differ by the size of the input only (``tpch-q7-2g``,
    ``tpch-q7-100g``), or they have the same DAG with the same numbers of tasks.

    Args:
        keys: the keys of each job, see ``template_keys``.
    """
    parent = list(range(len(keys)))

    def root_of(job: int) -> int:
        while parent[job] != job:
            parent[job] = job = parent[parent[job]]
        return job

    first: dict[int, int] = {}
    for job, of_job in enumerate(keys):
        for key in of_job:
            parent[root_of(job)] = root_of(first.setdefault(key, job))
    roots = [root_of(job) for job in range(len(keys))]
    number = {root: index for index, root in enumerate(dict.fromkeys(roots))}
    return [number[root] for root in roots]


def _sample(template: Sequence[int]) -> list[int]:
    """Return at most ``MOST_JOBS`` jobs at random, ascending: equally many of each template, as far as it has them."""
    most = max(MOST_JOBS // (max(template) + 1), 1)
    sample, count = [], Counter[int]()
    for job in np.random.default_rng(0).permutation(len(template)).tolist():
        if count[template[job]] < most:
            sample.append(job)
            count[template[job]] += 1
    return sorted(sample[:MOST_JOBS])
