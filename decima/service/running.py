"""The service as a process: everything that listens, from the first line to a clean end."""

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

#: What every record of ``logging`` has; whatever else one has was said with it.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A JSON object for each line of the log: when, how bad, what, and what was said with it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
    """What the service tells inside the block goes to stderr: a line of text each, or a JSON object."""
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
    """Have everything compiled before the first driver asks, and see that the scheduler can decide at all.

    Raises:
        SchedulingError: it cannot.
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
        host: likewise.
        ready: is told where drivers are served, once they are.
        beside: what else is to be served.

    Raises:
        ServeError: an address is in use, or is none.
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
