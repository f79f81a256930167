"""Predict the task times of jobs that have not run, from their DAGs: random forests fitted to other jobs.

A forest predicts the logarithm of a stage's mean task time from the stage's place in its DAG and from numbers
of tasks, and where they are known from the bytes that stages read from storage and from their operators: from
what is known before a job runs. (Bytes of shuffles are known when the parents of a stage have finished, and
are not used.) It also predicts how much shorter the later tasks of an executor are than its first one of the
stage. The error of a prediction has two parts, as all errors of estimates here: a factor common to all stages
of a job, and a factor of each stage. ``simulator.cluster.predictor`` measures their variances on jobs that a
forest has not seen; that of the job grows with the disagreement of the trees, so that it is larger for a DAG
unlike those of the fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.estimates import HALF_WIDTHS, SHORTEST_MS, typical_durations
from simulator.compiled import compiled, record
from workloads.errors import LONGEST_MS
from workloads.job import JobProfile, TaskDurations, Wave

__all__ = [
    "FEATURES", "NODE", "Forest", "Prediction", "fit_forest", "log_rest_ratio", "log_task_ms", "num_tasks",
    "predicted_durations", "stage_features",
]  # fmt: skip

#: Kinds of operators by their names, the first that matches; all others are of the kind ``other``.
OPERATORS = {
    "cache": r"InMemory|[cC]ache|[pP]ersist",
    "python": r"Python|Pandas|InArrow",
    "join by merging": r"SortMergeJoin",
    "join by loops": r"NestedLoop|Cartesian|cartesian",
    "join by hashing": r"Join$",
    "aggregate": r"(?<!tree)Aggregate$",
    "window": r"Window",
    "sort": r"^Sort$|^TakeOrdered|^sort|^takeOrdered",
    "write": r"Write|Insert|^save",
    "exchange": r"Exchange|ShuffleRead|ByKey$|^partitionBy|^repartition|^coalesce|^join$|^cogroup|^distinct",
    "scan": r"Scan|^textFile|^newAPIHadoop|^hadoop",
    "generate": r"Generate|Expand|^flatMap",
    "filter": r"Filter|Project|ColumnarToRow|Union|Sample|^filter",
    "function": r"^map|^zip|^tree|DeserializeToObject|MapPartitions|MapElements|^aggregate|^fold|^reduce|^glom",
}
#: Features of a stage; ``log`` is the logarithm of 1 + a number. An ancestor, its tasks and its bytes count once for
#: each path to the stage. Bytes are those read from storage. The last features are numbers of operators, by kind.
#: Bytes and operators may be missing (NaN).
FEATURES = (
    "log tasks", "log tasks over the job's mean", "share of the job's tasks", "depth", "height",
    "parents", "log tasks of parents", "log tasks of the largest parent",
    "most parents of a parent", "most children of a parent", "log ancestors", "log tasks of ancestors",
    "children", "log tasks of children", "log tasks of the largest child",
    "most parents of a child", "log descendants", "log tasks of descendants",
    "stages", "log tasks of the job", "log tasks of the job's largest stage",
    "share of stages without parents", "log tasks of stages without parents",
    "log bytes", "log bytes per task", "log bytes of ancestors", "log bytes of ancestors per task",
    "log bytes of the job",
    "operators", *OPERATORS, "other operators",
)  # fmt: skip
#: Largest number of paths that is counted, and of bytes on them.
MOST_PATHS, MOST_PATH_BYTES = 1e12, 1e30
#: Value of a missing feature in a forest; all others are larger.
MISSING = -2.0
#: Trees of a forest, least number of stages in a leaf, and share of the features among which a split is chosen.
TREES, LEAF, SHARE = 60, 2, 0.5
#: Number of stages to which a forest is fitted at most, drawn at random.
MOST_STAGES = 10_000


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted task times of a job.

    Attributes:
        task_ms: median of each stage's mean task time, float64 [num_stages], ms.
        rest_ratio: duration in the rest wave over the mean task time, relative to typical durations of the workload,
            float64 [num_stages].
        job_var: variance of the logarithm of the factor common to all stages, which is that of the job's work.
        stage_var: variance of the logarithm of each stage's own factor, relative to that of the work.
        half_widths: half widths of the 50 and 90 % interval of the job's factor, in standard deviations.
    """

    task_ms: NDArray[np.float64]
    rest_ratio: NDArray[np.float64]
    job_var: float
    stage_var: float
    half_widths: tuple[float, float] = HALF_WIDTHS


