"""Guarantees: shares of tenants, and a largest factor on the JCT under fair sharing; their form in names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from decima.schedulers.base import SchedulerError
from workloads.errors import did_you_mean, number_in

__all__ = ["NO_GUARANTEES", "Guarantees", "parse_shares", "split_guarantees"]

#: Between entries, and between a tenant and its share, in a scheduler's name.
NEXT, IS = "+", ":"
#: Characters that would be ambiguous in a scheduler's name.
RESERVED = NEXT + IS + ",="
#: The end of a name with guarantees, see ``Guarantees.suffix``.
_GUARANTEED = re.compile(r"(.*?)((?:,(?:floor|ceiling|no-later-than)=[^,]*)+)", re.DOTALL)
#: Rounding of sums of shares.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Guarantees:
    """Guarantees that a scheduler has to keep.

    Args:
        floor: tenant -> least share of the executors while it has work that could use them.
        ceiling: tenant -> largest share of the executors.
        no_later_than: largest JCT over that under fair sharing, at least 1; infinite for none.

    Raises:
        SchedulerError: a share or a factor out of range, floors above 1 in total, or a ceiling below a floor.
    """

    floor: Mapping[str, float] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)
    no_later_than: float = math.inf

    def __post_init__(self) -> None:
        for what in ("floor", "ceiling"):
            for tenant, share in getattr(self, what).items():
                if not 0 < share <= 1:
                    raise SchedulerError(
                        f"the {what} of {tenant} must be above 0 and at most 1, got {share:g}"
                    )
                if not tenant or set(tenant) & set(RESERVED):
                    raise SchedulerError(
                        f"the {what} of {tenant!r}: a name without any of {RESERVED} is expected"
                    )
        if (total := sum(self.floor.values())) > 1 + ROUNDING:
            raise SchedulerError(f"the floors are {total:g} of the executors in total, more than there is")
        for tenant, share in self.floor.items():
            if (most := self.ceiling.get(tenant, 1.0)) < share:
                raise SchedulerError(f"the ceiling of {tenant}, {most:g}, is below its floor, {share:g}")
        if not self.no_later_than >= 1:
            raise SchedulerError(f"no-later-than must be at least 1, got {self.no_later_than:g}")

    def __bool__(self) -> bool:
        return bool(self.floor or self.ceiling or math.isfinite(self.no_later_than))

    @property
    def suffix(self) -> str:
        """The end of a scheduler's name that gives it these guarantees, such as ``,no-later-than=1.5``."""
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
        """Read ``suffix``.

        Raises:
            SchedulerError: malformed, or see above.
        """
        values: dict[str, str] = {}
        for part in text.split(",")[1:]:
            key, _, value = part.partition("=")
            if key in values:
                raise SchedulerError(f"{key} is given twice")
            values[key] = value
        shares = {
            what: parse_shares(values[what], what, NEXT, IS)
            for what in ("floor", "ceiling")
            if what in values
        }
        return cls(**shares, no_later_than=_number(values.get("no-later-than", "inf"), "no-later-than"))

    def check_tenants(self, tenants: Iterable[str]) -> None:
        """Check that there are these tenants.

        Raises:
            SchedulerError: an unknown tenant.
        """
        known = list(tenants)
        for what in ("floor", "ceiling"):
            for tenant in getattr(self, what):
                if tenant not in known:
                    names = f"expected one of {', '.join(known)}" if known else "the jobs have no tenants"
                    near = did_you_mean(tenant, known)
                    raise SchedulerError(f"{what}: unknown tenant {tenant!r}{near}: {names}")


NO_GUARANTEES = Guarantees()


def split_guarantees(spec: str) -> tuple[str, Guarantees]:
    """Split a scheduler's name into the name without guarantees, and the guarantees.

    Raises:
        SchedulerError: malformed guarantees.
    """
    if (found := _GUARANTEED.fullmatch(spec)) is None:
        return spec, NO_GUARANTEES
    try:
        return found[1], Guarantees.from_suffix(found[2])
    except SchedulerError as error:
        raise SchedulerError(f"scheduler {spec!r}: {error}") from None


def parse_shares(text: str, what: str, between: str = ",", is_: str = "=") -> dict[str, float]:
    """Read shares of tenants, such as ``etl=0.2,bi=0.1``.

    Args:
        text: the shares.
        what: their name in messages.
        between: separates entries.
        is_: separates a tenant and its share.

    Raises:
        SchedulerError: malformed, or a tenant twice.
    """
    shares: dict[str, float] = {}
    for part in text.split(between):
        tenant, found, share = part.rpartition(is_)
        tenant = tenant.strip()
        if not found or not tenant:
            raise SchedulerError(f"{what}: expected TENANT{is_}SHARE, such as etl{is_}0.2, got {part!r:.60}")
        if tenant in shares:
            raise SchedulerError(f"{what}: the tenant {tenant!r} is named twice")
        shares[tenant] = _number(share, f"{what} of {tenant}")
    return shares


def _number(text: str, what: str) -> float:
    if math.isnan(value := number_in(text)):
        raise SchedulerError(f"{what}: expected a number, got {text!r:.60}")
    return value
