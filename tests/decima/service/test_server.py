"""The service behind its socket: drivers are served, and malformed messages affect no other driver."""

import gc
import itertools
import json
import logging
import random
import socket
import stat
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.registry import make_scheduler
from decima.schedulers.base import Scheduler
from decima.schedulers.srpt import Srpt
from decima.service import server
from decima.service.history import History
from decima.service.log import Answered, DecisionLog, read_log
from decima.service.metrics import Metrics
from decima.service.page import Page
from decima.service.protocol import LONGEST_LINE, Answer, Refusal, Welcome
from decima.service.server import DEFAULT_TOKEN_FILE, ServeError, read_token
from decima.service.service import Connected, Service, Watcher
from simulator.cluster.observation import Decision, Observation
from tests.cases import cases
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import Client, a_hello, a_job, a_stage, a_state, connect, executors, serving
from tests.decima.service.test_driver import PROFILES, SEQUENCES, SLOTS, arriving, served_jct_ms
from tests.refusal import one_line

TOKEN = "correct horse"
STATE = a_state(
    1, a_job("a", a_stage(7, running=1, mean_ms=5.0), a_stage(8, "waiting", parents=(7,))), having=executors(3, "a")
)


class Told(Watcher):
    """A watcher that records its events."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.live: set[int] = set()

    def welcomed(self, driver: Connected) -> None:
        self.live.add(driver.number)

    def left(self, driver: Connected) -> None:
        self.live.remove(driver.number)

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)


def service(make: Callable[[], Any] = Srpt, **options: Any) -> Service:
    return Service(make, **options)


def raw(where: str, *lines: bytes) -> list[dict[str, Any]]:
    """Send bytes and return the reply until the other end closes."""
    with connect(where) as client:
        for line in lines:
            try:
                client.sendall(line)
            except ConnectionError:  # it has hung up already
                break
        try:
            client.shutdown(socket.SHUT_WR)
            text = client.makefile("rb").read()
        except OSError:
            return []
    return [json.loads(line) for line in text.splitlines()]


def line(message: Any) -> bytes:
    return message.model_dump_json().encode() + b"\n"


HELLO = line(a_hello())


def test_a_driver_is_served_from_beginning_to_end() -> None:
    """The schedule over the socket is the same as without a socket."""
    sequence = SEQUENCES["batch"][0]
    with serving(service(history=History(PROFILES))) as where, Client(where) as client:
        assert client.greeting == Welcome()
        spark = ScriptedSpark(arriving(sequence), client.ask, SLOTS)
        jct_ms = float(np.mean(spark.run()))
    assert jct_ms == served_jct_ms("srpt", sequence, PROFILES, False)
    assert spark.tasks_started == sum(profile.num_tasks for profile in sequence.profiles)


def test_over_a_unix_socket_of_the_owner_only(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    for _ in range(2):
        with serving(service(), address) as where, Client(where) as client:
            assert where == address
            assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600
            assert client.ask(STATE).stages
        left_behind = socket.socket(socket.AF_UNIX)
        left_behind.bind(str(tmp_path / "socket"))  # as if it had been killed
        left_behind.close()


def test_fifty_drivers_at_once() -> None:
    """Each driver has its own scheduler and jobs."""
    jobs = arriving(SEQUENCES["batch"][0])[:4]
    results: list[tuple[int, list[float]]] = []

    def drive(where: str, slots: int) -> None:
        with Client(where, application=f"app-{slots}") as client:
            results.append((slots, ScriptedSpark(jobs, client.ask, slots).run()))

    with serving(service()) as where:
        threads = [threading.Thread(target=drive, args=(where, 1 + number % 10)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 50
    assert len({(slots, tuple(jct_ms)) for slots, jct_ms in results}) == 10


def test_unknown_fields_are_ignored_with_one_note(caplog: Any) -> None:
    """A newer plugin within one version of the protocol; other errors are refused all the same."""

    def newer(number: int, **changes: Any) -> bytes:
        state = json.loads(line(STATE)) | {"seq": number, "new": {"a": [1]}} | changes
        state["jobs"][0]["stages"][0]["newer"] = "x"
        return json.dumps(state).encode() + b"\n"

    caplog.set_level(logging.INFO, "decima.service")
    with serving(service()) as where:
        hello = json.dumps(json.loads(HELLO) | {"kind": "spark"}).encode() + b"\n"
        welcome, *answers, refusal = raw(where, hello, newer(1), newer(2), newer(3, time_ms="now"))
    with serving(service()) as where:
        [_, plain] = raw(where, HELLO, line(STATE))
    assert welcome == json.loads(line(Welcome()))
    assert [answer["stages"] for answer in answers] == [plain["stages"]] * 2
    assert refusal == {"type": "refusal", "reason": "no question: time_ms: Input should be a valid number"}
    [note] = [message for message in caplog.messages if "unknown" in message]
    assert note == "test (app-1): unknown fields are ignored, such as kind: its plugin may be newer than this service"


def malformed(seed: int) -> Iterator[bytes]:
    """Draw malformed messages, some of them random bytes."""
    chance = random.Random(seed)
    valid = [json.loads(line(STATE)), json.loads(HELLO)]
    junk: list[Any] = [None, -1, 2**70, 1e308, "x" * 300, [], {}, [[[]]], True, "\x00\x1b[31m", "NaN", 0.5]

    def changed(value: Any) -> Any:
        """Change one entry."""
        if isinstance(value, dict) and value and chance.random() < 0.9:
            name = chance.choice(sorted(value))
            how = chance.random()
            if how < 0.15:
                return {each: value[each] for each in value if each != name}
            if how < 0.3:
                return {**value, chance.choice(["extra", "__class__", ""]): 1}
            return {**value, name: changed(value[name])}
        if isinstance(value, list) and value and chance.random() < 0.8:
            place = chance.randrange(len(value))
            return [*value[:place], changed(value[place]), *value[place + 1 :]]
        return chance.choice([each for each in junk if each != value])

    while True:
        kind = chance.randrange(8)
        message = changed(chance.choice(valid))
        text = json.dumps(message).encode()
        if kind == 0:
            text = chance.randbytes(chance.randrange(1, 400)).replace(b"\n", b"")
        elif kind == 1:
            text = text[: chance.randrange(1, len(text))]
        elif kind == 2:
            text = b"[" * chance.randrange(1, 5000)
        elif kind == 3:
            place = chance.randrange(len(text))
            text = text[:place] + bytes([chance.randrange(256)]).replace(b"\n", b"{") + text[place + 1 :]
        yield text + b"\n"


def test_a_thousand_malformed_messages_harm_no_other_driver(caplog: pytest.LogCaptureFixture) -> None:
    """Each message closes only its own connection, with a line on both sides; other drivers are served in between."""
    caplog.set_level(logging.WARNING)
    told = Told()
    messages = malformed(seed=0)
    refused = 0
    with serving(service(watchers=[told])) as where, Client(where) as good:
        for number in range(1000):
            greeting = (HELLO,) if number % 4 else ()
            heard = raw(where, *greeting, next(messages))
            if greeting:
                assert heard[0]["type"] == "welcome"
            last = heard[-1]
            assert last["type"] in ("refusal", "answer", "welcome")  # some changes make another right message
            refused += last["type"] == "refusal"
            if number % 50 == 0:
                assert good.ask(STATE.model_copy(update={"seq": number + 1})).stages
    assert refused > 800
    assert len(told.refusals) == refused
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == refused
    assert all(each.isprintable() and len(each) < 2000 for each in lines)
    assert not told.live


@cases("lines, reason",
        ((b"x" * LONGEST_LINE + b"x\n",), "a line of more than"),
        ((HELLO, b"[" * (LONGEST_LINE + 1)), "a line of more than"),
        ((HELLO, line(STATE) * 50), "questions wait"),
        ((HELLO, line(STATE), line(STATE)), "question 1 comes after question 1"),
        ((line(a_hello(token="wrong horse")),), "wrong token"),
        ((line(a_hello(protocol=2)),), "protocol 2, which is newer than 1"),
        ((b'{"type":"hello","protocol":3,"new":"field"}\n',), "protocol 3, which is newer than 1"),
        ((b'{"type":"hello","protocol":0}\n',), "protocol 0, which is older than 1"),
        ((line(STATE),), "no hello"),
        ((HELLO, line(a_state(1, having=executors(1) * 2))), "two executors have the same id"),
)  # fmt: skip
def test_a_refusal_has_a_reason(lines: tuple[bytes, ...], reason: str) -> None:
    told = Told()
    token = TOKEN if b"wrong horse" in lines[0] else ""
    with serving(service(token=token, watchers=[told])) as where:
        heard = raw(where, *lines)
    assert told.refusals
    assert reason in told.refusals[0]
    if len(lines[0]) < LONGEST_LINE:
        assert heard[-1] == {"type": "refusal", "reason": told.refusals[0]}


@cases("token", None, "", " ", TOKEN[:-1], TOKEN + "x", TOKEN + " ", TOKEN + "\0", TOKEN.upper(), "\u00e9", "x" * 200)
def test_a_driver_with_no_token_or_another_one_is_refused(token: str | None) -> None:
    """The service has a token, and creates no scheduler for such a driver."""
    hello = json.loads(HELLO) | {"token": token}
    if token is None:
        del hello["token"]
    told, made = Told(), []

    def make() -> Scheduler:
        made.append(None)
        return Srpt()

    with serving(service(make, token=TOKEN, watchers=[told])) as where:
        heard = raw(where, json.dumps(hello).encode() + b"\n", line(STATE))
    assert [each["type"] for each in heard] == ["refusal"]
    assert "wrong token" in heard[0]["reason"]
    assert TOKEN not in heard[0]["reason"]
    assert told.refusals == [heard[0]["reason"]]
    assert not told.live
    assert not made


@pytest.mark.parametrize(("own", "token"), [("", ""), ("", "any"), (TOKEN, TOKEN)])
def test_the_right_token_is_welcome_and_any_without_one(own: str, token: str) -> None:
    with serving(service(token=own)) as where, Client(where, token=token) as client:
        assert client.ask(STATE).stages


def test_half_a_line_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for a line that arrives byte by byte. A pause between two questions may be long."""
    told = Told()
    with serving(service(watchers=[told])) as where, Client(where) as good, Client(where) as half:
        monkeypatch.setattr(server, "PATIENCE_S", 0.5)
        half.socket.sendall(b'{"type":')
        with connect(where) as silent, connect(where) as slow:
            start_s = time.monotonic()
            while len(told.refusals) < 3:
                assert time.monotonic() - start_s < 600
                with suppress(ConnectionError):
                    slow.sendall(b" ")
                time.sleep(0.05)
            assert silent.makefile("rb").readline().startswith(b'{"type":"refusal"')
        assert isinstance(half.hear(), Refusal)
        assert good.ask(STATE).stages
    assert all("no whole line" in reason for reason in told.refusals)


