"""Least and largest shares of tenants: which jobs may get the executors that are offered now.

A share counts as whole executors, rounded down, a ceiling as at least one. A tenant's executors are those that its jobs
hold, without those that are offered now. An executor that is committed before its task ends counts for both jobs.

**Ceiling, theorem**: a decision never gives a tenant more executors than its ceiling. So, unless executors leave the
cluster, it never holds more than its ceiling plus the executors that came to it unasked. In the simulator, an executor
that was given to another tenant may find its stage full when it comes; then it takes the first stage that it can run.
That is the additive term: each of these executors was given to another tenant and started no task there, so they are at
most all executors less the ceiling. No smaller number holds for every scheduler and sequence: an example in the tests
attains it. Where executors are offered after each task, the term is zero, since executors that move keep their tasks.
The record has the largest excess, a measured figure.

**Floor, theorem**, with exact bookkeeping: while a tenant below its floor has a stage that could run, no executor that
is offered goes to a tenant that has its floor. So it is below its floor no longer than it takes until as many executors
of others are offered as it lacks. An executor is offered only when it is idle: after its task, or, unless executors are
offered after each task, when its stage has no task left; then it moves. That is the additive term, which depends on the
jobs; the record has the longest time, a measured figure.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.guarantees.spec import ROUNDING, Guarantees
from simulator.cluster.observation import Observation
from workloads.attributes import Tenant

__all__ = ["Allowed", "Shares"]

#: Stands for "no ceiling".
ENDLESS = 2**31


class Allowed(NamedTuple):
    """Jobs that may get executors.

    Attributes:
        jobs: bool [J].
        most: int64 [J], number of further executors that each may get.
        least: number of further executors that one of them must get as far as it has work for them: what a tenant
            lacks of its floor; 0 if none must.
    """

    jobs: NDArray[np.bool_]
    most: NDArray[np.int64]
    least: int


class Shares:
    """Shares of tenants in one episode, see above.

    Attributes:
        below_floor_ms: longest time for which a tenant was below its floor although it had a stage that could run, ms;
            an upper bound, from the decision before.
    """

    def __init__(self, guarantees: Guarantees) -> None:
        self._guarantees = guarantees
        self._tenants: tuple[Tenant, ...] | None = None
        self._floor, self._ceiling = np.zeros(0), np.zeros(0)
        self._since_ms: dict[str, float] = {}
        self._last_ms = -math.inf
        self.below_floor_ms = 0.0

    def allowed(self, observation: Observation) -> Allowed | None:
        """Return the jobs that may get executors; None if all may get any number."""
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
        ceiling = np.maximum(np.floor(np.minimum(self._ceiling * executors, ENDLESS) + ROUNDING), 1).astype(
            np.int64
        )
        room = ceiling - held
        could = np.bincount(of, observation.next_stage >= 0, minlength=len(tenants)) > 0
        lacks = np.where(could, floor - held, 0)
        self._note(observation, floor, held, could)
        if (needy := np.flatnonzero(lacks > 0)).size:
            # Executors stay with their tenant if it needs them; else the neediest is first, as in Spark.
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
                # Since the last decision at most: none is taken while no executor is offered.
                mine = (observation.job_tenant == place) & (observation.next_stage >= 0)
                first_ms = max(self._last_ms, float(observation.job_arrival_ms[mine].min()))
                since_ms = self._since_ms.setdefault(tenant.name, first_ms)
                self.below_floor_ms = max(self.below_floor_ms, observation.time_ms - since_ms)
            else:
                self._since_ms.pop(tenant.name, None)
        self._last_ms = observation.time_ms
