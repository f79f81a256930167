"""Custom input features of the network: classes. Built-in features are functions in ``compiled.features``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import Graphs
from decima.policy.config import Feature, PolicyConfig
from decima.policy.parts import build_part
from simulator.cluster.observation import Observation
from workloads.custom import is_custom
from workloads.errors import PartError

__all__ = ["CustomFeatures", "JobFeature", "StageFeature"]


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


class CustomFeatures:
    """The custom features of a policy.

    Raises:
        PartError: a feature cannot be loaded.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self._columns: list[CustomColumn] = []
        for key, features in (
            ("stage_features", config.stage_features),
            ("job_features", config.job_features),
        ):
            base = JobFeature if key == "job_features" else StageFeature
            for column, feature in enumerate(features):
                if is_custom(feature.name):
                    try:
                        part = build_part(feature.name, base)
                    except PartError as error:
                        raise PartError(f"{key}: {error}") from None
                    self._columns.append(CustomColumn(key, column, feature, part))

    def fill(self, observation: Observation, graph: Graphs) -> None:
        """Compute the features of an observation, and write them to the columns of its graph.

        Raises:
            PartError: a feature returns invalid numbers.
        """
        for key, column, feature, part in self._columns:
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
