"""Random attributes of jobs: deadlines, tenants and weights, drawn with the seed of a sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from workloads.arrivals import JobSequence, RandomStream, random_stream
from workloads.attributes import NO_ATTRIBUTES, JobAttributes, Tenant
from workloads.display import count_text
from workloads.errors import check_instance, check_number, check_whole
from workloads.job import WorkloadError

__all__ = ["AttributeDistribution"]

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

    Example:
        >>> from workloads import AttributeDistribution, batch_arrivals, synthetic_profiles
        >>> jobs = batch_arrivals(synthetic_profiles(), num_jobs=3, seed=1)
        >>> AttributeDistribution(slack=(2, 2), weights=(1, 4, 16)).draw(jobs).attributes[0]
        JobAttributes(weight=16.0, deadline_ms=inf, slack=2.0, tenant='default')
    """

    slack: tuple[float, float] | None = None
    tenants: int = 0
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.slack is not None:
            low, high = (check_number(each, "the slack of deadlines", WorkloadError) for each in self.slack)
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
            random_stream(sequence.seed, RandomStream.ATTRIBUTES, number) for number in range(3)
        )
        tenants = tuple(Tenant(f"tenant-{number}") for number in range(1, self.tenants + 1))
        drawn: dict[str, list[Any]] = {}
        if self.slack is not None:
            drawn["slack"] = deadlines.uniform(*self.slack, size=count).tolist()
            drawn["deadline_ms"] = [math.inf] * count
        if tenants:
            drawn["tenant"] = [tenants[place].name for place in submitters.integers(len(tenants), size=count)]
        if self.weights:
            drawn["weight"] = [
                self.weights[place] for place in weights.integers(len(self.weights), size=count)
            ]
        attributes = (
            replace(given, **dict(zip(drawn, values, strict=True)))
            for given, *values in zip(
                sequence.attributes or (NO_ATTRIBUTES,) * count, *drawn.values(), strict=True
            )
        )
        return replace(sequence, attributes=tuple(attributes), tenants=tenants or sequence.tenants)


#: The distribution that draws no attribute: jobs keep theirs.
NOTHING_DRAWN = AttributeDistribution()
