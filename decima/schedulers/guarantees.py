"""Guarantees for any scheduler: minimum and maximum shares of tenants, and due dates (see ``lateness``).

``Guarantees`` and their text form; ``Guarded``, a guard around a scheduler that overrules decisions which would violate
a guarantee. Floors and ceilings, the minimum and maximum shares of tenants, determine the jobs that may get offered
executors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, SchedulerError, all_offered, num_committed, only_jobs
from decima.schedulers.lateness import DueDates
from decima.schedulers.srpt import OrderedRule
from simulator.cluster.config import ClusterConfig
from simulator.cluster.log import Kept, Overruled
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant
from workloads.errors import check_number, did_you_mean, number_in

if TYPE_CHECKING:
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.episode import DecidesStages

__all__ = [
    "NO_GUARANTEES", "Allowed", "Guarantees", "Guarded", "Shares", "guarded", "parse_shares",
    "split_guarantees", "take_overruled",
]  # fmt: skip

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
        given = [what for what in ("floor", "ceiling") if what in values]
        shares = {what: parse_shares(values[what], what, NEXT, IS) for what in given}
        return cls(**shares, no_later_than=_number(values.get("no-later-than", "inf"), "no-later-than"))

    def check_tenants(self, tenants: Iterable[str]) -> None:
        """Check that all tenants of floors and ceilings are among ``tenants``.

        Raises:
            SchedulerError: a tenant is unknown.
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
        SchedulerError: the guarantees are malformed or invalid.
    """
    if (found := _GUARANTEED.fullmatch(spec)) is None:
        return spec, NO_GUARANTEES
    try:
        return found[1], Guarantees.from_suffix(found[2])
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


class Allowed(NamedTuple):
    """Jobs that may get executors in a decision.

    Attributes:
        jobs: mask of these jobs, bool [J].
        most: maximum number of further executors of each job, int64 [J].
        least: number of further executors that one of the jobs must get if it has enough work: the number that its
            tenant lacks to its floor; 0 if no tenant lacks executors.
    """

    jobs: NDArray[np.bool_]
    most: NDArray[np.int64]
    least: int


class Shares:
    """Shares of tenants in one episode, see the module.

    Attributes:
        below_floor_ms: upper bound of the longest time for which a tenant with a stage that could run was below its
            floor, ms; measured from the previous decision.
    """

    def __init__(self, guarantees: Guarantees) -> None:
        self._guarantees = guarantees
        self._tenants: tuple[Tenant, ...] | None = None
        self._floor, self._ceiling = np.zeros(0), np.zeros(0)
        self._since_ms: dict[str, float] = {}
        self._last_ms = -math.inf
        self.below_floor_ms = 0.0

    def allowed(self, observation: Observation) -> Allowed | None:
        """Return the jobs that may get executors; None if all jobs may get any number of executors."""
        tenants = observation.tenants
        if not tenants:
            return None
        if tenants != self._tenants:
            self._tenants = tenants
            self._floor = np.array([self._guarantees.floor.get(each.name, 0.0) for each in tenants])
            self._ceiling = np.array([self._guarantees.ceiling.get(each.name, math.inf) for each in tenants])
        of, executors = observation.job_tenant, observation.num_executors
        held = np.bincount(of, observation.job_executors, minlength=len(tenants)).astype(np.int64)
        if observation.source >= 0:
            held[of[observation.source]] -= observation.offered
        floor = np.floor(self._floor * executors + ROUNDING).astype(np.int64)
        ceiling = np.floor(np.minimum(self._ceiling * executors, ENDLESS) + ROUNDING)
        room = np.maximum(ceiling, 1).astype(np.int64) - held
        could = np.bincount(of, observation.next_stage >= 0, minlength=len(tenants)) > 0
        lacks = np.where(could, floor - held, 0)
        self._note(observation, floor, held, could)
        if (needy := np.flatnonzero(lacks > 0)).size:
            # Executors stay with their tenant if it needs them; otherwise the neediest tenant is first, as in Spark.
            own = int(of[observation.source]) if observation.source >= 0 else -1
            neediest = own if own in needy else int(needy[np.argmin(held[needy] / floor[needy])])
            least = int(lacks[neediest])
            others = could & (room > 0)
            others[neediest] = False
            most = np.where(of == neediest, least if others.any() else room[neediest], 0)
            return Allowed(most > 0, most, least)
        if (room >= observation.offered).all():
            return None
        return Allowed(room[of] > 0, room[of], 0)

    def _note(
        self,
        observation: Observation,
        floor: NDArray[np.int64],
        held: NDArray[np.int64],
        could: NDArray[np.bool_],
    ) -> None:
        """Update ``below_floor_ms``."""
        own = int(observation.job_tenant[observation.source]) if observation.source >= 0 else -1
        for place, tenant in enumerate(observation.tenants):
            has = held[place] + (observation.offered if place == own else 0)
            if could[place] and has < floor[place]:
                # At most since the last decision: without offered executors there is no decision.
                mine = (observation.job_tenant == place) & (observation.next_stage >= 0)
                first_ms = max(self._last_ms, float(observation.job_arrival_ms[mine].min()))
                since_ms = self._since_ms.setdefault(tenant.name, first_ms)
                self.below_floor_ms = max(self.below_floor_ms, observation.time_ms - since_ms)
            else:
                self._since_ms.pop(tenant.name, None)
        self._last_ms = observation.time_ms


class Guarded(Scheduler):
    """Add guarantees to another scheduler.

    The guard asks the other scheduler first, and overrules a decision that would violate a guarantee. Then it asks
    again with only the allowed stages schedulable (floor, ceiling), or serves the job that is due first (no later
    than). Floors and ceilings have priority over due dates. The modules ``lateness`` and ``shares`` state theorems
    and their conditions.

    Args:
        scheduler: the other scheduler.
        guarantees: the guarantees. Unknown tenants have no effect.

    Attributes:
        scheduler: the other scheduler.
        overruled: changed decisions of this episode.
    """

    def __init__(self, scheduler: DecidesStages, guarantees: Guarantees) -> None:
        self.scheduler, self.guarantees = scheduler, guarantees
        self.learned: bool = getattr(scheduler, "learned", False)
        self._begin()

    def _begin(self) -> None:
        self.overruled: list[Overruled] = []
        self._number = -1
        has_shares = self.guarantees.floor or self.guarantees.ceiling
        self._shares = Shares(self.guarantees) if has_shares else None
        self._due: DueDates | None = None
        self._in_order: _InOrder | None = None

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode with an empty virtual cluster."""
        self.scheduler.reset(config)
        self._begin()
        if math.isfinite(self.guarantees.no_later_than):
            self._due = DueDates(config, self.guarantees.no_later_than)
            self._in_order = _InOrder(self._due)

    def resize(self, config: ClusterConfig) -> None:
        """Continue the episode on a cluster of another size."""
        self.scheduler.reset(config)
        if self._due is not None:
            self._due = DueDates(config, self.guarantees.no_later_than, self._due)
            self._in_order = _InOrder(self._due)

    def fork(self) -> Guarded:
        """Return a copy with the current state, for a fork of the cluster; both share the other scheduler."""
        other = copy(self)
        other.overruled = list(self.overruled)
        other._shares, other._due = deepcopy(self._shares), deepcopy(self._due)
        other._in_order = None if other._due is None else _InOrder(other._due)
        return other

    def watch(self, cluster: BaseCluster) -> None:
        """Pass the simulated cluster to the other scheduler."""
        if self._due is not None:
            self._due.is_simulated = True
        if callable(watch := getattr(self.scheduler, "watch", None)):
            watch(cluster)

    @property
    def num_guarded(self) -> int:
        """Number of decisions that the guard of the other scheduler, a learned policy, changed; otherwise 0."""
        return int(getattr(self.scheduler, "num_guarded", 0))

    @property
    def probability(self) -> float:
        """Probability of the other scheduler's last decision; NaN if it reports none."""
        return float(getattr(self.scheduler, "probability", math.nan))

    @property
    def kept(self) -> Kept:
        """Results of the guarantees in this episode: changed decisions, time below a floor, slack."""
        shares, due = self._shares, self._due
        return Kept(
            tuple(self.overruled),
            shares.below_floor_ms if shares else 0.0,
            due.largest_slack_ms if due else 0.0,
        )

    def decide(self, observation: Observation) -> Decision | None:
        """Return the other scheduler's decision, or another decision that keeps the guarantees."""
        plain = decision = self.scheduler.decide(observation)
        self._number += 1
        decider = self.scheduler
        reason = ""
        if self._due and self._in_order and self._due.is_tight(observation):
            decider, reason = self._in_order, "no-later-than"
            decision = decider.decide(observation)
        if self._shares and (allowed := self._shares.allowed(observation)) is not None:
            decision = _within(allowed, observation, decision, decider)
            reason = "floor" if allowed.least else reason or "ceiling"
        if reason and _effect(observation, decision) != _effect(observation, plain):
            self.overruled.append(Overruled(self._number, observation.time_ms, reason))
            return decision
        return plain


