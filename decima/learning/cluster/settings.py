"""Domain randomisation: each job sequence draws its setting (cluster and jobs) from a distribution, by its seed.

Attributes of jobs (deadlines, weights and tenants) may be drawn at random, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BeforeValidator, InstanceOf, create_model, field_validator, model_validator

from decima.evaluation.conditions import CompareError, Conditions
from decima.settings import SETTINGS, VALIDATION_SEEDS, Section, Share
from simulator.cluster.config import ERRORS, ClusterConfig
from workloads.arrivals import JobSequence, RandomStream, batch_arrivals, poisson_arrivals, random_stream
from workloads.declaration import declared, described
from workloads.drawn_attributes import AttributeDistribution
from workloads.errors import WorkloadError
from workloads.patterns import STEADY, ArrivalPattern
from workloads.quantities import Quantity, build, changed, quantities
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

__all__ = ["DRAWN", "ClusterSetting", "SettingsConditions", "SettingsSection", "by_cell"]


RANGES = ("uniform", "log_uniform")
ONE_OF = "one_of"
PLAIN = ClusterConfig()
#: Quantities of a cluster that are drawn: all numbers. Losses per hour are drawn in place of the lifetime.
DRAWN = {
    name: quantity
    for name, quantity in quantities(ClusterConfig).items()
    if quantity.bounds[0] in (int, float) and quantity.text is None and name != "executor_lifetime"
}
#: Quantities of streams that are drawn.
PATTERN = quantities(ArrivalPattern)
#: Order of the random numbers. It is fixed; other quantities are drawn after these, so that they change no earlier one.
ORDER = (
    "source", "batches", "executors", "moving_delay", "jobs", "load", "durations", "tasks",
    "job_error", "stage_error", "task_count_error", "unknown",
    "losses_per_hour", "executor_return", "task_failures", "straggler_share", "straggler_factor", "lost_output",
    "loses_output", "burst", "drift", "night",
)  # fmt: skip


def _checked(value: Any, least: float | None, most: float = math.inf) -> float | dict[str, list[float]]:
    """Validate a quantity: a number, or a distribution of numbers.

    Args:
        value: value from YAML.
        least: smallest valid number; None if all positive numbers are valid.
        most: largest valid number.
    """
    if not isinstance(value, Mapping):
        return _number(value, least, most)
    if len(value) != 1 or not value.keys() <= {*RANGES, ONE_OF}:
        raise ValueError(f"expected a number, or exactly one of {', '.join(RANGES)} and {ONE_OF}")
    [(kind, entries)] = value.items()
    if not isinstance(entries, list | tuple) or not entries:
        raise ValueError(f"{kind}: expected numbers in a list")
    numbers = [_number(entry, least, most) for entry in entries]
    if kind != ONE_OF and (len(numbers) != 2 or numbers[0] > numbers[1]):
        raise ValueError(f"{kind}: expected two ascending numbers, got {list(entries)}")
    if kind == "log_uniform" and numbers[0] <= 0:
        raise ValueError(f"{kind}: expected positive numbers, got {list(entries)}")
    return {kind: numbers}


def _number(value: Any, least: float | None, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (value <= 0 if least is None else value < least):
        wanted = "greater than 0" if least is None else f"of at least {least:g}"
        raise ValueError(f"expected a number {wanted}, got {value!r}")
    if value > most:
        raise ValueError(f"expected a number of at most {most:g}, got {value!r}")
    return float(value)


_Quantity = float | dict[str, list[float]]


def _declared(cls: Any, quantity: Quantity) -> Any:
    """Return the type and default of a drawn quantity; all numbers of a distribution must be valid in the class."""

    def check(value: Any) -> _Quantity:
        drawn = _checked(value, -math.inf)
        for number in [drawn] if isinstance(drawn, float) else itertools.chain(*drawn.values()):
            try:
                build(cls, {quantity.name: _value(quantity, number)}, WorkloadError)
            except WorkloadError as error:
                raise ValueError(str(error).removeprefix(f"{quantity.name}: ")) from None
        return drawn

    default = described(float(quantity.default), str(quantity.field.description))
    return Annotated[_Quantity, BeforeValidator(check)], default


def _value(quantity: Quantity, drawn: float) -> Any:
    """Return a number as a value of a quantity; integers are rounded."""
    return round(drawn) if quantity.bounds[0] is int else drawn


Number = Annotated[_Quantity, BeforeValidator(partial(_checked, least=1))]
Amount = Annotated[_Quantity, BeforeValidator(partial(_checked, least=0))]
Factor = Annotated[_Quantity, BeforeValidator(partial(_checked, least=None))]
Chance = Annotated[_Quantity, BeforeValidator(partial(_checked, least=0, most=1))]
Slowdown = Annotated[_Quantity, BeforeValidator(partial(_checked, least=1, most=1000))]


def _drawn(quantity: _Quantity, uniform: float) -> float:
    """Draw the value of a quantity: map a uniform random number in [0, 1) to it."""
    if not isinstance(quantity, dict):
        return quantity
    [(kind, numbers)] = quantity.items()
    if kind == ONE_OF:
        return numbers[int(uniform * len(numbers))]
    low, high = numbers
    between = low * (high / low) ** uniform if kind == "log_uniform" else low + (high - low) * uniform
    return min(max(between, low), high)  # rounding may leave the range


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


_ATTRIBUTES = {
    name: (
        Annotated[quantity.field.annotation, *quantity.field.metadata],
        described(quantity.field.default, str(quantity.field.description)),
    )
    for name, quantity in quantities(AttributeDistribution).items()
}
_FIELDS: dict[str, Any] = {
    **_ATTRIBUTES,
    **{name: _declared(ClusterConfig, quantity) for name, quantity in DRAWN.items()},
    **{name: _declared(ArrivalPattern, quantity) for name, quantity in PATTERN.items()},
}
if TYPE_CHECKING:
    _Quantities = Section
else:
    _Quantities = create_model("_Quantities", __base__=Section, **_FIELDS)


class SettingsSection(_Quantities):
    """Distribution of settings, instead of ``cluster`` and ``workload``; each sequence draws one by its seed.

    A quantity is a number, or exactly one of ``uniform: [a, b]``, ``log_uniform: [a, b]`` and ``one_of: [a, b, ..]``;
    integers are rounded. Numbers of a cluster, arrival patterns and attributes of jobs are declared with
    ``ClusterConfig``, ``ArrivalPattern`` and ``AttributeDistribution``.
    """

    sources: tuple[str, ...] = described(
        (EMBEDDED,),
        "sources of jobs, equally likely: tpch, synthetic, folders of published profiles, workload files "
        "(without their arrivals)",
    )
    batches: Share = described(
        1.0, "share of the sequences that are batches, with all jobs at time 0; the others are streams"
    )
    batch_jobs: Number = described(20.0, "number of jobs of a batch")
    stream_jobs: Number = described(60.0, "number of jobs of a stream")
    load: Factor = described(
        0.75, "streams: offered load, work that arrives per time (tasks times mean duration) over capacity"
    )
    durations: Factor = described(1.0, "factor of all task durations")
    tasks: Factor = described(1.0, "factor of the numbers of tasks; each stage keeps at least one")
    losses_per_hour: Amount = described(
        0.0,
        "losses of an executor per hour, divided by the factor durations, since a task that is longer than "
        "the life of executors never completes",
    )
    straggler_share: Chance = described(0.0, "probability that a task attempt is slow")
    straggler_factor: Slowdown = described(4.0, "factor of the duration of a slow attempt")
    lost_output: Chance = described(
        0.0, "probability that in a sequence, lost executors lose the outputs of their tasks"
    )

    @field_validator("sources")
    @classmethod
    def _check(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        if not sources:
            raise ValueError("expected at least one")
        return sources

    @model_validator(mode="after")
    def _check_attributes(self) -> SettingsSection:
        _ = self.attributes  # raises if the slacks are not ascending
        return self

    @property
    def attributes(self) -> AttributeDistribution:
        """Distribution of the drawn attributes."""
        return build(AttributeDistribution, {name: getattr(self, name) for name in _ATTRIBUTES})

    def draw(self, seed: int, cluster: ClusterConfig = PLAIN) -> ClusterSetting:
        """Draw a setting by a seed; ``cluster`` has the values that are not drawn."""
        order = [*ORDER, *(name for name in DRAWN if name not in ORDER)]
        uniforms = random_stream(seed, RandomStream.TRAINING, SETTINGS).random(len(order)).tolist()
        uniform = dict(zip(order, uniforms, strict=True))

        def drawn(name: str, of: str | None = None) -> float:
            return _drawn(getattr(self, of or name), uniform[name])

        is_batch = uniform["batches"] < self.batches
        durations = drawn("durations")
        values = {name: _value(quantity, drawn(name)) for name, quantity in DRAWN.items()}
        cluster = changed(cluster, {**values, "classes": ()})
        losses_per_hour = drawn("losses_per_hour") / durations
        faults = replace(
            cluster.faults,
            executor_lifetime_ms=3_600_000 / losses_per_hour if losses_per_hour else math.inf,
            stragglers=(drawn("straggler_share"), drawn("straggler_factor")),
            lost_output=bool(losses_per_hour) and uniform["loses_output"] < drawn("lost_output"),
        )
        return ClusterSetting(
            source=self.sources[int(uniform["source"] * len(self.sources))],
            # Each setting would need a forest of its own.
            cluster=replace(
                cluster, faults=faults, knowledge=replace(cluster.knowledge, estimator="typical")
            ),
            jobs=round(drawn("jobs", "batch_jobs" if is_batch else "stream_jobs")),
            load=None if is_batch else drawn("load"),
            durations=durations,
            tasks=drawn("tasks"),
            pattern=STEADY
            if is_batch
            else ArrivalPattern(
                **{name: _value(quantity, drawn(name)) for name, quantity in PATTERN.items()}
            ),
        )

    def cells(self, count: int) -> list[ClusterSetting]:
        """Return a number of validation settings, which are the same in all runs."""
        return [self.draw(VALIDATION_SEEDS + cell) for cell in range(count)]

    def read(self) -> dict[str, Workload]:
        """Read all sources, without their arrivals.

        Raises:
            WorkloadError: a source cannot be read.
        """
        return {name: replace(open_workload(name), sequence=None) for name in self.sources}


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
        return self.settings.draw(VALIDATION_SEEDS + cell if is_validation else seed, self.cluster)

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
        from workloads.scaling import scaled

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
