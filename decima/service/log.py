"""Live log of the service: questions of drivers, decisions and answers, as JSON lines in one file.

The first line of each file and of each service run names the policy. A question is written before it is decided, so
that after a crash the log contains the question that caused it. The line of a question contains only changes since the
driver's last question; the driver's next line contains the decisions and the answer. ``decima.service.replay`` reads
the log.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from decima.service.jobs import Prediction
from decima.service.protocol import Answer, ExecutorMessage, JobMessage, Missed
from decima.service.service import Connected, ServeError, Watcher, first_error, one_line
from workloads.errors import DecimaError
from workloads.reading import open_regular

__all__ = [
    "Answered", "DecisionLog", "Estimated", "Left", "Line", "LogError", "Question", "Refused", "Skipped",
    "Started", "Welcomed", "read_log",
]  # fmt: skip


log = logging.getLogger("decima.service")


class LogError(DecimaError, ValueError):
    """A log is unreadable. The message is one line that names file and line."""


#: A list is validated up to its first error: a line could otherwise have millions of errors.
_UP_TO_FIRST = Field(fail_fast=True)


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Started(_Line):
    """A service has started, or its log begins again: the first line of each file, and the first one after a loss.

    Attributes:
        shadow: whether drivers ignore the answers.
        time_ms: time of the line, ms since 1970.
        lost: number of lines since the line before that could not be written; null for none.
    """

    event: Literal["started"] = "started"
    format: Literal["decima-service-log"] = "decima-service-log"
    version: Literal[1, 2, 3, 4, 5] = 5
    policy: str
    shadow: bool
    time_ms: float
    lost: int | None = None


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
        missed: what the driver has missed; null before version 4, or if the driver does not report it.
    """

    event: Literal["question"] = "question"
    driver: int
    seq: int | None = None
    time_ms: float
    move_ms: float | None = None
    executors: Annotated[tuple[ExecutorMessage, ...], _UP_TO_FIRST] | None = None
    jobs: Annotated[tuple[JobMessage, ...], _UP_TO_FIRST] = ()
    gone: Annotated[tuple[str, ...], _UP_TO_FIRST] = ()
    missed: Missed | None = None


class Estimated(_Line):
    """Estimated work (executor time) of a job without history, before any task has finished.

    Attributes:
        source: ``plan`` if operators or sizes of inputs of its stages are known besides its DAG; null before version 5.
        work_ms: median of the work, ms.
        low_ms, high_ms: ends of the interval that contains the work with a probability of 50 %, ms.
    """

    job: str
    source: Literal["DAG", "plan"] | None = None
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


class Skipped(_Line):
    """A question was answered with Spark's own order, because its decision would have delayed other drivers.

    Attributes:
        driver: number of the connection.
        seq: number of the question, which is not in the log.
    """

    event: Literal["skipped"] = "skipped"
    driver: int
    seq: int
    reason: str
    time_ms: float


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


Line = Started | Welcomed | Question | Answered | Skipped | Left | Refused
_LINE: TypeAdapter[Line | _Asked] = TypeAdapter(Annotated[Line | _Asked, Field(discriminator="event")])


