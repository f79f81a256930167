"""Floors and ceilings: minimum and maximum shares of tenants determine the jobs that may get offered executors.

Shares are rounded down to whole executors; a ceiling is at least one executor. A tenant's executors are the executors
that its jobs hold, without offered executors. An executor that is committed before its task ends counts for both jobs.

**Theorem on ceilings.** A decision never gives a tenant more executors than its ceiling. So, unless executors leave the
cluster, the tenant never holds more executors than its ceiling plus the executors that arrived without a decision. In
the simulator, an executor committed to another tenant may find its stage saturated on arrival; then it takes the first
stage that it can run. These executors are the additive term. Each was committed to another tenant and started no task
there, so their number is at most the number of all executors minus the ceiling. This bound is tight: an example in the
tests attains it. If executors are offered after each task, the term is zero, since moving executors keep their tasks.
The record contains the largest excess, a measured figure.

**Theorem on floors**, with exact bookkeeping. While a tenant below its floor has a stage that could run, no offered
executor goes to a tenant that has its floor. So the tenant is below its floor only until other tenants' executors have
been offered in the missing number. An executor is offered only when it is idle: after its task, or, unless executors
are offered after each task, when its stage has no task left. Then it moves. These times are the additive term, which
depends on the jobs. The record contains the longest time, a measured figure.
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

#: Ceiling of tenants without a ceiling, executors.
ENDLESS = 2**31


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
