"""A service in a thread of the test, and driver connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from decima.schedulers.srpt import Srpt
from decima.service.credentials import Tokens, load_certificate
from decima.service.metrics import Metrics
from decima.service.page import Page
from decima.service.protocol import (
    Answer,
    ExecutorMessage,
    Hello,
    JobMessage,
    Refusal,
    StageMessage,
    StateMessage,
    Welcome,
)
from decima.service.server import listen
from decima.service.service import Service

#: Longer than anything takes on the busiest machine, s.
PATIENCE_S = 600.0

_HEARD: TypeAdapter[Welcome | Answer | Refusal] = TypeAdapter(Welcome | Answer | Refusal)


@contextmanager
def serving(
    service: Service,
    address: str = "0",
    beside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Serve inside the block and yield the address."""
    ready, where = threading.Event(), []
    ends: list[Any] = []

    async def main() -> None:
        ended = asyncio.Event()
        ends.extend((asyncio.get_running_loop(), ended))
        try:
            async with beside(), listen(service, address, tls=tls) as at:
                where.append(at)
                ready.set()
                await ended.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield where[0]
    finally:
        with suppress(RuntimeError):
            ends[0].call_soon_threadsafe(ends[1].set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def connect(where: str) -> socket.socket:
    if where.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(where.removeprefix("unix:"))
        return client
    host, _, port = where.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


@contextmanager
def listening(what: str, tokens: Tokens | None, pair: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Yield the address of a page or of metrics, which need one of ``tokens``; with a certificate and key over TLS."""
    if what == "metrics":
        address, end = Metrics().listen(0, "127.0.0.1", tokens, load_certificate(*pair) if pair else None)
        try:
            yield address
        finally:
            end()
    else:
        page, at = Page("fifo"), list[str]()
        service = Service(Srpt, watchers=[page])
        with serving(service, beside=lambda: page.listen(0, "127.0.0.1", at.append, tokens, pair)):
            yield at[0]


class Client:
    """A driver's end of a connection."""

    def __init__(self, where: str, tls: ssl.SSLContext | None = None, **hello: Any) -> None:
        plain = connect(where)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._file = self.socket.makefile("rb")
        self.greeting = self.say(a_hello(**hello))

    @staticmethod
    def first_line() -> bytes:
        """Return the line of a hello."""
        return a_hello().model_dump_json().encode() + b"\n"

    def say(self, message: Hello | StateMessage) -> Welcome | Answer | Refusal:
        self.socket.sendall(message.model_dump_json().encode() + b"\n")
        return self.hear()

    def read_line(self) -> bytes:
        return self._file.readline()

    def hear(self) -> Welcome | Answer | Refusal:
        return _HEARD.validate_json(self.read_line())

    def ask(self, state: StateMessage) -> Answer:
        answer = self.say(state)
        assert isinstance(answer, Answer), answer
        return answer

    def is_closed(self) -> bool:
        """Wait until the other end has closed the connection."""
        with suppress(ConnectionError):
            return self._file.read() == b""
        return True

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def a_hello(**changes: Any) -> Hello:
    return Hello.model_validate(
        {"type": "hello", "protocol": 1, "application": "app-1", "name": "test", "spark": "3.5.9", **changes}
    )


def a_stage(number: int, state: str = "ready", tasks: int = 10, **changes: Any) -> StageMessage:
    done, running = changes.pop("done", 0), changes.pop("running", 0)
    pending = 0 if state == "done" else tasks - done - running
    return StageMessage.model_validate(
        {
            "id": number, "state": state, "tasks": tasks, "done": tasks if state == "done" else done,
            "running": running, "pending": pending, **changes,
        }
    )  # fmt: skip


def a_job(job: str, /, *stages: StageMessage, **changes: Any) -> JobMessage:
    running = sum(stage.running for stage in stages)
    return JobMessage.model_validate(
        {"id": job, "submitted_time_ms": 0.0, "running": running, "stages": stages, **changes}
    )


def executors(free: int, *running: str, **changes: Any) -> tuple[ExecutorMessage, ...]:
    """Return a number of free executors, and one that runs a task of each of these jobs."""
    some = [ExecutorMessage(id=f"free-{number}", slots=1, running=0) for number in range(free)]
    busy = [
        ExecutorMessage.model_validate({"id": f"busy-{number}", "slots": 1, "running": 1, "job": job, **changes})
        for number, job in enumerate(running)
    ]
    return (*some, *busy)


def a_state(
    seq: int, *jobs: JobMessage, having: tuple[ExecutorMessage, ...] = (), time_ms: float = 1000.0
) -> StateMessage:
    return StateMessage(type="state", seq=seq, time_ms=time_ms, executors=having, jobs=jobs)
