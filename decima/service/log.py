"""Live log of the service: questions of drivers, decisions and answers, as JSON lines in one file.

The first line of each service run names the policy. A question is written before it is decided, so that after a crash
the log contains the question that caused it. The line of a question contains only changes since the driver's last
question; the driver's next line contains the decisions and the answer. ``decima.service.replay`` reads the log.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TextIO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from decima.service.protocol import Answer, ExecutorMessage, JobMessage
from decima.service.service import Connected, ServeError, Watcher, first_error, one_line
from workloads.errors import DecimaError
from workloads.reading import open_regular

__all__ = [
    "Answered", "DecisionLog", "Estimated", "Left", "Line", "LogError", "Question", "Refused", "Started", "Welcomed",
    "read_log",
]  # fmt: skip


class LogError(DecimaError, ValueError):
    """A log is unreadable. The message is one line that names file and line."""


#: A list is validated up to its first error: a line could otherwise have millions of errors.
_UP_TO_FIRST = Field(fail_fast=True)


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Started(_Line):
    """A service has started: the first line of its run.

    Attributes:
        shadow: whether drivers ignore the answers.
        time_ms: start of the service, ms since 1970.
    """

    event: Literal["started"] = "started"
    format: Literal["decima-service-log"] = "decima-service-log"
    version: Literal[1, 2, 3] = 3
    policy: str
    shadow: bool
    time_ms: float


class Welcomed(_Line):
    """A driver has connected."""

    event: Literal["welcomed"] = "welcomed"
    driver: int
    application: str
    name: str
    spark: str
    time_ms: float


class Chosen(_Line):
    """A decision: executors committed to a stage.

    Attributes:
        stage: Spark's stage id; null if Spark has not created the stage yet.
        limit: parallelism limit of the job.
        executors: number of executors committed to the stage.
        source: job that held the executors; null if no live job did.
        probability: probability of the decision under the policy.
    """

    job: str
    stage: int | None = None
    limit: int
    executors: int
    source: str | None = None
    probability: float | None = None


class Question(_Line):
    """A driver's question.

    Attributes:
        driver: number of the connection.
        seq: number of the question; null in version 1.
        time_ms: the driver's clock, ms since 1970.
        move_ms: moving delay of an executor as measured by the driver, ms.
        executors: all executors if any of them changed since the driver's last question, else null.
        jobs: new jobs, and jobs that changed.
        gone: ids of jobs that are no longer live.
    """

    event: Literal["question"] = "question"
    driver: int
    seq: int | None = None
    time_ms: float
    move_ms: float | None = None
    executors: Annotated[tuple[ExecutorMessage, ...], _UP_TO_FIRST] | None = None
    jobs: Annotated[tuple[JobMessage, ...], _UP_TO_FIRST] = ()
    gone: Annotated[tuple[str, ...], _UP_TO_FIRST] = ()


class Estimated(_Line):
    """Estimated work (executor time) of a job without history, from its DAG, before any task has finished.

    Attributes:
        work_ms: median of the work, ms.
        low_ms, high_ms: ends of the interval that contains the work with a probability of 50 %, ms.
    """

    job: str
    work_ms: float
    low_ms: float
    high_ms: float


class Answered(_Line):
    """The answer to the driver's last question.

    Attributes:
        driver: number of the connection.
        answer: message to the driver.
        took_ms: time from the question to the answer, ms.
        policy_ms: time spent in the policy, ms.
        failure: reason why the policy failed, else null; ``answer`` then keeps Spark's own order.
        estimates: jobs that are estimated from their DAGs, when they are new or their DAGs have changed; null for
            none.
    """

    event: Literal["answered"] = "answered"
    driver: int
    choices: Annotated[tuple[Chosen, ...], _UP_TO_FIRST] = ()
    answer: Answer
    took_ms: float
    policy_ms: float
    failure: str | None = None
    estimates: Annotated[tuple[Estimated, ...], _UP_TO_FIRST] | None = None


class _Asked(_Line):
    """Question and answer in one line, as in log version 1."""

    event: Literal["asked"] = "asked"
    driver: int
    time_ms: float
    executors: Annotated[tuple[ExecutorMessage, ...], _UP_TO_FIRST] | None = None
    jobs: Annotated[tuple[JobMessage, ...], _UP_TO_FIRST] = ()
    gone: Annotated[tuple[str, ...], _UP_TO_FIRST] = ()
    choices: Annotated[tuple[Chosen, ...], _UP_TO_FIRST] = ()
    answer: Answer
    took_ms: float
    policy_ms: float

    def lines(self) -> tuple[Question, Answered]:
        """Return the equivalent lines of log version 2."""
        values = dict(self)
        question, answered = (
            {name: values[name] for name in kind.model_fields.keys() & values.keys() - {"event"}}
            for kind in (Question, Answered)
        )
        return Question.model_construct(**question), Answered.model_construct(**answered)


#: Maximum length of a line, bytes; a typical question has a few thousand.
_LONGEST = 2**26


class Left(_Line):
    """A driver has disconnected."""

    event: Literal["left"] = "left"
    driver: int
    time_ms: float


class Refused(_Line):
    """A connection was refused."""

    event: Literal["refused"] = "refused"
    reason: str
    time_ms: float


Line = Started | Welcomed | Question | Answered | Left | Refused
_LINE: TypeAdapter[Line | _Asked] = TypeAdapter(Annotated[Line | _Asked, Field(discriminator="event")])


class DecisionLog(Watcher):
    """Writes the live log.

    Args:
        path: log file; an existing log is continued.
        policy: name of the policy, for display.
        shadow: whether drivers ignore the answers.

    Raises:
        ServeError: the file cannot be written or is not a live log.
    """

    def __init__(self, path: Path, policy: str, shadow: bool = False) -> None:
        self._path = path
        self._last: dict[int, tuple[tuple[ExecutorMessage, ...], dict[str, JobMessage]]] = {}
        self._predicted: dict[int, dict[str, tuple[float, float, float]]] = {}
        cut = _is_cut(path)
        try:
            # Without blocking, opening a pipe that no process reads fails at once.
            handle = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o666
            )
            os.set_blocking(handle, True)
            # Line buffering: each line is written at once.
            self._file: TextIO | None = os.fdopen(handle, "a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise ServeError(f"cannot write {path}: {error.strerror}") from None
        if cut:
            self._file.write("\n")
        self.write(Started(policy=one_line(policy), shadow=shadow, time_ms=_now_ms()))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def welcomed(self, driver: Connected) -> None:
        """Write that a driver has connected."""
        self._last[driver.number], self._predicted[driver.number] = ((), {}), {}
        about = {name: getattr(driver.hello, name) for name in ("application", "name", "spark")}
        self.write(Welcomed(driver=driver.number, **about, time_ms=_now_ms()))

    def asked(self, driver: Connected) -> None:
        """Write a driver's question."""
        state = driver.state
        assert state is not None
        executors, jobs = self._last[driver.number]
        now = {job.id: job for job in state.jobs}
        self._last[driver.number] = (state.executors, now)
        self.write(
            Question.model_construct(
                driver=driver.number,
                seq=state.seq,
                time_ms=state.time_ms,
                move_ms=state.move_ms,
                executors=None if executors == state.executors else state.executors,
                jobs=tuple(job for job in state.jobs if jobs.get(job.id) != job),
                gone=tuple(sorted(jobs.keys() - now)),
            )
        )

    def answered(self, driver: Connected) -> None:
        """Write the decisions and the answer for a driver's last question."""
        decided = driver.decided
        assert decided is not None
        ids = [job.message.id for job in decided.jobs]
        before = self._predicted[driver.number]
        predicted = {job.message.id: job.predicted_ms for job in decided.jobs if job.predicted_ms is not None}
        self._predicted[driver.number] = predicted
        self.write(
            Answered.model_construct(
                driver=driver.number,
                choices=tuple(
                    Chosen.model_construct(
                        job=ids[choice.job],
                        stage=decided.jobs[choice.job].ids[choice.stage],
                        limit=choice.limit,
                        executors=choice.executors,
                        source=ids[choice.source] if choice.source >= 0 else None,
                        probability=choice.probability if math.isfinite(choice.probability) else None,
                    )
                    for choice in decided.choices
                ),
                answer=decided.answer,
                took_ms=round(driver.took_ms, 3),
                policy_ms=round(decided.policy_ms, 3),
                failure=decided.failure or None,
                estimates=tuple(
                    Estimated.model_construct(job=job, work_ms=work_ms, low_ms=low_ms, high_ms=high_ms)
                    for job, (work_ms, low_ms, high_ms) in predicted.items()
                    if before.get(job) != predicted[job]
                )
                or None,
            )
        )

    def left(self, driver: Connected) -> None:
        """Write that a driver has disconnected."""
        del self._last[driver.number], self._predicted[driver.number]
        self.write(Left(driver=driver.number, time_ms=_now_ms()))

    def refused(self, reason: str) -> None:
        """Write that a connection was refused."""
        self.write(Refused(reason=reason, time_ms=_now_ms()))

    def write(self, line: Line) -> None:
        """Write one line immediately. A full disk ends the log, not the service."""
        if self._file is None:
            return
        try:
            self._file.write(line.model_dump_json(exclude_none=True) + "\n")
        except OSError as error:
            logging.getLogger("decima.service").error("the log %s ends here: %s", self._path, error.strerror)
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()


