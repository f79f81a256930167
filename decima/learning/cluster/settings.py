"""Domain randomisation: each job sequence draws its setting (cluster and jobs) from a distribution, by its seed.

Attributes of jobs (deadlines, weights and tenants) may be drawn at random, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BeforeValidator, field_validator, model_validator

from decima.evaluation.conditions import Conditions
from decima.settings import SETTINGS, VALIDATION_SEEDS, Positive, Section, Share, described
from simulator.cluster.config import EXACT, ClusterConfig, Knowledge
from simulator.cluster.faults import NO_FAULTS, Faults
from workloads.arrivals import JobSequence, RandomStream, batch_arrivals, poisson_arrivals, random_stream
from workloads.scaling import scaled
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload
from workloads.transform import STEADY, ArrivalPattern, AttributeDistribution

__all__ = ["AttributesSection", "Setting", "SettingsConditions", "SettingsSection", "by_cell"]


class AttributesSection(Section):
    """Attributes of jobs, drawn for each job by the sequence's seed."""

    deadlines: Positive | tuple[Positive, Positive] | None = described(
        None,
        "slack of each job's deadline, a multiple of its time alone; of two numbers, a slack between them "
        "is drawn; null for the workload's deadlines",
    )
    weights: tuple[Positive, ...] = described(
        (), "weights of jobs, equally likely; empty for the workload's weights"
    )
    tenants: int = described(0, "number of tenants, equally likely; 0 for the workload's tenants", ge=0)

    @field_validator("deadlines", mode="before")
    @classmethod
    def _check_deadlines(cls, deadlines: Any) -> Any:
        slacks = deadlines if isinstance(deadlines, list | tuple) else [deadlines]
        numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in slacks)
        if deadlines is None or (numbers and 1 <= len(slacks) <= 2 and all(each > 0 for each in slacks)):
            return slacks[0] if len(slacks) == 1 else deadlines
        raise ValueError(f"expected a slack above 0, or the least and the most, got {deadlines!r:.60}")

    @property
    def attributes(self) -> AttributeDistribution:
        """Distribution of the drawn attributes."""
        slack = (self.deadlines,) * 2 if isinstance(self.deadlines, float) else self.deadlines
        return AttributeDistribution(slack, self.tenants, self.weights)


RANGES = ("uniform", "log_uniform")
ONE_OF = "one_of"
#: Quantities of ``Knowledge``: errors of estimates.
ERRORS = tuple(each.name for each in fields(Knowledge))
#: Quantities of faults -> largest values.
FAULTS = {
    "losses_per_hour": math.inf,
    "executor_return": math.inf,
    "task_failures": 1.0,
    "straggler_share": 1.0,
    "straggler_factor": 1000.0,
    "lost_output": 1.0,
}
#: Quantities of ``ArrivalPattern``, for streams.
PATTERN = tuple(each.name for each in fields(ArrivalPattern))


def _checked(value: Any, least: float | None) -> float | dict[str, list[float]]:
    """Validate a quantity: a number, or a distribution of numbers.

    Args:
        value: value from YAML.
        least: smallest valid number; None if all positive numbers are valid.
    """
    if not isinstance(value, Mapping):
        return _number(value, least)
    if len(value) != 1 or not value.keys() <= {*RANGES, ONE_OF}:
        raise ValueError(f"expected a number, or exactly one of {', '.join(RANGES)} and {ONE_OF}")
    [(kind, given)] = value.items()
    if not isinstance(given, list | tuple) or not given:
        raise ValueError(f"{kind}: expected numbers in a list")
    numbers = [_number(each, least) for each in given]
    if kind != ONE_OF and (len(numbers) != 2 or numbers[0] > numbers[1]):
        raise ValueError(f"{kind}: expected two ascending numbers, got {list(given)}")
    if kind == "log_uniform" and numbers[0] <= 0:
        raise ValueError(f"{kind}: expected positive numbers, got {list(given)}")
    return {kind: numbers}


def _number(value: Any, least: float | None) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (value <= 0 if least is None else value < least):
        wanted = "greater than 0" if least is None else f"of at least {least:g}"
        raise ValueError(f"expected a number {wanted}, got {value!r}")
    return float(value)


_Quantity = float | dict[str, list[float]]
Number = Annotated[_Quantity, BeforeValidator(partial(_checked, least=1))]
Delay = Annotated[_Quantity, BeforeValidator(partial(_checked, least=0))]
Factor = Annotated[_Quantity, BeforeValidator(partial(_checked, least=None))]


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


def _largest(quantity: _Quantity) -> float:
    return max(map(max, quantity.values())) if isinstance(quantity, dict) else quantity


