"""Features of the user's own, beside those that compiled code fills in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decima.policy.feature_config import Feature
from decima.policy.parts import PartError, build_part, is_own
from simulator.cluster.observation import Observation

__all__ = ["Columns", "JobFeature", "StageFeature"]


class StageFeature(ABC):
    """A number that the network sees of each stage, of the user's own; built without arguments.

    It is to follow from the observation alone, so that the same is seen in training, comparisons and services. What
    it works out of profiles it keeps in a ``simulator.cluster.observation.PerJob``.
    """

    @abstractmethod
    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        """Finite numbers, float [S], one for each stage of the observation, before ``Feature.scale`` and ``log``."""


class JobFeature(StageFeature):
    """One that says nothing of a single stage: for the features of jobs, and for those of stages too."""

    @abstractmethod
    def of_jobs(self, observation: Observation) -> NDArray[np.float64]:
        """Finite numbers, float [J], one for each live job, before ``Feature.scale`` and ``log``."""

    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        """Float [S]; a stage's is its job's."""
        return _checked(self.of_jobs(observation), len(observation.jobs), "job")[observation.stage_job]


class Columns:
    """The features of stages, or those of jobs: compiled code fills in some, the user's own ones the others.

    Args:
        key: where they are named, ``stage_features`` or ``job_features``.
        features: all of them.

    Attributes:
        known: those of compiled code.

    Raises:
        PartError: one of the user's own cannot be loaded.
    """

    def __init__(self, key: str, features: Sequence[Feature]) -> None:
        self._key = key
        self._places = [place for place, feature in enumerate(features) if not is_own(feature.name)]
        self._own = [
            (place, feature, self._load(feature))
            for place, feature in enumerate(features)
            if is_own(feature.name)
        ]
        self.known = [features[place] for place in self._places]

    def _load(self, feature: Feature) -> StageFeature:
        base = JobFeature if self._key == "job_features" else StageFeature
        try:
            part: StageFeature = build_part(feature.name, base)
        except PartError as error:
            raise PartError(f"{self._key}: {error}") from None
        return part

    def filled(
        self, known: NDArray[np.float32], observation: Observation, rows: NDArray[np.int32] | None = None
    ) -> NDArray[np.float32]:
        """All features.

        Args:
            known: float32 [n, F - own], from compiled code.
            observation: whose stages or jobs they are.
            rows: int [n], the stages or jobs that they are of; all if they are not given.

        Returns:
            Float32 [n, F].

        Raises:
            PartError: one of the user's own gives other numbers than it should.
        """
        if not self._own:
            return known
        values = np.empty((len(known), len(self._places) + len(self._own)), np.float32)
        values[:, self._places] = known
        for place, feature, part in self._own:
            try:
                scaled = self._scaled(part, feature, observation)
            except PartError as error:
                raise PartError(f"{self._key}: {feature.name!r}: {error}") from None
            values[:, place] = scaled if rows is None else scaled[rows]
        return values

    def _scaled(self, part: StageFeature, feature: Feature, observation: Observation) -> NDArray[np.float64]:
        if self._key == "job_features":
            assert isinstance(part, JobFeature)
            own = _checked(part.of_jobs(observation), len(observation.jobs), "job")
        else:
            own = _checked(part.of_stages(observation), len(observation.stages), "stage")
        own = own / feature.scale
        if feature.log and own.size and own.min() <= -1:
            raise PartError(
                f"{own.min() * feature.scale:g} has no logarithm: expected more than {-feature.scale:g}"
            )
        return np.log1p(own) if feature.log else own


def _checked(values: object, count: int, of: str) -> NDArray[np.float64]:
    array = np.asarray(values)
    expected = f"expected {count} finite numbers, one for each {of}"
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise PartError(f"{expected}, got {array.dtype} of shape {list(array.shape)}")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise PartError(f"{expected}, got {numbers[~np.isfinite(numbers)][0]}")
    return numbers
