"""Declaration of a distribution of settings (clusters and jobs), as it stands below ``settings`` in YAML.

``decima.learning.cluster.randomised`` draws settings from it. Attributes of jobs (deadlines, weights and tenants) may
be drawn at random, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, create_model, field_validator, model_validator

from decima.settings import Section, Share
from simulator.cluster.config import ClusterConfig
from workloads.declaration import described
from workloads.drawn_attributes import AttributeDistribution
from workloads.errors import WorkloadError
from workloads.patterns import ArrivalPattern
from workloads.quantities import Quantity, build, quantities
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

__all__ = ["DRAWN", "ONE_OF", "PATTERN", "SettingsSection", "drawn_value"]


RANGES = ("uniform", "log_uniform")
ONE_OF = "one_of"
#: Quantities of a cluster that are drawn: all numbers. Losses per hour are drawn in place of the lifetime.
DRAWN = {
    name: quantity
    for name, quantity in quantities(ClusterConfig).items()
    if quantity.bounds[0] in (int, float) and quantity.text is None and name != "executor_lifetime"
}
#: Quantities of streams that are drawn.
PATTERN = quantities(ArrivalPattern)


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
                build(cls, {quantity.name: drawn_value(quantity, number)}, WorkloadError)
            except WorkloadError as error:
                raise ValueError(str(error).removeprefix(f"{quantity.name}: ")) from None
        return drawn

    default = described(float(quantity.default), str(quantity.field.description))
    return Annotated[_Quantity, BeforeValidator(check)], default


def drawn_value(quantity: Quantity, drawn: float) -> Any:
    """Return a number as a value of a quantity; integers are rounded."""
    return round(drawn) if quantity.bounds[0] is int else drawn


Number = Annotated[_Quantity, BeforeValidator(partial(_checked, least=1))]
Amount = Annotated[_Quantity, BeforeValidator(partial(_checked, least=0))]
Factor = Annotated[_Quantity, BeforeValidator(partial(_checked, least=None))]
Chance = Annotated[_Quantity, BeforeValidator(partial(_checked, least=0, most=1))]
Slowdown = Annotated[_Quantity, BeforeValidator(partial(_checked, least=1, most=1000))]


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

    def read(self) -> dict[str, Workload]:
        """Read all sources, without their arrivals.

        Raises:
            WorkloadError: a source cannot be read.
        """
        return {name: replace(open_workload(name), sequence=None) for name in self.sources}