def test_a_driver_that_does_not_read_answers_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_UNREAD", 1000)
    told = Told()
    with serving(service(watchers=[told]), f"unix:{tmp_path}/socket") as where, Client(where) as good:
        with connect(where) as deaf:
            deaf.sendall(HELLO)
            jobs = [a_job(f"{number}-{'x' * 200}", a_stage(number)) for number in range(200)]
            try:
                for seq in itertools.count(1):
                    deaf.sendall(line(a_state(seq, *jobs, having=executors(200))))
            except ConnectionError:
                pass
        assert good.ask(STATE).stages
    assert told.refusals == ["does not read its answers"]


class Failing(Scheduler):
    """Raises an error, or makes an invalid decision."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def decide(self, observation: Observation) -> Decision | None:
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result  # type: ignore[no-any-return]


def test_a_decision_that_fails_is_answered_by_sparks_own_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver stays connected; its next question has a new scheduler. The failure is logged, counted and shown."""
    caplog.set_level(logging.ERROR)
    failing = (KeyError("nothing to be found"), SystemExit(0), 3, Decision(0, 10**30), Decision(99, 1))
    schedulers = iter([*map(Failing, failing), Srpt(), Srpt()])
    metrics, page, path = Metrics(), Page("p"), tmp_path / "log.jsonl"
    log = DecisionLog(path, "p")
    served = service(lambda: next(schedulers), watchers=[log, metrics, page])
    with serving(served) as where, Client(where) as bad:
        for seq in range(1, 1 + len(failing)):
            answer = bad.ask(STATE.model_copy(update={"seq": seq}))
            assert answer == Answer(seq=seq, stages=(), limits={}, rest="fill", executors=None)
        with Client(where) as good:
            assert good.ask(STATE).stages
            driver, _ = page._drivers
            assert page._summary()[0]["failures"] == page._capture(driver)["failures"] == len(failing)
            assert page._capture(driver)["failure"].startswith("SchedulingError: ")
        assert bad.ask(STATE.model_copy(update={"seq": 9})).stages
    log.close()
    value = metrics.registry.get_sample_value
    assert value("decima_failed_decisions_total") == len(failing)
    assert value("decima_questions_total") == len(failing) + 2
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(failing)
    assert messages[0] == (
        "test (app-1): the policy failed at question 1, the answer keeps Spark's own order: "
        "KeyError: 'nothing to be found'"
    )
    assert [bool(record.exc_info) for record in caplog.records] == [True] + [False] * (len(failing) - 1)
    answers = [each for each in read_log(path) if isinstance(each, Answered)]
    failures = [(each.failure or "").partition(":")[0] for each in answers]
    assert failures == ["KeyError", "SystemExit", *failures[2:4], "SchedulingError", "", ""]
    assert all(failures[2:4])


