"""Answer drivers in a separate process, so that page, metrics and log never delay an answer.

The calling process starts the answering process, restarts it after a crash, and passes its events to watchers.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from decima.service.errors import ServeError
from decima.service.relay import Relay, RelayHandler, Repeater, received
from decima.service.running import logging_to, warm_up
from decima.service.server import listen
from decima.service.service import Service, Watcher
from decima.service.tls import load_certificate
from decima.workers.processes import children_ignore
from simulator.cluster.episode import DecidesStages
from workloads.errors import DecimaError

__all__ = ["Setup", "run"]

#: Time limit for the end of the answering process, s; it is killed after this time.
END_S = 3.0
_SPAWN = multiprocessing.get_context("spawn")

log = logging.getLogger("decima.service")


@dataclass(frozen=True)
class Setup:
    """Picklable parameters of the answering process.

    Attributes:
        make_service: returns the service; its argument `watchers` are receivers of events.
        make_scheduler: returns a scheduler as in the service, for the compilation of its code.
        address: see ``listen``.
        host: see ``listen``.
        certificate: files of certificate and key; None: connections are not encrypted.
    """

    make_service: Callable[..., Service]
    make_scheduler: Callable[[], DecidesStages]
    address: str
    host: str
    certificate: tuple[Path, Path] | None = None


async def run(
    setup: Setup,
    ready: Callable[[str], None],
    watchers: Sequence[Watcher] = (),
    beside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        setup: parameters of the answering process.
        ready: called with the address for drivers.
        watchers: receivers of the service's events, in this process.
        beside: returns a context manager that serves the page.

    Raises:
        ServeError: an address is in use or invalid, or the scheduler cannot decide.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    _schedule("SCHED_BATCH")  # an event that this process receives never interrupts the answering process
    repeater, where = Repeater(watchers), ""
    async with beside():
        stopped = loop.create_task(ended.wait())
        while True:
            process, stream = await _start(setup, where)
            following = loop.create_task(_follow(stream, repeater, None if where else ready))
            try:
                await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    process.terminate()
                    await asyncio.wait({following}, timeout=END_S)
                await asyncio.to_thread(process.join, END_S)
            finally:
                process.kill()
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
    stream: asyncio.StreamReader, repeater: Repeater, ready: Callable[[str], None] | None
) -> str:
    """Repeat the events of the answering process until it ends; return its address, empty if it was never ready."""
    where = ""
    async for kind, *content in received(stream):
        if kind == "failed":
            raise ServeError(*content)
        if kind == "ready":
            (where,) = content
            if ready is not None:
                ready(where)
        else:
            repeater.repeat(kind, *content)
    repeater.end()
    return where


async def _start(
    setup: Setup, where: str
) -> tuple[multiprocessing.process.BaseProcess, asyncio.StreamReader]:
    """Start the answering process, at the address of an earlier one if there was one."""
    ours, theirs = socket.socketpair()
    address = where if where.startswith("unix:") else where.rpartition(":")[2]
    process = _SPAWN.Process(target=_answer, args=(setup, address or setup.address, theirs), daemon=True)
    try:
        with children_ignore(signal.SIGINT):
            process.start()
    finally:
        theirs.close()
    stream = asyncio.StreamReader()
    await asyncio.get_running_loop().create_connection(
        lambda: asyncio.StreamReaderProtocol(stream), sock=ours
    )
    return process, stream


def _answer(setup: Setup, address: str, channel: socket.socket) -> None:
    """Run the answering process."""
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


class _Channel(asyncio.Protocol):
    """The stream to the first process; the service ends when it is closed."""

    def __init__(self, ended: asyncio.Event, closed: asyncio.Event) -> None:
        self._ended, self._closed = ended, closed

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()
        self._closed.set()


async def _serve(setup: Setup, address: str, channel: socket.socket) -> None:
    loop, ended, closed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    stream, _ = await loop.create_connection(lambda: _Channel(ended, closed), sock=channel)
    relay = Relay(stream)
    with logging_to(RelayHandler(relay)):
        try:
            warm_up(setup.make_scheduler)
            tls = None if setup.certificate is None else load_certificate(*setup.certificate)
            # Exempt imported and compiled objects from garbage collection, which would delay an answer.
            gc.collect()
            gc.freeze()
            async with listen(setup.make_service(watchers=[relay]), address, setup.host, tls) as where:
                relay.send("ready", where)
                await ended.wait()
                log.info("ending")
        except DecimaError as error:
            relay.send("failed", str(error))
        finally:
            stream.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), END_S)
