"""Settings of a training on clusters, read from YAML.

A file contains only settings that differ from the defaults, such as ``executors: 50`` below ``cluster:``. ``RECIPES``
are files that ship with the project. Times are in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import model_validator

from decima.evaluation.conditions import CompareError, Conditions
from decima.learning.cluster import sections
from decima.settings import (
    CLONING_OFFSET,
    RUN_SEEDS,
    VALIDATION_SEEDS,
    Imported,
    Outside,
    Recipes,
    RunConfig,
    read_settings,
)
from simulator.cluster.config import DECIMA_SIM, ClusterConfig
from simulator.cluster.reward import COMMON
from workloads.arrivals import JobSequence, RandomStream, random_stream
from workloads.declaration import declared, described
from workloads.job import WorkloadError
from workloads.quantities import quantities
from workloads.sources.open import EMBEDDED

__all__ = ["RECIPES", "TrainingConditions", "TrainingConfig", "read_config"]

RECIPES = Recipes(resources.files("decima.learning.cluster") / "recipes")

#: Maximum number of training sequences; more would reach the seeds of another run.
MAX_SEQUENCES = 800_000_000


@declared(CompareError, eq=False, kw_only=True)
class TrainingConditions(Conditions):
    """Conditions in which each sequence draws its mean time between arrivals from ``intervals_ms`` by its seed."""

    intervals_ms: tuple[float, ...] = (25_000.0,)

    def sequence(self, seed: int) -> JobSequence:
        """Return the job sequence of a seed."""
        which = random_stream(seed, RandomStream.TRAINING).integers(len(self.intervals_ms))
        return self.draw(seed, self.intervals_ms[which])

    def half_size(self) -> TrainingConditions:
        """Return these conditions with half of the executors and jobs, and twice the time between arrivals."""
        cluster = self.cluster
        classes = tuple(replace(kind, count=_half(kind.count)) for kind in cluster.executor_classes)
        capacity = tuple((time_ms, _half(count)) for time_ms, count in cluster.faults.capacity)
        faults = replace(cluster.faults, capacity=capacity)
        return replace(
            self,
            cluster=replace(cluster, executor_classes=classes, faults=faults),
            num_jobs=_half(self.num_jobs),
            intervals_ms=tuple(2 * interval_ms for interval_ms in self.intervals_ms),
        )


def _half(count: int) -> int:
    return (count + 1) // 2


class TrainingConfig(RunConfig):
    """Settings of a training run. They determine its results, bit for bit on a CPU."""

    policy: sections.PolicySection = sections.PolicySection()
    cluster: Annotated[ClusterConfig, Outside()] = ClusterConfig()
    workload: Annotated[sections.WorkloadSection, Outside()] = sections.WorkloadSection()
    settings: Annotated[Any, Imported("decima.learning.cluster.settings:SettingsSection")] = None
    few_jobs: int | None = described(
        None,
        "trains a second network, which decides with at most this number of live jobs; the policy of start decides "
        "in the other states, and does not change. null: no second network",
        ge=1,
    )
    restarts: sections.RestartsSection | None = None
    episodes: sections.EpisodesSection = sections.EpisodesSection()
    curriculum: sections.CurriculumSection | None = None
    returns: sections.ReturnsSection = sections.ReturnsSection()
    baseline: sections.BaselineSection = sections.BaselineSection()
    critic: sections.CriticSection | None = None
    update: sections.UpdateSection = sections.UpdateSection()
    search: Annotated[Any, Imported("decima.learning.cluster.search:SearchSection")] = None
    behaviour_cloning: sections.CloningSection | None = None
    validation: sections.ValidationSection = sections.ValidationSection()

    @model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        if self._num_episodes > MAX_SEQUENCES:
            raise ValueError(f"iterations: there are seeds for {MAX_SEQUENCES} episodes only")
        if self.curriculum is not None and self.cluster.semantics == DECIMA_SIM:
            raise ValueError("curriculum: no episode ends early with the semantics decima-sim")
        if self.returns.relative and self.cluster.reward != "jct":
            raise ValueError("returns.relative: expected the reward jct")
        if self.few_jobs is not None and (self.start is None or self.policy.build().has_custom_parts):
            raise ValueError("few_jobs: expected a start, and a policy without custom parts")
        if self.search is not None:
            self.search.check(self)
        return self

    @model_validator(mode="after")
    def _check_settings(self) -> TrainingConfig:
        """Raise if a setting has no effect beside ``settings``, or excludes it."""
        if self.settings is None:
            return self
        from decima.learning.cluster.settings import DRAWN

        for name, quantity in quantities(ClusterConfig).items():
            if name in (*DRAWN, "classes") and quantity.of(self.cluster) != quantity.of(ClusterConfig()):
                raise ValueError(f"cluster.{name}: has no effect beside settings")
        if self.workload != sections.WorkloadSection():
            raise ValueError("workload: has no effect beside settings")
        if self.behaviour_cloning is not None and self.behaviour_cloning.jobs is not None:
            raise ValueError("behaviour_cloning.jobs: has no effect beside settings")
        if not self.episodes.fixed_sequences:
            raise ValueError("episodes.fixed_sequences: expected true beside settings")
        for name, instead in (("batches", "batches"), ("half_size", "executors")):
            if getattr(self.episodes, name):
                raise ValueError(
                    f"episodes.{name}: has no effect beside settings, expected settings.{instead}"
                )
        return self

    @property
    def training_seeds(self) -> range:
        """Sequence seeds of all training episodes, in the order of the iterations."""
        episodes, first = self.episodes, (1 + self.seed) * RUN_SEEDS
        per_sequence = episodes.per_sequence if episodes.fixed_sequences else 1
        return range(first, first + self._num_episodes, per_sequence if self.search is None else 2)

    @property
    def _num_episodes(self) -> int:
        """Number of episodes of the training."""
        if self.search is not None:
            return 2 * self.iterations * int(self.search.pairs)
        return self.episodes.sequences_before(self.iterations, self.iterations) * self.episodes.per_sequence

    def work(self) -> list[float]:
        """Return the fraction of the training's work before each iteration, and 1, to estimate the remaining time.

        The work of an episode is proportional to its number of jobs, or to its mean length with a curriculum.
        """
        episodes, done = self.episodes, [0.0]
        for iteration in range(self.iterations):
            progress = iteration / self.iterations
            jobs = float(episodes.batch_jobs if progress < episodes.batches else self.workload.num_jobs)
            if progress < episodes.half_size:
                jobs /= 2
            if self.curriculum is not None:
                jobs *= self.curriculum.mean_end_s(progress)
            before, until = (
                episodes.sequences_before(number, self.iterations) for number in (iteration, iteration + 1)
            )
            done.append(done[-1] + jobs * (until - before))
        return [part / done[-1] for part in done]

    @property
    def validation_seeds(self) -> range:
        """Seeds of the validation sequences; with ``settings``, cell after cell."""
        num_cells = 1 if self.settings is None else self.validation.cells
        return range(VALIDATION_SEEDS, VALIDATION_SEEDS + num_cells * self.validation.sequences)

    @property
    def cloning_seeds(self) -> range:
        """Seeds of the job sequences for behaviour cloning."""
        first = (1 + self.seed) * RUN_SEEDS + CLONING_OFFSET
        cloning = self.behaviour_cloning
        return range(first, first + (cloning.sequences if cloning is not None else 0))

    def conditions(self) -> Conditions:
        """Return the cluster and the distribution of job sequences.

        Raises:
            WorkloadError: the workload cannot be read, no jobs can be drawn from it, or no job has the attributes that
                the objective needs.
            ConfigError: the cluster cannot be simulated.
        """
        conditions = self._conditions()
        self._check_objective(conditions)
        return conditions

    def _conditions(self) -> Conditions:
        if self.settings is not None:
            from decima.learning.cluster.randomised import SettingsConditions

            sources = self.settings.read()
            return SettingsConditions(
                workload=next(iter(sources.values())),
                cluster=self.cluster,
                settings=self.settings,
                sources=sources,
                cells=self.validation.cells,
                per_cell=self.validation.sequences,
                attributes=self.settings.attributes,
            )
        workload = self.workload.read()
        if workload.sequence is not None:
            for name in ("batches", "half_size"):
                if getattr(self.episodes, name):
                    raise WorkloadError(
                        f"episodes.{name}: has no effect, as the jobs of {workload.name} have their own arrival times"
                    )
        return TrainingConditions(
            workload=workload,
            cluster=self.cluster,
            arrivals=self.workload.arrivals,
            intervals_ms=self.workload.intervals_ms,
            num_jobs=self.workload.num_jobs,
            memory_demand=self.workload.memory_demand,
            drift=self.workload.drift,
            attributes=self.workload.attributes,
        )

    def _check_objective(self, conditions: Conditions) -> None:
        """Raise if no job has the attributes that the objective needs."""
        reward, seeds = self.cluster.reward, self.validation_seeds
        if reward in COMMON:
            return
        from simulator.cluster.deadlines import deadlines_ms
        from simulator.cluster.objectives import objective_named

        attributes = objective_named(reward).attributes
        here = "workload" if self.settings is None else "settings"
        problems: dict[str, tuple[str, Callable[..., Any]]] = {
            "deadline": (
                "no job has a deadline",
                lambda jobs, cluster: np.isfinite(deadlines_ms(jobs, cluster)),
            ),
            "tenant": ("all jobs have one tenant", lambda jobs, _: np.diff(jobs.tenant)),
            "weight": ("all jobs have the weight 1", lambda jobs, _: jobs.weight != 1),
        }
        for name, (problem, attribute_of) in problems.items():
            if name in attributes and not any(
                attribute_of(conditions.sequence(seed), conditions.cluster_of(seed)).any() for seed in seeds
            ):
                raise WorkloadError(f"cluster.reward {reward!r}: {problem}, expected {here}.{name}s")


def read_config(
    source: str | Path,
    overrides: Sequence[str] = (),
    changes: Mapping[str, Any] | None = None,
    workload: str | Path | None = None,
) -> TrainingConfig:
    """Read the settings of a training on clusters, see ``decima.settings.read_settings``.

    A workload, see ``decima.train``, replaces that of the settings, or all sources of ``settings``.
    """
    config = read_settings(TrainingConfig, RECIPES, source, overrides, changes)
    if workload is None:
        return config
    name = str(workload)
    named: dict[str, Any]
    if config.settings is not None:
        named = {"settings.sources": [name]}
    elif Path(name).is_dir():
        named = {"workload.profiles": name, "workload.file": None}
    else:
        named = {"workload.profiles": None, "workload.file": None if name == EMBEDDED else name}
    overrides = [*overrides, *(f"{key}={json.dumps(value)}" for key, value in named.items())]
    return read_settings(TrainingConfig, RECIPES, source, overrides, changes)
