"""Estimators of jobs without history that were fitted to other jobs: their interface, and how a file is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cluster.config import ESTIMATORS
from workloads.errors import ConfigError, described_value, did_you_mean, one_of

if TYPE_CHECKING:
    from simulator.cluster.stage_times import Prediction
    from workloads.job import JobProfile

__all__ = ["FittedEstimator", "open_estimator"]


class FittedEstimator(ABC):
    """Estimator of jobs without history that was fitted to other jobs; ``simulator.cluster.predictor`` has its class.

    Attributes:
        name: file that contains the estimator.
    """

    name: str

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def predict(self, profile: JobProfile) -> Prediction | None:
        """Predict the task times of a job that has not run; None if the job is unlike all jobs of the fit."""

    @abstractmethod
    def has_template(self, name: str) -> bool:
        """Return whether a job of this name is of a template of the fit."""

    @abstractmethod
    def warm_up(self) -> None:
        """Load compiled code, so that the first prediction takes no longer than others."""


def open_estimator(name: str) -> str | FittedEstimator:
    """Return an estimator by its name in ``ESTIMATORS``, which is returned unchanged, or by its file.

    Raises:
        ConfigError: there is no such file.
        EstimatorError: the file is malformed.
    """
    if name in ESTIMATORS:
        return name
    if not Path(name).is_file():
        near = did_you_mean(name, ESTIMATORS)
        raise ConfigError(
            f"expected {one_of(ESTIMATORS)} or a file of decima train-estimator, got {described_value(name)}{near}"
        )
    from simulator.cluster.estimator_file import read_estimator  # compiled code is slow to import

    return read_estimator(name)
