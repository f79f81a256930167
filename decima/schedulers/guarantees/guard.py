"""A guard around a scheduler that overrules decisions which would violate a guarantee."""

from __future__ import annotations

import math
from copy import copy, deepcopy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered, num_committed, only_jobs
from decima.schedulers.guarantees.lateness import DueDates
from decima.schedulers.guarantees.shares import Allowed, Shares
from decima.schedulers.guarantees.spec import Guarantees
from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.config import ClusterConfig
from simulator.cluster.log import Kept, Overruled
from simulator.cluster.observation import Decision, Observation

if TYPE_CHECKING:
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.episode import DecidesStages

__all__ = ["Guarded", "guarded", "take_overruled"]


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


class _InOrder(PricedSrpt):
    """The job that is due first, with limits as in ``priced-srpt`` if moves take time."""

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