class DecisionLog(Watcher):
    """Writes the live log.

    A file begins with the whole state, as does the log after lost lines: a line ``started``, a line ``welcomed`` for
    each connected driver, and all executors and jobs in the next question of each driver.

    Args:
        path: log file; an existing log is continued. A file that does not begin like a log is renamed first.
        policy: name of the policy, for display.
        shadow: whether drivers ignore the answers.
        max_bytes: size from which the file is renamed and a new one begins, bytes; None: no limit.
        daily: whether the file is renamed and a new one begins on each day of local time.

    Attributes:
        lost_lines: number of lines that could not be written.
        is_ok: whether the last line was written.

    Raises:
        ServeError: the file cannot be written.
    """

    def __init__(
        self, path: Path, policy: str, shadow: bool = False, max_bytes: int | None = None, daily: bool = False
    ) -> None:
        self._path, self._policy, self._shadow = path, one_line(policy), shadow
        self._max_bytes, self._daily = max_bytes, daily
        self.lost_lines, self.is_ok = 0, True
        self._lost_since_written = 0
        self._drivers: dict[int, Welcomed] = {}
        #: Executors and jobs of each driver's last question in the log; missing: the next question is whole.
        self._last: dict[int, tuple[tuple[ExecutorMessage, ...], dict[str, JobMessage]]] = {}
        self._predictions: dict[int, dict[str, Prediction]] = {}
        self._handle: int | None = None
        self._size = 0
        self._is_cut = self._has_begun = False
        self._awaits_answer = self._must_reopen = False
        self._open()

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def reopen(self) -> None:
        """Open the file again, since another program may have renamed it. The new file begins with the whole state.

        A question and its answer stay in one file.
        """
        self._must_reopen = True
        if not self._awaits_answer:
            self._reopen_if_due()

    def welcomed(self, driver: Connected) -> None:
        """Write that a driver has connected."""
        about = {name: getattr(driver.hello, name) for name in ("application", "name", "spark")}
        line = Welcomed(driver=driver.number, **about, time_ms=_now_ms())
        self.write(line)
        self._drivers[driver.number] = line

    def asked(self, driver: Connected) -> None:
        """Write a driver's question."""
        state = driver.state
        assert state is not None
        self._reopen_if_due()
        self._rotate_if_due()
        self._begin_again_if_truncated()
        self._awaits_answer = True
        executors, jobs = self._last.get(driver.number, ((), {}))
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
                missed=state.missed,
            )
        )

    def answered(self, driver: Connected) -> None:
        """Write the decisions and the answer for a driver's last question."""
        decided = driver.decided
        assert decided is not None
        self._awaits_answer = False
        self._begin_again_if_truncated()
        if driver.number not in self._last:  # the question is lost, so that its answer has no meaning
            self._lose(1)
            return
        ids = [job.message.id for job in decided.jobs]
        before = self._predictions.get(driver.number, {})
        predictions = {job.message.id: job.prediction for job in decided.jobs if job.prediction is not None}
        self._predictions[driver.number] = predictions
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
                    Estimated.model_construct(job=job, **prediction._asdict())
                    for job, prediction in predictions.items()
                    if before.get(job) != prediction
                )
                or None,
            )
        )
        self._reopen_if_due()

    def skipped(self, driver: Connected, reason: str) -> None:
        """Write that a question was not decided."""
        self.write(Skipped(driver=driver.number, seq=driver.seq, reason=reason, time_ms=_now_ms()))

    def left(self, driver: Connected) -> None:
        """Write that a driver has disconnected."""
        self.write(Left(driver=driver.number, time_ms=_now_ms()))
        for by_driver in (self._drivers, self._last, self._predictions):
            by_driver.pop(driver.number, None)
        self._awaits_answer = False
        self._reopen_if_due()

    def refused(self, reason: str) -> None:
        """Write that a connection was refused."""
        self.write(Refused(reason=reason, time_ms=_now_ms()))

    def write(self, *lines: Line) -> None:
        """Write lines immediately, after the whole state where it is missing.

        While the disk is full, lines are lost and counted, and each call tries again. The service continues.
        """
        if self._handle is None:
            return
        self._begin_again_if_truncated()
        text = "".join(
            line.model_dump_json(exclude_none=True) + "\n" for line in (*self._beginning(), *lines)
        )
        data = memoryview((b"\n" if self._is_cut else b"") + text.encode())
        size = self._size
        try:
            while data:
                count = os.write(self._handle, data)
                size, data = size + count, data[count:]
        except OSError as error:
            with suppress(OSError):  # not a regular file
                os.ftruncate(self._handle, self._size)  # a part of a line would make the file unreadable
            if self.is_ok:
                log.error(
                    "cannot write %s, lines are lost until it can be written: %s", self._path, error.strerror
                )
            self._begin_again()
            self._lose(len(lines))
            self.is_ok = False
            return
        if not self.is_ok:
            log.warning("%s is written again, %d lines are lost", self._path, self._lost_since_written)
        self._size, self._has_begun, self._is_cut = size, True, False
        self._lost_since_written, self.is_ok = 0, True

    def _open(self) -> None:
        """Open the file, close the one that was open, and write the whole state.

        Raises:
            ServeError: the file cannot be read, renamed or written.
        """
        condition = _condition_of(self._path)
        try:
            if condition == "foreign":
                kept = _rename(self._path, "unreadable")
                log.warning("%s does not begin like a log of decima serve: kept as %s", self._path, kept)
            path = self._path
            # Without blocking, opening a pipe that no process reads fails at once.
            handle = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o600
            )
            os.set_blocking(handle, True)
        except OSError as error:
            raise ServeError(f"cannot write {self._path}: {error.strerror}") from None
        self.close()
        self._handle = handle
        status = os.fstat(handle)
        self._is_regular = stat.S_ISREG(status.st_mode)
        self._size = status.st_size
        self._day = time.localtime()[:3]
        self._is_cut = condition == "cut"
        self._begin_again()
        self.write()

    def _beginning(self) -> tuple[Line, ...]:
        """Return the lines that must precede the next line: the state of the service, if the file lacks it."""
        if self._has_begun:
            return ()
        lost = self._lost_since_written or None
        started = Started(policy=self._policy, shadow=self._shadow, time_ms=_now_ms(), lost=lost)
        return started, *self._drivers.values()

    def _begin_again(self) -> None:
        """Write the whole state with the next lines."""
        self._has_begun = False
        self._last.clear()
        self._predictions.clear()

    def _begin_again_if_truncated(self) -> None:
        if self._handle is not None and self._is_regular:
            size = os.fstat(self._handle).st_size
            if size < self._size:
                self._size = size
                self._begin_again()

    def _reopen_if_due(self) -> None:
        if self._handle is None or not self._must_reopen:
            return
        self._must_reopen = False
        try:
            self._open()
        except ServeError as error:
            log.error("%s; the log continues in the file that is open", error)

    def _rotate_if_due(self) -> None:
        """Rename the file and open a new one, if the file is large enough or of an earlier day."""
        is_large = self._max_bytes is not None and self._size >= self._max_bytes
        is_old = self._daily and time.localtime()[:3] != self._day
        if self._handle is None or not self._is_regular or not (is_large or is_old):
            return
        try:
            _rename(self._path)
            self._open()
        except OSError as error:
            self._max_bytes, self._daily = None, False
            log.error("%s is not rotated any more: %s", self._path, error.strerror or error)

    def _lose(self, count: int) -> None:
        self.lost_lines += count
        self._lost_since_written += count


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


