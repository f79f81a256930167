"""Sockets of the service: newline-delimited JSON over TCP or a Unix socket, with limits that isolate connections."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import stat
from pathlib import Path

from decima.service.errors import ServeError
from decima.service.protocol import LONGEST_LINE, Answer, Refusal, Welcome
from decima.service.service import Connected, RefusedError, Service, one_line
from decima.service.tls import tls_reason

__all__ = ["ServeError", "listen"]

#: Time limit for the rest of a line, and for the first line of a connection, s.
PATIENCE_S = 10.0
#: Time before a refused connection is closed, s; the driver reads the reason in this time.
REFUSAL_S = 1.0
#: Maximum number of unanswered questions of a connection, and of bytes of unread answers.
MOST_WAITING, MOST_UNREAD = 4, 1 << 20
#: Maximum number of open connections.
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
        except OSError as error:
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
        service: answers the drivers.
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