def test_schedulers_may_fail_and_shadows_are_not_obeyed() -> None:
    schedulers = iter([Failing(KeyError()), Srpt(), Srpt(), Srpt()])
    with serving(service(lambda: next(schedulers), slots=4)) as where, Client(where, moves_executors=True) as client:
        assert client.ask(STATE) == Answer(seq=1)  # keeps the executors that it has
        assert client.ask(STATE.model_copy(update={"seq": 2})).executors is not None
    with serving(service(shadow=True)) as where, Client(where) as client:
        assert client.greeting == Welcome(shadow=True)
        assert client.ask(STATE).stages


class AtWork(Watcher):
    """A watcher that raises at every event."""

    def asked(self, driver: Connected) -> None:
        raise ValueError("no disk")

    welcomed = answered = left = asked


def test_a_watcher_that_fails_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with serving(service(watchers=[AtWork()])) as where, Client(where) as client:
        assert client.ask(STATE).stages
    assert {record.getMessage() for record in caplog.records} == {"AtWork failed"}


def test_a_slow_reader_of_the_metrics_delays_no_answer() -> None:
    """Half of a request arrives before drivers are answered. Afterwards the request is answered too."""
    metrics = Metrics()
    address, end = metrics.listen(0, "127.0.0.1")
    try:
        with (
            serving(service(watchers=[metrics])) as where,
            Client(where) as client,
            connect(address.split("/")[2]) as slow,
        ):
            slow.sendall(b"GET /metrics HTTP/1.0\r\n")
            for seq in range(1, 10):
                assert client.ask(STATE.model_copy(update={"seq": seq})).stages
            slow.sendall(b"\r\n")
            assert b"decima_questions_total" in slow.makefile("rb").read()
    finally:
        end()


