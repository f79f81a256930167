"""Set the number of executors of each application on a cluster whose slots several applications share.

The jobs of all applications form one cluster, as in the Decima paper, and the scheduler assigns free executors to
jobs. A question changes only the target of the asking application, because only its state is up to date. The other
applications get a new target with their next question, so each application asks at least once a second.

An executor leaves an application only when it is idle and another application has enough work for it. New executors
are requested only when slots are free, after executors of another application have left. So there are never more
executors than slots.

With tenants, slots are first divided between the tenants by priority, quota and weight (``shares``), and the scheduler
decides within each tenant. An application of a tenant above its share gives executors away when their running tasks
end, if another tenant has work for them. The executors of a tenant never exceed its quota.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from decima.schedulers.rule import LEAVE_MIN_DELAYS, MOVE_MIN_DELAYS
from decima.service.jobs import LiveJob
from decima.service.protocol import StateMessage
from decima.service.snapshot import Choice, Share, Snapshot, cluster_of, take_overruled
from simulator.cluster.config import ClusterConfig
from workloads.arrivals import WorkPrior
from workloads.attributes import DEFAULT_TENANT

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["Applications"]

#: Moving delay before the first measurement, ms.
UNKNOWN_DELAY_MS = 3000.0
#: A measured moving delay replaces the delay in use if they differ by more than this factor.
OTHER_DELAY = 1.25
#: Extra duration of a task on a newly started JVM, ms.
WARMUP_MS = 1000.0
#: Time before a new application gets its first executors, s: applications with more urgent jobs may start with it.
TOGETHER_S = 1.0
#: The slots of a disconnected application stay reserved for this long, s: it may connect again.
GRACE_S = 3.0
#: Executors that have not started after this many moving delays are no longer expected.
MOST_DELAYS = 10.0


@dataclass(eq=False)
class _Application:
    """State of one application at its last question. Times are seconds of the clock of ``Applications``.

    Attributes:
        tenant: name of the tenant; empty without tenants.
        target: number of slots assigned to the application.
        first_s: time of the first question.
        raised_s: time of the last increase of ``target``.
        worked_s: time of the last question with pending tasks.
        gone_s: time of the disconnection; None while connected.
    """

    state: StateMessage
    jobs: Sequence[LiveJob]
    target: int
    first_s: float
    tenant: str = ""
    raised_s: float = float("-inf")
    worked_s: float = float("-inf")
    gone_s: float | None = None

    @property
    def has_work(self) -> bool:
        """Whether a job of the application has pending tasks."""
        return any(any(job.pending) for job in self.jobs)

    @property
    def present(self) -> int:
        """Number of slots of the application's executors, including executors that are leaving."""
        return sum(executor.slots for executor in self.state.executors)

    @property
    def reserved(self) -> int:
        """Largest number of slots that the application may occupy before its next question."""
        return max(self.present, self.target)

    @property
    def coming(self) -> int:
        """Number of requested slots whose executors have not started."""
        return max(self.target - self.state.slots, 0)

    @property
    def surplus(self) -> int:
        """Number of slots above the target, whose executors leave after the next answer."""
        return max(self.state.slots - self.target, 0)

    @property
    def idle(self) -> int:
        """Number of slots without a running task, excluding slots whose executors leave."""
        free = sum(
            max(executor.slots - executor.running, 0)
            for executor in self.state.executors
            if not executor.leaving
        )
        return max(free - self.surplus, 0)