#: Node of a tree, in one line of the processor's cache: index in ``FEATURES`` by which it splits, -1 at a leaf; its
#: children; the threshold up to which a stage goes left, at a leaf the mean logarithm of the task time in ms; and at a
#: leaf the mean of ``log_rest_ratio``.
NODE = record(
    ("feature", np.int32),
    ("left", np.int32),
    ("right", np.int32),
    ("rest", np.float32),
    ("number", np.float64),
)


@dataclass(frozen=True, eq=False)
class Forest:
    """Regression trees.

    Attributes:
        root: first node of each tree, int64 [trees].
        nodes: nodes of all trees, ``NODE`` [nodes].
    """

    root: NDArray[np.int64]
    nodes: NDArray[np.void]

    def predict(
        self, features: NDArray[np.float64], tasks: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Predict the task times of the stages of a job that has not run.

        Args:
            features: ``stage_features`` of the job, float64 [num_stages, features].
            tasks: number of tasks of each stage, float64 [num_stages].

        Returns:
            Means over trees of the logarithm of each stage's mean task time in ms, and of its ``log_rest_ratio``,
            float64 [num_stages] each; the variance between trees of the logarithm of the job's work.
        """
        log_ms, log_ratio = np.empty((2, self.root.size, len(features)))
        _walk(log_ms, log_ratio, np.nan_to_num(features, nan=MISSING), self.root, self.nodes)
        log_work = np.log(np.exp(log_ms) @ tasks)
        return log_ms.mean(axis=0), log_ratio.mean(axis=0), float(log_work.var())


@compiled
def _walk(log_ms, log_ratio, features, root, nodes):  # type: ignore[no-untyped-def]
    """Fill the values of each tree, float64 [trees, stages], for features, float64 [stages, features]."""
    for tree in range(log_ms.shape[0]):
        for stage in range(log_ms.shape[1]):
            node = nodes[root[tree]]
            while node.feature >= 0:
                node = nodes[node.left if features[stage, node.feature] <= node.number else node.right]
            log_ms[tree, stage], log_ratio[tree, stage] = node.number, node.rest


def stage_features(profile: JobProfile) -> NDArray[np.float64]:
    """Return ``FEATURES`` of each stage, float64 [num_stages, features]: what is known before a job runs."""
    tasks = num_tasks(profile)
    log_tasks = np.log1p(tasks)
    read = np.array(
        [math.nan if stage.input_bytes is None else stage.input_bytes for stage in profile.stages], float
    )
    in_dag, read_above = np.empty((len(tasks), 15)), np.zeros(len(tasks))
    _fill_dag_features(
        in_dag, read_above, np.array(profile.children_first), profile.edges, tasks, np.nan_to_num(read)
    )
    in_dag[:, LOGARITHMIC] = np.log1p(in_dag[:, LOGARITHMIC])
    sources = tasks[in_dag[:, 2] == 0]
    of_job = [
        len(tasks),
        math.log1p(tasks.sum()),
        log_tasks.max(),
        sources.size / tasks.size,
        math.log1p(sources.sum()),
    ]
    own = np.stack([log_tasks, log_tasks - log_tasks.mean(), tasks / tasks.sum()], axis=1)
    return np.concatenate(
        [
            own,
            in_dag,
            np.tile(of_job, (len(tasks), 1)),
            _of_bytes(read, read_above, tasks),
            _of_operators(profile),
        ],
        axis=1,
    )


#: Columns of ``_fill_dag_features`` of which the logarithm is a feature.
LOGARITHMIC = (3, 4, 7, 8, 10, 11, 13, 14)


@compiled
def _fill_dag_features(in_dag, read_above, children_first, edges, tasks, read):  # type: ignore[no-untyped-def]
    """Fill in the features of a stage's place in the DAG, from ``depth`` to ``tasks of descendants``.

    Args:
        in_dag: float64 [stages, 15].
        read_above: bytes that the ancestors of a stage read from storage, float64 [stages], 0.
        children_first: the stages, each after its children, int64 [stages].
        edges: int64 [edges, 2], parent and child.
        tasks: numbers of tasks, float64 [stages].
        read: bytes that a stage reads from storage, float64 [stages].
    """
    in_dag[:] = 0.0
    depth, height, parents, tasks_of_parents, largest_parent = (
        in_dag[:, 0], in_dag[:, 1], in_dag[:, 2], in_dag[:, 3], in_dag[:, 4]
    )  # fmt: skip
    parents_of_parent, children_of_parent, ancestors, tasks_above = (
        in_dag[:, 5], in_dag[:, 6], in_dag[:, 7], in_dag[:, 8]
    )  # fmt: skip
    children, tasks_of_children, largest_child, parents_of_child, descendants, tasks_below = (
        in_dag[:, 9], in_dag[:, 10], in_dag[:, 11], in_dag[:, 12], in_dag[:, 13], in_dag[:, 14]
    )  # fmt: skip
    parents_of_parent[:] = children_of_parent[:] = parents_of_child[:] = -1
    for edge in range(len(edges)):
        parents[edges[edge, 1]] += 1
        children[edges[edge, 0]] += 1
    for edge in range(len(edges)):
        parent, child = edges[edge, 0], edges[edge, 1]
        tasks_of_parents[child] += tasks[parent]
        tasks_of_children[parent] += tasks[child]
        largest_parent[child] = max(largest_parent[child], tasks[parent])
        largest_child[parent] = max(largest_child[parent], tasks[child])
        parents_of_parent[child] = max(parents_of_parent[child], parents[parent])
        children_of_parent[child] = max(children_of_parent[child], children[parent])
        parents_of_child[parent] = max(parents_of_child[parent], parents[child])
    # The children of a stage are following[first[stage] : first[stage + 1]].
    first = np.zeros(len(tasks) + 1, np.int64)
    first[1:] = np.cumsum(children.astype(np.int64))
    following, filled = np.empty(len(edges), np.int64), first.copy()
    for edge in range(len(edges)):
        parent = edges[edge, 0]
        following[filled[parent]] = edges[edge, 1]
        filled[parent] += 1
    for stage in children_first:
        for child in following[first[stage] : first[stage + 1]]:
            height[stage] = max(height[stage], height[child] + 1)
            descendants[stage] = min(descendants[stage] + descendants[child] + 1, MOST_PATHS)
            tasks_below[stage] = min(tasks_below[stage] + tasks_below[child] + tasks[child], MOST_PATHS)
    for stage in children_first[::-1]:
        for child in following[first[stage] : first[stage + 1]]:
            depth[child] = max(depth[child], depth[stage] + 1)
            ancestors[child] = min(ancestors[child] + ancestors[stage] + 1, MOST_PATHS)
            tasks_above[child] = min(tasks_above[child] + tasks_above[stage] + tasks[stage], MOST_PATHS)
            read_above[child] = min(read_above[child] + read_above[stage] + read[stage], MOST_PATH_BYTES)


def _of_bytes(
    read: NDArray[np.float64], read_above: NDArray[np.float64], tasks: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the features of bytes, float64 [num_stages, 5]; NaN if those of no stage are known.

    Args:
        read: bytes that a stage reads from storage, NaN if unknown, float64 [num_stages].
        read_above: bytes that its ancestors read, float64 [num_stages].
        tasks: numbers of tasks, float64 [num_stages].
    """
    if np.isnan(read).all():
        return np.full((len(read), 5), np.nan)
    columns = [read, read / tasks, read_above, read_above / tasks, np.full(len(read), np.nansum(read))]
    # The library that fits trees compares numbers of this precision.
    return np.asarray(np.log1p(np.array(columns)).T.astype(np.float32), np.float64)


def _of_operators(profile: JobProfile) -> NDArray[np.float64]:
    """Return the numbers of all operators and of those of each kind, float64 [num_stages, 1 + kinds]."""
    return np.array([_counts(stage.operators) for stage in profile.stages])


@lru_cache(maxsize=4096)
def _counts(operators: tuple[str, ...]) -> tuple[float, ...]:
    kinds = len(OPERATORS) + 1
    if not operators:
        return (math.nan,) * (1 + kinds)
    counts = [0.0] * kinds
    for operator in operators:
        matches = (kind for kind, name in enumerate(OPERATORS.values()) if re.search(name, operator))
        counts[next(matches, kinds - 1)] += 1
    return len(operators), *counts


def num_tasks(profile: JobProfile) -> NDArray[np.float64]:
    """Return the number of tasks of each stage, float64 [num_stages]."""
    return np.array([stage.num_tasks for stage in profile.stages], dtype=np.float64)


def log_task_ms(profile: JobProfile) -> NDArray[np.float64]:
    """Return the logarithm of each stage's mean task time in ms, float64 [num_stages]."""
    return np.log(np.maximum([stage.durations.mean_ms for stage in profile.stages], SHORTEST_MS))


def log_rest_ratio(profile: JobProfile, typical: TaskDurations) -> NDArray[np.float64]:
    """Return the logarithm of each stage's duration in the rest wave over its mean, relative to typical durations.

    Args:
        profile: the job.
        typical: durations whose mean is 1 ms, see ``typical_durations``.

    Returns:
        Means over the parallelism levels that were measured in both, float64 [num_stages]; 0 if there is none.
    """
    return np.array([_log_rest_ratio(stage.durations, typical) for stage in profile.stages])


@lru_cache(maxsize=4096)
def _log_rest_ratio(durations: TaskDurations, typical: TaskDurations) -> float:
    mean_ms, typical_ms = max(durations.mean_ms, SHORTEST_MS), typical.table(Wave.REST)
    logs = [
        math.log(max(values.mean() / mean_ms, SHORTEST_MS) / typical_ms[level].mean())
        for level, values in durations.table(Wave.REST).items()
        if values.size and level in typical_ms and typical_ms[level].size
    ]
    return round(float(np.mean(logs)), 9) if logs else 0.0  # exactly 0 for a typical stage


def predicted_durations(typical: TaskDurations, prediction: Prediction) -> list[TaskDurations]:
    """Return the durations of each stage of a job: typical ones, with the predicted mean and ratio of the rest wave.

    Args:
        typical: durations by wave and parallelism level whose mean is 1 ms; no cells overlap.
        prediction: the prediction for the job.
    """
    values = np.outer(prediction.task_ms, typical.values)
    for start, stop in typical.cells[Wave.REST]:
        values[:, start:stop] *= prediction.rest_ratio[:, None]
    return [
        TaskDurations(typical.levels, of_stage, typical.cells, mean_ms)
        for of_stage, mean_ms in zip(
            np.minimum(values, LONGEST_MS), np.minimum(prediction.task_ms, LONGEST_MS).tolist(), strict=True
        )
    ]


def fit_forest(profiles: Sequence[JobProfile]) -> Forest:
    """Fit a forest to the task times of at least one job, all with the same weight. Equal jobs give equal forests.

    A feature that is missing in all jobs is not used: the forest is then the same as without the feature. Trees are
    fitted to mean task times alone; a leaf has the mean ``log_rest_ratio`` of its stages.
    """
    from sklearn.ensemble import RandomForestRegressor  # slow to import

    features = np.concatenate([stage_features(profile) for profile in profiles])
    log_ms = np.concatenate([log_task_ms(profile) for profile in profiles])
    typical = typical_durations(tuple(profiles))
    log_ratio = np.concatenate([log_rest_ratio(profile, typical) for profile in profiles])
    sizes = [profile.num_stages for profile in profiles]
    weight = np.repeat([1 / size for size in sizes], sizes)
    if len(log_ms) > MOST_STAGES:
        chosen = np.random.default_rng(0).choice(len(log_ms), MOST_STAGES, replace=False)
        features, log_ms, weight = features[chosen], log_ms[chosen], weight[chosen]
        log_ratio = log_ratio[chosen]
    used = np.flatnonzero(~np.isnan(features).all(axis=0))
    features = np.nan_to_num(features[:, used], nan=MISSING)
    fitted = RandomForestRegressor(TREES, min_samples_leaf=LEAF, max_features=SHARE, random_state=0)
    fitted.fit(features, log_ms, weight)
    trees, leaves = [tree.tree_ for tree in fitted.estimators_], fitted.apply(features)
    root = np.cumsum([0, *(tree.node_count for tree in trees)])
    nodes = np.zeros(root[-1], NODE)
    for tree, leaf, first in zip(trees, leaves.T, root.tolist(), strict=False):
        is_leaf = tree.children_left < 0
        of_tree = nodes[first : first + tree.node_count]
        of_tree["feature"] = np.where(is_leaf, -1, used[tree.feature])
        of_tree["left"], of_tree["right"] = tree.children_left + first, tree.children_right + first
        of_tree["number"] = np.where(is_leaf, tree.value[:, 0, 0], tree.threshold)
        of_stages = np.bincount(leaf, weight, tree.node_count)
        sums = np.bincount(leaf, weight * log_ratio, tree.node_count)
        of_tree["rest"] = np.divide(sums, of_stages, out=np.zeros_like(sums), where=is_leaf)
    return Forest(root[:-1], nodes)
