"""Guarantees for any scheduler, and their text form: shares of tenants, and due dates (see ``lateness``).

Floors and ceilings are minimum and maximum shares of the executors. ``guarded`` puts a guard around a scheduler.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from decima.schedulers.base import SchedulerError
from workloads.errors import check_number, did_you_mean
from workloads.texts import number_in

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["Guarantees", "guarded", "parse_guarantees", "parse_shares"]

#: Separators in a scheduler's name: between entries, and between a tenant and its share.
NEXT, IS = "+", ":"
#: Characters that would be ambiguous in a scheduler's name.
RESERVED = NEXT + IS + ",="
#: Name of a scheduler with guarantees, see ``Guarantees.suffix``.
_GUARANTEED = re.compile(r"(.*?)((?:,(?:floor|ceiling|no-later-than)=[^,]*)+)", re.DOTALL)
#: Tolerance for rounding errors in sums of shares.
ROUNDING = 1e-9
#: Ceiling of tenants without a ceiling, executors.
ENDLESS = 2**31


@dataclass(frozen=True)
class Guarantees:
    """Guarantees that a scheduler must keep.

    Args:
        floor: tenant -> minimum share of the executors while the tenant has enough work.
        ceiling: tenant -> maximum share of the executors.
        no_later_than: maximum ratio of a job's JCT and its JCT under fair sharing, at least 1; infinite: no guarantee.

    Raises:
        SchedulerError: a share or ratio is out of range, the sum of floors exceeds 1, or a ceiling is below a floor.
    """

    floor: Mapping[str, float] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)
    no_later_than: float = math.inf

    def __post_init__(self) -> None:
        for what in ("floor", "ceiling"):
            shares = getattr(self, what)
            if not isinstance(shares, Mapping):
                raise SchedulerError(
                    f"the {what} must be shares by tenant, such as {{'a': 0.5}}, got {shares!r:.60}"
                )
            for tenant, share in shares.items():
                check_number(share, f"the {what} of {tenant}", SchedulerError)
                if not 0 < share <= 1:
                    raise SchedulerError(
                        f"the {what} of {tenant} must be above 0 and at most 1, got {share:g}"
                    )
                if not tenant or set(tenant) & set(RESERVED):
                    raise SchedulerError(
                        f"the {what} of {tenant!r}: expected a name without any of {RESERVED}"
                    )
        if (total := sum(self.floor.values())) > 1 + ROUNDING:
            raise SchedulerError(f"the sum of the floors must be at most 1, got {total:g}")
        for tenant, share in self.floor.items():
            if (most := self.ceiling.get(tenant, 1.0)) < share:
                raise SchedulerError(f"the ceiling of {tenant}, {most:g}, is below its floor, {share:g}")
        if not self.no_later_than >= 1:
            raise SchedulerError(f"no-later-than must be at least 1, got {self.no_later_than:g}")

    def __bool__(self) -> bool:
        return bool(self.floor or self.ceiling or math.isfinite(self.no_later_than))

    @property
    def suffix(self) -> str:
        """Suffix of a scheduler's name for these guarantees, such as ``,no-later-than=1.5``."""
        parts = [
            f",{what}={NEXT.join(f'{tenant}{IS}{share:g}' for tenant, share in shares.items())}"
            for what, shares in (("floor", self.floor), ("ceiling", self.ceiling))
            if shares
        ]
        if math.isfinite(self.no_later_than):
            parts.append(f",no-later-than={self.no_later_than:g}")
        return "".join(parts)

    @classmethod
    def from_suffix(cls, text: str) -> Guarantees:
        """Return the guarantees of a suffix, see ``suffix``.

        Raises:
            SchedulerError: the text is malformed, or a value is invalid.
        """
        values: dict[str, str] = {}
        for part in text.split(",")[1:]:
            key, _, value = part.partition("=")
            if key in values:
                raise SchedulerError(f"{key} is given twice")
            values[key] = value
        bounds = [what for what in ("floor", "ceiling") if what in values]
        shares = {what: parse_shares(values[what], what, NEXT, IS) for what in bounds}
        return cls(**shares, no_later_than=_number(values.get("no-later-than", "inf"), "no-later-than"))

    def check_tenants(self, tenants: Iterable[str]) -> None:
        """Check that all tenants of floors and ceilings are among ``tenants``.

        Raises:
            SchedulerError: a tenant is unknown.
        """
        tenant_names = list(tenants)
        for what in ("floor", "ceiling"):
            for tenant in getattr(self, what):
                if tenant not in tenant_names:
                    names = (
                        f"expected one of {', '.join(tenant_names)}"
                        if tenant_names
                        else "the jobs have no tenants"
                    )
                    near = did_you_mean(tenant, tenant_names)
                    raise SchedulerError(f"{what}: unknown tenant {tenant!r}{near}: {names}")


def parse_guarantees(spec: str) -> tuple[str, Guarantees | None]:
    """Split a scheduler's name, see ``decima.registry.split_guarantees``."""
    if (match := _GUARANTEED.fullmatch(spec)) is None:
        return spec, None
    try:
        return match[1], Guarantees.from_suffix(match[2]) or None
    except SchedulerError as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None


def parse_shares(text: str, what: str, between: str = ",", is_: str = "=") -> dict[str, float]:
    """Return the shares of tenants in a text such as ``etl=0.2,bi=0.1``.

    Args:
        text: the text.
        what: name of the shares in error messages.
        between: separator between entries.
        is_: separator between a tenant and its share.

    Raises:
        SchedulerError: the text is malformed, or a tenant occurs twice.
    """
    shares: dict[str, float] = {}
    for part in text.split(between):
        tenant, separator, share = part.rpartition(is_)
        tenant = tenant.strip()
        if not separator or not tenant:
            raise SchedulerError(f"{what}: expected TENANT{is_}SHARE, such as etl{is_}0.2, got {part!r:.60}")
        if tenant in shares:
            raise SchedulerError(f"{what}: the tenant {tenant!r} is named twice")
        shares[tenant] = _number(share, f"{what} of {tenant}")
    return shares


def _number(text: str, what: str) -> float:
    if math.isnan(value := number_in(text)):
        raise SchedulerError(f"{what}: expected a number, got {text!r:.60}")
    return value


def guarded(scheduler: DecidesStages, guarantees: Guarantees) -> DecidesStages:
    """Return a scheduler with guarantees; without guarantees, the scheduler itself."""
    if not guarantees:
        return scheduler
    from decima.schedulers.guarded import Guarded

    return Guarded(scheduler, guarantees)