@dataclass(frozen=True)
class Setting:
    """A setting: a cluster and its jobs.

    Attributes:
        source: source of the jobs, one of ``SettingsSection.sources``.
        moving_delay_s: delay of an executor that changes jobs, s.
        load: offered load of a stream; None for a batch.
        durations: factor of all task durations.
        tasks: factor of the numbers of tasks.
        knowledge: errors of estimates.
        pattern: arrival pattern of a stream.
    """

    source: str
    executors: int
    moving_delay_s: float
    jobs: int
    load: float | None
    durations: float
    tasks: float
    knowledge: Knowledge = EXACT
    faults: Faults = NO_FAULTS
    pattern: ArrivalPattern = STEADY

    def __str__(self) -> str:
        """Describe the setting in one line of words."""
        what = "a batch of" if self.load is None else f"a stream at {self.load:.0%} load of"
        words = [f"{what} {self.jobs} jobs of {self.source}", f"{self.executors} executors"]
        words.append(f"moving delay {self.moving_delay_s:.3g} s")
        words += [
            f"{name} x {factor:.3g}"
            for name, factor in (("durations", self.durations), ("tasks", self.tasks))
            if factor != 1
        ]
        words += [
            f"{name.replace('_', ' ')} {value:.3g}" for name, value in asdict(self.knowledge).items() if value
        ]
        return ", ".join([*words, *filter(None, [str(self.pattern), str(self.faults)])])


