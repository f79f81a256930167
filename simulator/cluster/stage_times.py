"""Predict the task times of jobs that have not run, from their DAGs: random forests fitted to other jobs.

A forest predicts the logarithm of a stage's mean task time from the stage's place in its DAG and from numbers of tasks,
which are known before a job runs. The error of a prediction has two parts, as all errors of estimates here: a factor
common to all stages of a job, and a factor of each stage. Their variances are measured on jobs that a forest has not
seen; that of the job grows with the disagreement of the trees, so that it is larger for a DAG unlike those of the fit.

A prediction for a job must not come from the job itself, nor from one of the same template, such as the same query on
more data. So ``predictor_of`` splits the templates of a workload into groups, and fits a forest to the jobs of all
other groups for each of them (cross-fitting).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled
from workloads.job import JobProfile

__all__ = [
    "FEATURES",
    "Forest",
    "Prediction",
    "Predictor",
    "fit_forest",
    "predictor_of",
    "stage_features",
    "templates",
]

#: Features of a stage; ``log`` is the logarithm of 1 + a number. An ancestor and its tasks count once for each path to
#: the stage.
FEATURES = (
    "log tasks", "log tasks over the job's mean", "share of the job's tasks", "depth", "height",
    "parents", "log tasks of parents", "log tasks of the largest parent",
    "most parents of a parent", "most children of a parent", "log ancestors", "log tasks of ancestors",
    "children", "log tasks of children", "log tasks of the largest child",
    "most parents of a child", "log descendants", "log tasks of descendants",
    "stages", "log tasks of the job", "log tasks of the job's largest stage",
    "share of stages without parents", "log tasks of stages without parents",
)  # fmt: skip
#: Largest number of paths that is counted.
MOST_PATHS = 1e12
#: Numbers of groups of templates, and of templates below which no forest is fitted.
GROUPS, FEWEST_TEMPLATES = 5, 5
#: Trees of a forest, least number of stages in a leaf, and share of the features among which a split is chosen.
TREES, LEAF, SHARE = 60, 2, 0.5
#: Numbers of jobs and of their stages to which a forest is fitted at most, drawn at random.
MOST_JOBS, MOST_STAGES = 2_000, 10_000
#: Probability that a normal number is within a standard deviation of its mean.
ONE_SD = 0.6827
#: Smallest factor of the variance between the trees.
SMALLEST_FACTOR = 0.1
#: Shortest time whose logarithm is taken, ms.
SHORTEST_MS = 1e-3
#: A size of the input at the end of a job's name, such as ``-100g``.
_SIZE = re.compile(r"[-_ ]?\d+(\.\d+)? ?[kmgt]b?$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted task times of a job.

    Attributes:
        task_ms: median of each stage's mean task time, float64 [num_stages], ms.
        job_var: variance of the logarithm of the factor common to all stages.
        stage_var: variance of the logarithm of each stage's own factor.
    """

    task_ms: NDArray[np.float64]
    job_var: float
    stage_var: float


@dataclass(frozen=True, eq=False)
class Forest:
    """Regression trees as arrays, and the variances of their errors.

    Attributes:
        root: first node of each tree, int64 [trees].
        feature: index in ``FEATURES`` by which a node splits, int64 [nodes]; -1 at a leaf.
        threshold: a stage whose feature is at most this goes left, float64 [nodes].
        left, right: the children of a node, int64 [nodes].
        value: mean logarithm of the task time in ms at a leaf, float64 [nodes].
        job_var: variance of a job's error: a constant, and a factor of the variance between the trees.
        stage_var: variance of the error of a stage relative to its job.
    """

    root: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]
    job_var: tuple[float, float]
    stage_var: float

    def predict(self, profile: JobProfile) -> Prediction:
        """Predict the task times of a job; its own task times are not used."""
        log_ms, between_trees = self._log_ms(profile)
        constant, factor = self.job_var
        job_var = constant + factor * between_trees
        return Prediction(np.exp(log_ms), job_var, self.stage_var)

    def errors(self, profile: JobProfile) -> tuple[float, float, float, float]:
        """Return the errors of the prediction for a job whose task times are known.

        Returns:
            Error of the logarithm of the job's work; variance of that logarithm between the trees; mean square of the
            stages' errors relative to the job's, weighted by numbers of tasks; share of this mean square that errors of
            stages add to the square of the job's error.
        """
        tasks, true_log_ms = _num_tasks(profile), _log_task_ms(profile)
        log_ms, between_trees = self._log_ms(profile)
        work_ms = tasks * np.exp(log_ms)
        job_error = math.log((tasks @ np.exp(true_log_ms)) / work_ms.sum())
        apart = (true_log_ms - log_ms - job_error) ** 2
        concentration = float(((work_ms / work_ms.sum()) ** 2).sum())
        return job_error, between_trees, float(np.average(apart, weights=tasks)), concentration

    def _log_ms(self, profile: JobProfile) -> tuple[NDArray[np.float64], float]:
        """Return the mean over trees of each stage's log task time, and the variance between trees of the job's."""
        by_tree = np.empty((self.root.size, profile.num_stages))
        _walk(
            by_tree,
            stage_features(profile),
            self.root,
            self.feature,
            self.threshold,
            self.left,
            self.right,
            self.value,
        )
        work = np.log(np.exp(by_tree) @ _num_tasks(profile))
        return by_tree.mean(axis=0), float(work.var())


