"""The scheduling service without sockets: one scheduler per driver, answers to its questions, and watchers of events.

All free slots are offered to the scheduler, source by source. As in Decima, an executor stays with its stage while the
stage has pending tasks: the slot limit of a stage is its number of running tasks plus the executors committed to it. So
Spark refills a slot from the same stage, and the driver asks again when the stage has no pending task. If every free
slot is used, executors that run the last tasks of a stage are offered too: they need not wait for the next answer.
"""

from __future__ import annotations

import hmac
import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from decima.service.budget import TimeBudget
from decima.service.history import History
from decima.service.jobs import LiveJob, QuestionError, TrackedJobs, check_question
from decima.service.protocol import PROTOCOL, Answer, Hello, JobMessage, StageOrder, StateMessage, Welcome
from decima.service.snapshot import Choice, Share, Snapshot, cluster_of, take_overruled
from simulator.cluster.config import ClusterConfig
from workloads.errors import DecimaError

if TYPE_CHECKING:
    from decima.service.credentials import Token, Tokens
    from decima.service.tenants import Tenants
    from simulator.cluster.episode import DecidesStages

__all__ = [
    "MOST_APPLICATIONS", "Connected", "Decided", "Driver", "RefusedError", "Service", "Watcher", "first_error",
    "free_slots", "notify", "one_line",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions and answer for one question.

    Attributes:
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
        numbers: iterator of job numbers; shared by drivers that share executors.
        ready_ranks: iterator of the stages' ready ranks; shared by drivers that share executors.
        moving_delay_ms: delay of an executor that changes jobs, ms; almost 0 within one application.
        pools: pool name -> share, which holds under any scheduler. A missing pool has the default share. By default
            pools have no shares.
    """

    def __init__(
        self,
        scheduler: DecidesStages,
        history: History,
        numbers: Iterator[int],
        ready_ranks: Iterator[int],
        moving_delay_ms: float = 0.0,
        pools: Mapping[str, Share] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.live = TrackedJobs(history, numbers, ready_ranks)
        self._moving_delay_ms = moving_delay_ms
        self._pools = pools
        self._config: ClusterConfig | None = None

    def replace(self, scheduler: DecidesStages) -> None:
        """Use another scheduler from the next question on."""
        self.scheduler, self._config = scheduler, None

    def decide(self, state: StateMessage) -> Decided:
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
        released = None
        if self._pools:
            from decima.service.shares import decide_in_pools

            released = decide_in_pools(snapshot, self.scheduler)
        if released is None:
            _decide(snapshot, self.scheduler)
        answer = _answer(snapshot, state.seq, released)
        overruled = take_overruled(self.scheduler)
        return Decided(answer, jobs, snapshot.choices, slots, snapshot.policy_ms, overruled=overruled)


def free_slots(state: StateMessage, jobs: Sequence[LiveJob]) -> tuple[int, list[int]]:
    """Count free slots.

    Returns:
        Number of free slots outside live jobs, and for each live job the number of free slots that ran its tasks
        last. Free slots of a job without pending tasks count as outside.
    """
    index_of = {job.message.id: position for position, job in enumerate(jobs) if any(job.pending)}
    common, waiting = 0, [0] * len(jobs)
    for executor in state.executors:
        free = executor.slots - executor.running
        if executor.leaving or free <= 0:
            continue
        index = -1 if executor.job is None else index_of.get(executor.job, -1)
        if index < 0:
            common += free
        else:
            waiting[index] += free
    return common, waiting


def _decide(snapshot: Snapshot, scheduler: DecidesStages) -> None:
    """Offer all free slots, then the executors that run the last tasks of their stage."""
    free = snapshot.common + sum(snapshot.waiting)
    job_rows = range(len(snapshot.jobs))
    snapshot.offer_all(scheduler)
    if snapshot.launched == free:
        for job in job_rows:
            if finishing := snapshot.finishing(job):
                snapshot.offer(scheduler, job, finishing)
    elif snapshot.stalled:
        for source in (-1, *job_rows):
            if not snapshot.launched:
                snapshot.offer_free(scheduler, source, last_call=True)


def _answer(snapshot: Snapshot, seq: int, released: Sequence[int] | None = None) -> Answer:
    """Return the answer. ``released``: for each job, number of running tasks whose slots it does not refill."""
    slots: dict[int, int] = {}
    for index, job in enumerate(snapshot.jobs):
        less = 0 if released is None else released[index]
        for stage, stage_id in enumerate(job.ids):
            if stage_id is not None and job.running[stage] and job.pending[stage]:
                fewer = min(less, job.running[stage])
                less -= fewer
                slots[stage_id] = job.running[stage] + snapshot.committed[index][stage] - fewer
    limits: dict[str, int] = {}
    for choice in snapshot.choices:
        job = snapshot.jobs[choice.job]
        committed = snapshot.committed[choice.job]
        if (stage_id := job.ids[choice.stage]) is not None:
            slots[stage_id] = job.running[choice.stage] + committed[choice.stage]
        # The policy's limit alone would delay new tasks while executors run the last tasks of another stage.
        limits[job.message.id] = max(choice.limit, sum(job.running) + sum(committed))
    stages = tuple(StageOrder.model_construct(id=stage, slots=most) for stage, most in slots.items())
    if snapshot.stalled:
        return Answer(seq=seq, stages=stages, rest="fill")
    return Answer(seq=seq, stages=stages, limits=limits, rest="hold")


#: Number of a question in its line; quotes inside of names are escaped.
_SEQ = re.compile(rb'(?<!\\)"seq"\s*:\s*(\d{1,9})\b')
_HELLO, _STATE = TypeAdapter(Hello), TypeAdapter(StateMessage)
#: Maximum number of applications that metrics and page tell apart.
MOST_APPLICATIONS = 1_000
#: Maximum lengths of a field path and of a text that a reason quotes, characters.
SHOWN, MOST_SHOWN = 200, 1_000

_T = TypeVar("_T")

log = logging.getLogger("decima.service")


class _Greeting(BaseModel):
    """Fields of ``Hello`` in all protocol versions."""

    type: Literal["hello"]
    protocol: int


class ServeError(DecimaError, OSError):
    """The service cannot start: an address is in use, or a token or key file is unusable. The message is one line."""


class DeniedError(DecimaError, PermissionError):
    """A token is refused. The message is one line and begins with the HTTP status.

    Attributes:
        status: HTTP status: 401 for an unknown token, 403 for an expired token, another role or another tenant's
            application, 429 for too many requests.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status


class RefusedError(DecimaError, ValueError):
    """A driver's message is refused. The reason is one line."""


@dataclass(eq=False)
class Connected:
    """A connected driver.

    Attributes:
        number: number of the connection, ascending.
        hello: first message.
        line: line of the last question.
        state: last question.
        decided: decisions and answer of the last question.
        took_ms: time from the question to the answer, ms.
        failures: number of questions at which the scheduler failed.
        skipped: number of questions that were not decided, because they would have delayed other drivers.
        seq: number of the last question; -1 before the first.
        reason: why the last question was not decided; empty if it was decided.
        start_s, start_cpu_s: time, and CPU time of the thread, when the last question arrived, s.
        unknown: name of the first unknown field in a message; empty if there was none.
        token: the driver's access token, if the service has several tokens.
        tenant: name of the driver's tenant; empty if the service has no tenants.
    """

    number: int
    hello: Hello
    line: bytes = b""
    state: StateMessage | None = None
    decided: Decided | None = None
    took_ms: float = 0.0
    failures: int = 0
    skipped: int = 0
    seq: int = -1
    reason: str = ""
    start_s: float = 0.0
    start_cpu_s: float = 0.0
    unknown: str = ""
    token: Token | None = None
    tenant: str = ""


class Watcher:
    """Receives events of the service. Subclasses override the methods of the events that they use."""

    def welcomed(self, driver: Connected) -> None:
        """Called when a driver has connected."""

    def asked(self, driver: Connected) -> None:
        """Called when a question has arrived, before it is decided."""

    def answered(self, driver: Connected) -> None:
        """Called after an answer has been sent."""

    def skipped(self, driver: Connected, reason: str) -> None:
        """Called after a question has been answered without a decision; ``asked`` and ``answered`` are not called."""

    def left(self, driver: Connected) -> None:
        """Called when a driver has disconnected."""

    def refused(self, reason: str) -> None:
        """Called when the service refuses and closes a connection."""

    def reopen(self) -> None:
        """Called at SIGHUP: files may have been renamed."""


class Service:
    """Connects drivers and answers their questions.

    Args:
        make_scheduler: returns a new scheduler for each driver.
        token: secret that drivers must send; empty: drivers need none.
        tokens: access tokens with limits, instead of ``token``.
        pools: pool name -> share, which holds under any scheduler; by default the pools that a driver reports.
        tenants: tenants of the drivers, with their shares of ``slots`` and their pools; None: all drivers are equal.
        shadow: whether drivers ignore the answers and keep Spark's own order.
        moving_delay_ms: delay of an executor that changes jobs within an application, ms.
        slots: number of slots shared by applications; None: executors stay in their application.
        clock: returns monotonic time, s.
    """

    def __init__(
        self,
        make_scheduler: Callable[[], DecidesStages],
        history: History | None = None,
        *,
        token: str = "",
        tokens: Tokens | None = None,
        pools: Mapping[str, Share] | None = None,
        shadow: bool = False,
        moving_delay_ms: float = 0.0,
        slots: int | None = None,
        tenants: Tenants | None = None,
        watchers: Sequence[Watcher] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_scheduler = make_scheduler
        self._history = History() if history is None else history  # one without profiles may have a predictor
        if self._history.predictor is not None:
            self._history.predictor.warm_up()
        self._token, self._tokens = token.encode(), tokens
        self._tenants = tenants
        self._shadow = shadow
        self._pools = pools
        self._moving_delay_ms = moving_delay_ms
        self._watchers = watchers
        self._applications = None
        if slots is not None:
            from decima.service.applications import Applications

            shares = None if tenants is None else tenants.shares
            self._applications = Applications(make_scheduler(), slots, clock, self._history.prior, shares)
        self._drivers: dict[int, Driver] = {}
        self._budget = TimeBudget(clock)
        self._connections = itertools.count(1)
        self._jobs, self._ready_ranks = itertools.count(), itertools.count()

    def welcome(self, line: bytes) -> tuple[Connected, Welcome]:
        """Check a driver's first message and connect the driver.

        Raises:
            RefusedError: the message is malformed or of another protocol version, or its token is wrong, has expired,
                has made too many requests or is not valid for the application.
        """
        if other := _other_protocol(line):
            raise RefusedError(other)
        try:
            hello, unknown = _parse(_HELLO, line, "")
        except ValidationError as error:
            raise RefusedError(f"no hello: {first_error(error)}") from None
        token = None
        if self._tokens is not None:
            try:
                token = self._tokens.find(hello.token)
            except DeniedError as error:
                raise RefusedError(str(error)) from None
        connected = Connected(next(self._connections), hello, token=token)
        connected.tenant = self._admit(connected)
        self._note(connected, unknown)
        self._drivers[connected.number] = self._new_driver(connected)
        notify(self._watchers, lambda watcher: watcher.welcomed(connected))
        return connected, Welcome(shadow=self._shadow)

    def _admit(self, connected: Connected) -> str:
        """Check the driver's token, count a request, and return the driver's tenant.

        Raises:
            RefusedError: the token is wrong, has expired, has made too many requests or is not valid for the
                application.
        """
        hello = connected.hello
        if not hmac.compare_digest(hello.token.encode(errors="replace"), self._token) and self._token:
            raise RefusedError("wrong token: the driver needs the token of the service's token file")
        try:
            if self._tokens is not None and connected.token is not None:
                connected.token = self._tokens.count(connected.token)
            return "" if self._tenants is None else self._tenants.tenant_of(hello, connected.token)
        except DeniedError as error:
            raise RefusedError(str(error)) from None

    def replace(
        self,
        make_scheduler: Callable[[], DecidesStages],
        token: str,
        tokens: Tokens | None,
        tenants: Tenants | None = None,
    ) -> None:
        """Use another policy, other tokens and tenants, also for connected drivers; see the arguments of the class."""
        self._make_scheduler, self._token, self._tenants = make_scheduler, token.encode(), tenants
        if self._tokens is not None and tokens is not None:
            self._tokens.replace(tokens)
        for driver in self._drivers.values():
            driver.replace(make_scheduler())
        if self._applications is not None:
            self._applications.scheduler = make_scheduler()
            self._applications.tenants = {} if tenants is None else tenants.shares

    def answer(self, connected: Connected, line: bytes) -> Answer:
        """Answer a question. The answer keeps Spark's own order if the scheduler fails or the time budget is used up.

        The caller sends the answer, then calls ``answered``.

        Raises:
            RefusedError: the question is malformed, out of order or inconsistent, or its token has expired, has been
                removed or has made too many requests, or the application belongs to another tenant since a reload.
        """
        connected.start_s, connected.start_cpu_s = time.perf_counter(), time.thread_time()
        if (tenant := self._admit(connected)) != connected.tenant:
            raise RefusedError(f"the application belongs to tenant {tenant} now: connect again")
        connected.line, connected.reason = line, ""
        # A question that is not decided is not parsed either, which would take a part of the saved time.
        if (reason := self._budget.check(connected.number, len(line))) and (number := _SEQ.search(line)):
            return self._skip(connected, int(number[1]), reason)
        try:
            return self._decide(connected, line)
        except RefusedError:
            self._charge(connected)
            raise

    def _decide(self, connected: Connected, line: bytes) -> Answer:
        """Parse a question and decide it; for errors see ``answer``."""
        try:
            state, unknown = _parse(_STATE, line, connected.unknown)
        except ValidationError as error:
            raise RefusedError(f"no question: {first_error(error)}") from None
        if state.seq <= connected.seq:
            raise RefusedError(f"question {state.seq} comes after question {connected.seq}")
        self._note(connected, unknown)
        if self._tenants is not None and (pools := self._tenants.pools_of(connected.tenant)) is not None:
            state = state.model_copy(update={"jobs": tuple(_in_pools(job, pools) for job in state.jobs)})
        connected.seq, connected.state = state.seq, state
        notify(self._watchers, lambda watcher: watcher.asked(connected))
        try:
            decided = self._drivers[connected.number].decide(state)
            if self._applications is not None and connected.hello.moves_executors:
                target = self._applications.target(
                    connected.hello.application, state, decided.jobs, connected.tenant
                )
                decided = replace(decided, answer=decided.answer.model_copy(update={"executors": target}))
        except QuestionError as error:
            raise RefusedError(f"question {state.seq}: {error}") from None
        except BaseException as error:  # a custom scheduler may raise any exception, even SystemExit
            decided = self._own_order(connected, state, error)
        connected.decided = decided
        connected.took_ms = (time.perf_counter() - connected.start_s) * 1000
        return decided.answer

    def _skip(self, connected: Connected, seq: int, reason: str) -> Answer:
        """Return an answer with Spark's own order and the reason."""
        connected.seq, connected.reason = seq, reason
        connected.skipped += 1
        if connected.skipped == 1:
            hello = connected.hello
            log.warning(
                "%s: %s while other drivers ask: some of its answers keep Spark's own order",
                one_line(f"{hello.name} ({hello.application})"), reason,
            )  # fmt: skip
        return Answer(seq=seq, reason=reason)

    def _note(self, connected: Connected, unknown: str) -> None:
        """Log the first unknown field of a connection."""
        if unknown and not connected.unknown:
            connected.unknown = unknown
            hello = connected.hello
            log.info(
                "%s: unknown fields are ignored, such as %s: its plugin may be newer than this service",
                one_line(f"{hello.name} ({hello.application})"), one_line(unknown),
            )  # fmt: skip

    def _own_order(self, connected: Connected, state: StateMessage, error: BaseException) -> Decided:
        """Return an answer with Spark's own order after a failure, and replace the driver's scheduler."""
        failure = one_line(f"{type(error).__name__}: {error}")
        hello = connected.hello
        log.error(
            "%s: the policy failed at question %d, the answer keeps Spark's own order: %s",
            one_line(f"{hello.name} ({hello.application})"), state.seq, failure,
            exc_info=None if connected.failures else error,  # one traceback per connection
        )  # fmt: skip
        connected.failures += 1
        self._drivers[connected.number] = self._new_driver(connected)
        if self._applications is not None:
            self._applications.scheduler = self._make_scheduler()
        return Decided(Answer(seq=state.seq), (), (), state.slots, failure=failure)

    def _new_driver(self, connected: Connected) -> Driver:
        pools = self._pools
        if self._tenants is not None and (declared := self._tenants.pools_of(connected.tenant)) is not None:
            pools = declared
        if pools is None:
            reported = connected.hello.pools
            pools = {pool.name: Share(pool.name, pool.weight, pool.min_share) for pool in reported}
        scheduler = self._make_scheduler()
        return Driver(scheduler, self._history, self._jobs, self._ready_ranks, self._moving_delay_ms, pools)

    def answered(self, connected: Connected) -> None:
        """Notify watchers after an answer has been sent, and charge the time budget."""
        if connected.reason:
            notify(self._watchers, lambda watcher: watcher.skipped(connected, connected.reason))
            return
        notify(self._watchers, lambda watcher: watcher.answered(connected))
        self._charge(connected)

    def _charge(self, connected: Connected) -> None:
        cpu_s, wall_s = time.thread_time() - connected.start_cpu_s, time.perf_counter() - connected.start_s
        self._budget.spend(connected.number, len(connected.line), cpu_s, wall_s)

    def leave(self, connected: Connected) -> None:
        """Remove a driver that has disconnected."""
        del self._drivers[connected.number]
        self._budget.leave(connected.number)
        if self._applications is not None and connected.hello.moves_executors:
            self._applications.leave(connected.hello.application)
        notify(self._watchers, lambda watcher: watcher.left(connected))

    def refuse(self, reason: str) -> None:
        """Notify watchers of a refusal."""
        notify(self._watchers, lambda watcher: watcher.refused(reason))


def _in_pools(job: JobMessage, pools: Mapping[str, Share]) -> JobMessage:
    """Return the message about a job without its pool, if the pool is none of its tenant's pools."""
    return job if job.pool is None or job.pool in pools else job.model_copy(update={"pool": None})


def notify(watchers: Sequence[Watcher], event: Callable[[Watcher], None]) -> None:
    """Pass an event to all watchers. An exception in a watcher must not cost a driver its answer."""
    for watcher in watchers:
        try:
            event(watcher)
        except Exception:
            log.exception("%s failed", type(watcher).__name__)


def _parse(kind: TypeAdapter[_T], line: bytes, unknown: str) -> tuple[_T, str]:
    """Return a message, and the first unknown field of this or an earlier message, ``unknown``; empty if there is none.

    Raises:
        ValidationError: the message is malformed apart from unknown fields.
    """
    if not unknown:
        try:
            return kind.validate_json(line), ""
        except ValidationError as error:
            fields = [
                first["loc"]
                for first in error.errors(include_input=False)
                if first["type"] == "extra_forbidden"
            ]
            if not fields:
                raise
            unknown = _place(fields[0])
    return kind.validate_json(line, extra="ignore"), unknown


def _place(loc: Sequence[int | str]) -> str:
    return ".".join(map(str, loc))[:SHOWN]


def first_error(error: ValidationError) -> str:
    """Return the first validation error in one line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = _place(first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def _other_protocol(line: bytes) -> str:
    """Return the reason for refusing another protocol version; empty if the version is right or missing."""
    try:
        version = _Greeting.model_validate_json(line).protocol
    except ValidationError:
        return ""
    if version == PROTOCOL:
        return ""
    newer = "newer" if version > PROTOCOL else "older"
    return (
        f"the driver uses protocol {version}, which is {newer} than {PROTOCOL}, the protocol of this service"
    )


def one_line(text: str) -> str:
    """Return a text with spaces for control characters, which could break a line or control a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)[:MOST_SHOWN]
