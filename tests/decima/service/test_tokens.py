"""Several tokens of one service: names, rates and expiry dates, for drivers, page and metrics."""

import base64
import datetime
import http.client
import logging
from functools import partial

import pytest

from decima.schedulers.srpt import Srpt
from decima.service.credentials import Role, Token, Tokens
from decima.service.protocol import Refusal, Welcome
from decima.service.service import DeniedError, Service
from tests.cases import cases
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors, listening, serving

ETL, BI = "etl-0123456789abcdef", "bi-0123456789abcdef"
DAY = datetime.date(2027, 12, 31)


def asked(seq: int):  # type: ignore[no-untyped-def]
    return a_state(seq, a_job("a", a_stage(1)), having=executors(2))


def test_a_token_is_valid_until_the_end_of_its_last_day() -> None:
    today = [DAY]
    tokens = Tokens([Token.of("etl", ETL, expires=DAY)], today=lambda: today[0])
    token = tokens.find(ETL)
    tokens.count(token)
    today[0] += datetime.timedelta(days=1)
    for use in (partial(tokens.find, ETL), partial(tokens.count, token)):
        with pytest.raises(DeniedError, match="403 the token of etl expired after 2027-12-31"):
            use()


@cases(
    "role, other, reason",
    ("driver", "reader", "403 the token of name is for page and metrics only"),
    ("reader", "driver", "403 the token of name is for drivers only"),
)
def test_a_token_is_valid_for_its_role_only(role: Role, other: Role, reason: str) -> None:
    """A role that changes at a reload is refused from then on."""
    tokens = Tokens([Token.of("name", ETL, role=role)], role=role)
    token = tokens.find(ETL)
    tokens.replace(Tokens([Token.of("name", ETL, role=other)]))
    for use in (partial(tokens.find, ETL), partial(tokens.count, token)):
        with pytest.raises(DeniedError, match=reason):
            use()


def test_requests_beyond_the_rate_are_refused_until_time_has_passed() -> None:
    now_s = [100.0]
    tokens = Tokens([Token.of("etl", ETL, per_second=2.0), Token.of("bi", BI, per_second=0.5)], lambda: now_s[0])
    etl, bi = tokens.find(ETL), tokens.find(BI)
    for _ in range(2):
        tokens.count(etl)
    tokens.count(bi)
    for token, reason in ((etl, "429 more than 2 requests per second of etl"), (bi, "429 more than 0.5")):
        with pytest.raises(DeniedError, match=reason):
            tokens.count(token)
    now_s[0] += 0.5
    tokens.count(etl)  # one more after half a second
    with pytest.raises(DeniedError):
        tokens.count(etl)
    with pytest.raises(DeniedError):
        tokens.count(bi)
    now_s[0] += 1000
    for _ in range(2):  # no more than those of a second are saved up
        tokens.count(etl)
    with pytest.raises(DeniedError):
        tokens.count(etl)


def limited_and_free(role: Role = "driver") -> tuple[Tokens, list[datetime.date]]:
    """Return the tokens ``etl``, with a rate and an expiry date, and ``bi``; and a date to change. No time passes."""
    today = [DAY]
    both = [Token.of("etl", ETL, per_second=3.0, expires=DAY, role=role), Token.of("bi", BI, role=role)]
    return Tokens(both, clock=lambda: 0.0, today=lambda: today[0], role=role), today


def test_a_driver_is_refused_in_one_line_at_both_ends(caplog: pytest.LogCaptureFixture) -> None:
    """The token is wrong, expires before or during the connection, or has too many questions."""
    caplog.set_level(logging.WARNING)
    tokens, today = limited_and_free()
    reasons = []
    with serving(Service(Srpt, tokens=tokens)) as where, Client(where, token=BI) as other:
        for wrong in ("", "x" * 20):
            with Client(where, token=wrong) as client:
                reasons.append(client.greeting)
        with Client(where, token=ETL) as client:
            assert client.greeting == Welcome()
            client.ask(asked(1))
            client.ask(asked(2))
            reasons.append(client.say(asked(3)))
        other.ask(asked(1))
        today[0] += datetime.timedelta(days=1)
        with Client(where, token=ETL) as client:
            reasons.append(client.greeting)
        other.ask(asked(2))
    texts = [each.reason for each in reasons if isinstance(each, Refusal)]
    assert texts == [
        "401 wrong token: none of the service's tokens",
        "401 wrong token: none of the service's tokens",
        "429 more than 3 requests per second of etl",
        "403 the token of etl expired after 2027-12-31",
    ]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" refused: ")[2] for line in lines] == texts


def status(address: str, path: str, authorization: str = "") -> int:
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=600)
    headers = {"Authorization": authorization} if authorization else {}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    assert (response.getheader("WWW-Authenticate") is not None) is (response.status == 401)
    connection.close()
    return response.status


@pytest.mark.parametrize("what", ["page", "metrics"])
def test_page_and_metrics_need_a_token(what: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tokens, today = limited_and_free("reader")
    path = {"page": "/state", "metrics": "/metrics"}[what]
    with listening(what, tokens) as address:
        basic = base64.b64encode(f"any:{ETL}".encode()).decode()
        tries: list[tuple[str, int]] = [
            ("", 401), ("Bearer wrong", 401), ("Basic ???", 401), (f"Digest {ETL}", 401),
            (f"Bearer {ETL}", 200), (f"Basic {basic}", 200), (f"Bearer {ETL}", 200), (f"Bearer {ETL}", 429),
            (f"Bearer {BI}", 200),
        ]  # fmt: skip
        assert [status(address, path, given) for given, _ in tries] == [each for _, each in tries]
        today[0] += datetime.timedelta(days=1)
        assert status(address, path, f"Bearer {ETL}") == 403
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 6
    assert all(line.startswith(f"127.0.0.1 refused at the {what}: 4") for line in lines)
    assert not any(ETL in line for line in lines)
