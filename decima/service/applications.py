"""Set the number of executors of each application on a cluster whose slots several applications share.

The jobs of all applications form one cluster, as in the Decima paper, and the scheduler assigns free executors to
jobs. A question changes only the target of the asking application, because only its state is up to date. The other
applications get a new target with their next question, so each application asks at least once a second.

An executor leaves an application only when it is idle and another application has enough work for it. New executors
are requested only when slots are free, after executors of another application have left. So there are never more
executors than slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from decima.schedulers.base import LEAVE_MIN_DELAYS, MOVE_MIN_DELAYS
from decima.schedulers.guarded import take_overruled
from decima.service.jobs import LiveJob
from decima.service.protocol import State
from decima.service.snapshot import Choice, Snapshot, cluster_of
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages
from workloads.arrivals import WorkPrior

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
        target: number of slots assigned to the application.
        first_s: time of the first question.
        raised_s: time of the last increase of ``target``.
        worked_s: time of the last question with pending tasks.
        gone_s: time of the disconnection; None while connected.
    """

    state: State
    jobs: Sequence[LiveJob]
    target: int
    first_s: float
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

    Attributes:
        scheduler: the scheduler in use; the service replaces it after a failure.
    """

    def __init__(
        self,
        scheduler: DecidesStages,
        slots: int,
        clock: Callable[[], float] = time.monotonic,
        prior: WorkPrior | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._slots = slots
        self._clock = clock
        self._prior = prior
        self._known: dict[str, _Application] = {}
        self._prepared: tuple[ClusterConfig, DecidesStages] | None = None
        self._delay_ms = UNKNOWN_DELAY_MS

    def leave(self, application: str) -> None:
        """Record that an application disconnected. Its slots stay reserved for ``GRACE_S``."""
        if known := self._known.get(application):
            known.gone_s = self._clock()

    def target(self, application: str, state: State, jobs: Sequence[LiveJob]) -> int:
        """Return the target number of executors of the asking application.

        Args:
            application: Spark's application id.

        Raises:
            SchedulingError: the scheduler made an invalid decision.
        """
        now_s = self._clock()
        self._forget(now_s)
        known = self._known.get(application)
        if known is None:
            known = self._known[application] = _Application(state, jobs, 0, now_s)
            known.target = state.slots  # a reconnecting application keeps its executors
        known.state, known.jobs, known.gone_s = state, jobs, None
        if known.has_work:
            known.worked_s = now_s
        self._measure()
        if known.coming and now_s - known.raised_s > MOST_DELAYS * self._delay_ms / 1000:
            known.target = state.slots
        gain, loss = self._decide(known, now_s)
        take_overruled(self.scheduler)  # nothing reports them, and the record would grow
        # Take no executor before all requested executors have started: until then their number is uncertain.
        may_lose = not known.coming and (
            not known.has_work or now_s - known.raised_s > MOVE_MIN_DELAYS * self._delay_ms / 1000
        )
        if gain > loss:
            if now_s - known.first_s >= TOGETHER_S:
                known.target += gain - loss
                known.raised_s = now_s
        elif loss > gain and may_lose:
            known.target -= loss - gain
        size = max((executor.slots for executor in state.executors), default=1) or 1
        return known.target // size

    def _forget(self, now_s: float) -> None:
        for name, each in list(self._known.items()):
            # A disconnected application without live jobs has ended.
            if each.gone_s is not None and (not each.jobs or now_s - each.gone_s > GRACE_S):
                del self._known[name]

    def _measure(self) -> None:
        """Update the moving delay from the delays that applications have measured."""
        measured = [each.state.move_ms for each in self._known.values() if each.state.move_ms]
        if measured:
            now_ms = median(measured)
            if not self._delay_ms / OTHER_DELAY <= now_ms <= self._delay_ms * OTHER_DELAY:
                self._delay_ms = now_ms

    def _decide(self, asking: _Application, now_s: float) -> tuple[int, int]:
        """Return the numbers of executors that the asking application gains and loses."""
        owners = [(job, each) for each in self._known.values() for job in each.jobs]
        owners.sort(key=lambda pair: pair[0].number)
        if not owners:
            return 0, 0
        jobs = [job for job, _ in owners]
        owner = [each for _, each in owners]
        free = self._slots - sum(each.reserved for each in self._known.values())
        leaving = sum(each.reserved - each.target for each in self._known.values())
        # Executors of applications without work count as free. An application that has just become idle keeps its
        # executors for one moving delay, because its next job often follows soon.
        idle_s = self._delay_ms / 1000
        unused = {
            id(each): each.idle
            for each in self._known.values()
            if not each.has_work and now_s - each.worked_s > idle_s
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
        snapshot.offer_all(self.scheduler)
        if not snapshot.choices and not any(any(job.running) for job in jobs) and not sum(coming):
            # No task runs and none would start.
            snapshot.offer_free(self.scheduler, -1, last_call=True)
            if not snapshot.choices and asking.has_work and not asking.reserved and free > 0:
                return 1, 0
        held = [
            sum(job.running) + waits + comes for job, waits, comes in zip(jobs, waiting, coming, strict=True)
        ]
        return self._shares(snapshot.choices, owner, jobs, held, asking, max(free, 0), leaving, unused)

    def _placed(self, jobs: Sequence[LiveJob], owner: Sequence[_Application]) -> tuple[list[int], list[int]]:
        """Return the numbers of idle executors that each job held last, and of executors moving to each job."""
        waiting, coming = [0] * len(jobs), [0] * len(jobs)
        for each in self._known.values():
            places = [place for place, of in enumerate(owner) if of is each and any(jobs[place].pending)]
            if not places:
                continue
            by_id = {jobs[place].message.id: place for place in places}
            for executor in each.state.executors:
                if not executor.leaving:
                    place = by_id.get(executor.job or "", places[0])
                    waiting[place] += max(executor.slots - executor.running, 0)
            coming[places[0]] += each.coming
            surplus = each.surplus
            for place in places:
                leave = min(surplus, waiting[place])
                surplus, waiting[place] = surplus - leave, waiting[place] - leave
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
        unused: dict[int, int],
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
            for each in self._known.values():
                taken = min(count, unused.get(id(each), 0))
                if taken:
                    unused[id(each)] -= taken
                    count -= taken
                    loss += taken if each is asking and to is not asking else 0
        return gain, loss

    def _worth(self, choice: Choice, to: _Application, job: LiveJob, held: int) -> int:
        """Return the number of executors that a job's work justifies moving; at least 1 if its application has none."""
        work_ms = sum(pending * mean_ms for pending, mean_ms in zip(job.pending, job.mean_ms, strict=True))
        worth = LEAVE_MIN_DELAYS if choice.source >= 0 else MOVE_MIN_DELAYS
        lasting = int(min(work_ms / (worth * self._delay_ms), self._slots)) - held
        return max(lasting, 0 if to.reserved else 1)
