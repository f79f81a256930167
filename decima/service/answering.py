"""Answer drivers in a separate process, so that page, metrics and log never delay an answer.

The calling process starts the answering process, restarts it after a crash, and passes its events to watchers. Events
and log records are sent to the watchers and handlers over a stream of pickles.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import itertools
import logging
import math
import multiprocessing
import os
import pickle
import signal
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from decima.service.inputs import Inputs
from decima.service.jobs import LiveJob, Prediction, estimated_profile
from decima.service.protocol import JobMessage, StateMessage
from decima.service.server import listen, logging_to, warm_up
from decima.service.service import Connected, ServeError, Service, Watcher, notify, one_line
from decima.workers.signals import children_ignore
from workloads.errors import DecimaError

__all__ = ["Probe", "Relay", "RelayHandler", "Reload", "Repeater", "Setup", "received", "run"]

#: Minimum number of unread bytes at which questions and answers are omitted.
MOST_UNREAD = 64 << 20
_SIZE = struct.Struct("!I")

log = logging.getLogger("decima.service")


def _packed(kind: str, *content: object) -> bytes:
    data = pickle.dumps((kind, *content))
    return _SIZE.pack(len(data)) + data


class Relay(Watcher):
    """Sends events to another process, without waiting for the process."""

    def __init__(self, stream: asyncio.WriteTransport) -> None:
        self._stream = stream
        self._omitted: set[int] = set()
        self._warned = False

    def send(self, kind: str, *content: object) -> None:
        """Send an event."""
        self._stream.write(_packed(kind, *content))

    def welcomed(self, driver: Connected) -> None:
        """Send the first message of a driver, without its token, and the driver's tenant."""
        self.send("welcomed", driver.number, driver.hello.model_copy(update={"token": ""}), driver.tenant)

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

    def skipped(self, driver: Connected, reason: str) -> None:
        """Send that a question was not decided."""
        self.send("skipped", driver.number, driver.seq, driver.skipped, reason)

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


#: Time limit for the decision of a probe, and time in which further probes get the same result, s.
PROBE_S = 1.0
#: Results of a probe; other results are reasons why drivers get no decisions.
OK, STARTING = "ok", "starting"


