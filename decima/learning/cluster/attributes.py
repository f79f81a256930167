"""Training settings of job attributes that are drawn at random: deadlines, weights and tenants."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from decima.settings import Positive, Section
from workloads.attribute_distribution import AttributeDistribution

__all__ = ["AttributesSection"]


class AttributesSection(Section):
    """Attributes of jobs, drawn for each job by the sequence's seed."""

    deadlines: Positive | tuple[Positive, Positive] | None = Field(
        default=None,
        description="slack of each job's deadline, a multiple of its time alone; of two numbers, a slack between them "
        "is drawn; null for the workload's deadlines",
    )
    weights: tuple[Positive, ...] = Field(
        default=(), description="weights of jobs, equally likely; empty for the workload's weights"
    )
    tenants: int = Field(
        default=0, ge=0, description="number of tenants, equally likely; 0 for the workload's tenants"
    )

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
