"""Custom input features of the network, and the order of message passing in a job's DAG.

Custom features are classes; built-in features are functions in ``compiled.features``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from graphlib import TopologicalSorter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import Graphs
from decima.policy.config import Feature, PolicyConfig
from decima.policy.parts import PartError, build_part, is_custom
from simulator.cluster.observation import Observation
from workloads.job import JobProfile

__all__ = [
    "JobFeature", "StageFeature", "custom_columns", "fill_columns", "message_order",
    "published_message_order",
]  # fmt: skip

#: Number of message passing steps in the published code.
PUBLISHED_STEPS = 8


class StageFeature(ABC):
    """Base class of custom stage features, constructed without arguments.

    A feature must be a function of the observation only, so that training, evaluation and service compute the same
    values. Use ``simulator.cluster.observation.PerJob`` to cache values that depend on a job's profile.
    """

    @abstractmethod
    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        """Return one finite number per stage, float [S], before ``Feature.scale`` and ``log``."""


class JobFeature(StageFeature):
    """Base class of custom job features, which can also be used as stage features."""

    @abstractmethod
    def of_jobs(self, observation: Observation) -> NDArray[np.float64]:
        """Return one finite number per live job, float [J], before ``Feature.scale`` and ``log``."""

    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        """Return the value of each stage's job, float [S]."""
        return _checked(self.of_jobs(observation), len(observation.jobs), "job")[observation.stage_job]


class CustomColumn(NamedTuple):
    """A custom feature, with its list in ``PolicyConfig`` (``key``) and its column in the network's input."""

    key: str
    column: int
    feature: Feature
    part: StageFeature


def custom_columns(config: PolicyConfig) -> list[CustomColumn]:
    """Load the custom features of a policy.

    Raises:
        PartError: a feature cannot be loaded.
    """
    columns = []
    for key, features in (("stage_features", config.stage_features), ("job_features", config.job_features)):
        base = JobFeature if key == "job_features" else StageFeature
        for column, feature in enumerate(features):
            if is_custom(feature.name):
                try:
                    columns.append(CustomColumn(key, column, feature, build_part(feature.name, base)))
                except PartError as error:
                    raise PartError(f"{key}: {error}") from None
    return columns


def fill_columns(columns: Sequence[CustomColumn], observation: Observation, graph: Graphs) -> None:
    """Compute custom features of an observation, and write them to the columns of its graph.

    Raises:
        PartError: a feature returns invalid numbers.
    """
    for key, column, feature, part in columns:
        try:
            if key == "stage_features":
                values = _scaled(feature, part.of_stages(observation), len(observation.stages), "stage")
                graph.features[:, column] = values[graph.stage_index]
            else:
                assert isinstance(part, JobFeature)
                values = _scaled(feature, part.of_jobs(observation), len(observation.jobs), "job")
                graph.job_features[:, column] = values
        except PartError as error:
            raise PartError(f"{key}: {feature.name!r}: {error}") from None


def _scaled(feature: Feature, returned: object, count: int, of: str) -> NDArray[np.float64]:
    values = _checked(returned, count, of) / feature.scale
    if feature.log and values.size and values.min() <= -1:
        raise PartError(
            f"{values.min() * feature.scale:g} has no logarithm: expected more than {-feature.scale:g}"
        )
    return np.log1p(values) if feature.log else values


def _checked(values: object, count: int, of: str) -> NDArray[np.float64]:
    array = np.asarray(values)
    expected = f"expected {count} finite numbers, one for each {of}"
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise PartError(f"{expected}, got {array.dtype} of shape {list(array.shape)}")
    floats = array.astype(np.float64)
    if not np.isfinite(floats).all():
        raise PartError(f"{expected}, got {floats[~np.isfinite(floats)][0]}")
    return floats


@lru_cache(maxsize=10_000)
def message_order(profile: JobProfile) -> NDArray[np.int32]:
    """Return the messages of a job's DAG for message passing: each stage receives once, from all its children.

    Its step is its height minus 1; the height of a stage is the number of edges on its longest path to a leaf.

    Returns:
        int32 [number of edges, 3]: step, receiver (parent), sender (child).
    """
    height = np.zeros(profile.num_stages, dtype=np.int64)
    for stage in _children_first(profile):
        height[stage] = max((height[child] + 1 for child in profile.children[stage]), default=0)
    messages = [
        (height[stage] - 1, stage, child)
        for stage in range(profile.num_stages)
        for child in profile.children[stage]
    ]
    return _sorted(messages)


@lru_cache(maxsize=10_000)
def published_message_order(profile: JobProfile) -> NDArray[np.int32]:
    """Return the messages of a job's DAG in the order of the published code, which has at most 8 steps.

    In a DAG with paths of at most 8 edges, the result equals that of ``message_order``. In a deeper DAG the first
    senders are the stages that 8 moves along child edges reach, where leaves stay in place. In a step, a stage whose
    children are all senders receives if its level (1 + the highest child level) rises. The next senders are these
    stages, and old senders with a parent without level. Levels may include rises of the same step: here children go
    first; the published code orders stages by memory address, so that its order in deep DAGs is not reproducible.

    Returns:
        int32 [number of messages, 3]: step, receiver, sender.
    """
    children, parents = profile.children, profile.parents
    upwards = _children_first(profile)
    senders = set(upwards)
    for _ in range(PUBLISHED_STEPS):
        senders = {child for stage in senders for child in (children[stage] or (stage,))}
    level = dict.fromkeys(senders, 0)
    messages = []
    for step in range(PUBLISHED_STEPS):
        risen = set()
        for stage in upwards:
            if children[stage] and all(child in senders for child in children[stage]):
                new = 1 + max(level[child] for child in children[stage])
                if new > level.get(stage, 0):
                    level[stage] = new
                    risen.add(stage)
        messages += [(step, stage, child) for stage in risen for child in children[stage]]
        waiting = {sender for sender in senders if any(parent not in level for parent in parents[sender])}
        senders = risen | waiting
    return _sorted(messages)


def _children_first(profile: JobProfile) -> list[int]:
    """Return the stages in an order with children before parents."""
    return list(TopologicalSorter(dict(enumerate(profile.children))).static_order())


def _sorted(messages: list[tuple[int, int, int]]) -> NDArray[np.int32]:
    return np.array(sorted(messages), dtype=np.int32).reshape(-1, 3)
