"""The live page: its data, and its display in a browser."""

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from decima.registry import make_scheduler
from decima.service.page import MOST_READERS, Page
from decima.service.server import ServeError
from decima.service.service import Service
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors, listening, serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
STATE = a_state(
    1,
    a_job(
        "sql-1",
        a_stage(1, "done", 40, mean_ms=900.0, name="scan of a"),
        a_stage(2, tasks=60, done=20, running=4, mean_ms=700.0, name="scan of b"),
        a_stage(3, "waiting", 200, parents=(1, 2), name=HOSTILE),
        a_stage(4, "waiting", 1, parents=(3,)),
        name="monthly report",
    ),
    a_job("sql-2", a_stage(7, tasks=12, running=2), name=HOSTILE, submitted_time_ms=5e5),
    having=executors(2, *["sql-1"] * 4, *["sql-2"] * 2),
    time_ms=1.7e12,
)


@contextlib.contextmanager
def a_page(shadow: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the address for drivers, and the page."""
    page = Page("decima", shadow)
    service = Service(lambda: make_scheduler("decima:tpch-batch"), shadow=shadow, watchers=[page])
    at: list[str] = []
    with serving(service, beside=lambda: page.listen(0, "127.0.0.1", at.append)) as where:
        yield where, at[0]


def get(page: str, path: str, **headers: str) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(page.split("/")[2], timeout=600)
    connection.request("GET", path, headers=headers)
    return connection.getresponse(), connection


def state_of(page: str) -> dict[str, Any]:
    response, connection = get(page, "/state")
    state: dict[str, Any] = json.loads(response.read())
    connection.close()
    return state


def test_it_is_told_of_jobs_executors_and_decisions() -> None:
    with a_page() as (where, page), Client(where, name="etl") as client:
        client.ask(STATE)
        state = state_of(page)
    [driver] = state["drivers"]
    assert (state["policy"], state["questions"], driver["name"]) == ("decima", 1, "etl")
    report, other = driver["jobs"]
    assert (report["name"], report["done"], report["tasks"], report["running"]) == ("monthly report", 60, 301, 4)
    assert [stage["parents"] for stage in report["stages"]] == [[], [], [0, 1], [2]]
    assert other["name"] == HOSTILE  # as it is: the page makes text of it
    assert len(driver["executors"]) == 8
    assert driver["decisions"]
    assert all(0 < each["probability"] <= 1 for each in driver["decisions"])


def test_it_hears_of_every_change() -> None:
    with a_page() as (where, page):
        response, connection = get(page, "/events")
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert json.loads(response.readline().removeprefix(b"data: "))["num_drivers"] == 0
        with Client(where) as client:
            client.ask(STATE)
            while not (line := response.readline()).startswith(b"data: ") or b"monthly report" not in line:
                pass
        while not (line := response.readline()).startswith(b"data: ") or b'"num_drivers": 0' not in line:
            pass
        connection.close()


def test_a_slow_reader_delays_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page blocks until drivers have been answered: first while it collects data, then while it sends."""
    begun, goes_on = threading.Event(), threading.Event()
    dumps = json.dumps

    def slow(content: Any) -> str:
        begun.set()
        assert goes_on.wait(600)
        return dumps(content)

    with a_page() as (where, page), Client(where) as client:
        client.ask(STATE)
        monkeypatch.setattr("decima.service.page.json.dumps", slow)
        with socket.create_connection(reader_address(page)) as reader:
            reader.sendall(b"GET /state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert begun.wait(600)
            for seq in range(2, 20):  # without an answer if the answering loop waited for the reader
                assert client.ask(STATE.model_copy(update={"seq": seq})).seq == seq
            goes_on.set()
            assert b'"questions": ' in reader.makefile("rb").read()
        readers = [socket.create_connection(reader_address(page)) for _ in range(5)]
        for reader in readers:  # ask for all changes, and read none
            reader.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for seq in range(20, 40):
            assert client.ask(STATE.model_copy(update={"seq": seq})).seq == seq
        for reader in readers:
            reader.close()


def reader_address(page: str) -> tuple[str, int]:
    return "127.0.0.1", int(page.split(":")[2].rstrip("/"))


def test_no_other_site_may_show_it_or_lead_a_browser_to_it() -> None:
    with a_page() as (_, page):
        response, connection = get(page, "/")
        policy, text = response.headers["Content-Security-Policy"], response.read().decode()
        connection.close()
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert not re.search(r"<\w+ [^>]*(src|href)=|innerHTML|insertAdjacent|document\.write|eval\(", text)
        for path in ("/", "/state", "/events"):
            response, connection = get(page, path, Host="evil.example")
            assert response.status == 400
            connection.close()


def test_a_port_in_use_is_refused() -> None:
    import asyncio

    async def listen(port: int) -> None:
        async with Page("fifo").listen(port, "127.0.0.1", print):
            pass

    with a_page() as (_, page), pytest.raises(ServeError, match="address already in use"):
        asyncio.run(listen(int(page.split(":")[2].rstrip("/"))))


def in_a_browser(page: str, folder: Path, *options: str) -> str:
    """Return the text of a page in chromium."""
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}/profile", "--window-size=1100,900", "--timeout=4000", *options, page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_browser_shows_names_as_text(tmp_path: Path) -> None:
    with a_page() as (where, page), Client(where, name=HOSTILE) as client:
        client.ask(STATE)
        shown = in_a_browser(page, tmp_path, "--dump-dom")
    body = shown.partition("<main")[2].partition("</main>")[0]
    assert "monthly report" in body
    assert "60 of 301 tasks done, 4 running" in body
    assert body.count("&lt;img src=x onerror=alert(1)&gt;") >= 3  # the application, the job, a decision
    assert "<img" not in body
    assert "<script" not in body
    assert "<title>decima serve</title>" in shown
    assert len(re.findall(r'class="slot', body)) >= 8
    assert body.count("<circle") >= 10
    assert "Last decisions" in body


def test_decisions_that_guarantees_changed_are_counted() -> None:
    page, at = Page("fifo,ceiling=a:0.3"), list[str]()
    service = Service(lambda: make_scheduler("fifo,ceiling=a:0.3"), watchers=[page])
    jobs = (a_job("1", a_stage(1, tasks=20), pool="a"), a_job("2", a_stage(2, tasks=20)))
    with serving(service, beside=lambda: page.listen(0, "127.0.0.1", at.append)) as where, Client(where) as client:
        counts = []
        for seq in (1, 2):
            client.ask(a_state(seq, *jobs, having=executors(10)))
            while True:  # the page hears of an answer after the driver
                [driver] = state_of(at[0])["drivers"]
                if sum(driver["overruled"].values()) > sum(counts):
                    break
            assert set(driver["overruled"]) == {"ceiling"}
            counts.append(driver["overruled"]["ceiling"] - sum(counts))
    assert counts[0] == counts[1] >= 1
    assert [job["pool"] for job in driver["jobs"]] == ["a", ""]


def test_there_are_never_more_readers_than_allowed() -> None:
    """All ask at once."""
    with listening("page", None) as address, ThreadPoolExecutor(3 * MOST_READERS) as pool, ExitStack() as open_:
        together = threading.Barrier(3 * MOST_READERS)

        def read(_: int) -> int:
            together.wait()
            try:
                return int(open_.enter_context(urllib.request.urlopen(address + "events", timeout=600)).status)
            except urllib.error.HTTPError as error:
                return error.code

        statuses = list(pool.map(read, range(3 * MOST_READERS)))
    assert Counter(statuses) == {200: MOST_READERS, 503: 2 * MOST_READERS}
