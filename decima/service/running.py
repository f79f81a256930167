"""Run the service as a process: logging, warm-up, listening, and a clean end."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any

from decima.service.driver import Driver
from decima.service.history import History
from decima.service.protocol import Executor, Job, Stage, State
from decima.service.server import listen
from decima.service.service import Service
from simulator.cluster.episode import DecidesStages

__all__ = ["JsonLines", "logging_to_stderr", "run", "warm_up"]

#: Attributes of every ``logging`` record; further attributes are the record's own data.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a log record as a JSON object: time, level, message and the record's own data."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _USUAL},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def logging_to_stderr(json_lines: bool) -> Iterator[None]:
    """Write the service's log to stderr inside the block: a line of text or a JSON object for each record."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if json_lines else text)
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
    """Decide a first question, so that all code is compiled before the first driver asks.

    Raises:
        SchedulingError: the scheduler cannot decide it.
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


async def run(
    service: Service,
    address: str,
    host: str,
    ready: Callable[[str], None],
    beside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        service: answers drivers.
        address: see ``listen``.
        host: see ``listen``.
        ready: callback that receives the address for drivers.
        beside: context manager that serves page and metrics.

    Raises:
        ServeError: an address is in use or invalid.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    # Imported and compiled objects stay: no garbage collection shall visit them in the middle of an answer.
    gc.collect()
    gc.freeze()
    async with beside(), listen(service, address, host) as where:
        ready(where)
        await ended.wait()
        logging.getLogger("decima.service").info("ending")
