"""Events of the answering process reach watchers in another process."""

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from decima.registry import make_scheduler
from decima.schedulers.srpt import Srpt
from decima.service.answering import MOST_UNREAD, Probe, Relay, RelayHandler, Repeater, Setup, received, run
from decima.service.history import History
from decima.service.inputs import Inputs
from decima.service.log import DecisionLog
from decima.service.page import Page
from decima.service.protocol import Missed, StateMessage
from decima.service.server import JsonLines
from decima.service.service import Connected, ServeError, Service, Watcher
from tests.cases import cases
from tests.decima.service.serving import a_hello, a_job, a_stage, a_state, executors
from tests.decima.service.test_driver import PROFILES

JOBS = (
    a_job("1", a_stage(1, "done", 9), a_stage(2, tasks=20, done=2, mean_ms=9.0, parents=(1,)), name="a", pool="a"),
    a_job("2", a_stage(3, tasks=20, running=3), a_stage(4, "waiting", parents=(3,)), name=PROFILES[0].name),
)
STATES = (
    a_state(1, *JOBS, having=executors(10, *"222")),
    a_state(2, *JOBS, having=executors(4, *"222")),
    a_state(3, JOBS[0], having=executors(4)).model_copy(update={"missed": Missed(late=1, reason="late")}),
)


class Stream(asyncio.WriteTransport):
    """A stream that is read only later; a number of bytes is unread before."""

    def __init__(self, unread: int = 0) -> None:
        self.sent, self.unread = b"", unread

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def repeated(self, watchers: Sequence[Watcher]) -> None:
        """Pass all that was sent to watchers, and the end of a further, incomplete event."""

        async def repeat() -> None:
            stream, repeater = asyncio.StreamReader(), Repeater(watchers)
            stream.feed_data(self.sent + self.sent[:20])
            stream.feed_eof()
            async for kind, *content in received(stream):
                repeater.repeat(kind, *content)
            repeater.end()

        asyncio.run(repeat())


def serve(watchers: Sequence[Watcher], states: Iterable[StateMessage] = STATES) -> Connected:
    """Answer the questions of a driver that stays."""
    service = Service(lambda: make_scheduler("fifo,ceiling=a:0.3"), History(PROFILES), watchers=watchers)
    service.refuse("a reason")
    driver, _ = service.welcome(a_hello(token="secret").model_dump_json().encode())
    for state in states:
        service.answer(driver, state.model_dump_json().encode())
        service.answered(driver)
    driver.seq, driver.skipped = 4, 1
    for watcher in watchers:
        watcher.skipped(driver, "expensive")
    return driver


def shown(page: Page) -> list[Any]:
    return [page._summary()[0], *(page._capture(number) for number in page._drivers)]


def test_log_and_page_are_those_of_the_same_process(tmp_path: Path) -> None:
    class Last(Watcher):
        def left(self, driver: Connected) -> None:
            seen.extend(shown(theirs))

    stream, seen = Stream(), list[Any]()
    logs = [DecisionLog(tmp_path / name, "fifo") for name in ("ours", "theirs")]
    ours, theirs = Page("fifo"), Page("fifo")
    driver = serve([logs[0], ours, Relay(stream)])
    logs[0].left(driver)
    stream.repeated([Last(), logs[1], theirs])
    assert seen == shown(ours)
    assert seen[1]["overruled"]["ceiling"]
    assert len(seen[1]["jobs"]) == 1
    assert b"secret" not in stream.sent

    def lines(name: str) -> list[Any]:
        found = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        return [{**line, "time_ms": 0} if line["event"] != "question" else line for line in found]

    assert lines("theirs") == lines("ours")
    assert [line["event"] for line in lines("theirs")].count("answered") == 3
    assert seen[1]["skipped"] == 1
    assert seen[1]["missed"] == {"late": 1, "lost": 0, "fallback_ms": 0.0, "reason": "late"}


def test_records_are_logged_in_the_other_process(caplog: pytest.LogCaptureFixture) -> None:
    stream, logger = Stream(), logging.Logger("decima.service")
    logger.addHandler(RelayHandler(Relay(stream)))
    try:
        raise ValueError("a reason")
    except ValueError as error:
        logger.error("%d failed", 3, exc_info=error, extra={"peer": "here"})
    stream.repeated([])
    [record] = caplog.records
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["message"], line["peer"]) == ("error", "3 failed", "here")
    assert line["error"].endswith("ValueError: a reason")
    assert "ValueError: a reason" in caplog.text


def test_a_slow_reader_misses_questions_and_the_answering_process_does_not_wait(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    stream = Stream(MOST_UNREAD + 1)

    def states() -> Iterable[StateMessage]:
        yield from STATES[:2]
        stream.unread = 0
        yield STATES[2]

    serve([Relay(stream)], states())
    log = DecisionLog(tmp_path / "log", "fifo")
    stream.repeated([log])
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events == ["started", "refused", "welcomed", "question", "answered", "skipped", "left"]
    assert [record.message for record in caplog.records] == [
        "page, metrics and log are too slow, some questions are missing there"
    ]


def test_a_probe_needs_a_new_decision_and_names_the_reason_without_one() -> None:
    probe = Probe()
    assert probe.check() == "starting"
    probe.connect(lambda: None)
    assert probe.check(timeout_s=0.01) == "no decision within 0.01 s"
    probe.connect(lambda: probe.decided(""))
    assert probe.check() == "ok"
    probe.connect(lambda: probe.decided("the policy failed: ValueError: no"))
    assert probe.check() == "the policy failed: ValueError: no"
    probe.connect(None)
    assert probe.check() == "starting"


class NeverDecides(Srpt):
    def decide(self, observation: Any) -> None:
        raise SystemExit(7)


@cases("setup, reason",
        (Setup(Service, Inputs(NeverDecides), "0", "127.0.0.1"), "ended before it was ready: status 7"),
        (Setup(Service, Inputs(Srpt), "0", "nowhere.invalid"), "cannot listen on nowhere.invalid"),
)  # fmt: skip
def test_a_service_that_cannot_start_ends(setup: Setup, reason: str) -> None:
    with pytest.raises(ServeError, match=reason):
        asyncio.run(run(setup, print))
