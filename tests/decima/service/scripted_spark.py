"""A Spark driver that runs its jobs on a simulated clock, speaks the protocol, and obeys the answers.

Tasks of a stage have constant durations, as in a simulator; nothing else takes time. It obeys as the plugin does:
stages in the order of the answer, at most ``slots`` tasks of each at once, at most the limit of a job, and other
stages only if the answer says ``fill``. It asks when a stage appears, ends, or has launched its last task.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from decima.service.protocol import Answer, ExecutorMessage, JobMessage, StageMessage, StateMessage
from workloads.job import JobProfile

Ask = Callable[[StateMessage], Answer]


@dataclass(eq=False)
class RunningStage:
    id: int
    place: int
    tasks: int
    task_ms: float
    parents: tuple[int, ...]
    pending: int = 0
    running: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.pending = self.tasks


@dataclass(eq=False)
class RunningJob:
    id: str
    name: str
    arrival_ms: float
    stages: list[RunningStage]
    completion_ms: float = -1.0
    plan: tuple[str, ...] | None = None

    def ready(self, stage: RunningStage) -> bool:
        return all(self.stages[parent].done == self.stages[parent].tasks for parent in stage.parents)

    def message(self, hidden: bool) -> JobMessage:
        return JobMessage(
            id=self.id,
            name=self.name,
            submitted_time_ms=self.arrival_ms,
            plan=self.plan,
            running=sum(stage.running for stage in self.stages),
            stages=tuple(
                StageMessage(
                    id=stage.id,
                    state="done" if stage.done == stage.tasks else "ready" if self.ready(stage) else "waiting",
                    tasks=stage.tasks,
                    done=stage.done,
                    running=stage.running,
                    pending=stage.pending,
                    mean_ms=stage.task_ms if stage.done else None,
                    parents=() if hidden else tuple(self.stages[parent].id for parent in stage.parents),
                )
                for stage in self.stages
                if not hidden or self.ready(stage)
            ),
        )


def running_job(name: str, profile: JobProfile, arrival_ms: float, numbers: Iterator[int]) -> RunningJob:
    """Return a job that has not started; its stages have the next numbers."""
    stages = [
        RunningStage(next(numbers), place, stage.num_tasks, stage.durations.mean_ms, profile.parents[place])
        for place, stage in enumerate(profile.stages)
    ]
    return RunningJob(name, profile.name, arrival_ms, stages)


@dataclass(eq=False)
class ScriptedSpark:
    """Runs jobs on ``slots`` one-slot executors.

    Args:
        profiles: profiles of the jobs, and their arrival times, ms.
        ask: sends a question and returns the answer.
        slots: number of executors.
        hidden: whether stages are created when they can start, as under adaptive execution.
        prefix: prefix of the jobs' ids.
        questions: number of earlier questions.
        first_ms: start time, since 1970.
    """

    profiles: list[tuple[JobProfile, float]]
    ask: Ask
    slots: int
    hidden: bool = False
    prefix: str = ""
    questions: int = 0
    now: float = 0.0
    tasks_started: int = 0
    first_ms: float = 1_700_000_000_000.0
    jobs: list[RunningJob] = field(default_factory=list)

    def run(self) -> list[float]:
        """Return the job completion times, ms."""
        numbers = itertools.count(10)
        for number, (profile, arrival_ms) in enumerate(self.profiles):
            name = f"{self.prefix}job-{number}"
            self.jobs.append(running_job(name, profile, self.first_ms + arrival_ms, numbers))
        ran_last: list[RunningJob | None] = [None] * self.slots
        busy: list[bool] = [False] * self.slots
        events: list[tuple[float, int, int, RunningJob, RunningStage]] = []
        order = itertools.count()
        waiting = sorted(self.jobs, key=lambda job: job.arrival_ms)
        live: list[RunningJob] = []
        self.now = self.first_ms
        while waiting or live:
            changed = False
            while waiting and waiting[0].arrival_ms <= self.now:
                live.append(waiting.pop(0))
                changed = True
            while events and events[0][0] <= self.now:
                _, _, slot, job, stage = heapq.heappop(events)
                busy[slot] = False
                stage.running -= 1
                stage.done += 1
                changed |= stage.done == stage.tasks
                if all(each.done == each.tasks for each in job.stages):
                    job.completion_ms = self.now
                    live.remove(job)
                    ran_last = [None if each is job else each for each in ran_last]
            begins = True
            while changed or begins:
                if changed:
                    answer = self._question(live, ran_last, busy)
                changed = begins = False
                for slot, job, stage in self._launches(answer, live, ran_last, busy) if live else ():
                    busy[slot] = True
                    ran_last[slot] = job
                    stage.pending -= 1
                    stage.running += 1
                    self.tasks_started += 1
                    changed |= not stage.pending
                    heapq.heappush(events, (self.now + stage.task_ms, next(order), slot, job, stage))
            times = [events[0][0]] if events else []
            times += [waiting[0].arrival_ms] if waiting else []
            assert times or not live, "Spark stands still"
            if times:
                self.now = min(times)
        return [job.completion_ms - job.arrival_ms for job in self.jobs]

    def _question(self, live: list[RunningJob], ran_last: list[RunningJob | None], busy: list[bool]) -> Answer:
        self.questions += 1
        executors = tuple(
            ExecutorMessage(id=str(slot), slots=1, running=int(busy[slot]), job=job.id if job else None)
            for slot, job in enumerate(ran_last)
        )
        jobs = tuple(job.message(self.hidden) for job in live)
        answer = self.ask(
            StateMessage(type="state", seq=self.questions, time_ms=self.now, executors=executors, jobs=jobs)
        )
        assert answer.seq == self.questions
        return answer

    def _launches(
        self, answer: Answer, live: list[RunningJob], ran_last: list[RunningJob | None], busy: list[bool]
    ) -> list[tuple[int, RunningJob, RunningStage]]:
        stages = {stage.id: (job, stage) for job in live for stage in job.stages if job.ready(stage)}
        running = {job.id: sum(stage.running for stage in job.stages) for job in live}
        free = [slot for slot, is_busy in enumerate(busy) if not is_busy]
        found = []
        named = [(order.id, order.slots) for order in answer.stages]
        rest = [(stage, None) for stage in stages if stage not in dict(named)] if answer.rest == "fill" else []
        for number, slots in (*named, *rest):
            if number not in stages:
                continue
            job, stage = stages[number]
            most = stage.pending if slots is None else min(stage.pending, slots - stage.running)
            if job.id in answer.limits:
                most = min(most, answer.limits[job.id] - running[job.id])
            mine = sorted(free, key=lambda slot: ran_last[slot] is not job)
            for slot in mine[: max(most, 0)]:
                free.remove(slot)
                running[job.id] += 1
                found.append((slot, job, stage))
        return found
