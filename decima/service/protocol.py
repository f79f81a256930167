"""The protocol between a Spark driver and the service: newline-delimited JSON over TCP or a Unix socket.

The driver connects and sends ``Hello``. The service answers with ``Welcome``, or with ``Refusal`` and closes the
connection. Then the driver sends questions (``StateMessage``), one at a time, and receives an ``Answer`` or
``Refusal`` to each. A question contains the driver's whole state, so that either side may restart at any moment.

The driver asks after each event that can change a decision: a stage appears, ends or launches its last task; a job
ends; an executor joins or leaves. A driver that moves executors also asks at least once a second, since its target
number of executors depends on other drivers.

The service refuses wrong types, and negative or too large numbers. Unknown fields are ignored: a newer driver may send
more within one version of the protocol. Points in time (``time_ms``,
``*_time_ms``) are milliseconds since 1970; durations (other ``*_ms``) are milliseconds.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from workloads.job import MOST_BYTES

__all__ = [
    "LONGEST_LINE", "PROTOCOL", "Answer", "Exchange", "ExecutorMessage", "Hello", "JobMessage", "Missed", "Pool",
    "Refusal", "StageMessage", "StageOrder", "StateMessage", "Welcome",
]  # fmt: skip

#: Version of the protocol; both sides must speak the same.
PROTOCOL = 1
#: Maximum length of a line, bytes, including its end; the service closes a connection that sends a longer line.
LONGEST_LINE = 4 << 20

Count = Annotated[int, Field(ge=0, le=10**9)]
#: A list is validated up to its first error: a short message could otherwise have millions of errors.
_UP_TO_FIRST = Field(fail_fast=True)
Identifier = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(max_length=1024)]
Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES)]
Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Message(BaseModel):
    """Base class of all messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Pool(Message):
    """One pool of the driver's ``fairscheduler.xml``: name, weight and minimum share (number of slots)."""

    name: Annotated[str, Field(min_length=1, max_length=1024)]
    weight: Annotated[int, Field(ge=1, le=10**9)] = 1
    min_share: Count = 0


class Hello(Message):
    """Driver to service: first message of a connection.

    Attributes:
        protocol: version of the protocol.
        token: access token of the service; empty if the driver has none.
        application: Spark's application id.
        name: name of the application, for display.
        spark: version of Spark.
        moves_executors: whether the driver obeys ``Answer.executors``, so that the service may move executors
            between applications.
        pools: pools of the driver's ``fairscheduler.xml``; empty if Spark is not in FAIR mode.
    """

    type: Literal["hello"]
    protocol: Count
    token: Annotated[str, Field(max_length=256)] = ""
    application: Identifier
    name: Name
    spark: Annotated[str, Field(max_length=64)]
    moves_executors: bool = False
    pools: Annotated[tuple[Pool, ...], _UP_TO_FIRST] = ()


class Welcome(Message):
    """Service to driver: answer to ``Hello``.

    Attributes:
        protocol: version of the protocol.
        shadow: whether the service is in shadow mode: the driver asks, but Spark keeps its own order.
    """

    type: Literal["welcome"] = "welcome"
    protocol: Count = PROTOCOL
    shadow: bool = False


class Refusal(Message):
    """Service to driver: reason for a refusal. The service then closes the connection."""

    type: Literal["refusal"] = "refusal"
    reason: Name


class ExecutorMessage(Message):
    """One executor of the application.

    Attributes:
        id: Spark's executor id.
        slots: number of task slots.
        running: number of running tasks.
        job: ``Job.id`` of the last task; null before the first task, or after the job's end.
        leaving: whether the executor takes no new tasks and leaves when its running tasks are done.
    """

    id: Identifier
    slots: Count
    running: Count
    job: Identifier | None = None
    leaving: bool = False


class StageMessage(Message):
    """One stage of a job. A job's stages are in order of Spark's stage ids.

    Attributes:
        id: Spark's stage id.
        attempt: number of the attempt; tasks that finished in earlier attempts remain finished.
        name: name for display; empty if unknown.
        state: ``waiting`` (for parents), ``ready`` or ``done``.
        tasks: total number of tasks.
        done: number of successful tasks.
        running: number of running tasks.
        pending: number of tasks that have not started; ``tasks = done + running + pending``.
        mean_ms: mean duration of successful tasks; null before the first.
        running_ms: sum of the elapsed times of running tasks; 0 if the driver does not report them.
        parents: ids of parent stages in the same ``JobMessage``, including stages that write a broadcast.
        operators: operators that the tasks run, in order of execution; empty if unknown.
        input_bytes: size of the files that the tasks read; 0 if they read none; null if unknown.
    """

    id: Count
    attempt: Count = 0
    name: Name = ""
    state: Literal["waiting", "ready", "done"]
    tasks: Count
    done: Count
    running: Count
    pending: Count
    mean_ms: Milliseconds | None = None
    running_ms: Milliseconds = 0.0
    parents: Annotated[tuple[Count, ...], _UP_TO_FIRST] = ()
    operators: Annotated[tuple[Name, ...], _UP_TO_FIRST] = ()
    input_bytes: Bytes | None = None


