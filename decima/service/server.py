"""Run the service as a process: token, logging, warm-up, sockets and shutdown.

Sockets carry newline-delimited JSON over TCP or a Unix socket, with limits that isolate connections.

Drivers send the token of a file that only its owner can read. The Spark plugin has the same default file:
``.decima/token`` in ``$HOME``, or in the user's home directory without ``$HOME``. Service and plugin refuse a default
file that belongs to another user, which may occur under sudo if it keeps ``$HOME``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import logging
import os
import secrets
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decima.service.history import History
from decima.service.protocol import (
    LONGEST_LINE,
    Answer,
    ExecutorMessage,
    JobMessage,
    Refusal,
    StageMessage,
    StateMessage,
    Welcome,
)
from decima.service.service import Connected, Driver, RefusedError, ServeError, Service, one_line
from workloads.reading import open_regular

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = [
    "DEFAULT_TOKEN_FILE", "JsonLines", "ServeError", "listen", "logging_to", "logging_to_stderr",
    "read_token", "warm_up",
]  # fmt: skip

DEFAULT_TOKEN_FILE = Path("~/.decima/token")
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
            status = os.fstat(file.fileno())
            if default and status.st_uid != os.geteuid():
                raise ServeError(
                    f"{path}: this token file belongs to another user; check HOME or choose a file with --token-file"
                )
            if stat.S_IMODE(status.st_mode) & 0o077:
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


def warm_up(make_scheduler: Callable[[], DecidesStages]) -> Callable[[], object]:
    """Decide an artificial question, so that all code is compiled before the first driver asks.

    Returns:
        Function that decides the question again, with the same scheduler.

    Raises:
        SchedulingError: the scheduler made an invalid decision.
    """
    stages = (
        StageMessage(id=0, state="ready", tasks=9, done=1, running=1, pending=7, mean_ms=100.0),
        StageMessage(id=1, state="waiting", tasks=2, done=0, running=0, pending=2, parents=(0,)),
    )
    jobs = tuple(
        JobMessage(id=str(index), submitted_time_ms=index * 1e4, running=1, stages=stages)
        for index in range(2)
    )
    executors = tuple(
        ExecutorMessage(id=str(index), slots=1, running=index % 2, job="0") for index in range(4)
    )
    state = StateMessage(type="state", seq=0, time_ms=1e5, executors=executors, jobs=jobs)
    driver = Driver(make_scheduler(), History(), itertools.count(), itertools.count())
    driver.decide(state)
    return partial(driver.decide, state)


#: Time limit for the rest of a line, and for the first line of a connection, s.
PATIENCE_S = 10.0
#: Time before a refused connection is closed, s; the driver reads the reason in this time.
REFUSAL_S = 1.0
#: Maximum number of unanswered questions of a connection, and of bytes of unread answers.
MOST_WAITING, MOST_UNREAD = 4, 1 << 20
MOST_CONNECTIONS = 1_000
#: First bytes of a TLS handshake.
_TLS = b"\x16\x03"

log = logging.getLogger("decima.service")


class _Connection(asyncio.Protocol):
    def __init__(self, service: Service, open_: set[_Connection]) -> None:
        self._service = service
        self._open = open_
        self._driver: Connected | None = None
        self._begun: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._peer = "?"
        self._closing = False
        self._early: list[bytes] | None = []  # with TLS, data may arrive with the end of the handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MOST_UNREAD)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else "a local process"
        self._open.add(self)
        if len(self._open) > MOST_CONNECTIONS:
            self._refuse(f"more than {MOST_CONNECTIONS} connections")
            return
        self._restart_timer()
        early, self._early = self._early or [], None
        for data in early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)
            return
        if self._closing:
            return
        if self._driver is None and not self._begun and data.startswith(_TLS):
            self._refuse("the driver uses TLS, but this port does not")
            return
        *ends, rest = data.split(b"\n")
        if len(ends) > MOST_WAITING:
            self._refuse(f"more than {MOST_WAITING} questions wait")
            return
        for end in ends:
            if self._size + len(end) >= LONGEST_LINE:
                break
            line = b"".join((*self._begun, end))
            self._begun, self._size = [], 0
            self._handle_line(line)
            if self._closing:
                return
        else:
            if rest:
                self._begun.append(rest)
                self._size += len(rest)
            if self._size < LONGEST_LINE:
                if ends or self._timer is None:
                    self._restart_timer()
                return
        self._refuse(f"a line of more than {LONGEST_LINE} bytes")

    def _restart_timer(self) -> None:
        """Start the time limit for the rest of a line or for the first message."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._size or self._driver is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PATIENCE_S, self._refuse, f"no whole line within {PATIENCE_S:g} s")

    def _handle_line(self, line: bytes) -> None:
        try:
            if self._driver is None:
                self._driver, welcome = self._service.welcome(line)
                log.info(
                    "%s connected", self._name, extra={"spark": self._driver.hello.spark, "peer": self._peer}
                )
                self._send(welcome)
            else:
                self._send(self._service.answer(self._driver, line))
                self._service.answered(self._driver)
        except RefusedError as error:
            self._refuse(str(error))

    def _send(self, message: Welcome | Answer | Refusal) -> None:
        self._transport.write(message.model_dump_json(exclude_none=True).encode() + b"\n")

    def _refuse(self, reason: str) -> None:
        """Log the reason, send it to the driver and close the connection."""
        if self._closing:
            return
        self._closing = True
        reason = one_line(reason)
        log.warning("%s refused: %s", self._name, reason)
        self._service.refuse(reason)
        self._send(Refusal(reason=reason))
        # Closing a socket with unread data would reset the connection, and the driver would lose the refusal.
        if self._transport.can_write_eof():  # not with TLS
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(REFUSAL_S, self._transport.abort)

    def pause_writing(self) -> None:
        """Refuse a driver that does not read its answers."""
        log.warning("%s does not read its answers", self._name)
        self._service.refuse("does not read its answers")
        self._closing = True
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._driver is not None:
            log.info("%s left", self._name)
            self._service.leave(self._driver)
        self._begun.clear()

    def close(self) -> None:
        """Close the connection at the end of the service."""
        self._closing = True
        self._transport.abort()

    @property
    def _name(self) -> str:
        if self._driver is None:
            return self._peer
        hello = self._driver.hello
        return one_line(f"{hello.name} ({hello.application})")


