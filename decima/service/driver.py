"""One driver's questions: the scheduler is asked as in a simulated cluster, and what it commits becomes an answer.

All free slots are offered, source by source. An executor stays with its stage while that has tasks, as Decima's
commitments have it: a stage may run as many tasks at once as run now, and as many more as were committed to it. So
Spark fills a slot from the same stage, and asks when the stage runs dry. Where every free slot is in use, the executors
on a stage's last tasks are offered too, so that they need not wait for the next answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decima.service.board import Board, Choice, cluster_of
from decima.service.history import History
from decima.service.jobs import LiveJob, LiveJobs, check_question
from decima.service.protocol import Answer, StageOrder, State
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages

__all__ = ["Decided", "Driver", "free_slots"]


@dataclass(frozen=True, eq=False)
class Decided:
    """What came of a question.

    Attributes:
        answer: to the driver.
        jobs: the live jobs, in order of arrival.
        choices: what the scheduler decided, in order.
        slots: of the driver's executors.
        policy_ms: how long the scheduler took.
        failure: why the scheduler failed, in one line; the answer is then Spark's own order. Empty if it did not.
    """

    answer: Answer
    jobs: Sequence[LiveJob]
    choices: Sequence[Choice]
    slots: int
    policy_ms: float = 0.0
    failure: str = ""


class Driver:
    """Decides for the jobs of one driver.

    Args:
        scheduler: of its own.
        history: what is known of earlier jobs.
        numbers: gives each new job its number.
        moving_delay_ms: what it costs an executor to change jobs; inside one application next to nothing.
    """

    def __init__(
        self, scheduler: DecidesStages, history: History, numbers: Iterator[int], moving_delay_ms: float = 0.0
    ) -> None:
        self.scheduler = scheduler
        self.live = LiveJobs(history, numbers)
        self._moving_delay_ms = moving_delay_ms
        self._config: ClusterConfig | None = None

    def decide(self, state: State) -> Decided:
        """Answer a question.

        Raises:
            QuestionError: it makes no sense.
            SchedulingError: the scheduler decided what cannot be done.
        """
        check_question(state)
        slots = sum(executor.slots for executor in state.executors if not executor.leaving)
        config = cluster_of(max(slots, 1), self._moving_delay_ms, 0.0)
        jobs = self.live.update(state, config)
        if not slots or not jobs:
            return Decided(Answer(seq=state.seq), jobs, (), slots)
        if config is not self._config:
            self.scheduler.reset(config)
            self._config = config
        board = Board(config, state.time_ms, jobs, *free_slots(state, jobs))
        _decide(board, self.scheduler)
        return Decided(_answer(board, state.seq), jobs, board.choices, slots, board.policy_ms)


def free_slots(state: State, jobs: Sequence[LiveJob]) -> tuple[int, list[int]]:
    """Free slots of no live job, and of each live job: those that ran a task of it last, and may run another."""
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


def _decide(board: Board, scheduler: DecidesStages) -> None:
    """Offer all free slots; then those that will be free when the last tasks of a stage are done."""
    total = board.common + sum(board.waiting)
    places = range(len(board.jobs))
    # Those first whose own job has work for them; then free ones, then those who might leave.
    own = [place for place in places if board.waiting[place] and board.has_open_stage(place)]
    others = [place for place in places if board.waiting[place] and place not in own]
    for source in (*own, -1, *others):
        free = board.common if source < 0 else board.waiting[source]
        if source in others and free <= board.awaited(source):
            continue
        if free:
            board.take(source, free - board.offer(scheduler, source, free))
    launched = _launched(board)
    if launched == total:
        for place in places:
            if crew := board.crew(place):
                board.offer(scheduler, place, crew)
    elif _stands_still(board):
        for source in (-1, *places):
            free = board.common if source < 0 else board.waiting[source]
            if free and not _launched(board):
                board.take(source, free - board.offer(scheduler, source, free, last_call=True))


def _stands_still(board: Board) -> bool:
    """Nothing runs, and nothing will happen unless it is made to."""
    places = range(len(board.jobs))
    return not (
        _launched(board)
        or any(any(job.running) for job in board.jobs)
        or any(board.is_about_to_open(place) for place in places)
    )


def _launched(board: Board) -> int:
    """Tasks that begin at once."""
    return sum(
        committed
        for job, stages in zip(board.jobs, board.committed, strict=True)
        for ready, committed in zip(job.ready, stages, strict=True)
        if ready
    )


def _answer(board: Board, seq: int) -> Answer:
    slots: dict[int, int] = {}
    for place, job in enumerate(board.jobs):
        for stage, number in enumerate(job.ids):
            if number is not None and job.running[stage] and job.pending[stage]:
                slots[number] = job.running[stage] + board.committed[place][stage]
    limits: dict[str, int] = {}
    for choice in board.choices:
        job = board.jobs[choice.job]
        committed = board.committed[choice.job]
        if (number := job.ids[choice.stage]) is not None:
            slots[number] = job.running[choice.stage] + committed[choice.stage]
        # Who still runs a job's last tasks keeps its next ones waiting if the limit were only the policy's.
        limits[job.message.id] = max(choice.limit, sum(job.running) + sum(committed))
    stages = tuple(StageOrder.model_construct(id=stage, slots=most) for stage, most in slots.items())
    if _stands_still(board):
        return Answer(seq=seq, stages=stages, rest="fill")
    return Answer(seq=seq, stages=stages, limits=limits, rest="hold")
