"""Domain randomisation: each job sequence draws its setting (cluster and jobs) from a distribution, by its seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import InstanceOf

from decima.evaluation.conditions import CompareError, Conditions
from decima.learning.cluster.settings import DRAWN, ONE_OF, PATTERN, SettingsSection, drawn_value
from decima.settings import SETTINGS, VALIDATION_SEEDS
from simulator.cluster.config import ERRORS, ClusterConfig
from workloads.arrivals import JobSequence, RandomStream, batch_arrivals, poisson_arrivals, random_stream
from workloads.declaration import declared
from workloads.patterns import STEADY, ArrivalPattern
from workloads.quantities import quantities
from workloads.scaling import scaled
from workloads.sources.workload_file import Workload

__all__ = ["ClusterSetting", "SettingsConditions", "by_cell", "draw_setting", "validation_settings"]

_T = TypeVar("_T")

PLAIN = ClusterConfig()
#: Order of the random numbers. It is fixed; other quantities are drawn after these, so that they change no earlier one.
ORDER = (
    "source", "batches", "executors", "moving_delay", "jobs", "load", "durations", "tasks",
    "job_error", "stage_error", "task_count_error", "unknown",
    "losses_per_hour", "executor_return", "task_failures", "straggler_share", "straggler_factor", "lost_output",
    "loses_output", "burst", "drift", "night",
)  # fmt: skip


@dataclass(frozen=True)
class ClusterSetting:
    """A setting: a cluster and its jobs.

    Attributes:
        source: source of the jobs, one of ``SettingsSection.sources``.
        cluster: cluster, with errors of estimates and faults.
        jobs: number of jobs.
        load: offered load of a stream; None for a batch.
        durations: factor of all task durations.
        tasks: factor of the numbers of tasks.
        pattern: arrival pattern of a stream.
    """

    source: str
    cluster: ClusterConfig
    jobs: int
    load: float | None
    durations: float
    tasks: float
    pattern: ArrivalPattern = STEADY

    def __str__(self) -> str:
        """Describe the setting in one line of words."""
        what = "a batch of" if self.load is None else f"a stream at {self.load:.0%} load of"
        words = [f"{what} {self.jobs} jobs of {self.source}", f"{self.cluster.num_executors} executors"]
        words.append(f"moving delay {self.cluster.moving_delay_ms / 1000:.3g} s")
        words += [
            f"{name} x {factor:.3g}"
            for name, factor in (("durations", self.durations), ("tasks", self.tasks))
            if factor != 1
        ]
        errors = {name: getattr(self.cluster.knowledge, name) for name in ERRORS}
        words += [f"{name.replace('_', ' ')} {value:.3g}" for name, value in errors.items() if value]
        return ", ".join([*words, *filter(None, [str(self.pattern), str(self.cluster.faults)])])


def draw_setting(settings: SettingsSection, seed: int, cluster: ClusterConfig = PLAIN) -> ClusterSetting:
    """Draw a setting by a seed; ``cluster`` has the values that are not drawn."""
    order = [*ORDER, *(name for name in DRAWN if name not in ORDER)]
    uniforms = random_stream(seed, RandomStream.TRAINING, SETTINGS).random(len(order)).tolist()
    uniform = dict(zip(order, uniforms, strict=True))

    def drawn(name: str, of: str | None = None) -> float:
        return _value_at(getattr(settings, of or name), uniform[name])

    is_batch = uniform["batches"] < settings.batches
    durations = drawn("durations")
    values = {name: drawn_value(quantity, drawn(name)) for name, quantity in DRAWN.items()}
    cluster = _changed(cluster, {**values, "classes": ()})
    losses_per_hour = drawn("losses_per_hour") / durations
    faults = replace(
        cluster.faults,
        executor_lifetime_ms=3_600_000 / losses_per_hour if losses_per_hour else math.inf,
        stragglers=(drawn("straggler_share"), drawn("straggler_factor")),
        lost_output=bool(losses_per_hour) and uniform["loses_output"] < drawn("lost_output"),
    )
    return ClusterSetting(
        source=settings.sources[int(uniform["source"] * len(settings.sources))],
        # Each setting would need a forest of its own.
        cluster=replace(cluster, faults=faults, knowledge=replace(cluster.knowledge, estimator="typical")),
        jobs=round(drawn("jobs", "batch_jobs" if is_batch else "stream_jobs")),
        load=None if is_batch else drawn("load"),
        durations=durations,
        tasks=drawn("tasks"),
        pattern=STEADY
        if is_batch
        else ArrivalPattern(
            **{name: drawn_value(quantity, drawn(name)) for name, quantity in PATTERN.items()}
        ),
    )


def _changed(setting: _T, values: Mapping[str, Any]) -> _T:
    """Return an object of a declared class with other values, by the names that users see; times are seconds."""
    cls: Any = type(setting)
    inside: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        quantity = quantities(cls)[name]
        field, *inner = quantity.path
        if inner:
            groups.setdefault(field, {})[name] = value
        else:
            inside[field] = quantity.inside(value)
    for field, given in groups.items():
        inside[field] = _changed(getattr(setting, field), given)
    return cast("_T", replace(cast("Any", setting), **inside))


def _value_at(quantity: float | dict[str, list[float]], uniform: float) -> float:
    """Draw the value of a quantity: map a uniform random number in [0, 1) to it."""
    if not isinstance(quantity, dict):
        return quantity
    [(kind, numbers)] = quantity.items()
    if kind == ONE_OF:
        return numbers[int(uniform * len(numbers))]
    low, high = numbers
    between = low * (high / low) ** uniform if kind == "log_uniform" else low + (high - low) * uniform
    return min(max(between, low), high)  # rounding may leave the range


def validation_settings(settings: SettingsSection, count: int) -> list[ClusterSetting]:
    """Return a number of validation settings, which are the same in all runs."""
    return [draw_setting(settings, VALIDATION_SEEDS + cell) for cell in range(count)]


def by_cell(values: ArrayLike, cells: int) -> NDArray[np.float64]:
    """Average values of the validation sequences, [cells * sequences], over each cell; float64 [cells]."""
    means: NDArray[np.float64] = np.asarray(values, dtype=np.float64).reshape(cells, -1).mean(axis=1)
    return means


@declared(error=CompareError, eq=False, kw_only=True)
class SettingsConditions(Conditions):
    """Conditions in which each seed has its own cluster and jobs (domain randomisation).

    Attributes:
        settings: distribution of the settings; ``cluster`` has what they have in common.
        sources: workload by name of the source.
        cells: number of validation settings.
        per_cell: number of consecutive validation sequences that share a setting.
    """

    settings: SettingsSection
    sources: Mapping[str, InstanceOf[Workload]] = field(default_factory=dict)
    cells: int = 0
    per_cell: int = 1

    def setting(self, seed: int) -> ClusterSetting:
        """Return the setting of a seed."""
        cell = (seed - VALIDATION_SEEDS) // self.per_cell
        is_validation = 0 <= cell < self.cells
        return draw_setting(self.settings, VALIDATION_SEEDS + cell if is_validation else seed, self.cluster)

    def cluster_of(self, seed: int) -> ClusterConfig:
        """Return the cluster of a seed."""
        return self.setting(seed).cluster

    def sequence(self, seed: int) -> JobSequence:
        """Return the job sequence of a seed."""
        setting = self.setting(seed)
        profiles = self.sources[setting.source].profiles
        if setting.load is None:
            drawn = batch_arrivals(profiles, setting.jobs, seed)
        else:
            drawn = poisson_arrivals(profiles, setting.jobs, self._interval_ms(setting, setting.load), seed)
            drawn = setting.pattern.applied(drawn)
        jobs = tuple(scaled(profile, setting.durations, setting.tasks) for profile in drawn.profiles)
        prior = drawn.prior
        if prior is not None:
            log_ms = math.log(setting.durations)
            prior = replace(
                prior,
                mean_log_ms=prior.mean_log_ms + log_ms + math.log(setting.tasks),
                task_log_ms=prior.task_log_ms + log_ms,
            )
        return self.attributes.draw(replace(drawn, profiles=jobs, prior=prior))

    def _interval_ms(self, setting: ClusterSetting, load: float) -> float:
        """Return the mean time between arrivals that gives this load, ms."""
        num_tasks, mean_ms = self._stages[setting.source]
        left = np.maximum(1, np.rint(setting.tasks * num_tasks))
        work_ms = setting.durations * float(left @ mean_ms) / len(self.sources[setting.source].profiles)
        return max(work_ms, 1.0) / (load * setting.cluster.num_executors)  # clocks have a resolution of 1 ms

    @cached_property
    def _stages(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Number of tasks and mean duration (ms) of all stages of each source, float64 [n] each."""
        by_source = {}
        for name, source in self.sources.items():
            stages = [stage for profile in source.profiles for stage in profile.stages]
            by_source[name] = (
                np.array([stage.num_tasks for stage in stages], dtype=np.float64),
                np.array([stage.durations.mean_ms for stage in stages]),
            )
        return by_source

    @cached_property
    def _examples(self) -> JobSequence:
        """Jobs of all sources, without factors of a setting."""
        profiles = tuple(profile for source in self.sources.values() for profile in source.profiles)
        return JobSequence(profiles, np.zeros(len(profiles)))