class Applications:
    """Assigns the slots of one cluster to applications.

    Args:
        scheduler: scheduler that assigns free executors to jobs.
        slots: total number of slots.
        clock: returns monotonic time, s.
        prior: distribution of job sizes in history; None without history.
        tenants: tenant name -> share of the slots; empty: all applications are equal.

    Attributes:
        scheduler: the scheduler in use; the service replaces it after a failure.
        tenants: see the arguments; the service replaces them at a reload.
    """

    def __init__(
        self,
        scheduler: DecidesStages,
        slots: int,
        clock: Callable[[], float] = time.monotonic,
        prior: WorkPrior | None = None,
        tenants: Mapping[str, Share] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.tenants = tenants or {}
        self._slots = slots
        self._clock = clock
        self._prior = prior
        self._known: dict[str, _Application] = {}
        self._prepared: tuple[ClusterConfig, DecidesStages] | None = None
        self._delay_ms = UNKNOWN_DELAY_MS

    def leave(self, application: str) -> None:
        """Record that an application disconnected. Its slots stay reserved for ``GRACE_S``."""
        if left := self._known.get(application):
            left.gone_s = self._clock()

    def target(self, application: str, state: StateMessage, jobs: Sequence[LiveJob], tenant: str = "") -> int:
        """Return the target number of executors of the asking application.

        Args:
            application: Spark's application id.
            tenant: name of the application's tenant; a tenant without a share in ``tenants`` has the default share.

        Raises:
            SchedulingError: the scheduler made an invalid decision.
        """
        now_s = self._clock()
        self._forget(now_s)
        asked = self._known.get(application)
        if asked is None:
            asked = self._known[application] = _Application(state, jobs, 0, now_s)
            asked.target = state.slots  # a reconnecting application keeps its executors
        asked.state, asked.jobs, asked.gone_s, asked.tenant = state, jobs, None, tenant
        if asked.has_work:
            asked.worked_s = now_s
        self._measure()
        if asked.coming and now_s - asked.raised_s > MOST_DELAYS * self._delay_ms / 1000:
            asked.target = state.slots
        gain, loss = self._decide(asked, now_s)
        of_tenant = [other for other in self._known.values() if other.tenant == tenant]
        quota = self._share(tenant).quota
        gain = min(gain, max(quota - sum(other.reserved for other in of_tenant), 0))
        take_overruled(self.scheduler)  # nothing reports them, and the record would grow
        # Take no executor before all requested executors have started: until then their number is uncertain.
        may_lose = not asked.coming and (
            not asked.has_work or now_s - asked.raised_s > MOVE_MIN_DELAYS * self._delay_ms / 1000
        )
        if gain > loss:
            if now_s - asked.first_s >= TOGETHER_S:
                asked.target += gain - loss
                asked.raised_s = now_s
        elif loss > gain and may_lose:
            asked.target -= loss - gain
        # A quota that was lowered, or executors that an application has brought with it.
        asked.target -= min(max(sum(other.target for other in of_tenant) - quota, 0), asked.target)
        size = max((executor.slots for executor in state.executors), default=1) or 1
        return asked.target // size

    def _share(self, tenant: str) -> Share:
        return self.tenants.get(tenant) or Share(tenant or DEFAULT_TENANT)

    def _forget(self, now_s: float) -> None:
        for name, application in list(self._known.items()):
            # A disconnected application without live jobs has ended.
            if application.gone_s is not None and (
                not application.jobs or now_s - application.gone_s > GRACE_S
            ):
                del self._known[name]

    def _measure(self) -> None:
        """Update the moving delay from the delays that applications have measured."""
        measured = [
            application.state.move_ms for application in self._known.values() if application.state.move_ms
        ]
        if measured:
            now_ms = median(measured)
            if not self._delay_ms / OTHER_DELAY <= now_ms <= self._delay_ms * OTHER_DELAY:
                self._delay_ms = now_ms

    def _decide(self, asking: _Application, now_s: float) -> tuple[int, int]:
        """Return the numbers of executors that the asking application gains and loses."""
        owners = [(job, application) for application in self._known.values() for job in application.jobs]
        owners.sort(key=lambda pair: pair[0].number)
        if not owners:
            return 0, 0
        jobs = [job for job, _ in owners]
        owner = [application for _, application in owners]
        free = self._slots - sum(application.reserved for application in self._known.values())
        leaving = sum(application.reserved - application.target for application in self._known.values())
        # Executors of applications without work count as free. An application that has just become idle keeps its
        # executors for one moving delay, because its next job often follows soon.
        idle_s = self._delay_ms / 1000
        unused = {
            name: application.idle
            for name, application in self._known.items()
            if not application.has_work and now_s - application.worked_s > idle_s
        }
        config = cluster_of(self._slots, self._delay_ms, WARMUP_MS)
        if (config, self.scheduler) != self._prepared:
            same = self._prepared is not None and self._prepared[1] is self.scheduler
            resize = getattr(self.scheduler, "resize", self.scheduler.reset)
            (resize if same else self.scheduler.reset)(config)
            self._prepared = config, self.scheduler
        common = max(free, 0) + leaving + sum(unused.values())
        waiting, coming = self._placed(jobs, owner)
        snapshot = Snapshot(config, asking.state.time_ms, jobs, common, waiting, coming, self._prior)
        excess: dict[str, int] = {}
        if self.tenants:
            excess = self._offer_to_tenants(snapshot, owner, unused)
        else:
            snapshot.offer_all(self.scheduler)
        if not snapshot.choices and not any(any(job.running) for job in jobs) and not sum(coming):
            # No task runs and none would start.
            snapshot.offer_free(self.scheduler, -1, last_call=True)
            if not snapshot.choices and asking.has_work and not asking.reserved and free > 0:
                return 1, 0
        held = [
            sum(job.running) + waits + comes for job, waits, comes in zip(jobs, waiting, coming, strict=True)
        ]
        return self._shares(
            snapshot.choices, owner, jobs, held, asking, max(free, 0), leaving, unused, excess
        )

    def _offer_to_tenants(
        self, snapshot: Snapshot, owner: Sequence[_Application], unused: Mapping[str, int]
    ) -> dict[str, int]:
        """Offer each tenant its share of the slots.

        Returns:
            Application id -> number of slots that it can give to tenants below their shares.
        """
        from decima.service.shares import offer_to_tenants

        names = sorted({application.tenant for application in self._known.values()})
        held, kept = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        keeps = {name: app.target - unused.get(name, 0) for name, app in self._known.items()}
        for name, application in self._known.items():
            held[application.tenant] += keeps[name]
            if not application.has_work:
                kept[application.tenant] += keeps[name]  # its next job often follows soon
        shares = [self._share(name) for name in names]
        of_job = np.array([names.index(application.tenant) for application in owner])
        above = offer_to_tenants(
            snapshot, self.scheduler, shares, of_job, list(held.values()), list(kept.values())
        )
        excess = dict(zip(names, above, strict=True))
        return {
            name: ceil(excess[application.tenant] * keeps[name] / held[application.tenant])
            for name, application in self._known.items()
            if excess[application.tenant]
        }

    def _placed(self, jobs: Sequence[LiveJob], owner: Sequence[_Application]) -> tuple[list[int], list[int]]:
        """Return the numbers of idle executors that each job held last, and of executors moving to each job."""
        waiting, coming = [0] * len(jobs), [0] * len(jobs)
        for application in self._known.values():
            of_application = [
                index for index, of in enumerate(owner) if of is application and any(jobs[index].pending)
            ]
            if not of_application:
                continue
            by_id = {jobs[index].message.id: index for index in of_application}
            for executor in application.state.executors:
                if not executor.leaving:
                    index = by_id.get(executor.job or "", of_application[0])
                    waiting[index] += max(executor.slots - executor.running, 0)
            coming[of_application[0]] += application.coming
            surplus = application.surplus
            for index in of_application:
                leave = min(surplus, waiting[index])
                surplus, waiting[index] = surplus - leave, waiting[index] - leave
        return waiting, coming

    def _shares(
        self,
        choices: Sequence[Choice],
        owner: Sequence[_Application],
        jobs: Sequence[LiveJob],
        held: list[int],
        asking: _Application,
        free: int,
        leaving: int,
        unused: dict[str, int],
        excess: dict[str, int],
    ) -> tuple[int, int]:
        """Return the numbers of executors that the decisions give to and take from the asking application."""
        gain = loss = 0
        for choice in choices:
            to = owner[choice.job]
            source = owner[choice.source] if choice.source >= 0 else None
            if source is to:
                continue
            count = min(choice.executors, self._worth(choice, to, jobs[choice.job], held[choice.job]))
            held[choice.job] += count
            if source is not None:
                loss += count if source is asking else 0
                continue
            now = min(count, free)
            free, count = free - now, count - now
            gain += now if to is asking else 0
            soon = min(count, leaving)
            leaving, count = leaving - soon, count - soon
            for takeable in (unused, excess):
                for name, slots in takeable.items():
                    taken = min(count, slots)
                    takeable[name] -= taken
                    count -= taken
                    loss += taken if self._known[name] is asking and to is not asking else 0
        return gain, loss

    def _worth(self, choice: Choice, to: _Application, job: LiveJob, held: int) -> int:
        """Return the number of executors that a job's work justifies moving; at least 1 if its application has none."""
        work_ms = sum(pending * mean_ms for pending, mean_ms in zip(job.pending, job.mean_ms, strict=True))
        worth = LEAVE_MIN_DELAYS if choice.source >= 0 else MOVE_MIN_DELAYS
        lasting = int(min(work_ms / (worth * self._delay_ms), self._slots)) - held
        return max(lasting, 0 if to.reserved else 1)
