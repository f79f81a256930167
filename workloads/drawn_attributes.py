"""Random attributes of jobs: deadlines, tenants and weights, drawn with the seed of a sequence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from workloads.arrivals import JobSequence, RandomStream, random_stream
from workloads.declaration import Number, Text, Whole, declared, described
from workloads.display import count_text, numbers_text
from workloads.errors import LARGEST_WEIGHT, check_instance
from workloads.job import WorkloadError

__all__ = ["NOTHING_DRAWN", "AttributeDistribution"]

#: Maximum number of tenants.
MOST_TENANTS = 1000
#: Parser of numbers in the text of a user.
_NUMBERS_IN = "workloads.texts:numbers_in"


_Positive = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
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
        Text("SLACK[,MOST]", _NUMBERS_IN, numbers_text),
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
    weights: Annotated[tuple[_Weight, ...], Text("A,B,..", _NUMBERS_IN, numbers_text)] = described(
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
        from workloads.attributes import NO_ATTRIBUTES, Tenant  # jobs of most sequences have no attributes

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
