"""Several applications on the slots of one standalone cluster: how many executors each of them shall have.

All their jobs are live jobs of one cluster, as in the paper, and the policy decides who gets the executors that are
free. A question changes the target of the application that asks and of no other, for of this one all is known. What
another shall have it hears when it asks; so each must ask now and then, even if nothing happens.

An executor leaves an application only for another that has work for it that is worth the move, and when it is idle. So
nobody shrinks for nothing. An application may start executors only once the slots are there: those of another are gone
before their successors are asked for. So there are never more than there are slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from decima.schedulers.srpt import WORTH_LEAVING, WORTH_MOVING
from decima.service.board import Board, Choice, cluster_of
from decima.service.jobs import LiveJob
from decima.service.protocol import State
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages

__all__ = ["Applications"]

#: How long it takes to move an executor, until it was measured, ms.
UNKNOWN_DELAY_MS = 3000.0
#: It is taken to be as before unless it differs by more than this factor.
OTHER_DELAY = 1.25
#: What is added to a task on a JVM that has just started, where nobody measured it, ms.
WARMUP_MS = 1000.0
#: Who comes waits so long for its first executors, s: others may come with it, and be more urgent.
TOGETHER_S = 1.0
#: Whoever is gone in the middle of something may come back for so long, s; then its slots are free.
GRACE_S = 3.0
#: Executors that have not come after so many delays do not come.
MOST_DELAYS = 10.0


@dataclass(eq=False)
class _Application:
    """One of them, as it was when it asked last.

    Attributes:
        state: its question.
        jobs: its live jobs.
        target: executors that it was told to have.
        came_s: when it asked first.
        raised_s: when its target rose last.
        worked_s: when it had tasks to start last.
        gone_s: when its connection went; none if it is there.
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
        """Whether it has tasks to start, now or later."""
        return any(any(job.pending) for job in self.jobs)

    @property
    def present(self) -> int:
        """Slots that its executors take up, those that leave included."""
        return sum(executor.slots for executor in self.state.executors)

    @property
    def staying(self) -> int:
        """Of these, those that do not leave."""
        return sum(executor.slots for executor in self.state.executors if not executor.leaving)

    @property
    def reserved(self) -> int:
        """Slots that it takes up, or may take up any moment."""
        return max(self.present, self.target)

    @property
    def coming(self) -> int:
        """Slots of executors that are on their way to it."""
        return max(self.target - self.staying, 0)

    @property
    def told_to_leave(self) -> int:
        """Slots of executors that will leave as soon as it has heard of it."""
        return max(self.staying - self.target, 0)

    @property
    def idle(self) -> int:
        """Slots of executors that stay and run nothing."""
        free = sum(
            max(executor.slots - executor.running, 0)
            for executor in self.state.executors
            if not executor.leaving
        )
        return max(free - self.told_to_leave, 0)


class Applications:
    """Shares slots among applications.

    Args:
        scheduler: decides.
        slots: of all their executors together.
        clock: s; for tests.

    Attributes:
        scheduler: may be replaced where it has failed.
    """

    def __init__(
        self, scheduler: DecidesStages, slots: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.scheduler = scheduler
        self._slots = slots
        self._clock = clock
        self._known: dict[str, _Application] = {}
        self._prepared: tuple[ClusterConfig, DecidesStages] | None = None
        self._delay_ms = UNKNOWN_DELAY_MS

    def leave(self, application: str) -> None:
        """An application's connection is gone; unless it comes back soon, so are its executors."""
        if known := self._known.get(application):
            known.gone_s = self._clock()

    def target(self, application: str, state: State, jobs: Sequence[LiveJob]) -> int:
        """How many executors an application that asks shall have.

        Args:
            application: Spark's id of it.
            state: its question.
            jobs: its live jobs.

        Raises:
            SchedulingError: the scheduler decided what cannot be done.
        """
        now_s = self._clock()
        self._forget(now_s)
        known = self._known.get(application)
        if known is None:
            known = self._known[application] = _Application(state, jobs, 0, now_s)
            known.target = known.staying  # it goes on with what it has
        known.state, known.jobs, known.gone_s = state, jobs, None
        if known.has_work:
            known.worked_s = now_s
        self._measure()
        if known.coming and now_s - known.raised_s > MOST_DELAYS * self._delay_ms / 1000:
            known.target = known.staying
        gain, loss = self._decide(known, now_s)
        # While executors are on their way nobody knows how many there are, so none is taken.
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
            # Who had no job left has ended.
            if each.gone_s is not None and (not each.jobs or now_s - each.gone_s > GRACE_S):
                del self._known[name]

    def _measure(self) -> None:
        """How long a move takes."""
        measured = [each.state.move_ms for each in self._known.values() if each.state.move_ms]
        if measured:
            now_ms = median(measured)
            if not self._delay_ms / OTHER_DELAY <= now_ms <= self._delay_ms * OTHER_DELAY:
                self._delay_ms = now_ms

    def _decide(self, asking: _Application, now_s: float) -> tuple[int, int]:
        """By how many executors the application that asks shall have more, or less."""
        owners = [(job, each) for each in self._known.values() for job in each.jobs]
        owners.sort(key=lambda pair: pair[0].number)
        if not owners:
            return 0, 0
        jobs = [job for job, _ in owners]
        owner = [each for _, each in owners]
        free = self._slots - sum(each.reserved for each in self._known.values())
        leaving = sum(each.reserved - each.target for each in self._known.values())
        # Executors of those without anything to do are as free as slots are. But who has just become so is given the
        # time of a move: as a rule it has its next job soon.
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
        board = Board(config, asking.state.time_ms, jobs, common, waiting, coming)
        own = [place for place in range(len(jobs)) if waiting[place] and board.has_open_stage(place)]
        for source in (
            *own,
            -1,
            *(place for place in range(len(jobs)) if waiting[place] and place not in own),
        ):
            idle = board.common if source < 0 else board.waiting[source]
            if idle and (source < 0 or source in own or idle > board.awaited(source)):
                board.take(source, idle - board.offer(self.scheduler, source, idle))
        if not board.choices and not any(any(job.running) for job in jobs) and not sum(coming):
            # Nothing runs, and nothing would.
            board.offer(self.scheduler, -1, board.common, last_call=True)
            if not board.choices and asking.has_work and not asking.reserved and free > 0:
                return 1, 0
        held = [
            sum(job.running) + waits + comes for job, waits, comes in zip(jobs, waiting, coming, strict=True)
        ]
        return self._shares(board.choices, owner, jobs, held, asking, max(free, 0), leaving, unused)

    def _placed(self, jobs: Sequence[LiveJob], owner: Sequence[_Application]) -> tuple[list[int], list[int]]:
        """Of each job, the executors of its application that wait for something to do, and those on their way."""
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
        """What decisions mean for the application that asks: executors that it gets, and that others get from it."""
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
        """How many executors find so much work at a job that it is worth a move; one where there are none."""
        work_ms = sum(pending * mean_ms for pending, mean_ms in zip(job.pending, job.mean_ms, strict=True))
        worth = WORTH_LEAVING if choice.source >= 0 else WORTH_MOVING
        lasting = int(min(work_ms / (worth * self._delay_ms), self._slots)) - held
        return max(lasting, 0 if to.reserved else 1)
