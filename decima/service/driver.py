"""Answer the questions of one Spark driver with the scheduler's commitments.

All free slots are offered to the scheduler, source by source. As in Decima, an executor stays with its stage while the
stage has pending tasks: the slot limit of a stage is its number of running tasks plus the executors committed to it. So
Spark refills a slot from the same stage, and the driver asks again when the stage has no pending task. If every free
slot is used, executors that run the last tasks of a stage are offered too: they need not wait for the next answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from decima.schedulers.guarantees.guard import take_overruled
from decima.service.history import History
from decima.service.jobs import LiveJob, LiveJobs, check_question
from decima.service.pools import decide_in_pools
from decima.service.protocol import Answer, StageOrder, State
from decima.service.snapshot import Choice, Snapshot, cluster_of
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages
from workloads.attributes import Tenant

__all__ = ["Decided", "Driver", "free_slots"]


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions and answer for one question.

    Attributes:
        answer: message to the driver.
        jobs: live jobs in order of arrival.
        choices: decisions of the scheduler in order.
        slots: number of task slots of the driver's executors.
        policy_ms: time spent in the scheduler, ms.
        failure: reason of the scheduler's failure, one line; empty without a failure. After a failure ``answer``
            keeps Spark's own order.
        overruled: guarantee of each decision that a guarantee changed.
    """

    answer: Answer
    jobs: Sequence[LiveJob]
    choices: Sequence[Choice]
    slots: int
    policy_ms: float = 0.0
    failure: str = ""
    overruled: tuple[str, ...] = ()


class Driver:
    """Answers the questions of one driver.

    Args:
        scheduler: scheduler of this driver alone.
        history: profiles of earlier jobs.
        numbers: iterator of job numbers; shared by drivers that share executors.
        ready_ranks: iterator of the stages' ready ranks; shared by drivers that share executors.
        moving_delay_ms: delay of an executor that changes jobs, ms; almost 0 within one application.
        pools: pool name -> weight and minimum share, which hold under any scheduler. A missing pool has weight 1 and
            no minimum share. By default pools have no shares.
    """

    def __init__(
        self,
        scheduler: DecidesStages,
        history: History,
        numbers: Iterator[int],
        ready_ranks: Iterator[int],
        moving_delay_ms: float = 0.0,
        pools: Mapping[str, Tenant] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.live = LiveJobs(history, numbers, ready_ranks)
        self._moving_delay_ms = moving_delay_ms
        self._pools = pools
        self._config: ClusterConfig | None = None

    def decide(self, state: State) -> Decided:
        """Answer a question.

        Raises:
            QuestionError: the question is inconsistent or too large.
            SchedulingError: the scheduler made an invalid decision.
        """
        check_question(state)
        slots = state.slots
        config = cluster_of(max(slots, 1), self._moving_delay_ms, 0.0)
        jobs = self.live.update(state, config)
        if not slots or not jobs:
            return Decided(Answer(seq=state.seq), jobs, (), slots)
        if config is not self._config:
            # A guard keeps its virtual cluster when slots come or go.
            resize = getattr(self.scheduler, "resize", self.scheduler.reset)
            (self.scheduler.reset if self._config is None else resize)(config)
            self._config = config
        free, prior = free_slots(state, jobs), self.live.prior
        snapshot = Snapshot(config, state.time_ms, jobs, *free, prior=prior, known_pools=self._pools)
        released = decide_in_pools(snapshot, self.scheduler) if self._pools else None
        if released is None:
            _decide(snapshot, self.scheduler)
        answer = _answer(snapshot, state.seq, released)
        overruled = take_overruled(self.scheduler)
        return Decided(answer, jobs, snapshot.choices, slots, snapshot.policy_ms, overruled=overruled)


def free_slots(state: State, jobs: Sequence[LiveJob]) -> tuple[int, list[int]]:
    """Count free slots.

    Returns:
        Number of free slots outside live jobs, and for each live job the number of free slots that ran its tasks
        last. Free slots of a job without pending tasks count as outside.
    """
    place = {job.message.id: number for number, job in enumerate(jobs) if any(job.pending)}
    common, waiting = 0, [0] * len(jobs)
    for executor in state.executors:
        free = executor.slots - executor.running
        if executor.leaving or free <= 0:
            continue
        number = -1 if executor.job is None else place.get(executor.job, -1)
        if number < 0:
            common += free
        else:
            waiting[number] += free
    return common, waiting


def _decide(snapshot: Snapshot, scheduler: DecidesStages) -> None:
    """Offer all free slots, then the executors that run the last tasks of their stage."""
    free = snapshot.common + sum(snapshot.waiting)
    places = range(len(snapshot.jobs))
    snapshot.offer_all(scheduler)
    if snapshot.launched == free:
        for place in places:
            if finishing := snapshot.finishing(place):
                snapshot.offer(scheduler, place, finishing)
    elif snapshot.stalled:
        for source in (-1, *places):
            if not snapshot.launched:
                snapshot.offer_free(scheduler, source, last_call=True)


def _answer(snapshot: Snapshot, seq: int, released: Sequence[int] | None = None) -> Answer:
    """Return the answer. ``released``: for each job, number of running tasks whose slots it does not refill."""
    slots: dict[int, int] = {}
    for place, job in enumerate(snapshot.jobs):
        less = 0 if released is None else released[place]
        for stage, number in enumerate(job.ids):
            if number is not None and job.running[stage] and job.pending[stage]:
                fewer = min(less, job.running[stage])
                less -= fewer
                slots[number] = job.running[stage] + snapshot.committed[place][stage] - fewer
    limits: dict[str, int] = {}
    for choice in snapshot.choices:
        job = snapshot.jobs[choice.job]
        committed = snapshot.committed[choice.job]
        if (number := job.ids[choice.stage]) is not None:
            slots[number] = job.running[choice.stage] + committed[choice.stage]
        # The policy's limit alone would delay new tasks while executors run the last tasks of another stage.
        limits[job.message.id] = max(choice.limit, sum(job.running) + sum(committed))
    stages = tuple(StageOrder.model_construct(id=stage, slots=most) for stage, most in slots.items())
    if snapshot.stalled:
        return Answer(seq=seq, stages=stages, rest="fill")
    return Answer(seq=seq, stages=stages, limits=limits, rest="hold")
