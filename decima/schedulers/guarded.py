"""``Guarded``: a guard around a scheduler that overrules decisions which would break a guarantee.

Floors and ceilings determine the jobs that may get offered executors.
"""

from __future__ import annotations

import math
from copy import copy, deepcopy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Kind, Scheduler
from decima.schedulers.decisions import all_offered, num_committed, only_jobs
from decima.schedulers.guarantees import ENDLESS, ROUNDING, Guarantees
from decima.schedulers.lateness import DueDates
from decima.schedulers.srpt import OrderedRule
from simulator.cluster.config import ClusterConfig
from simulator.cluster.kept import Kept, Overruled
from simulator.cluster.observation import Decision, Observation
from workloads.attributes import Tenant

if TYPE_CHECKING:
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.episode import DecidesStages

__all__ = ["Allowed", "Guarded", "Shares"]


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
            self._floor = np.array([self._guarantees.floor.get(tenant.name, 0.0) for tenant in tenants])
            self._ceiling = np.array(
                [self._guarantees.ceiling.get(tenant.name, math.inf) for tenant in tenants]
            )
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
            source_tenant = int(of[observation.source]) if observation.source >= 0 else -1
            neediest = (
                source_tenant if source_tenant in needy else int(needy[np.argmin(held[needy] / floor[needy])])
            )
            least = int(lacks[neediest])
            other_tenants = could & (room > 0)
            other_tenants[neediest] = False
            most = np.where(of == neediest, least if other_tenants.any() else room[neediest], 0)
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
        source_tenant = int(observation.job_tenant[observation.source]) if observation.source >= 0 else -1
        for index, tenant in enumerate(observation.tenants):
            has = held[index] + (observation.offered if index == source_tenant else 0)
            if could[index] and has < floor[index]:
                # At most since the last decision: without offered executors there is no decision.
                mine = (observation.job_tenant == index) & (observation.next_stage >= 0)
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
        self.kind = getattr(scheduler, "kind", Kind.RULE)
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