class Exchange(Message):
    """One shuffle or broadcast of a SQL plan. It is known before adaptive execution creates its stages.

    Attributes:
        id: position in the plan, parents first.
        kind: Spark's name, such as ``Exchange`` or ``BroadcastExchange``.
        partitions: number of partitions in the plan; null if the plan has none.
        parents: ids of the exchanges that this exchange reads.
    """

    id: Count
    kind: Name
    partitions: Count | None = None
    parents: Annotated[tuple[Count, ...], _UP_TO_FIRST] = ()


class JobMessage(Message):
    """A job of Decima: a SQL query, a job group or a single Spark job, with the stages created so far.

    Attributes:
        id: constant id, unique in the application.
        name: description of the SQL query, else of one of its Spark jobs; null without a description.
        pool: Spark pool (``spark.scheduler.pool``), the tenant of guarantees; null if the driver does not report it.
        submitted_time_ms: time of the job's first submission to Spark.
        plan: operators of a SQL query's physical plan in Spark's order, the key to history; null for other jobs.
        exchanges: exchanges of a SQL query's plan, with and without created stages.
        running: number of running tasks over all stages.
        stages: stages, parents before children.
    """

    id: Identifier
    name: Name | None = None
    pool: Name | None = None
    submitted_time_ms: Milliseconds
    plan: Annotated[tuple[Name, ...], _UP_TO_FIRST] | None = None
    exchanges: Annotated[tuple[Exchange, ...], _UP_TO_FIRST] = ()
    running: Count
    stages: Annotated[tuple[StageMessage, ...], _UP_TO_FIRST]


class Missed(Message):
    """Late and lost answers of a driver, and its time without answers, since its last question that was decided.

    Attributes:
        late: number of questions without an answer within the driver's timeout.
        lost: number of questions whose connection ended before the answer.
        fallback_ms: time with tasks in which Spark kept its own order for want of an answer, or without a connection in
            shadow mode.
        reason: last reason; empty if nothing was missed or the reason is unknown.
    """

    late: Count = 0
    lost: Count = 0
    fallback_ms: Milliseconds = 0.0
    reason: Name = ""

    def plus(self, other: Missed | None) -> Missed:
        """Return the sum with what was missed later; None: nothing."""
        if other is None:
            return self
        return Missed.model_construct(
            late=self.late + other.late,
            lost=self.lost + other.lost,
            fallback_ms=self.fallback_ms + other.fallback_ms,
            reason=other.reason or self.reason,
        )


class StateMessage(Message):
    """Driver to service: a question.

    Attributes:
        seq: number of the question, ascending in a connection; the answer repeats it.
        time_ms: the driver's clock.
        move_ms: median time from the request of an executor to its first task; null before the first.
        executors: executors of the application.
        jobs: incomplete jobs in order of arrival.
        missed: what the driver has missed; null if it does not report this.
    """

    type: Literal["state"]
    seq: Count
    time_ms: Milliseconds
    move_ms: Milliseconds | None = None
    executors: Annotated[tuple[ExecutorMessage, ...], _UP_TO_FIRST]
    jobs: Annotated[tuple[JobMessage, ...], _UP_TO_FIRST]
    missed: Missed | None = None

    @property
    def slots(self) -> int:
        """Number of task slots, excluding executors that are leaving."""
        return sum(executor.slots for executor in self.executors if not executor.leaving)


class StageOrder(Message):
    """A stage in an answer.

    Attributes:
        id: Spark's stage id.
        slots: maximum number of running tasks; null: only the job's limit applies.
    """

    id: Count
    slots: Count | None = None


class Answer(Message):
    """Service to driver: the stages to run next. The driver ignores unknown jobs and stages.

    Attributes:
        seq: number of the question.
        stages: stages whose tasks are launched, in order of priority.
        limits: ``Job.id`` -> maximum number of running tasks over all stages; absent jobs have no limit.
        rest: other stages ``fill`` the remaining slots within the limits, or ``hold`` their tasks back.
        executors: target number of executors for a driver that moves executors; null: no change.
        reason: why the service did not decide, so that the answer keeps Spark's own order; null if it decided.
    """

    type: Literal["answer"] = "answer"
    seq: Count
    stages: Annotated[tuple[StageOrder, ...], _UP_TO_FIRST] = ()
    limits: dict[Identifier, Count] = Field(default_factory=dict)
    rest: Literal["fill", "hold"] = "fill"
    executors: Count | None = None
    reason: Name | None = None