class SettingsSection(AttributesSection):
    """Distribution of settings, instead of ``cluster`` and ``workload``; each sequence draws one by its seed.

    A quantity is a number, or exactly one of ``uniform: [a, b]``, ``log_uniform: [a, b]`` and ``one_of: [a, b, ..]``;
    integers are rounded.
    """

    sources: tuple[str, ...] = described(
        (EMBEDDED,),
        "sources of jobs, equally likely: tpch, synthetic, folders of published profiles, workload files "
        "(without their arrivals)",
    )
    executors: Number = described(50.0, "number of executors")
    moving_delay: Delay = described(2.0, "time that an executor needs to move to another job, s")
    batches: Share = described(
        1.0, "share of the sequences that are batches, with all jobs at time 0; the others are streams"
    )
    batch_jobs: Number = described(20.0, "number of jobs of a batch")
    stream_jobs: Number = described(60.0, "number of jobs of a stream")
    load: Factor = described(
        0.75, "streams: offered load, work that arrives per time (tasks times mean duration) over capacity"
    )
    burst: Number = described(1.0, "streams: number of jobs that arrive together")
    drift: Factor = described(1.0, "streams: factor of the arrival rate in the second half of the jobs")
    night: Delay = described(
        0.0,
        "streams: fraction by which the arrival rate is lower at night, and higher by day; each lasts 10 "
        "mean times between arrivals",
    )
    durations: Factor = described(1.0, "factor of all task durations")
    tasks: Factor = described(1.0, "factor of the numbers of tasks; each stage keeps at least one")
    job_error: Delay = described(0.0, "error of the estimate of a job: standard deviation of the logarithm")
    stage_error: Delay = described(0.0, "error of the estimate of each stage, likewise")
    task_count_error: Delay = described(0.0, "error of each stage's number of tasks, likewise")
    unknown: Delay = described(0.0, "share of jobs without history")
    losses_per_hour: Delay = described(
        0.0,
        "losses of an executor per hour, divided by the factor durations, since a task that is longer than "
        "the life of executors never completes",
    )
    executor_return: Factor = described(60.0, "mean time until a lost executor is replaced, s")
    task_failures: Delay = described(0.0, "probability that a task attempt fails")
    straggler_share: Delay = described(0.0, "probability that a task attempt is slow")
    straggler_factor: Number = described(4.0, "factor of the duration of a slow attempt")
    lost_output: Delay = described(
        0.0, "probability that in a sequence, lost executors lose the outputs of their tasks"
    )

    @field_validator("sources")
    @classmethod
    def _check(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        if not sources:
            raise ValueError("expected at least one")
        return sources

    @model_validator(mode="after")
    def _check_errors(self) -> SettingsSection:
        _ = self.attributes  # raises if out of range
        for name in ERRORS:
            Knowledge(**{name: _largest(getattr(self, name))})
        for name, most in FAULTS.items():
            if (largest := _largest(getattr(self, name))) > most:
                raise ValueError(f"{name} must be at most {most:g}, got {largest:g}")
        ArrivalPattern(night=_largest(self.night))
        return self

    def draw(self, seed: int) -> Setting:
        """Draw a setting by a seed."""
        random = random_stream(seed, RandomStream.TRAINING, SETTINGS).random(
            8 + len(ERRORS) + len(FAULTS) + 1 + len(PATTERN)
        )
        source, kind, executors, delay, jobs, load, durations, tasks, *others = random.tolist()
        # The order of the draws is fixed, so that a new quantity, which is drawn last, changes no other one.
        errors, others = others[: len(ERRORS)], others[len(ERRORS) :]
        faults, losing, pattern = others[: len(FAULTS)], others[len(FAULTS)], others[len(FAULTS) + 1 :]
        is_batch = kind < self.batches
        return Setting(
            source=self.sources[int(source * len(self.sources))],
            executors=round(_drawn(self.executors, executors)),
            moving_delay_s=_drawn(self.moving_delay, delay),
            jobs=round(_drawn(self.batch_jobs if is_batch else self.stream_jobs, jobs)),
            load=None if is_batch else _drawn(self.load, load),
            durations=_drawn(self.durations, durations),
            tasks=_drawn(self.tasks, tasks),
            knowledge=Knowledge(**self._quantities(ERRORS, errors)),
            faults=self._faults(faults, losing, _drawn(self.durations, durations)),
            pattern=STEADY if is_batch else self._pattern(pattern),
        )

    def _quantities(self, names: Iterable[str], uniform: list[float]) -> dict[str, float]:
        """Draw quantities from uniform random numbers, by name."""
        return {name: _drawn(getattr(self, name), each) for name, each in zip(names, uniform, strict=True)}

    def _pattern(self, uniform: list[float]) -> ArrivalPattern:
        burst, drift, night = self._quantities(PATTERN, uniform).values()
        return ArrivalPattern(round(burst), drift, night)

    def _faults(self, uniform: list[float], losing: float, durations: float) -> Faults:
        """Draw faults from uniform random numbers, one for each of ``FAULTS``, and ``losing`` for lost outputs."""
        drawn = self._quantities(FAULTS, uniform)
        rate = drawn["losses_per_hour"] / durations
        return Faults(
            executor_lifetime_ms=3_600_000 / rate if rate else math.inf,
            executor_return_ms=drawn["executor_return"] * 1000,
            task_failures=drawn["task_failures"],
            stragglers=(drawn["straggler_share"], drawn["straggler_factor"]),
            lost_output=bool(rate) and losing < drawn["lost_output"],
        )

    def cells(self, count: int) -> list[Setting]:
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


@dataclass(frozen=True, eq=False, kw_only=True)
class SettingsConditions(Conditions):
    """Conditions in which each seed has its own cluster and jobs (domain randomisation).

    Args:
        cluster: configuration common to all clusters.
        sources: workload by name of the source.
        cells: number of validation settings.
        per_cell: number of consecutive validation sequences that share a setting.
    """

    settings: SettingsSection
    sources: Mapping[str, Workload] = field(default_factory=dict)
    cells: int = 0
    per_cell: int = 1

    def setting(self, seed: int) -> Setting:
        """Return the setting of a seed."""
        cell = (seed - VALIDATION_SEEDS) // self.per_cell
        return self.settings.draw(VALIDATION_SEEDS + cell if 0 <= cell < self.cells else seed)

    def cluster_of(self, seed: int) -> ClusterConfig:
        """Return the cluster of a seed."""
        setting = self.setting(seed)
        return replace(
            self.cluster,
            num_executors=setting.executors,
            executor_classes=(),
            moving_delay_ms=setting.moving_delay_s * 1000,
            knowledge=setting.knowledge,
            faults=setting.faults,
        )

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

    def _interval_ms(self, setting: Setting, load: float) -> float:
        """Return the mean time between arrivals that gives this load, ms."""
        num_tasks, mean_ms = self._stages[setting.source]
        left = np.maximum(1, np.rint(setting.tasks * num_tasks))
        work_ms = setting.durations * float(left @ mean_ms) / len(self.sources[setting.source].profiles)
        return max(work_ms, 1.0) / (load * setting.executors)  # clocks have a resolution of 1 ms

    @cached_property
    def _stages(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Number of tasks and mean duration (ms) of all stages of each source, float64 [n] each."""
        found = {}
        for name, source in self.sources.items():
            stages = [stage for profile in source.profiles for stage in profile.stages]
            found[name] = (
                np.array([stage.num_tasks for stage in stages], dtype=np.float64),
                np.array([stage.durations.mean_ms for stage in stages]),
            )
        return found

    @cached_property
    def _examples(self) -> JobSequence:
        """Jobs of all sources, without factors of a setting."""
        profiles = tuple(profile for source in self.sources.values() for profile in source.profiles)
        return JobSequence(profiles, np.zeros(len(profiles)))
