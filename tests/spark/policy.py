"""A scripted policy, as a thread or as a program: ``python -m tests.spark.policy --port PORT ..``."""

import argparse
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from decima.service.protocol import (
    LONGEST_LINE,
    Answer,
    Hello,
    JobMessage,
    Refusal,
    StageMessage,
    StageOrder,
    StateMessage,
    Welcome,
)

#: What it answers, by what it is asked.
Policy = Callable[[StateMessage], Answer]
#: Answers that are none, for question %d. The last is one, but names only what is not there and holds the rest.
NONSENSE = (
    '{"type": "answer", "seq": %d, "stages": "abc"',
    '{"type": "answer", "seq": %d, "stages": [{"id": "x"}]}',
    '{"type": "answer", "seq": %d, "limits": {"sql-1": -3}}',
    "[]",
    "null",
    '{"type": "answer", "seq": %d, "stages": [{"id": 99999}], "rest": "hold"}',
)


def ready(state: StateMessage) -> list[tuple[JobMessage, StageMessage]]:
    """Return the stages that have tasks to launch, with their jobs."""
    return [(job, stage) for job in state.jobs for stage in job.stages if stage.state == "ready" and stage.pending]


def ordered(
    *names: str, limits: Mapping[str, int] | None = None, slots: int | None = None, rest: Any = "fill"
) -> Policy:
    """Order jobs by name; ``limits`` by name; ``slots`` for each stage."""

    def policy(state: StateMessage) -> Answer:
        def rank(pick: tuple[JobMessage, StageMessage]) -> tuple[int, int]:
            name = pick[0].name or ""
            return names.index(name) if name in names else len(names), pick[1].id

        return Answer(
            seq=state.seq,
            stages=tuple(StageOrder(id=stage.id, slots=slots) for _, stage in sorted(ready(state), key=rank)),
            limits={job.id: limits[job.name] for job in state.jobs if limits and job.name in limits},
            rest=rest,
        )

    return policy


def nothing(state: StateMessage) -> Answer:
    """Hold back all stages."""
    return Answer(seq=state.seq, rest="hold")


class PolicyServer(threading.Thread):
    """Answers any number of drivers, and validates their messages.

    Attributes:
        address: port or path on which it listens.
        policy: function that answers; changes take effect with the next question.
        targets: application name -> target number of executors.
        latest: application name -> its last question.
        shadow: whether new connections are in shadow mode.
        hellos, states: received messages.
        problems: violations of the protocol.
        faults: its defects: ``slow_ms``, ``hold``, or ``nonsense``, ``half`` and ``megabyte``, which apply to every
            n-th answer.
    """

    def __init__(self, policy: Policy, *, port: int = 0, path: Path | None = None, token: str = "") -> None:
        super().__init__(daemon=True)
        self.policy, self.token = policy, token
        self.faults: dict[str, int] = {}
        self.targets: dict[str, int] = {}
        self.latest: dict[str, StateMessage] = {}
        self.shadow = False
        self.hellos: list[Hello] = []
        self.states: list[StateMessage] = []
        self.problems: list[str] = []
        self._answered = 0
        self._connections: list[socket.socket] = []
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", port))
            self.port: int = self._listener.getsockname()[1]
            self.address = f"127.0.0.1:{self.port}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen()
            self.address = f"unix:{path}"
        self.start()

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                if connection.family == socket.AF_INET:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def hang_up(self) -> None:
        """Close all connections; drivers reconnect."""
        while self._connections:
            with suppress(OSError):
                self._connections.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening, too."""
        self._listener.shutdown(socket.SHUT_RDWR)  # else the accepting thread would accept one more
        self._listener.close()
        self.hang_up()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rwb") as file:
                hello = Hello.model_validate_json(file.readline())
                self.hellos.append(hello)
                if self.token and hello.token != self.token:
                    _say(file, Refusal(reason="wrong token"))
                    return
                _say(file, Welcome(shadow=self.shadow))
                for line in file:
                    assert len(line) <= LONGEST_LINE
                    state = StateMessage.model_validate_json(line)
                    self.states.append(state)
                    self.latest[hello.name] = state
                    self._answer(file, state, self.targets.get(hello.name))
        except (ValidationError, AssertionError) as error:
            self.problems.append(str(error))
        except OSError:
            pass  # the driver has gone

    def _answer(self, file: Any, state: StateMessage, executors: int | None) -> None:
        self._answered += 1
        answer = self.policy(state).model_copy(update={"executors": executors}).model_dump_json()
        match self.faults:
            case {"slow_ms": slow_ms}:
                time.sleep(slow_ms / 1e3)
            case {"hold": _}:
                answer = nothing(state).model_dump_json()
            case {"nonsense": every} if self._answered % every == 0:
                text = NONSENSE[self._answered // every % len(NONSENSE)]
                answer = text % state.seq if "%d" in text else text
            case {"half": every} if self._answered % every == 0:
                file.write(answer[: len(answer) // 2].encode())
                file.flush()
                return
            case {"megabyte": every} if self._answered % every == 0:
                answer = json.dumps({"seq": state.seq, "x": "y" * (1 << 20)})
        file.write(answer.encode() + b"\n")
        file.flush()


def _say(file: Any, message: Welcome | Refusal) -> None:
    file.write(message.model_dump_json().encode() + b"\n")
    file.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve correctly until a SIGUSR1, and with the faults afterwards."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token", default="")
    for fault in ("slow-ms", "nonsense", "half", "megabyte", "hold"):
        parser.add_argument(f"--{fault}", type=int)
    options = vars(parser.parse_args(arguments))
    server = PolicyServer(ordered(), port=options.pop("port"), token=options.pop("token"))
    faults = {name: value for name, value in options.items() if value is not None}
    signal.signal(signal.SIGUSR1, lambda number, frame: server.faults.update(faults))
    print(server.port, flush=True)
    while server.is_alive():
        server.join(0.05)


if __name__ == "__main__":
    main()
