"""Changes of job sequences: arrival patterns, random attributes, and excerpts of recorded sequences.

Patterns are bursts of jobs, day and night, and a rate that changes within a stream. Attributes (deadlines, tenants and
weights) are drawn with the seed of a sequence. Excerpts are a time interval or a sample; arrivals may be faster, and
tasks fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.arrivals import JobSequence, RandomStream, random_stream, trace_arrivals
from workloads.attributes import NO_ATTRIBUTES, JobAttributes, Tenant
from workloads.display import count_text
from workloads.errors import check_instance, check_number, check_whole
from workloads.job import JobProfile, WorkloadError

__all__ = ["STEADY", "ArrivalPattern", "AttributeDistribution", "Excerpt", "check_executor", "choose_jobs"]

#: Length of a day and a night together, in units of the mean time between arrivals.
DAY = 20


@dataclass(frozen=True)
class ArrivalPattern:
    """Pattern by which the arrival times of a stream are changed. Jobs, their order and their number stay the same.

    Args:
        burst: number of consecutive jobs that arrive together, at the time of the first one.
        drift: factor on the arrival rate in the second half of the jobs.
        night: fraction by which the rate is lower than the mean at night, and higher by day. A day and a night take
            ``DAY`` mean times between arrivals, half each.

    Raises:
        WorkloadError: a value is out of range.
    """

    burst: int = 1
    drift: float = 1.0
    night: float = 0.0

    def __post_init__(self) -> None:
        check_whole(self.burst, "burst", WorkloadError, 1)
        if check_number(self.drift, "drift", WorkloadError) <= 0:
            raise WorkloadError(f"drift must be positive, got {self.drift:g}")
        if not 0 <= check_number(self.night, "night", WorkloadError) < 1:
            raise WorkloadError(f"night must be at least 0 and below 1, got {self.night:g}")

    def __str__(self) -> str:
        """Describe the pattern in words; empty for an unchanged stream."""
        words = [f"{self.burst} jobs at once"] if self.burst > 1 else []
        words += [f"{self.drift:.3g} times the rate in the second half"] if self.drift != 1 else []
        words += [f"{self.night:.0%} fewer arrivals at night"] if self.night else []
        return ", ".join(words)

    def applied(self, sequence: JobSequence) -> JobSequence:
        """Return a sequence with changed arrival times. The given sequence must have no deadlines yet."""
        times_ms, count = sequence.arrival_ms, len(sequence)
        if self == STEADY or count < 2:
            return sequence
        if self.night:
            # Rates 1 + night by day and 1 - night at night give as many jobs as the mean rate.
            half_ms = DAY / 2 * times_ms[-1] / (count - 1)
            halves = np.arange(2 * count)
            rate = np.where(halves % 2 == 0, 1 + self.night, 1 - self.night)
            times_ms = np.interp(
                times_ms, half_ms * np.append(0, np.cumsum(rate)), half_ms * np.append(halves, 2 * count)
            )
        if self.drift != 1:
            middle_ms = times_ms[count // 2]
            times_ms = np.where(
                times_ms > middle_ms, middle_ms + (times_ms - middle_ms) / self.drift, times_ms
            )
        times_ms = times_ms[np.arange(count) // self.burst * self.burst]
        return replace(sequence, arrival_ms=times_ms)


#: The pattern of an unchanged stream.
STEADY = ArrivalPattern()


#: Maximum number of tenants.
MOST_TENANTS = 1000


@dataclass(frozen=True)
class AttributeDistribution:
    """Distribution of attributes, drawn uniformly and independently for each job.

    Attributes without a distribution stay as in the sequence. Each attribute has its own random stream. So a seed gives
    the same jobs, arrivals and task noise, and the same deadlines whether or not tenants are drawn.

    Args:
        slack: range (min, max) of the slack of deadlines, see ``JobAttributes.slack``; None: not drawn.
        tenants: number of tenants, named tenant-1, tenant-2, ..; 0: not drawn.
        weights: weights that are equally likely; empty: not drawn.

    Raises:
        WorkloadError: a value is out of range.

    Examples:
        >>> from workloads import AttributeDistribution, batch_arrivals, synthetic_profiles
        >>> jobs = batch_arrivals(synthetic_profiles(), num_jobs=3, seed=1)
        >>> AttributeDistribution(slack=(2, 2), weights=(1, 4, 16)).draw(jobs).attributes[0]
        JobAttributes(weight=4.0, deadline_ms=inf, slack=2.0, tenant='default')
    """

    slack: tuple[float, float] | None = None
    tenants: int = 0
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.slack is not None:
            low, high = (check_number(slack, "the slack of deadlines", WorkloadError) for slack in self.slack)
            if not 0 < low <= high < math.inf:
                raise WorkloadError(
                    f"the slack of deadlines must be above 0, finite and ascending, got {low:g} to {high:g}"
                )
            object.__setattr__(self, "slack", (low, high))
        tenants = check_whole(self.tenants, "the number of tenants", WorkloadError, 0, MOST_TENANTS)
        object.__setattr__(self, "tenants", tenants)
        weights = tuple(JobAttributes(weight=weight).weight for weight in self.weights)
        object.__setattr__(self, "weights", weights)

    def __bool__(self) -> bool:
        """Whether any attribute is drawn."""
        return self != NOTHING_DRAWN

    def __str__(self) -> str:
        """Describe the distribution in words; empty if nothing is drawn."""
        parts = []
        if self.slack is not None:
            low, high = self.slack
            parts.append(f"deadlines at slack {low:g}" + (f" to {high:g}" if high > low else ""))
        if self.tenants:
            parts.append(count_text(self.tenants, "tenant"))
        if self.weights:
            parts.append(f"weights {', '.join(f'{weight:g}' for weight in self.weights)}")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any] | None:
        """Return the distribution for JSON; None if nothing is drawn."""
        if not self:
            return None
        return {
            "slack": None if self.slack is None else list(self.slack),
            "tenants": self.tenants,
            "weights": list(self.weights),
        }

    def draw(self, sequence: JobSequence) -> JobSequence:
        """Return a sequence whose jobs have attributes drawn with its seed."""
        check_instance(sequence, JobSequence, "sequence", WorkloadError)
        if not self:
            return sequence
        count = len(sequence)
        deadlines, submitters, weights = (
            random_stream(sequence.seed, RandomStream.ATTRIBUTES, index) for index in range(3)
        )
        tenants = tuple(Tenant(f"tenant-{index}") for index in range(1, self.tenants + 1))
        drawn: dict[str, list[Any]] = {}
        if self.slack is not None:
            drawn["slack"] = deadlines.uniform(*self.slack, size=count).tolist()
            drawn["deadline_ms"] = [math.inf] * count
        if tenants:
            drawn["tenant"] = [tenants[index].name for index in submitters.integers(len(tenants), size=count)]
        if self.weights:
            drawn["weight"] = [
                self.weights[index] for index in weights.integers(len(self.weights), size=count)
            ]
        attributes = (
            replace(attributes, **dict(zip(drawn, values, strict=True)))
            for attributes, *values in zip(
                sequence.attributes or (NO_ATTRIBUTES,) * count, *drawn.values(), strict=True
            )
        )
        return replace(sequence, attributes=tuple(attributes), tenants=tenants or sequence.tenants)


#: The distribution that draws no attribute: jobs keep theirs.
NOTHING_DRAWN = AttributeDistribution()


#: Maximum number of selected jobs. Their profiles need some hundred MB, and as much again when written to a file.
MOST_JOBS = 100_000


@dataclass(frozen=True)
class Excerpt:
    """Selection of a part of a recorded job sequence; by default all of it, unchanged.

    Args:
        from_s: earliest arrival, s on the clock of the record.
        until_s: end of the arrivals (exclusive), s.
        sample: maximum number of jobs, drawn without replacement from the interval; their order is kept.
        seed: seed of the sample.
        speed_up: factor on the arrival rate.
        scale_tasks: divisor of the numbers of tasks, which are rounded up; suits a smaller cluster.

    Raises:
        WorkloadError: a number is out of range.
    """

    from_s: float = -math.inf
    until_s: float = math.inf
    sample: int | None = None
    seed: int = 0
    speed_up: float = 1.0
    scale_tasks: float = 1.0

    def __post_init__(self) -> None:
        check_whole(self.seed, "seed", WorkloadError, 0)
        for name in ("from_s", "until_s", "speed_up", "scale_tasks"):
            check_number(getattr(self, name), name, WorkloadError)
        if not self.from_s < self.until_s:
            raise WorkloadError(
                f"expected a time that begins before it ends, got {self.from_s:g} to {self.until_s:g} s"
            )
        if self.sample is not None:
            check_whole(self.sample, "sample", WorkloadError, 1)
        for name in ("speed_up", "scale_tasks"):
            if not 0 < getattr(self, name) < math.inf:
                raise WorkloadError(f"{name} must be above 0 and finite, got {getattr(self, name)}")

    @property
    def about(self) -> dict[str, float]:
        """Settings that differ from the defaults, by name."""
        default = Excerpt()
        return {name: value for name, value in asdict(self).items() if value != getattr(default, name)}

    def choose(self, arrival_s: ArrayLike) -> NDArray[np.int64]:
        """Return the indices of the selected jobs, int64 [n], sorted stably by arrival.

        Args:
            arrival_s: float [num_jobs], s on the clock of the record, in any order.

        Raises:
            WorkloadError: no job is selected.
        """
        arrival = np.asarray(arrival_s, dtype=np.float64)
        order = np.argsort(arrival, kind="stable")
        inside = order[(arrival[order] >= self.from_s) & (arrival[order] < self.until_s)]
        if not inside.size:
            raise WorkloadError(
                f"expected jobs that arrive from {self.from_s:g} to {self.until_s:g} s, got none"
            )
        if self.sample is not None and self.sample < len(inside):
            random = random_stream(self.seed, RandomStream.ARRIVALS)
            inside = inside[np.sort(random.choice(len(inside), self.sample, replace=False))]
        return inside

    def sequence(self, profiles: Sequence[JobProfile], arrival_s: ArrayLike) -> JobSequence:
        """Return the sequence of selected jobs, which arrived at ``arrival_s`` (float [n], s); the first one at 0."""
        arrival = np.asarray(arrival_s, dtype=np.float64)
        return trace_arrivals(profiles, (arrival - arrival.min()) * 1000 / self.speed_up, self.seed)

    def num_tasks(self, recorded: int) -> int:
        """Return the reduced number of tasks of a stage that had ``recorded`` tasks."""
        return math.ceil(recorded / self.scale_tasks)


def choose_jobs(path: Path, excerpt: Excerpt, arrival_s: ArrayLike) -> NDArray[np.int64]:
    """Return the indices of the jobs that an excerpt selects from a file, see ``Excerpt.choose``.

    Raises:
        WorkloadError: no job is selected, or more than ``MOST_JOBS``. The message names the file.
    """
    try:
        chosen = excerpt.choose(arrival_s)
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None
    if len(chosen) > MOST_JOBS:
        raise WorkloadError(
            f"{path}: {len(chosen)} jobs at once, choose at most {MOST_JOBS} by time or sample"
        )
    return chosen


def check_executor(executor: tuple[float, float] | None, cores: str = "cores") -> None:
    """Raise if an executor size (``cores``, memory) is not positive and finite; None means no size."""
    if executor is not None and not all(0 < size < math.inf for size in executor):
        raise WorkloadError(f"an executor's {cores} and memory must be above 0 and finite, got {executor}")
