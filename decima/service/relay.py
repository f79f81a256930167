"""Pass events and log records of a service to watchers and handlers in another process, over a stream of pickles."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

from decima.service.jobs import LiveJob, estimated_profile
from decima.service.protocol import Hello, Job, State
from decima.service.service import Connected, Watcher, notify

__all__ = ["Relay", "RelayHandler", "Repeater", "received"]

#: Minimum number of unread bytes at which questions and answers are omitted.
MOST_UNREAD = 64 << 20
_SIZE = struct.Struct("!I")

log = logging.getLogger("decima.service")


class Relay(Watcher):
    """Sends events to another process, without waiting for the process.

    Args:
        stream: stream to the other process.
    """

    def __init__(self, stream: asyncio.WriteTransport) -> None:
        self._stream = stream
        self._omitted: set[int] = set()
        self._warned = False

    def send(self, kind: str, *content: object) -> None:
        """Send an event."""
        data = pickle.dumps((kind, *content))
        self._stream.write(_SIZE.pack(len(data)) + data)

    def welcomed(self, driver: Connected) -> None:
        """Send the first message of a driver, without its token."""
        self.send("welcomed", driver.number, driver.hello.model_copy(update={"token": ""}))

    def asked(self, driver: Connected) -> None:
        """Send the question. Omit it and its answer if the other process has too many unread bytes."""
        if self._stream.get_write_buffer_size() <= MOST_UNREAD:
            self.send("asked", driver.number, driver.line)
            return
        self._omitted.add(driver.number)
        if not self._warned:
            self._warned = True
            log.warning("page, metrics and log are too slow, some questions are missing there")

    def answered(self, driver: Connected) -> None:
        """Send the answer."""
        if driver.number in self._omitted:
            self._omitted.discard(driver.number)
            return
        assert driver.decided is not None
        jobs = [_pack(job) for job in driver.decided.jobs]
        decided = replace(driver.decided, jobs=())
        self.send("answered", driver.number, decided, jobs, driver.took_ms, driver.failures)

    def left(self, driver: Connected) -> None:
        """Send that a driver has disconnected."""
        self._omitted.discard(driver.number)
        self.send("left", driver.number)

    def refused(self, reason: str) -> None:
        """Send a refusal."""
        self.send("refused", reason)


class RelayHandler(logging.Handler):
    """Sends log records to another process, which writes them, so that a full pipe or disk delays no answer."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        sent = copy(record)
        sent.msg, sent.args = record.getMessage(), None
        if record.exc_info:
            sent.exc_text = logging.Formatter().formatException(record.exc_info)
        sent.exc_info = None  # tracebacks have no pickles
        self._relay.send("logged", sent)


async def received(stream: asyncio.StreamReader) -> AsyncIterator[tuple[Any, ...]]:
    """Yield the events of a relay until the stream ends. The other process must be trusted."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            (size,) = _SIZE.unpack(await stream.readexactly(_SIZE.size))
            yield pickle.loads(await stream.readexactly(size))


class Repeater:
    """Passes received events to watchers. Drivers get new numbers, since the other process may have been restarted.

    Args:
        watchers: receivers of events.
    """

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers
        self._drivers: dict[int, Connected] = {}
        self._numbers = itertools.count(1)

    def repeat(self, kind: str, *content: Any) -> None:
        """Pass on one event."""
        if kind == "logged":
            log.handle(*content)
        elif kind == "refused":
            notify(self._watchers, lambda watcher: watcher.refused(*content))
        elif kind == "welcomed":
            self._welcome(*content)
        elif kind == "asked":
            number, line = content
            driver = self._drivers[number]
            driver.state = State.model_validate_json(line)
            notify(self._watchers, lambda watcher: watcher.asked(driver))
        elif kind == "answered":
            number, decided, jobs, took_ms, failures = content
            driver = self._drivers[number]
            assert driver.state is not None
            messages = {job.id: job for job in driver.state.jobs}
            driver.decided = replace(decided, jobs=[_unpack(messages, *job) for job in jobs])
            driver.took_ms, driver.failures = took_ms, failures
            notify(self._watchers, lambda watcher: watcher.answered(driver))
        elif kind == "left":
            gone = self._drivers.pop(*content)
            notify(self._watchers, lambda watcher: watcher.left(gone))

    def _welcome(self, number: int, hello: Hello) -> None:
        driver = self._drivers[number] = Connected(next(self._numbers), hello)
        notify(self._watchers, lambda watcher: watcher.welcomed(driver))

    def end(self) -> None:
        """Report that all drivers have disconnected."""
        for number in tuple(self._drivers):
            self.repeat("left", number)


def _pack(job: LiveJob) -> tuple[object, ...]:
    """Return the attributes of a live job that watchers need, without estimates, which are large."""
    return (
        *(job.message.id, job.number, job.arrival_ms, job.recognised, job.profile.parents, job.ids),
        *(job.tasks, job.pending, job.running, job.done, job.ready, job.complete),
    )


def _unpack(
    messages: dict[str, Job],
    identifier: str,
    number: int,
    arrival_ms: float,
    recognised: bool,
    parents: tuple[tuple[int, ...], ...],
    ids: list[int | None],
    *lists: list[Any],
) -> LiveJob:
    edges = tuple((parent, stage) for stage, each in enumerate(parents) for parent in each)
    profile = estimated_profile((1,) * len(parents), edges)
    job = LiveJob(messages[identifier], number, arrival_ms, profile, recognised, ids)
    job.tasks, job.pending, job.running, job.done, job.ready, job.complete = lists
    return job