class Probe:
    """Checks that the answering process decides questions. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ask: Callable[[], object] | None = None
        self._count, self._result, self._decided_s = 0, STARTING, -math.inf

    def connect(self, ask: Callable[[], object] | None) -> None:
        """Set the function that makes the answering process decide; None: the process is being started."""
        with self._changed:
            self._ask, self._decided_s = ask, -math.inf

    def decided(self, failure: str) -> None:
        """Receive that the process has decided; ``failure``: reason why the policy failed, or empty."""
        with self._changed:
            self._count += 1
            self._result, self._decided_s = failure or OK, time.monotonic()
            self._changed.notify_all()

    def check(self, timeout_s: float = PROBE_S) -> str:
        """Return the result of a decision that is at most ``PROBE_S`` old: ``OK``, ``STARTING`` or a reason."""
        with self._changed:
            if self._ask is None:
                return STARTING
            if time.monotonic() - self._decided_s > PROBE_S:
                count = self._count
                self._ask()
                if not self._changed.wait_for(lambda: self._count > count, timeout_s):
                    return f"no decision within {timeout_s:g} s"
            return self._result


class Repeater:
    """Passes received events to watchers. Drivers get new numbers, since the other process may have been restarted."""

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
            number, hello, tenant = content
            driver = self._drivers[number] = Connected(next(self._numbers), hello, tenant=tenant)
            notify(self._watchers, lambda watcher: watcher.welcomed(driver))
        elif kind == "asked":
            number, line = content
            driver = self._drivers[number]
            driver.state = StateMessage.model_validate_json(line, extra="ignore")
            notify(self._watchers, lambda watcher: watcher.asked(driver))
        elif kind == "answered":
            number, decided, jobs, took_ms, failures = content
            driver = self._drivers[number]
            assert driver.state is not None
            messages = {job.id: job for job in driver.state.jobs}
            driver.decided = replace(decided, jobs=[_unpack(messages, *job) for job in jobs])
            driver.took_ms, driver.failures = took_ms, failures
            notify(self._watchers, lambda watcher: watcher.answered(driver))
        elif kind == "skipped":
            number, seq, skipped, reason = content
            driver = self._drivers[number]
            driver.seq, driver.skipped = seq, skipped
            notify(self._watchers, lambda watcher: watcher.skipped(driver, reason))
        elif kind == "left":
            gone = self._drivers.pop(*content)
            notify(self._watchers, lambda watcher: watcher.left(gone))

    def end(self) -> None:
        """Report that all drivers have disconnected."""
        for driver in tuple(self._drivers):
            self.repeat("left", driver)


def _pack(job: LiveJob) -> tuple[object, ...]:
    """Return the attributes of a live job that watchers need, without estimates, which are large."""
    return (
        *(job.message.id, job.number, job.arrival_ms, job.recognised, job.prediction, job.profile.parents),
        job.ids,
        *(job.tasks, job.pending, job.running, job.done, job.ready, job.complete),
    )


def _unpack(
    messages: dict[str, JobMessage],
    identifier: str,
    number: int,
    arrival_ms: float,
    recognised: bool,
    prediction: Prediction | None,
    parents: tuple[tuple[int, ...], ...],
    ids: list[int | None],
    *lists: list[Any],
) -> LiveJob:
    edges = tuple((parent, stage) for stage, of_stage in enumerate(parents) for parent in of_stage)
    profile = estimated_profile((1,) * len(parents), edges)
    job = LiveJob(messages[identifier], number, arrival_ms, profile, recognised, ids, prediction=prediction)
    job.tasks, job.pending, job.running, job.done, job.ready, job.complete = lists
    return job


#: Time limit for the end of the answering process, s; it is killed after this time.
END_S = 10.0
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Setup:
    """Picklable parameters of the answering process.

    Attributes:
        make_service: returns the service; its arguments are ``inputs.make_scheduler``, and by name `token`, `tokens`,
            `tenants` and `watchers`, receivers of events.
        inputs: policy, tokens, tenants and certificate.
        address: see ``listen``.
        host: see ``listen``.
    """

    make_service: Callable[..., Service]
    inputs: Inputs
    address: str
    host: str


class Reload:
    """Replaces policy, tenants, tokens and certificate of the answering process, which first tries the new policy.

    Args:
        read: reads the files again.
        ended: called with the new inputs when they are in use, or with None and the reason when the earlier ones stay.
    """

    def __init__(self, read: Callable[[], Inputs], ended: Callable[[Inputs | None, str], None]) -> None:
        self._read, self._ended = read, ended
        self._tried: Inputs | None = None

    async def begin(self, channel: asyncio.WriteTransport) -> None:
        """Read the files and send them to the answering process."""
        try:
            self._tried = await asyncio.to_thread(self._read)
            channel.write(_packed("reload", self._tried))
        except DecimaError as error:
            self.end(str(error))

    def end(self, failure: str) -> Inputs | None:
        """Receive the result of the answering process; return the new inputs, None after a failure or without any."""
        tried, self._tried = self._tried, None
        if failure:
            log.error(
                "nothing is reloaded, policy, tenants, tokens and certificate stay as they were: %s", failure
            )
            self._ended(None, failure)
            return None
        if tried is not None:
            log.info(
                "reloaded policy, tenants, tokens and certificate; SHA-256 of the policy: %s",
                tried.policy_sha256 or "-",
            )
            self._ended(tried, "")
        return tried

    def abort(self) -> None:
        """The answering process has ended."""
        if self._tried is not None:
            self.end("the process that answers drivers ended")


async def run(
    setup: Setup,
    ready: Callable[[str], None],
    watchers: Sequence[Watcher] = (),
    beside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    probe: Probe | None = None,
    reload: Reload | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. At SIGHUP watchers open their files again, at SIGUSR1 ``reload`` begins.

    Args:
        ready: called with the address for drivers.
        watchers: receivers of the service's events, in this process.
        beside: returns a context manager that serves the page.
        probe: is connected to the answering process.
        reload: reads policy, tenants, tokens and certificate again.

    Raises:
        ServeError: an address is in use or invalid, or the scheduler cannot decide.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, ended.set)
    if hasattr(signal, "SIGHUP"):  # not on Windows
        loop.add_signal_handler(signal.SIGHUP, notify, watchers, lambda watcher: watcher.reopen())
    _schedule("SCHED_BATCH")  # an event that this process receives never interrupts the answering process
    repeater, where = Repeater(watchers), ""
    probe = probe or Probe()
    async with beside():
        stopped = loop.create_task(ended.wait())
        while True:
            process, stream, channel = await _start(setup, where)
            ask = partial(loop.call_soon_threadsafe, channel.write, _packed("probe"))

            def reloaded(failure: str) -> None:
                nonlocal setup
                assert reload is not None
                if (inputs := reload.end(failure)) is not None:
                    setup = replace(setup, inputs=inputs)  # also for a process that is started again

            if reload is not None and hasattr(signal, "SIGUSR1"):  # not on Windows
                loop.add_signal_handler(signal.SIGUSR1, _start_task, partial(reload.begin, channel))
            following = loop.create_task(
                _follow(stream, repeater, probe, ask, None if where else ready, reloaded)
            )
            try:
                await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    process.terminate()
                    await asyncio.wait({following}, timeout=END_S)
                await asyncio.to_thread(process.join, END_S)
            finally:
                probe.connect(None)
                process.kill()
                if reload is not None:
                    reload.abort()
            where = await following
            process.join()
            if ended.is_set() or not process.exitcode:
                return
            status = process.exitcode
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            if not where:
                raise ServeError(f"the process that answers drivers ended before it was ready: {how}")
            log.warning("the process that answers drivers ended (%s) and is started again", how)


async def _follow(
    stream: asyncio.StreamReader,
    repeater: Repeater,
    probe: Probe,
    ask: Callable[[], object],
    ready: Callable[[str], None] | None,
    reloaded: Callable[[str], None],
) -> str:
    """Repeat the events of the answering process until it ends; return its address, empty if it was never ready."""
    where = ""
    async for kind, *content in received(stream):
        if kind == "failed":
            raise ServeError(*content)
        if kind == "ready":
            (where,) = content
            probe.connect(ask)
            if ready is not None:
                ready(where)
        elif kind == "probed":
            probe.decided(*content)
        elif kind == "reloaded":
            reloaded(*content)
        else:
            repeater.repeat(kind, *content)
    probe.connect(None)
    repeater.end()
    return where


async def _start(
    setup: Setup, where: str
) -> tuple[multiprocessing.process.BaseProcess, asyncio.StreamReader, asyncio.Transport]:
    """Start the answering process, at the address of an earlier one if there was one."""
    ours, theirs = socket.socketpair()
    address = where if where.startswith("unix:") else where.rpartition(":")[2]
    process = _SPAWN.Process(target=_answer, args=(setup, address or setup.address, theirs), daemon=True)
    try:
        others = [getattr(signal, name) for name in ("SIGHUP", "SIGUSR1") if hasattr(signal, name)]
        with children_ignore(signal.SIGINT, *others):
            process.start()
    finally:
        theirs.close()
    stream = asyncio.StreamReader()
    channel, _ = await asyncio.get_running_loop().create_connection(
        lambda: asyncio.StreamReaderProtocol(stream), sock=ours
    )
    return process, stream, channel


_tasks: set[asyncio.Task[None]] = set()


def _start_task(begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start a task and keep it until its end, since the event loop has only a weak reference."""
    task = asyncio.get_running_loop().create_task(begin())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _answer(setup: Setup, address: str, channel: socket.socket) -> None:
    with suppress(OSError):  # already a session's leader
        os.setsid()  # Linux divides the CPUs between sessions, then between the processes of a session
    _schedule("SCHED_OTHER")
    faulthandler.enable(sys.__stderr__ or 2)
    asyncio.run(_serve(setup, address, channel))