def read_log(path: Path) -> Iterator[Line]:
    """Read the lines of a live log. Incomplete lines, left by a service that was killed, are skipped.

    Raises:
        LogError: the file is not a live log, or a line is malformed.
    """
    wrong, ended = "", True
    try:
        opened = open_regular(path)
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}, expected a log of decima serve") from None
    with opened as file:
        for line_number, text in enumerate(iter(partial(file.readline, _LONGEST), b""), start=1):
            ended = text.endswith(b"\n")
            try:
                line = _LINE.validate_json(text)
            except ValidationError as error:
                if wrong or line_number == 1:
                    raise LogError(wrong or f"{path}: line 1: {_NO_LOG}") from None
                wrong = f"{path}: line {line_number}: {first_error(error)}"
                continue
            if not isinstance(line, Started) and (wrong or line_number == 1):
                raise LogError(wrong or f"{path}: line 1: {_NO_LOG}")
            wrong = ""
            if isinstance(line, _Asked):
                yield from line.lines()
            else:
                yield line
    if wrong and ended:
        raise LogError(wrong)


def _is_cut(path: Path) -> bool:
    """Return whether the last line of a log is incomplete.

    Raises:
        ServeError: the file is not a live log.
    """
    try:
        if not path.is_file():
            return False
        with open_regular(path) as file:
            if not (first := file.readline(_LONGEST)):
                return False
            Started.model_validate_json(first)
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    except OSError as error:
        raise ServeError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError:
        raise ServeError(f"{path}: {_NO_LOG}; the file is left unchanged") from None


_NO_LOG = "not a log of decima serve of version 1 to 3"


def _now_ms() -> float:
    return round(time.time() * 1000)