@compiled
def _walk(by_tree, features, root, feature, threshold, left, right, value):  # type: ignore[no-untyped-def]
    """Fill the value of each tree, float64 [trees, stages], for features, float64 [stages, features]."""
    for tree in range(by_tree.shape[0]):
        for stage in range(by_tree.shape[1]):
            node = root[tree]
            while feature[node] >= 0:
                node = left[node] if features[stage, feature[node]] <= threshold[node] else right[node]
            by_tree[tree, stage] = value[node]


def stage_features(profile: JobProfile) -> NDArray[np.float64]:
    """Return ``FEATURES`` of each stage, float64 [num_stages, features]: what is known before a job runs."""
    parents, children, tasks = profile.parents, profile.children, _num_tasks(profile)
    log_tasks, counts = np.log1p(tasks), tasks.tolist()
    depth, ancestors, tasks_above = _of_paths(profile.children_first[::-1], parents, counts)
    height, descendants, tasks_below = _of_paths(profile.children_first, children, counts)
    num_parents, num_children = [len(above) for above in parents], [len(below) for below in children]
    sources = tasks[np.array(num_parents) == 0]
    of_stages = np.array(
        [
            depth,
            height,
            num_parents,
            np.log1p([sum(counts[stage] for stage in above) for above in parents]),
            np.log1p([max((counts[stage] for stage in above), default=0.0) for above in parents]),
            [max((num_parents[stage] for stage in above), default=-1) for above in parents],
            [max((num_children[stage] for stage in above), default=-1) for above in parents],
            np.log1p(ancestors),
            np.log1p(tasks_above),
            num_children,
            np.log1p([sum(counts[stage] for stage in below) for below in children]),
            np.log1p([max((counts[stage] for stage in below), default=0.0) for below in children]),
            [max((num_parents[stage] for stage in below), default=-1) for below in children],
            np.log1p(descendants),
            np.log1p(tasks_below),
        ]
    ).T
    of_job = [
        len(tasks),
        math.log1p(tasks.sum()),
        log_tasks.max(),
        sources.size / tasks.size,
        math.log1p(sources.sum()),
    ]
    own = np.stack([log_tasks, log_tasks - log_tasks.mean(), tasks / tasks.sum()], axis=1)
    return np.concatenate([own, of_stages, np.tile(of_job, (len(tasks), 1))], axis=1)


def _of_paths(
    order: Sequence[int], above: Sequence[Sequence[int]], tasks: Sequence[float]
) -> tuple[list[float], list[float], list[float]]:
    """Return the longest path to each stage, the stages on all paths to it, and their tasks.

    Args:
        order: the stages, each after those above it.
        above: stages before each stage.
        tasks: numbers of tasks.
    """
    longest, stages, num_tasks = ([0.0] * len(order) for _ in range(3))
    for stage in order:
        for other in above[stage]:
            longest[stage] = max(longest[stage], longest[other] + 1)
            stages[stage] = min(stages[stage] + stages[other] + 1, MOST_PATHS)
            num_tasks[stage] = min(num_tasks[stage] + num_tasks[other] + tasks[other], MOST_PATHS)
    return longest, stages, num_tasks


def _num_tasks(profile: JobProfile) -> NDArray[np.float64]:
    return np.array([stage.num_tasks for stage in profile.stages], dtype=np.float64)


def _log_task_ms(profile: JobProfile) -> NDArray[np.float64]:
    """Return the logarithm of each stage's mean task time in ms, float64 [num_stages]."""
    return np.log(np.maximum([stage.durations.mean_ms for stage in profile.stages], SHORTEST_MS))


def fit_forest(
    profiles: Sequence[JobProfile], job_var: tuple[float, float] = (1.0, 0.0), stage_var: float = 1.0
) -> Forest:
    """Fit a forest to the task times of jobs; the jobs have the same weight. The same jobs give the same forest.

    Args:
        profiles: at least one job.
        job_var: see ``Forest``.
        stage_var: see ``Forest``.
    """
    from sklearn.ensemble import RandomForestRegressor  # slow to import

    features = np.concatenate([stage_features(profile) for profile in profiles])
    log_ms = np.concatenate([_log_task_ms(profile) for profile in profiles])
    sizes = [profile.num_stages for profile in profiles]
    weight = np.repeat([1 / size for size in sizes], sizes)
    if len(log_ms) > MOST_STAGES:
        chosen = np.random.default_rng(0).choice(len(log_ms), MOST_STAGES, replace=False)
        features, log_ms, weight = features[chosen], log_ms[chosen], weight[chosen]
    fitted = RandomForestRegressor(TREES, min_samples_leaf=LEAF, max_features=SHARE, random_state=0)
    trees = [tree.tree_ for tree in fitted.fit(features, log_ms, weight).estimators_]
    root = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    return Forest(
        root,
        np.concatenate([np.where(tree.children_left < 0, -1, tree.feature) for tree in trees]),
        np.concatenate([tree.threshold for tree in trees]),
        np.concatenate([tree.children_left + first for tree, first in zip(trees, root, strict=True)]),
        np.concatenate([tree.children_right + first for tree, first in zip(trees, root, strict=True)]),
        np.concatenate([tree.value[:, 0, 0] for tree in trees]),
        job_var,
        stage_var,
    )


