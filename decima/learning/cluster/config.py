"""What is trained, on what, and how: the settings of a training run, and the YAML files that hold them.

A file gives those that differ from the defaults, under the names below (``cluster:`` with ``executors: 50`` under it);
a few such files come with the project, see ``RECIPES``. Times are seconds, as everywhere that people write.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import model_validator

from decima.evaluation.conditions import Conditions
from decima.learning.cluster.sections import (
    BaselineSection,
    CloningSection,
    ClusterSection,
    CriticSection,
    CurriculumSection,
    EpisodesSection,
    PolicySection,
    ReturnsSection,
    UpdateSection,
    ValidationSection,
    WorkloadSection,
)
from decima.learning.cluster.settings import SettingsConditions, SettingsSection
from decima.learning.config import RunConfig
from decima.settings import Recipes, read_settings
from workloads.arrivals import JobSequence, RandomStream, random_stream
from workloads.sources.open import EMBEDDED

__all__ = ["RECIPES", "TrainingConfig", "read_config", "workload_overrides"]

#: Those of ``decima train``.
RECIPES = Recipes(resources.files("decima.learning.cluster") / "recipes")

#: More would reach the seeds of another run.
MAX_SEQUENCES = 800_000_000


@dataclass(frozen=True, eq=False)
class _Streams(Conditions):
    """Conditions whose streams are of different density.

    Args:
        intervals_ms: mean times between Poisson arrivals, ms; a seed has one of them, each as likely.
    """

    intervals_ms: tuple[float, ...] = (25_000.0,)

    def sequence(self, seed: int) -> JobSequence:
        """The jobs of one seed."""
        which = random_stream(seed, RandomStream.TRAINING).integers(len(self.intervals_ms))
        return self.draw(seed, self.intervals_ms[which])


class TrainingConfig(RunConfig):
    """A training run. Everything it does follows from these settings, bit for bit on a CPU."""

    policy: PolicySection = PolicySection()
    cluster: ClusterSection = ClusterSection()
    workload: WorkloadSection = WorkloadSection()
    settings: SettingsSection | None = None
    episodes: EpisodesSection = EpisodesSection()
    curriculum: CurriculumSection | None = None
    returns: ReturnsSection = ReturnsSection()
    baseline: BaselineSection = BaselineSection()
    critic: CriticSection | None = None
    update: UpdateSection = UpdateSection()
    behaviour_cloning: CloningSection | None = None
    validation: ValidationSection = ValidationSection()

    @model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        if self.iterations * self.episodes.sequences * self.episodes.per_sequence > MAX_SEQUENCES:
            raise ValueError(f"iterations: there are seeds for {MAX_SEQUENCES} episodes only")
        if self.curriculum is not None and self.cluster.semantics == "decima-sim":
            raise ValueError("curriculum: no episode ends early with the semantics decima-sim")
        if self.returns.relative and self.cluster.reward != "jct":
            raise ValueError("returns.relative: expected the reward jct")
        return self

    @model_validator(mode="after")
    def _check_settings(self) -> TrainingConfig:
        """Refuse beside ``settings`` what would have no effect, or no sense."""
        if self.settings is None:
            return self
        for name in ("executors", "classes", "moving_delay"):
            if getattr(self.cluster, name) != ClusterSection.model_fields[name].default:
                raise ValueError(f"cluster.{name}: has no effect beside settings")
        if self.workload != WorkloadSection():
            raise ValueError("workload: has no effect beside settings")
        if self.behaviour_cloning is not None and self.behaviour_cloning.jobs is not None:
            raise ValueError("behaviour_cloning.jobs: has no effect beside settings")
        if not self.episodes.fixed_sequences:
            raise ValueError("episodes.fixed_sequences: expected true beside settings")
        return self

    def conditions(self) -> Conditions:
        """The cluster, and how sequences are drawn, as comparisons have it.

        Raises:
            WorkloadError: the workload cannot be read, or no jobs can be drawn from it.
            ConfigError: no such cluster can be simulated.
        """
        if self.settings is not None:
            sources = self.settings.read()
            return SettingsConditions(
                workload=next(iter(sources.values())),
                cluster=self.cluster.build(),
                settings=self.settings,
                sources=sources,
                cells=self.validation.cells,
                per_cell=self.validation.sequences,
            )
        return _Streams(
            workload=self.workload.read(),
            cluster=self.cluster.build(),
            arrivals=self.workload.arrivals,
            intervals_ms=tuple(interval * 1000 for interval in self.workload.intervals),
            num_jobs=self.workload.jobs,
            memory_demand=self.workload.memory_demand,
        )


def workload_overrides(name: str | Path) -> list[str]:
    """Settings, as ``read_config`` takes them, that name a workload.

    Args:
        name: ``tpch``, ``synthetic``, a workload file, or a folder of published TPC-H profiles.
    """
    is_folder = Path(name).is_dir()
    file = None if is_folder or str(name) == EMBEDDED else str(name)
    profiles = str(name) if is_folder else None
    return [f"workload.profiles={json.dumps(profiles)}", f"workload.file={json.dumps(file)}"]


def read_config(source: str | Path, overrides: Sequence[str] = ()) -> TrainingConfig:
    """Read the settings of a training run, see ``settings.read_settings``."""
    return read_settings(TrainingConfig, RECIPES, source, overrides)
