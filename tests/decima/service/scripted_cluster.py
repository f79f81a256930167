"""A standalone cluster of several applications, whose drivers ask the service and move executors as it answers.

An executor takes some time from the request to its registration. An executor that should leave is marked, and leaves
when its task is done. The master starts as many executors as the targets of applications: only the service limits
the slots.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from decima.service.protocol import Answer, ExecutorMessage, Hello, JobMessage, StateMessage
from decima.service.service import Connected, Service
from tests.decima.service.scripted_spark import RunningJob, RunningStage, running_job
from workloads.job import JobProfile

#: A driver asks at least this often, ms.
EVERY_MS = 1000.0


@dataclass(eq=False)
class Place:
    """An executor."""

    id: str
    stage: RunningStage | None = None
    job: RunningJob | None = None
    leaving: bool = False


@dataclass(eq=False)
class Application:
    """An application, with jobs that run one after the other.

    Attributes:
        name: Spark's id.
        arrival_ms: arrival time.
        profiles: profiles of its jobs.
        dies_ms: time at which its driver is killed, with its executors; None: never.
        clock_ms: difference of its driver's clock from the cluster's, ms.
    """

    name: str
    arrival_ms: float
    profiles: list[JobProfile]
    dies_ms: float = float("inf")
    clock_ms: float = 0.0
    executors: list[Place] = field(default_factory=list)
    starting: int = 0
    target: int = 0
    live: list[RunningJob] = field(default_factory=list)
    to_come: list[RunningJob] = field(default_factory=list)
    connected: Connected | None = None
    answer: Answer | None = None
    end_ms: float = float("nan")
    questions: int = 0

    @property
    def slots(self) -> int:
        return len(self.executors) + self.starting


@dataclass(eq=False)
class ScriptedCluster:
    """Runs applications until all have ended.

    Args:
        service: assigns the slots.
        applications: the applications.
        delay_ms: start-up time of an executor.
        watch: called after every event.
    """

    service: Service
    applications: list[Application]
    delay_ms: float
    watch: Callable[[ScriptedCluster], None] = lambda cluster: None
    now: float = 0.0
    started: int = 0
    tasks: int = 0

    def __post_init__(self) -> None:
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ids = itertools.count(1)

    def at(self, time_ms: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_ms, next(self._order), what))

    def run(self) -> list[float]:
        """Return the duration of each application, ms; NaN for those that were killed."""
        for each in self.applications:
            self.at(each.arrival_ms, lambda each=each: self._arrive(each))  # type: ignore[misc]
        while self._events:
            self.now, _, what = heapq.heappop(self._events)
            what()
            self.watch(self)
            assert self.now < 1e8, "the cluster stands still"
        return [each.end_ms - each.arrival_ms for each in self.applications]

    def _arrive(self, app: Application) -> None:
        hello = Hello(
            type="hello", protocol=1, application=app.name, name=app.name, spark="3.5.9", moves_executors=True
        )
        app.connected, _ = self.service.welcome(hello.model_dump_json().encode())
        app.to_come = [running_job(f"{number}", profile, 0.0, self._ids) for number, profile in enumerate(app.profiles)]
        self._next_job(app)
        self._poll(app)
        if app.dies_ms < float("inf"):
            self.at(max(app.dies_ms, self.now), lambda: self._die(app))

    def _next_job(self, app: Application) -> None:
        if not app.live and app.to_come:
            job = app.to_come.pop(0)
            job.arrival_ms = self.now
            app.live.append(job)

    def _poll(self, app: Application) -> None:
        if app.connected is not None:
            self._ask(app)
            self.at(self.now + EVERY_MS, lambda: self._poll(app))

    def _ask(self, app: Application) -> None:
        assert app.connected is not None
        app.questions += 1
        executors = tuple(
            ExecutorMessage(
                id=place.id,
                slots=1,
                running=int(place.stage is not None),
                job=place.job.id if place.job in app.live and place.job else None,
                leaving=place.leaving,
            )
            for place in app.executors
        )

        def message(job: RunningJob) -> JobMessage:
            sent = job.message(False)
            return sent.model_copy(update={"submitted_time_ms": sent.submitted_time_ms + app.clock_ms})

        state = StateMessage(
            type="state",
            seq=app.questions,
            time_ms=self.now + app.clock_ms,
            move_ms=self.delay_ms,
            executors=executors,
            jobs=tuple(map(message, app.live)),
        )
        app.answer = self.service.answer(app.connected, state.model_dump_json().encode())
        assert app.answer.executors is not None
        app.target = app.answer.executors
        self._obey(app)

    def _obey(self, app: Application) -> None:
        surplus = sum(not place.leaving for place in app.executors) - app.target
        for place in sorted(app.executors, key=lambda place: place.stage is not None):
            if surplus > 0 and not place.leaving:
                place.leaving = True
                surplus -= 1
        gone = [place for place in app.executors if place.leaving and place.stage is None]
        app.executors = [place for place in app.executors if place not in gone]
        while app.slots < app.target:
            app.starting += 1
            self.started += 1
            self.at(self.now + self.delay_ms, lambda: self._register(app))
        self._launch(app)

    def _register(self, app: Application) -> None:
        if app.connected is None:
            return
        app.starting -= 1
        app.executors.append(Place(f"{app.name}-{next(self._ids)}"))
        self._ask(app)

    def _launch(self, app: Application) -> None:
        assert app.answer is not None
        stages = {stage.id: (job, stage) for job in app.live for stage in job.stages if job.ready(stage)}
        named = [(order.id, order.slots) for order in app.answer.stages]
        rest = [(stage, None) for stage in stages] if app.answer.rest == "fill" else []
        for number, slots in (*named, *rest):
            if number not in stages:
                continue
            job, stage = stages[number]
            for place in app.executors:
                if (
                    place.stage is None
                    and not place.leaving
                    and stage.pending
                    and (slots is None or stage.running < slots)
                ):
                    place.stage, place.job = stage, job
                    stage.pending -= 1
                    stage.running += 1
                    self.tasks += 1
                    self.at(self.now + stage.task_ms, lambda place=place: self._task_ends(app, place))  # type: ignore[misc]

    def _task_ends(self, app: Application, place: Place) -> None:
        if app.connected is None:
            return
        stage, job = place.stage, place.job
        assert stage is not None
        assert job is not None
        place.stage = None
        stage.running -= 1
        stage.done += 1
        if all(each.done == each.tasks for each in job.stages):
            app.live.remove(job)
            self._next_job(app)
            if not app.live:
                self._ask(app)
                self._leave(app)
                app.end_ms = self.now
                return
        if place.leaving or not stage.pending:
            self._ask(app)
        else:
            self._launch(app)

    def _die(self, app: Application) -> None:
        if app.connected is not None:
            self._leave(app)

    def _leave(self, app: Application) -> None:
        assert app.connected is not None
        self.service.leave(app.connected)
        app.connected, app.executors, app.starting, app.live = None, [], 0, []
