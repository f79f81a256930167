"""The live page: jobs and their DAGs, executors by job, last decisions. One HTML file, updated by server-sent events.

The web server has its own thread and event loop, so that slow clients never delay the events of the service. While a
page is open, the event loop that receives the events captures each driver's state between two events.

Data from drivers is never used as markup: the page receives JSON and writes it to text nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import math
import os
import secrets
import socket
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from decima.evaluation.documents import json_in_html
from decima.service.credentials import CHALLENGE, Tokens, check_request, load_certificate
from decima.service.jobs import LiveJob
from decima.service.protocol import Missed
from decima.service.service import MOST_APPLICATIONS, Connected, ServeError, Watcher, one_line

if TYPE_CHECKING:
    from decima.service.inputs import Inputs

__all__ = ["Page"]

#: Maximum numbers of displayed drivers, and for each driver of jobs, stages of a job, executors and decisions.
MOST_DRIVERS, MOST_JOBS, MOST_STAGES, MOST_EXECUTORS, MOST_DECISIONS = 10, 20, 60, 200, 30
#: Minimum time between two updates, and maximum time without an update, s.
MIN_UPDATE_S, KEEPALIVE_S = 0.5, 15.0
#: Time limit for the web server to stop after the service, s; afterwards its thread ends with the process.
SHUTDOWN_S = 3.0
#: Maximum number of open pages.
MOST_READERS = 20
#: Maximum number of connections, and time limit for the first request of a connection, s.
MOST_CONNECTIONS, PATIENCE_S = 100, 10.0
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
#: Content security policy: only the page's own script and style, no foreign content, no embedding in other pages.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HTML = Path(__file__).with_name("page.html")
_T = TypeVar("_T")


class Page(Watcher):
    """Serves the live page.

    Args:
        policy: name of the policy, for display.
        shadow: whether drivers ignore the answers.
    """

    def __init__(self, policy: str, shadow: bool = False) -> None:
        self._policy, self._shadow = policy, shadow
        self._drivers: dict[int, Connected] = {}
        self._decisions: dict[int, deque[dict[str, Any]]] = {}
        self._overruled: dict[int, Counter[str]] = {}
        #: Application id -> what it has missed, over all its connections.
        self._missed: dict[str, Missed] = {}
        self._questions = self._failures = 0
        self._version = 0
        self._dirty: set[int] = set()
        # Used by the web server's thread only.
        self._texts: dict[int, str] = {}
        self._readers = 0
        self._answering: asyncio.AbstractEventLoop | None = None
        self._config: uvicorn.Config | None = None
        self._ended = False

    def welcomed(self, driver: Connected) -> None:
        """Add a driver to the page."""
        self._drivers[driver.number] = driver
        self._decisions[driver.number] = deque(maxlen=MOST_DECISIONS)
        self._overruled[driver.number] = Counter()
        self._dirty.add(driver.number)
        self._version += 1

    def answered(self, driver: Connected) -> None:
        """Record a driver's decisions, and mark the driver as changed."""
        self._questions += 1
        self._dirty.add(driver.number)
        self._version += 1
        decided, state = driver.decided, driver.state
        assert decided is not None
        assert state is not None
        self._failures += bool(decided.failure)
        self._overruled[driver.number].update(decided.overruled)
        if state.missed is not None:
            application = driver.hello.application
            self._missed[application] = self._missed.pop(application, Missed()).plus(state.missed)
            if len(self._missed) > MOST_APPLICATIONS:
                del self._missed[
                    next(iter(self._missed))
                ]  # the application that has not asked for the longest time
        for choice in decided.choices:
            job = decided.jobs[choice.job]
            self._decisions[driver.number].appendleft(
                {
                    "time_ms": state.time_ms,
                    "job": _name(job),
                    "stage": job.ids[choice.stage],
                    "limit": choice.limit,
                    "executors": choice.executors,
                    "probability": None if math.isnan(choice.probability) else choice.probability,
                }
            )

    def skipped(self, driver: Connected, reason: str) -> None:
        """Mark the driver as changed, since its number of skipped questions is displayed."""
        self._questions += 1
        self._dirty.add(driver.number)
        self._version += 1

    def left(self, driver: Connected) -> None:
        """Remove a driver from the page."""
        del self._drivers[driver.number], self._decisions[driver.number], self._overruled[driver.number]
        self._version += 1

    def _summary(self) -> tuple[dict[str, Any], list[int], list[int]]:
        """Return the page's header, the numbers of displayed drivers, and of those that have changed."""
        shown = list(self._drivers)[:MOST_DRIVERS]
        changed = [driver for driver in shown if driver in self._dirty]
        summary = {
            "policy": one_line(self._policy),
            "shadow": self._shadow,
            "questions": self._questions,
            "failures": self._failures,
            "num_drivers": len(self._drivers),
        }
        return summary, shown, changed

    def _capture(self, number: int) -> dict[str, Any] | None:
        """Return a driver's state as immutable data; None if the driver has disconnected."""
        self._dirty.discard(number)
        if (driver := self._drivers.get(number)) is None:
            return None
        state, decided = driver.state, driver.decided
        jobs = decided.jobs if decided is not None else ()
        executors = state.executors if state is not None else ()
        return {
            "number": driver.number,
            "name": one_line(driver.hello.name),
            "application": one_line(driver.hello.application),
            "spark": one_line(driver.hello.spark),
            "took_ms": driver.took_ms,
            "policy_ms": decided.policy_ms if decided is not None else 0.0,
            "failures": driver.failures,
            "skipped": driver.skipped,
            "missed": self._missed[driver.hello.application].model_dump()
            if driver.hello.application in self._missed
            else None,
            "failure": decided.failure if decided is not None else "",
            "target": decided.answer.executors if decided is not None else None,
            "num_jobs": len(state.jobs) if state is not None else 0,
            "jobs": [_job(job) for job in jobs[:MOST_JOBS]],
            "num_executors": len(executors),
            "executors": [
                executor.model_dump() | {"id": one_line(executor.id)}
                for executor in executors[:MOST_EXECUTORS]
            ],
            "decisions": list(self._decisions[driver.number]),
            "overruled": dict(self._overruled[driver.number]),
        }

    async def snapshot(self) -> str:
        """Return the page's state as JSON. Runs in the web server's thread."""
        summary, shown, changed = await self._between_answers(self._summary)
        for driver in changed:  # one driver at a time, so that answers need not wait for all drivers
            content = await self._between_answers(partial(self._capture, driver))
            self._texts[driver] = json.dumps(content)
        self._texts = {driver: text for driver, text in self._texts.items() if driver in shown}
        drivers = [text for text in self._texts.values() if text != "null"]
        return f'{json.dumps(summary)[:-1]}, "drivers": [{", ".join(drivers)}]}}'

    async def _between_answers(self, capture: Callable[[], _T]) -> _T:
        """Call a function in the event loop that answers drivers, which alone may read their state."""
        assert self._answering is not None

        async def called() -> _T:
            return capture()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(), self._answering))

    # The web server.

    def application(self, host: str, tokens: Tokens | None = None) -> Starlette:
        """Return the web application with page (``/``), current state (``/state``) and updates (``/events``)."""
        # Protection against DNS rebinding: a foreign page has another host name, even if it resolves to this address.
        hosts = ["localhost", "127.0.0.1", "[::1]", host] if _is_loopback(host) else ["*"]
        middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)]
        if tokens is not None:
            middleware.append(Middleware(_TokenMiddleware, tokens=tokens))
        routes = [Route("/", self._show), Route("/state", self._state), Route("/events", self._events)]
        return Starlette(routes=routes, middleware=middleware)

    async def _show(self, request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        state = json_in_html(await self.snapshot())
        text = _HTML.read_text(encoding="utf-8").replace("{nonce}", nonce).replace("{state}", state)
        policy = {"Content-Security-Policy": CONTENT_POLICY.format(nonce=nonce)}
        return HTMLResponse(text, headers=HEADERS | policy)

    async def _state(self, request: Request) -> Response:
        return Response(await self.snapshot(), media_type="application/json", headers=HEADERS)

    async def _events(self, request: Request) -> ASGIApp:
        return self._send_events

    async def _send_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send updates, or status 503 to more than ``MOST_READERS`` readers."""
        if self._readers >= MOST_READERS:
            response = Response("too many pages are open", status_code=503, headers=HEADERS)
            await response(scope, receive, send)
            return
        self._readers += 1  # before any other reader can be counted
        try:
            stream = StreamingResponse(self._stream(), media_type="text/event-stream", headers=HEADERS)
            await stream(scope, receive, send)
        finally:
            self._readers -= 1

    async def _stream(self) -> AsyncIterator[str]:
        seen, quiet_s = -1, 0.0
        while not self._ended:
            if seen != self._version:
                seen, quiet_s = self._version, 0.0
                yield f"data: {await self.snapshot()}\n\n"
            elif quiet_s >= KEEPALIVE_S:
                quiet_s = 0.0
                yield ": nothing new\n\n"
            await asyncio.sleep(MIN_UPDATE_S)
            quiet_s += MIN_UPDATE_S

    def use_inputs(self, inputs: Inputs) -> None:
        """Use the current content of the files of certificate and private key for new connections."""
        if inputs.certificate is not None and self._config is not None and self._config.ssl is not None:
            load_certificate(*inputs.certificate, self._config.ssl)

    @contextlib.asynccontextmanager
    async def listen(
        self,
        port: int,
        host: str,
        ready: Callable[[str], None],
        tokens: Tokens | None = None,
        tls: tuple[Path, Path] | None = None,
    ) -> AsyncIterator[None]:
        """Serve the page inside the block.

        Args:
            port: port number; 0: any free port.
            host: name or address of the interface.
            ready: called with the page's URL.
            tokens: valid access tokens; None: requests need no token.
            tls: files of certificate and private key; None: connections are not encrypted.

        Raises:
            ServeError: the port is in use.
        """
        try:
            taken = socket.create_server((host, port))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ServeError(f"cannot listen on {host}:{port}: {reason.lower()}") from None
        config = uvicorn.Config(
            self.application(host, tokens),
            ssl_certfile=None if tls is None else tls[0],
            ssl_keyfile=None if tls is None else tls[1],
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
            http=_BoundedProtocol,
            backlog=128,
        )
        server = _PageServer(config)
        self._config = config
        self._answering = asyncio.get_running_loop()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, name="page", daemon=True)
        thread.start()
        try:
            ready(f"{'http' if tls is None else 'https'}://{host}:{taken.getsockname()[1]}/")
            yield
        finally:
            self._ended = True
            server.should_exit = True
            # Join in a thread, so that this event loop keeps running: the web server's thread may wait for it.
            await asyncio.to_thread(thread.join, SHUTDOWN_S)


class _BoundedProtocol(H11Protocol):
    """HTTP with a time limit for the first request, and a maximum number of connections."""

    def connection_made(self, transport: Any) -> None:
        """Start the time limit. The oldest connection without a request is closed if there are too many connections."""
        super().connection_made(transport)
        self._made_s = self.loop.time()
        self._timer = self.loop.call_later(PATIENCE_S, self._close_if_silent)
        silent = [
            each for each in self.connections if isinstance(each, _BoundedProtocol) and each.cycle is None
        ]
        if len(self.connections) > MOST_CONNECTIONS and silent:
            min(silent, key=lambda each: each._made_s)._close_if_silent()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limit."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.abort()
            self.connections.discard(self)


class _PageServer(uvicorn.Server):
    """Web server that leaves signals to the service."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        """Do nothing: the service handles signals."""
        yield


def _job(job: LiveJob) -> dict[str, Any]:
    stages = range(min(len(job.ids), MOST_STAGES))
    names = {stage.id: stage.name for stage in job.message.stages}
    return {
        "id": job.message.id,
        "number": job.number,
        "name": _name(job),
        "pool": one_line(job.message.pool or ""),
        "recognised": job.recognised,
        "tasks": sum(job.tasks),
        "done": sum(job.done),
        "running": sum(job.running),
        "num_stages": len(job.ids),
        "stages": [
            {
                "id": (stage_id := job.ids[stage]),
                "name": one_line(names.get(stage_id, "") if stage_id is not None else ""),
                "tasks": job.tasks[stage],
                "done": job.tasks[stage] if job.complete[stage] else job.done[stage],
                "running": job.running[stage],
                "ready": job.ready[stage],
                "parents": [parent for parent in job.profile.parents[stage] if parent in stages],
            }
            for stage in stages
        ],
    }


class _TokenMiddleware:
    """ASGI middleware that refuses requests without a valid token."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request with a valid token to the application; refuse other requests."""
        if scope["type"] == "http":
            peer = (scope.get("client") or ("?",))[0]
            authorization = Headers(scope=scope).get("authorization", "")
            if (denied := check_request(self._tokens, authorization, peer, "page")) is not None:
                headers = {"WWW-Authenticate": CHALLENGE} if denied.status == 401 else {}
                await PlainTextResponse(f"{denied}\n", denied.status, headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _name(job: LiveJob) -> str:
    return one_line(job.message.name or job.message.id)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