def test_a_question_is_in_the_log_before_it_is_decided(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    found: list[list[str]] = []

    class Reading(Srpt):
        def decide(self, observation: Observation) -> Decision | None:
            found.append([each.event for each in read_log(path)])
            return super().decide(observation)

    log = DecisionLog(path, "p")
    with serving(service(Reading, watchers=[log])) as where, Client(where) as client:
        client.ask(STATE)
    log.close()
    assert found[0] == ["started", "welcomed", "question"]
    assert [each.event for each in read_log(path)] == [*found[0], "answered", "left"]


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with serving(service()) as where, serving(service(), f"unix:{tmp_path}/socket"):
        for address in (where.rpartition(":")[2], f"unix:{tmp_path}/socket", f"unix:{tmp_path}/file"):
            assert "cannot listen on" in one_line(ServeError, listen_briefly, address)


def listen_briefly(address: str) -> None:
    import asyncio

    async def main() -> None:
        async with server.listen(service(), address):
            pass

    asyncio.run(main())


def test_a_token_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    token = read_token(path)
    assert len(token) > 30
    assert read_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(ServeError, match="chmod 600"):
        read_token(path)
    for content in (b"", b"\n", b"two\nlines", b"\xff\xfe", b"x" * 300):
        path.chmod(0o600)
        path.write_bytes(content)
        assert "expected a token" in one_line(ServeError, read_token, path)
    with pytest.raises(ServeError, match="token file cannot be read or created"):
        read_token(path / "below")


def test_the_default_token_is_in_home_and_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin for Spark has the same rule. Another configured file may belong to another user, such as root."""
    monkeypatch.setenv("HOME", str(tmp_path))
    token = read_token(DEFAULT_TOKEN_FILE)
    path = tmp_path / ".decima" / "token"
    assert path.read_text().strip() == token
    monkeypatch.setattr("decima.service.server.os.geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ServeError, match="belongs to another user"):
        read_token(DEFAULT_TOKEN_FILE)
    assert read_token(path) == token


def simulated_hours(client: Client, hours: float, seed: int, first_seq: int) -> int:
    """Run jobs that arrive every 100 s on average."""
    from workloads.arrivals import poisson_arrivals

    sequence = poisson_arrivals(PROFILES, int(hours * 36), 100_000.0, seed)
    begin = {"first_ms": 1.7e12 + seed * 1e9, "questions": first_seq, "prefix": f"{seed}-"}
    spark = ScriptedSpark(arriving(sequence), client.ask, SLOTS, **begin)
    spark.run()
    return spark.questions


@cases("blocks, hours, most_bytes", (4, 0.25, 250_000), pytest.param(24, 1.0, 1_000_000, marks=pytest.mark.slow))
def test_memory_does_not_grow(blocks: int, hours: float, most_bytes: int) -> None:
    """The blocks after the first one have the same connection; a simulated day takes at most an hour."""
    start_s = time.monotonic()
    make = lambda: make_scheduler("decima")  # noqa: E731
    with serving(service(make)) as where, Client(where) as client:
        seq = simulated_hours(client, hours, 0, 0)
        tracemalloc.start()
        try:
            sizes = []
            for seed in range(1, blocks):
                seq = simulated_hours(client, hours, seed, seq)
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert sizes[-1] - sizes[0] < most_bytes
    assert time.monotonic() - start_s < 3600