def _condition_of(path: Path) -> Literal["continuable", "cut", "foreign"]:
    """Return whether lines can be appended to a file.

    Returns:
        "continuable" for a log, and for a missing, empty or special file; "cut" for a log whose last line is
        incomplete; "foreign" for a file that does not begin like a log.

    Raises:
        ServeError: the file cannot be read.
    """
    try:
        if not path.is_file():
            return "continuable"
        with open_regular(path) as file:
            if not (first := file.readline(_LONGEST)):
                return "continuable"
            Started.model_validate_json(first)
            file.seek(-1, os.SEEK_END)
            return "continuable" if file.read() == b"\n" else "cut"
    except OSError as error:
        raise ServeError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError:
        return "foreign"


def _rename(path: Path, suffix: str = "") -> Path:
    """Add the local time and a suffix to a file's name, and a number if the name is taken. Return the new path."""
    name = f"{path.name}.{time.strftime('%Y-%m-%dT%H-%M-%S')}"
    for count in itertools.count():
        parts = (name, *([str(count)] if count else ()), *([suffix] if suffix else ()))
        renamed = path.with_name(".".join(parts))
        if not renamed.exists():
            return path.rename(renamed)
    raise AssertionError("unreachable")


_NO_LOG = "not a log of decima serve of version 1 to 5"


def _now_ms() -> float:
    return round(time.time() * 1000)
