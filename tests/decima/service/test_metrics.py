"""Prometheus metrics count what happens in the service."""

import math
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest

from decima.service import metrics, page
from decima.service.answering import Probe
from decima.service.credentials import Token, Tokens
from decima.service.metrics import Metrics
from decima.service.protocol import Answer, JobMessage, Missed
from decima.service.service import MOST_APPLICATIONS, Connected, Decided
from decima.service.snapshot import Choice
from tests.cases import cases
from tests.decima.service.serving import a_hello, a_job, a_stage, a_state, listening


def get(address: str) -> tuple[int, str]:
    """Return status and text of a page."""
    try:
        with urllib.request.urlopen(address, timeout=600) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@cases("result, health, readiness", ("ok", 200, 200), ("starting", 200, 503), ("no decision within 1 s", 503, 503))
def test_probes_need_no_token_and_have_the_result_of_a_decision(result: str, health: int, readiness: int) -> None:
    probe = Probe()
    if result == "ok":
        probe.connect(lambda: probe.decided(""))
    elif result != "starting":
        probe.connect(lambda: probe.decided(result))
    address, end = Metrics().listen(0, "127.0.0.1", Tokens([Token.of("name", "secret")]), probe=probe)
    site = address.removesuffix("/metrics")
    try:
        assert get(f"{site}/healthz") == (health, f"{result}\n")
        assert get(f"{site}/readyz") == (readiness, f"{result}\n")
        assert get(address)[0] == 401
    finally:
        end()


def values(metrics: Metrics, *names: str) -> list[float | None]:
    return [metrics.registry.get_sample_value(f"decima_{name}") for name in names]


def answered(driver: Connected, num_jobs: int, choices: int, slots: int, failure: str = "") -> Connected:
    """Return a driver after a question that took 30 ms, 20 ms of them in the policy."""
    jobs: tuple[JobMessage, ...] = tuple(a_job(str(number), a_stage(number)) for number in range(num_jobs))
    driver.state, driver.took_ms = a_state(1, *jobs), 30.0
    choice = Choice(0, 0, 1, 1, -1, math.nan)
    driver.decided = Decided(Answer(seq=1), (), (choice,) * choices, slots, policy_ms=20.0, failure=failure)
    return driver


def test_counters_times_and_gauges_are_those_of_the_events() -> None:
    metrics, (one, two) = Metrics(), (Connected(number, a_hello()) for number in (1, 2))
    for driver in (one, two):
        metrics.welcomed(driver)
    metrics.answered(answered(one, num_jobs=3, choices=4, slots=8))
    metrics.answered(answered(two, num_jobs=1, choices=0, slots=5, failure="ValueError: no"))
    metrics.answered(answered(one, num_jobs=2, choices=1, slots=6))
    metrics.refused("wrong token")
    counts = ("questions_total", "decisions_total", "failed_decisions_total", "refused_total")
    assert values(metrics, *counts) == [3, 5, 1, 1]
    assert values(metrics, "answer_seconds_count", "policy_seconds_count") == [3, 3]
    assert [round(each or 0, 9) for each in values(metrics, "answer_seconds_sum", "policy_seconds_sum")] == [0.09, 0.06]
    gauges = ("drivers", "jobs", "slots")
    assert values(metrics, *gauges) == [2, 3, 11]
    metrics.left(one)
    assert values(metrics, *gauges) == [1, 1, 5]
    metrics.left(two)
    assert values(metrics, *gauges) == [0, 0, 0]


def test_late_and_lost_answers_are_those_that_drivers_count() -> None:
    """Applications without a report have zeros; names beyond a limit share a label."""
    metrics = Metrics()
    first, second = (Connected(number, a_hello(name=name)) for number, name in ((1, "etl"), (2, "ml")))
    for driver, missed in (
        (first, Missed(late=2, lost=1, fallback_ms=1500.0)),
        (first, Missed(late=1)),
        (second, None),
    ):
        metrics.welcomed(driver)
        answered(driver, num_jobs=1, choices=0, slots=1)
        assert driver.state is not None
        driver.state = driver.state.model_copy(update={"missed": missed})
        metrics.answered(driver)

    def by_application(name: str) -> list[float | None]:
        names = [f"decima_{each}_total" for each in ("late_answers", "lost_answers", "fallback_seconds")]
        return [metrics.registry.get_sample_value(each, {"application": name}) for each in names]

    assert by_application("etl") == [3, 1, 1.5]
    assert by_application("ml") == [0, 0, 0]
    for number in range(MOST_APPLICATIONS):
        metrics.welcomed(Connected(number, a_hello(name=f"app-{number}")))
    assert by_application(f"app-{MOST_APPLICATIONS - 3}") == [0, 0, 0]
    assert by_application(f"app-{MOST_APPLICATIONS - 2}") == [None] * 3
    assert by_application("other") == [0, 0, 0]


@cases("what", "metrics", "page")
def test_half_requests_do_not_keep_others_out(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that send a part of a request are closed after a time limit, and the oldest ones of too many at once."""

    def limit(patience_s: float) -> None:
        monkeypatch.setattr(metrics._Handler, "timeout", patience_s)
        monkeypatch.setattr(page, "PATIENCE_S", patience_s)

    limit(1e6)
    with listening(what, None) as address, ExitStack() as open_:
        where = str(urlsplit(address).hostname), int(urlsplit(address).port or 0)

        def send_half() -> socket.socket:
            client = open_.enter_context(socket.create_connection(where, timeout=600))
            client.sendall(b"GET / HT")
            return client

        clients = [send_half() for _ in range(5 * max(metrics.MOST_CONNECTIONS, page.MOST_CONNECTIONS))]
        assert get(address)[0] == 200
        assert is_closed(clients[0])
        limit(0.1)
        assert is_closed(send_half())


def is_closed(client: socket.socket) -> bool:
    with suppress(ConnectionError):
        return client.recv(1) == b""
    return True