def _schedule(policy: str) -> None:
    """Set the policy by which Linux gives this process a CPU; other systems have none."""
    if hasattr(os, "sched_setscheduler"):
        with suppress(OSError):
            os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))


def _failure_of(decide: Callable[[], object]) -> str:
    """Decide and return the reason of a failure, in one line; empty without a failure."""
    try:
        decide()
    except BaseException as error:  # a custom scheduler may raise any exception, even SystemExit
        return one_line(f"the policy failed: {type(error).__name__}: {error}")
    return ""


async def _serve(setup: Setup, address: str, channel: socket.socket) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    reader, writer = await asyncio.open_connection(sock=channel)
    relay, inputs = Relay(writer.transport), setup.inputs
    with logging_to(RelayHandler(relay)):
        try:
            decide = warm_up(inputs.make_scheduler)
            tls = None
            if inputs.certificate is not None:
                from decima.service.credentials import load_certificate

                tls = load_certificate(*inputs.certificate)
            # Exempt imported and compiled objects from garbage collection, which would delay an answer.
            gc.collect()
            gc.freeze()
            service = setup.make_service(
                inputs.make_scheduler,
                token=inputs.token,
                tokens=inputs.tokens,
                tenants=inputs.tenants,
                watchers=[relay],
            )
            async with listen(service, address, setup.host, tls) as where:
                relay.send("ready", where)
                obeying = loop.create_task(_obey(reader, relay, service, tls, decide))
                obeying.add_done_callback(lambda _: ended.set())
                await ended.wait()
                log.info("ending")
                obeying.cancel()
        except DecimaError as error:
            relay.send("failed", str(error))
        finally:
            writer.close()
            with suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(writer.wait_closed(), END_S)


async def _obey(
    reader: asyncio.StreamReader,
    relay: Relay,
    service: Service,
    tls: ssl.SSLContext | None,
    decide: Callable[[], object],
) -> None:
    """Decide probes and reload inputs for the first process, until its end."""
    async for kind, *content in received(reader):
        if kind == "probe":
            relay.send("probed", _failure_of(decide))
            continue
        inputs: Inputs = content[0]
        failure = ""
        try:
            # In a thread, so that drivers get answers meanwhile.
            tried = await asyncio.to_thread(warm_up, inputs.make_scheduler)
            if tls is not None and inputs.certificate is not None:
                from decima.service.credentials import load_certificate

                load_certificate(
                    *inputs.certificate, tls
                )  # reads files, which may fail: before anything is replaced
            service.replace(inputs.make_scheduler, inputs.token, inputs.tokens, inputs.tenants)
            decide = tried
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a custom scheduler may raise any exception, even SystemExit
            failure = one_line(
                str(error) if isinstance(error, DecimaError) else f"{type(error).__name__}: {error}"
            )
        relay.send("reloaded", failure)