class _InOrder(OrderedRule):
    """The job that is due first, with limits as in ``srpt`` if moves take time."""

    def __init__(self, due: DueDates) -> None:
        super().__init__()
        self._due = due

    def decide(self, observation: Observation) -> Decision | None:
        if not self._due.is_fluid:
            return super().decide(observation)
        ready = (job for job in self._due.order.tolist() if observation.next_stage[job] >= 0)
        return all_offered(observation, int(observation.next_stage[next(ready)]))

    def order(self, observation: Observation) -> NDArray[np.float64]:
        return self._due.ranks


def guarded(scheduler: DecidesStages, guarantees: Guarantees) -> DecidesStages:
    """Return a scheduler with guarantees; without guarantees, the scheduler itself."""
    return Guarded(scheduler, guarantees) if guarantees else scheduler


def take_overruled(scheduler: DecidesStages) -> tuple[str, ...]:
    """Return the guarantee of each decision that it changed since the last call, and forget these decisions."""
    if not isinstance(scheduler, Guarded):
        return ()
    guarantees = tuple(each.guarantee for each in scheduler.overruled)
    scheduler.overruled.clear()
    return guarantees


def _within(
    allowed: Allowed, observation: Observation, decision: Decision | None, decider: DecidesStages
) -> Decision | None:
    """Return a decision for a job that may get executors, within the allowed number of executors."""
    if not _is_allowed(allowed, observation, decision):
        candidates = np.flatnonzero(allowed.jobs & (observation.next_stage >= 0))
        if not candidates.size:
            return None
        masked = only_jobs(observation, allowed.jobs)
        decision = decider.decide(masked)
        if decision is not None and not _is_allowed(allowed, observation, decision):
            decision = None  # a scheduler that ignores the mask
        if decision is None and (allowed.least or observation.last_call):
            decision = all_offered(observation, int(observation.next_stage[candidates[0]]))
    if decision is None:
        return None
    job = int(observation.stage_job[decision.stage])
    more = min(max(decision.limit - observation.held(job), allowed.least), int(allowed.most[job]))
    return Decision(decision.stage, observation.held(job) + more)


def _is_allowed(allowed: Allowed, observation: Observation, decision: Decision | None) -> bool:
    if decision is None:
        return not allowed.least
    return bool(allowed.jobs[observation.stage_job[decision.stage]])


def _effect(observation: Observation, decision: Decision | None) -> tuple[int, int] | None:
    """Return the chosen stage and its number of new executors."""
    return None if decision is None else (decision.stage, num_committed(observation, decision))
