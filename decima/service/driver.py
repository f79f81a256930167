"""Decide the questions of one Spark driver: the scheduler's commitments become the answer.

All free slots are offered to the scheduler, source by source. As with Decima's commitments, an executor stays with its
stage as long as the stage has pending tasks: a stage may run as many tasks at once as it runs now plus those
committed to it. So Spark fills a slot from the same stage, and asks again when the stage has no pending task. If every
free slot is used, executors on a stage's last tasks are offered too, so that they need not wait for the next answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decima.service.history import History
from decima.service.jobs import LiveJob, LiveJobs, check_question
from decima.service.protocol import Answer, StageOrder, State
from decima.service.snapshot import Choice, Snapshot, cluster_of
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages

__all__ = ["Decided", "Driver", "free_slots"]


@dataclass(frozen=True, eq=False)
class Decided:
    """Result of one question.

    Attributes:
        answer: the answer to the driver.
        jobs: live jobs in order of arrival.
        choices: decisions of the scheduler in order.
        slots: number of task slots of the driver's executors.
        policy_ms: time that the scheduler took, ms.
        failure: one line that says why the scheduler failed; the answer is then Spark's own order. Empty if it did not
            fail.
    """

    answer: Answer
    jobs: Sequence[LiveJob]
    choices: Sequence[Choice]
    slots: int
    policy_ms: float = 0.0
    failure: str = ""


class Driver:
    """Decides the questions of one driver.

    Args:
        scheduler: a scheduler that no other driver uses.
        history: profiles of earlier jobs.
        numbers: the number of each new job; drivers that share executors share it.
        ready_ranks: the rank of each stage that becomes ready; drivers that share executors share it.
        moving_delay_ms: delay of an executor that changes jobs, ms; next to nothing inside one application.
    """

    def __init__(
        self,
        scheduler: DecidesStages,
        history: History,
        numbers: Iterator[int],
        ready_ranks: Iterator[int],
        moving_delay_ms: float = 0.0,
    ) -> None:
        self.scheduler = scheduler
        self.live = LiveJobs(history, numbers, ready_ranks)
        self._moving_delay_ms = moving_delay_ms
        self._config: ClusterConfig | None = None

    def decide(self, state: State) -> Decided:
        """Answer a question.

        Raises:
            QuestionError: the question contradicts itself or is too large.
            SchedulingError: a decision of the scheduler cannot be carried out.
        """
        check_question(state)
        slots = state.slots
        config = cluster_of(max(slots, 1), self._moving_delay_ms, 0.0)
        jobs = self.live.update(state, config)
        if not slots or not jobs:
            return Decided(Answer(seq=state.seq), jobs, (), slots)
        if config is not self._config:
            self.scheduler.reset(config)
            self._config = config
        snapshot = Snapshot(config, state.time_ms, jobs, *free_slots(state, jobs), prior=self.live.prior)
        _decide(snapshot, self.scheduler)
        return Decided(_answer(snapshot, state.seq), jobs, snapshot.choices, slots, snapshot.policy_ms)


def free_slots(state: State, jobs: Sequence[LiveJob]) -> tuple[int, list[int]]:
    """Count the free slots of no live job, and of each live job with pending tasks those that ran its task last."""
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
    """Offer all free slots, then those that become free when the last tasks of a stage are done."""
    free = snapshot.common + sum(snapshot.waiting)
    places = range(len(snapshot.jobs))
    snapshot.offer_all(scheduler)
    if snapshot.launched == free:
        for place in places:
            if finishing := snapshot.finishing(place):
                snapshot.offer(scheduler, place, finishing)
    elif snapshot.stands_still:
        for source in (-1, *places):
            if not snapshot.launched:
                snapshot.offer_free(scheduler, source, last_call=True)


def _answer(snapshot: Snapshot, seq: int) -> Answer:
    slots: dict[int, int] = {}
    for place, job in enumerate(snapshot.jobs):
        for stage, number in enumerate(job.ids):
            if number is not None and job.running[stage] and job.pending[stage]:
                slots[number] = job.running[stage] + snapshot.committed[place][stage]
    limits: dict[str, int] = {}
    for choice in snapshot.choices:
        job = snapshot.jobs[choice.job]
        committed = snapshot.committed[choice.job]
        if (number := job.ids[choice.stage]) is not None:
            slots[number] = job.running[choice.stage] + committed[choice.stage]
        # The policy's limit alone would keep new tasks waiting for the executors that run the job's last tasks.
        limits[job.message.id] = max(choice.limit, sum(job.running) + sum(committed))
    stages = tuple(StageOrder.model_construct(id=stage, slots=most) for stage, most in slots.items())
    if snapshot.stands_still:
        return Answer(seq=seq, stages=stages, rest="fill")
    return Answer(seq=seq, stages=stages, limits=limits, rest="hold")
