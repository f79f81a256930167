"""Run the service as a process: token, logging, warm-up, sockets and shutdown.

Drivers send the token of a file that only its owner can read. The Spark plugin has the same default file:
``.decima/token`` in ``$HOME``, or in the user's home directory without ``$HOME``. Service and plugin refuse a default
file that belongs to another user, which may occur under sudo if it keeps ``$HOME``.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from decima.service.driver import Driver
from decima.service.errors import ServeError
from decima.service.history import History
from decima.service.protocol import Executor, Job, Stage, State
from simulator.cluster.episode import DecidesStages
from workloads.reading import open_regular

__all__ = ["DEFAULT_TOKEN_FILE", "JsonLines", "logging_to", "logging_to_stderr", "read_token", "warm_up"]

DEFAULT_TOKEN_FILE = Path("~/.decima/token")
#: Maximum length of a token, characters.
MOST_CHARACTERS = 256
#: Attributes of each ``logging`` record; other attributes are the caller's data.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def read_token(path: Path) -> str:
    """Return the token of a file. A missing file is created with a random token.

    Raises:
        ServeError: the file cannot be read or created, other users can read it, it contains no token, or it is the
            default file and belongs to another user.
    """
    default = path == DEFAULT_TOKEN_FILE
    path = path.expanduser()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            if default and found.st_uid != os.geteuid():
                raise ServeError(
                    f"{path}: this token file belongs to another user; check HOME or choose a file with --token-file"
                )
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise ServeError(f"{path}: other users can read this token file: chmod 600 it")
            token = file.read(MOST_CHARACTERS + 2).strip()
    except UnicodeDecodeError:
        token = ""
    except OSError as error:
        if isinstance(error, ServeError):
            raise
        raise ServeError(f"{path}: this token file cannot be read or created: {error.strerror}") from None
    if not token or len(token) > MOST_CHARACTERS or not token.isprintable():
        raise ServeError(f"{path}: expected a token of 1 to {MOST_CHARACTERS} characters in one line")
    return token


class JsonLines(logging.Formatter):
    """Formats log records as JSON: time, level, message and the caller's data."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON object in one line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        elif record.exc_text:  # of another process
            line["error"] = record.exc_text
        return json.dumps(line, default=str)


def logging_to_stderr(json_lines: bool) -> AbstractContextManager[None]:
    """Write the service's log to stderr inside the block: a line of text or a JSON object for each record."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if json_lines else text)
    return logging_to(handler)


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """Pass the service's log to a handler inside the block."""
    logger = logging.getLogger("decima.service")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def warm_up(make_scheduler: Callable[[], DecidesStages]) -> None:
    """Decide an artificial question, so that all code is compiled before the first driver asks.

    Raises:
        SchedulingError: the scheduler made an invalid decision.
    """
    stages = (
        Stage(id=0, state="ready", tasks=9, done=1, running=1, pending=7, mean_ms=100.0),
        Stage(id=1, state="waiting", tasks=2, done=0, running=0, pending=2, parents=(0,)),
    )
    jobs = tuple(
        Job(id=str(number), submitted_time_ms=number * 1e4, running=1, stages=stages) for number in range(2)
    )
    executors = tuple(Executor(id=str(number), slots=1, running=number % 2, job="0") for number in range(4))
    state = State(type="state", seq=0, time_ms=1e5, executors=executors, jobs=jobs)
    Driver(make_scheduler(), History(), itertools.count(), itertools.count()).decide(state)
