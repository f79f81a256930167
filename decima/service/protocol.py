"""The protocol between a Spark driver and the service: newline-delimited JSON over TCP or a Unix socket.

The driver connects and sends ``Hello``. The service answers with ``Welcome``, or with ``Refusal``, after which it
closes the connection. Then the driver sends questions (``State``), one at a time, and receives ``Answer`` or
``Refusal``. A question contains the whole state of the driver, so that either side may restart at any moment.

The driver asks after each event that matters to the decision: a stage appears, ends or launches its last task; a job
ends; an executor joins or leaves. A driver that moves executors also asks at least once a second, as its target depends
on other drivers.

In messages of a driver with the same version the service refuses unknown fields and wrong types, and negative or too
large numbers. Times are milliseconds since 1970 (``*_time_ms``) or durations (``*_ms``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "LONGEST_LINE",
    "PROTOCOL",
    "Answer",
    "Exchange",
    "Executor",
    "Hello",
    "Job",
    "Refusal",
    "Stage",
    "StageOrder",
    "State",
    "Welcome",
]

#: Version of the protocol; both sides must speak the same.
PROTOCOL = 1
#: Longest line, bytes, its end included; the service closes a connection that sends more.
LONGEST_LINE = 4 << 20

Count = Annotated[int, Field(ge=0, le=10**9)]
Identifier = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(max_length=1024)]
Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Message(BaseModel):
    """Base class of all messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Hello(Message):
    """Driver to service: the first message.

    Attributes:
        protocol: version of the protocol.
        token: content of the service's token file; empty if there is none.
        application: Spark's id of the application.
        name: name of the application, for display.
        spark: version of Spark.
        moves_executors: whether the driver follows ``Answer.executors``: the application runs on a standalone cluster,
            and the service may move its executors to other applications.
    """

    type: Literal["hello"]
    protocol: Count
    token: Annotated[str, Field(max_length=256)] = ""
    application: Identifier
    name: Name
    spark: Annotated[str, Field(max_length=64)]
    moves_executors: bool = False


class Welcome(Message):
    """Service to driver: the answer to ``Hello``.

    Attributes:
        shadow: whether Spark keeps its own order: the driver asks, but does not follow the answers.
    """

    type: Literal["welcome"] = "welcome"
    protocol: Count = PROTOCOL
    shadow: bool = False


class Refusal(Message):
    """Service to driver: the reason of a refusal. The service closes the connection after it."""

    type: Literal["refusal"] = "refusal"
    reason: Name


class Executor(Message):
    """One executor of the application.

    Attributes:
        id: Spark's id.
        slots: number of task slots.
        running: number of running tasks.
        job: ``Job.id`` of the task that it ran last; null before the first task, or after the job's end.
        leaving: whether it gets no more tasks, and leaves when its tasks are done.
    """

    id: Identifier
    slots: Count
    running: Count
    job: Identifier | None = None
    leaving: bool = False


class Stage(Message):
    """One stage of a job; stages are in the order of Spark's numbers.

    Attributes:
        id: Spark's id.
        attempt: number of the attempt; finished tasks stay finished in later attempts.
        name: name of the stage, for display; empty if unknown.
        state: ``waiting`` for its parents, submitted or not; ``ready``; or ``done``.
        tasks: number of all tasks.
        done: number of successful tasks.
        running: number of running tasks.
        pending: number of tasks that have not started; ``tasks = done + running + pending``.
        mean_ms: mean duration of successful tasks; null while there is none.
        running_ms: time since the start of each running task, summed; 0 if the driver does not report it.
        parents: ids of the stages of the same ``Job`` that it depends on, such as a broadcast's.
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
    parents: tuple[Count, ...] = ()


class Exchange(Message):
    """One shuffle or broadcast of a SQL plan. It is known before adaptive execution makes its stages.

    Attributes:
        id: position in the plan, parents first.
        kind: Spark's name, such as ``Exchange`` or ``BroadcastExchange``.
        partitions: number of partitions in the plan; null if the plan has none.
        parents: exchanges of the same plan that it reads.
    """

    id: Count
    kind: Name
    partitions: Count | None = None
    parents: tuple[Count, ...] = ()


class Job(Message):
    """One job of Decima: a SQL query, a job group or a single Spark job, with the stages known so far.

    Attributes:
        id: constant id, unique in the application.
        name: name from its description, for display; null if it has none.
        submitted_time_ms: time of its first submission to Spark.
        plan: operators of a SQL query's physical plan in Spark's order, the key to history; null for other jobs.
        exchanges: exchanges of a SQL query's plan, whether their stages are known or not.
        running: number of running tasks over all stages.
        stages: stages, parents before children.
    """

    id: Identifier
    name: Name | None = None
    submitted_time_ms: Milliseconds
    plan: tuple[Name, ...] | None = None
    exchanges: tuple[Exchange, ...] = ()
    running: Count
    stages: tuple[Stage, ...]


class State(Message):
    """Driver to service: a question.

    Attributes:
        seq: number, ascending in a connection; the answer repeats it.
        time_ms: the driver's clock, since 1970.
        move_ms: median time of the last executors from request to first task; null before the first.
        executors: executors of the application.
        jobs: incomplete jobs in order of arrival.
    """

    type: Literal["state"]
    seq: Count
    time_ms: Milliseconds
    move_ms: Milliseconds | None = None
    executors: tuple[Executor, ...]
    jobs: tuple[Job, ...]

    @property
    def slots(self) -> int:
        """Task slots of the executors that are not leaving."""
        return sum(executor.slots for executor in self.executors if not executor.leaving)


class StageOrder(Message):
    """A stage in an answer.

    Attributes:
        id: Spark's id.
        slots: most tasks that may run at once, running ones included; null: as many as the job's limit allows.
    """

    id: Count
    slots: Count | None = None


class Answer(Message):
    """Service to driver: what runs next. The driver ignores jobs and stages that it does not know.

    Attributes:
        seq: number of the question.
        stages: stages whose tasks are launched, in order of priority.
        limits: ``Job.id`` -> most tasks that may run at once over all stages; jobs that are absent have no limit.
        rest: whether all other stages ``fill`` the slots that the named ones leave, within the limits, or ``hold``.
        executors: target number of executors, for a driver that moves them; null: no change.
    """

    type: Literal["answer"] = "answer"
    seq: Count
    stages: tuple[StageOrder, ...] = ()
    limits: dict[Identifier, Count] = Field(default_factory=dict)
    rest: Literal["fill", "hold"] = "fill"
    executors: Count | None = None