def templates(profiles: Sequence[JobProfile]) -> list[int]:
    """Return the template of each job, as a number from 0.

    Jobs are of one template if their names differ by the size of the input only (``tpch-q7-2g``, ``tpch-q7-100g``), or
    if they have the same DAG with the same numbers of tasks.
    """
    parent = list(range(len(profiles)))

    def root_of(job: int) -> int:
        while parent[job] != job:
            parent[job] = job = parent[parent[job]]
        return job

    first: dict[object, int] = {}
    for job, profile in enumerate(profiles):
        for key in _keys(profile):
            parent[root_of(job)] = root_of(first.setdefault(key, job))
    roots = [root_of(job) for job in range(len(profiles))]
    number = {root: index for index, root in enumerate(dict.fromkeys(roots))}
    return [number[root] for root in roots]


def _keys(profile: JobProfile) -> Iterator[object]:
    """Yield what identifies the template of a job: its name without a size, and its DAG with numbers of tasks."""
    yield _SIZE.sub("", profile.name)
    labels = [hash(stage.num_tasks) for stage in profile.stages]
    for _ in range(3):  # the test of Weisfeiler and Leman: labels are refined by those of the neighbours
        labels = [
            hash(
                (
                    label,
                    *sorted(labels[parent] for parent in above),
                    -1,
                    *sorted(labels[child] for child in below),
                )
            )
            for label, above, below in zip(labels, profile.parents, profile.children, strict=True)
        ]
    yield tuple(sorted(labels))


def _sample(template: Sequence[int]) -> list[int]:
    """Return at most ``MOST_JOBS`` jobs at random, ascending: equally many of each template, as far as it has them."""
    most = max(MOST_JOBS // (max(template) + 1), 1)
    sample, count = [], Counter[int]()
    for job in np.random.default_rng(0).permutation(len(template)).tolist():
        if count[template[job]] < most:
            sample.append(job)
            count[template[job]] += 1
    return sorted(sample[:MOST_JOBS])


class Predictor:
    """Predictions for the jobs of a workload and for others, by a forest that was fitted without the job's template.

    Args:
        profiles: jobs of at least ``FEWEST_TEMPLATES`` templates.
    """

    def __init__(self, profiles: Sequence[JobProfile]) -> None:
        template = templates(profiles)
        group = [number % GROUPS for number in template]
        #: Group of each template, by what identifies it.
        self._group = {
            key: index for profile, index in zip(profiles, group, strict=True) for key in _keys(profile)
        }
        sample = [(profiles[job], group[job]) for job in _sample(template)]
        forests = [
            fit_forest([profile for profile, other in sample if other != index])
            for index in range(max(group) + 1)
        ]
        errors = [forests[index].errors(profile) for profile, index in sample]
        job_error, between_trees, stage_error, concentration = np.array(errors).T
        stage_var = float(stage_error.mean())
        # The variance of a job's own error is proportional to that between the trees plus its median, and such that two
        # thirds of the errors are within a standard deviation.
        usual = float(np.median(between_trees))
        own_error = np.maximum(job_error**2 - stage_var * concentration, 0.0)
        factor = max(float(np.quantile(own_error / (between_trees + usual), ONE_SD)), SMALLEST_FACTOR)
        job_var = (factor * usual, factor)
        self._forests = [replace(forest, job_var=job_var, stage_var=stage_var) for forest in forests]
        self._predictions: WeakKeyDictionary[JobProfile, Prediction] = WeakKeyDictionary()
        self._of_all = replace(
            fit_forest([profile for profile, _ in sample]), job_var=job_var, stage_var=stage_var
        )

    def predict(self, profile: JobProfile) -> Prediction:
        """Predict the task times of a job; its own task times are not used."""
        known = self._predictions.get(profile)
        if known is None:
            known = self._predictions[profile] = self._forest_of(profile).predict(profile)
        return known

    def _forest_of(self, profile: JobProfile) -> Forest:
        """Return the forest that was fitted without the template of a job."""
        group = next((self._group[key] for key in _keys(profile) if key in self._group), None)
        return self._of_all if group is None else self._forests[group]


@lru_cache(maxsize=8)
def predictor_of(profiles: tuple[JobProfile, ...]) -> Predictor | None:
    """Return the predictor of a workload's jobs; None if they have too few templates. The last ones are cached."""
    return Predictor(profiles) if len(set(templates(profiles))) >= FEWEST_TEMPLATES else None
