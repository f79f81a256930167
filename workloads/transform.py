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
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BeforeValidator, Field

from workloads.arrivals import JobSequence, RandomStream, random_stream, trace_arrivals
from workloads.attributes import LARGEST_WEIGHT, NO_ATTRIBUTES, Tenant
from workloads.declaration import Number, Text, Whole, declared, described
from workloads.display import count_text, numbers_text
from workloads.errors import check_instance, check_number, check_whole, numbers_in
from workloads.job import JobProfile, WorkloadError

__all__ = ["STEADY", "ArrivalPattern", "AttributeDistribution", "Excerpt", "check_executor", "choose_jobs"]

#: Length of a day and a night together, in units of the mean time between arrivals.
DAY = 20


_Positive = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


@declared(error=WorkloadError)
class ArrivalPattern:
    """Pattern by which the arrival times of a stream are changed. Jobs, their order and their number stay the same.

    Raises:
        WorkloadError: a value is out of range.
    """

    burst: Annotated[Whole, Field(ge=1)] = described(
        1, "Number of consecutive jobs that arrive together, at the time of the first one."
    )
    drift: _Positive = described(1.0, "Factor of the arrival rate in the second half of the jobs.")
    night: Annotated[Number, Field(ge=0, lt=1)] = described(
        0.0,
        "Fraction by which the arrival rate is lower than the mean at night, and higher by day; each lasts "
        f"{DAY // 2} mean times between arrivals.",
    )

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


_Weight = Annotated[Number, Field(ge=1 / LARGEST_WEIGHT, le=LARGEST_WEIGHT)]


def _slacks(value: Any) -> Any:
    """Return a range of slacks; a single number is both ends."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return value if value is None or len(values) > 2 else (values[0], values[-1])


@declared(error=WorkloadError)
class AttributeDistribution:
    """Distribution of attributes, drawn uniformly and independently for each job.

    Attributes without a distribution stay as in the sequence. Each attribute has its own random stream. So a seed gives
    the same jobs, arrivals and task noise, and the same deadlines whether or not tenants are drawn.

    Raises:
        WorkloadError: a value is out of range.

    Examples:
        >>> from workloads import AttributeDistribution, batch_arrivals, synthetic_profiles
        >>> jobs = batch_arrivals(synthetic_profiles(), num_jobs=3, seed=1)
        >>> AttributeDistribution(slack=(2, 2), weights=(1, 4, 16)).draw(jobs).attributes[0]
        JobAttributes(weight=4.0, deadline_ms=inf, slack=2.0, tenant='default')
    """

    slack: Annotated[
        tuple[_Positive, _Positive] | None,
        BeforeValidator(_slacks),
        Text("SLACK[,MOST]", numbers_in, numbers_text),
    ] = described(
        None,
        "Deadline of each job: arrival plus SLACK times the job's time alone; with MOST, the slack is drawn "
        "between both.  [default: deadlines of the workload file]",
        name="deadlines",
    )
    tenants: Annotated[Whole, Field(ge=0, le=MOST_TENANTS)] = described(
        0,
        "Draw the tenant of each job from N tenants, named tenant-1, tenant-2, ..  [default: tenants of the "
        "workload file]",
        metavar="N",
    )
    weights: Annotated[tuple[_Weight, ...], Text("A,B,..", numbers_in, numbers_text)] = described(
        (),
        "Draw the weight of each job from a list, such as 1,4,16.  [default: weights of the workload file]",
    )

    def __post_init__(self) -> None:
        if self.slack is not None and self.slack[0] > self.slack[1]:
            raise WorkloadError(f"deadlines: expected ascending slacks, got {numbers_text(self.slack)}")

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
