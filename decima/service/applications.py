"""Share the slots of one standalone cluster among several Spark applications: how many executors each shall have.

The jobs of all applications are live jobs of one cluster, as in the paper, and the scheduler decides which job gets
free executors. A question changes the target of the application that asks and of no other, because only its state is
up to date. Other applications learn their target with their own next question, so each asks at least once a second.

An executor leaves an application only when it is idle and another application has work worth the move. An application
starts new executors only once the slots are free: the executors of the other application are gone before new ones are
requested. So there are never more executors than slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from decima.schedulers.srpt import WORTH_LEAVING, WORTH_MOVING
from decima.service.jobs import LiveJob
from decima.service.protocol import State
from decima.service.snapshot import Choice, Snapshot, cluster_of
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages
from workloads.arrivals import WorkPrior

__all__ = ["Applications"]

#: Moving delay until it has been measured, ms.
UNKNOWN_DELAY_MS = 3000.0
#: The moving delay in use changes when the measured one differs from it by more than this factor.
OTHER_DELAY = 1.25
#: Extra duration of a task on a newly started JVM, ms.
WARMUP_MS = 1000.0
#: A new application waits this long for its first executors, s: more urgent ones may arrive with it.
TOGETHER_S = 1.0
#: The slots of a disconnected application stay reserved for this long, s: it may connect again.
GRACE_S = 3.0
#: Executors that have not started after this many moving delays are no longer expected.
MOST_DELAYS = 10.0


@dataclass(eq=False)
class _Application:
    """State of one application at its last question. Times are seconds of the clock.

    Attributes:
        state: the question.
        jobs: live jobs of the application.
        target: number of slots that the application was told to have.
        came_s: time of its first question.
        raised_s: last time that the target rose.
        worked_s: last time that it had pending tasks.
        gone_s: time at which it disconnected; None while it is connected.
    """

    state: State
    jobs: Sequence[LiveJob]
    target: int
    came_s: float
    raised_s: float = float("-inf")
    worked_s: float = float("-inf")
    gone_s: float | None = None

    @property
    def has_work(self) -> bool:
        """Whether a job of the application has pending tasks."""
        return any(any(job.pending) for job in self.jobs)

    @property
    def present(self) -> int:
        """Number of slots of its executors, leaving ones included."""
        return sum(executor.slots for executor in self.state.executors)

    @property
    def reserved(self) -> int:
        """Number of slots that it occupies or may occupy at any moment."""
        return max(self.present, self.target)

    @property
    def coming(self) -> int:
        """Number of slots of executors that have been requested and have not started."""
        return max(self.target - self.state.slots, 0)

    @property
    def told_to_leave(self) -> int:
        """Number of slots above the target: they leave with the next answer."""
        return max(self.state.slots - self.target, 0)

    @property
    def idle(self) -> int:
        """Number of slots that stay and run no task."""
        free = sum(
            max(executor.slots - executor.running, 0)
            for executor in self.state.executors
            if not executor.leaving
        )
        return max(free - self.told_to_leave, 0)


class Applications:
    """Shares slots among applications.

    Args:
        scheduler: the scheduler.
        slots: number of slots of all executors together.
        clock: returns the time, s; replaced in tests.
        prior: distribution of jobs in history; None if there is no history.

    Attributes:
        scheduler: the scheduler; the service replaces it after a failure.
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
        """Note that an application disconnected; its slots are free unless it connects again within the grace time."""
        if known := self._known.get(application):
            known.gone_s = self._clock()

    def target(self, application: str, state: State, jobs: Sequence[LiveJob]) -> int:
        """Return the number of executors that the asking application shall have.

        Args:
            application: Spark's application id.
            state: the question.
            jobs: live jobs of the application.

        Raises:
            SchedulingError: a decision of the scheduler cannot be carried out.
        """
        now_s = self._clock()
        self._forget(now_s)
        known = self._known.get(application)
        if known is None:
            known = self._known[application] = _Application(state, jobs, 0, now_s)
            known.target = state.slots  # it keeps the executors that it has
        known.state, known.jobs, known.gone_s = state, jobs, None
        if known.has_work:
            known.worked_s = now_s
        self._measure()
        if known.coming and now_s - known.raised_s > MOST_DELAYS * self._delay_ms / 1000:
            known.target = state.slots
        gain, loss = self._decide(known, now_s)
        # The number of executors is uncertain until all requested ones have started; none is taken before.
        may_lose = not known.coming and (
            not known.has_work or now_s - known.raised_s > WORTH_MOVING * self._delay_ms / 1000
        )
        if gain > loss:
            if now_s - known.came_s >= TOGETHER_S:
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
        """Update the moving delay from the applications' measurements."""
        measured = [each.state.move_ms for each in self._known.values() if each.state.move_ms]
        if measured:
            now_ms = median(measured)
            if not self._delay_ms / OTHER_DELAY <= now_ms <= self._delay_ms * OTHER_DELAY:
                self._delay_ms = now_ms

    def _decide(self, asking: _Application, now_s: float) -> tuple[int, int]:
        """Return how many executors the asking application gains and loses."""
        owners = [(job, each) for each in self._known.values() for job in each.jobs]
        owners.sort(key=lambda pair: pair[0].number)
        if not owners:
            return 0, 0
        jobs = [job for job, _ in owners]
        owner = [each for _, each in owners]
        free = self._slots - sum(each.reserved for each in self._known.values())
        leaving = sum(each.reserved - each.target for each in self._known.values())
        # Executors of applications without work are as free as empty slots. An application that has just become idle
        # keeps its executors for the time of a move: as a rule its next job comes soon.
        patience_s = self._delay_ms / 1000
        unused = {
            id(each): each.idle
            for each in self._known.values()
            if not each.has_work and now_s - each.worked_s > patience_s
        }
        config = cluster_of(self._slots, self._delay_ms, WARMUP_MS)
        if (config, self.scheduler) != self._prepared:
            self.scheduler.reset(config)
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
        """Return, by job, the idle executors of its application that it held last, and the executors moving to it."""
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
            leave = each.told_to_leave
            for place in places:
                leave, waiting[place] = (
                    leave - min(leave, waiting[place]),
                    waiting[place] - min(leave, waiting[place]),
                )
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
        """Return the executors that decisions give to the asking application, and those they take from it."""
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
        """Return how many executors find enough work at a job to be worth moving; at least one if it holds none."""
        work_ms = sum(pending * mean_ms for pending, mean_ms in zip(job.pending, job.mean_ms, strict=True))
        worth = WORTH_LEAVING if choice.source >= 0 else WORTH_MOVING
        lasting = int(min(work_ms / (worth * self._delay_ms), self._slots)) - held
        return max(lasting, 0 if to.reserved else 1)
