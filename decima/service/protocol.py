"""The protocol between a Spark driver and the service: newline-delimited JSON over TCP or a Unix socket.

The driver connects, says ``Hello`` and is answered with ``Welcome`` or ``Refusal``, after which the connection is
closed. From then on it asks (``State``) and is answered (``Answer``, or ``Refusal``), one question at a time. A
question holds all that the driver knows, so that either side may begin anew at any moment: nothing has to be
remembered across connections.

It asks when something has happened that bears on the choice: a stage came, ended or launched its last task, a job is
gone, an executor came or went. A driver that moves executors asks at least once a second besides, for what it shall
have depends on others.

Fields that are not named here are refused in what the service reads from a driver of the same version, and so is what
is of another type, negative, or too much. Times are milliseconds since 1970 (``*_time_ms``) or durations (``*_ms``).
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
    """Driver to service, first of all.

    Attributes:
        protocol: its version.
        token: what the service's token file says; empty if there is none.
        application: Spark's id of the application.
        name: of the application, for people.
        spark: version of Spark.
        moves_executors: whether the driver obeys ``Answer.executors``: an application on a standalone cluster whose
            executors the service may give to others.
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
        shadow: Spark keeps its own order; the driver still asks, but does not obey.
    """

    type: Literal["welcome"] = "welcome"
    protocol: Count = PROTOCOL
    shadow: bool = False


class Refusal(Message):
    """Service to driver: why it will not answer. The service closes the connection behind it."""

    type: Literal["refusal"] = "refusal"
    reason: Name


class Executor(Message):
    """One executor of the application.

    Attributes:
        id: Spark's.
        slots: tasks that it can run at once.
        running: tasks that it runs now.
        job: the job (``Job.id``) whose task it ran last; null if it has run none, or the job is gone.
        leaving: it is offered nothing more, and goes when its tasks are done.
    """

    id: Identifier
    slots: Count
    running: Count
    job: Identifier | None = None
    leaving: bool = False


class Stage(Message):
    """One stage of a job, in the order in which Spark numbered them.

    Attributes:
        id: Spark's.
        attempt: which attempt of the stage this is; tasks that are done stay done in a later one.
        name: of the stage, for people; empty if unknown.
        state: ``waiting`` for its parents (it may not even be submitted yet), ``ready`` or ``done``.
        tasks: in all.
        done: that have succeeded.
        running: that run now.
        pending: that have not started; ``tasks = done + running + pending``.
        mean_ms: mean duration of its tasks that succeeded; null while there is none.
        running_ms: how long its running tasks have been running, together; 0 if the driver does not tell.
        parents: ids of stages of the same job that must be done before; of other Spark jobs of the same ``Job`` too,
            such as a broadcast's.
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
    """One shuffle or broadcast of a SQL plan, which is known at its start where adaptive execution is still to make its
    stages.

    Attributes:
        id: its place in the plan, parents first.
        kind: what Spark calls it, such as ``Exchange`` or ``BroadcastExchange``.
        partitions: that the plan asks for; null if it does not say.
        parents: exchanges of the same plan that it reads.
    """

    id: Count
    kind: Name
    partitions: Count | None = None
    parents: tuple[Count, ...] = ()


class Job(Message):
    """One job of Decima: a SQL query, a job group or a single Spark job, with all its stages that are known by now.

    Attributes:
        id: stays the job's while it lives, unique in the application.
        name: of its description, for people; null if it has none.
        submitted_time_ms: when Spark first heard of it.
        plan: of a SQL query, the names of the operators of its physical plan in Spark's order; null otherwise. What is
            known from history is looked up by it.
        exchanges: of a SQL query, those of its plan, whether their stages are known or not.
        running: tasks that run now, over all stages.
        stages: parents before children.
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
        seq: ascending in a connection; the answer repeats it.
        time_ms: the driver's clock, since 1970.
        move_ms: how long the last executors took from the request to their first task, median; null before the first.
        executors: that the application has now.
        jobs: those that are not complete, in order of arrival.
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
        id: Spark's.
        slots: tasks of it that may run at once, those that run now included; null: as many as its job's limit lets it.
    """

    id: Count
    slots: Count | None = None


class Answer(Message):
    """Service to driver: what runs next.

    A job without a limit has none. What the driver does not know (any more) it passes over.

    Attributes:
        seq: of the question.
        stages: whose tasks are launched, the first ones first.
        limits: job (``Job.id``) -> tasks that may run at once over all its stages.
        rest: stages that are not named: ``fill`` what is left when the named ones have theirs, within the limits, or
            ``hold`` back.
        executors: that the application shall have, for a driver that moves them; null: as it is.
    """

    type: Literal["answer"] = "answer"
    seq: Count
    stages: tuple[StageOrder, ...] = ()
    limits: dict[Identifier, Count] = Field(default_factory=dict)
    rest: Literal["fill", "hold"] = "fill"
    executors: Count | None = None