class _Handshake(asyncio.Protocol):
    """Establishes TLS on a new connection, and logs failures, unlike the TLS server of asyncio."""

    def __init__(
        self, service: Service, open_: set[_Connection], started: set[_Handshake], context: ssl.SSLContext
    ) -> None:
        self._service, self._open, self._started, self._context = service, open_, started, context

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._open) + len(self._started) >= MOST_CONNECTIONS:
            self._refuse(f"more than {MOST_CONNECTIONS} connections")
            return
        transport.pause_reading()
        self._started.add(self)
        self._task = asyncio.get_running_loop().create_task(self._establish())

    async def _establish(self) -> None:
        connection = _Connection(self._service, self._open)
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport, connection, self._context, server_side=True, ssl_handshake_timeout=PATIENCE_S
            )
        except ConnectionResetError:  # the client closed the connection, such as a probe that only connects
            self._transport.abort()
            return
        except OSError as error:
            from decima.service.credentials import tls_reason

            self._refuse(f"no TLS: {tls_reason(error)}")
            return
        finally:
            self._started.discard(self)
        if transport is not None and not transport.is_closing():
            connection.connection_made(transport)

    def _refuse(self, reason: str) -> None:
        peer = (self._transport.get_extra_info("peername") or "?")[0]
        reason = one_line(reason)
        log.warning("%s refused: %s", peer, reason)
        self._service.refuse(reason)
        self._transport.abort()

    def close(self) -> None:
        """Close the connection at the end of the service."""
        self._task.cancel()
        self._transport.abort()


@contextlib.asynccontextmanager
async def listen(  # type: ignore[no-untyped-def]
    service: Service, address: str, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
):
    """Serve drivers inside the block.

    Args:
        address: port on ``host`` (0: any free port), or ``unix:PATH``.
        host: name or address of the interface.
        tls: context with the certificate, for a port; None: no encryption. A Unix socket never uses TLS.

    Yields:
        The address for drivers: ``HOST:PORT`` or ``unix:PATH``.

    Raises:
        ServeError: the address is in use or invalid.
    """
    loop = asyncio.get_running_loop()
    connections: set[_Connection] = set()
    handshakes: set[_Handshake] = set()

    def connect() -> _Connection:
        return _Connection(service, connections)

    def connect_securely() -> asyncio.Protocol:
        return connect() if tls is None else _Handshake(service, connections, handshakes, tls)

    path = Path(address.removeprefix("unix:")) if address.startswith("unix:") else None
    try:
        if path is not None:
            _remove_unused(path)
            mask = os.umask(0o177)  # only the owner may connect
            try:
                server = await loop.create_unix_server(connect, str(path))
            finally:
                os.umask(mask)
            where = address
        else:
            server = await loop.create_server(connect_securely, host, int(address))
            where = f"{host}:{server.sockets[0].getsockname()[1]}"
    except (OSError, OverflowError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise ServeError(
            f"cannot listen on {address if path else f'{host}:{address}'}: {reason.lower()}"
        ) from None
    try:
        yield where
    finally:
        server.close()
        for handshake in tuple(handshakes):
            handshake.close()
        for connection in tuple(connections):
            connection.close()
        await asyncio.sleep(0)  # let connections send their last line
        await server.wait_closed()
        if path is not None:
            path.unlink(missing_ok=True)


def _remove_unused(path: Path) -> None:
    """Remove a socket file without a listener, which a killed service leaves behind."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError(errno.EEXIST, "")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise OSError(errno.EADDRINUSE, "")
