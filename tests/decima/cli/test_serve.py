"""The command ``decima serve`` up to the start of serving."""

import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.policy.shipped import SHIPPED
from tests.certificates import make_ca, needs_openssl
from tests.decima.cli.commands import assert_one_line_error, succeeded


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str, str]]:
    """Capture service, address and host instead of serving."""
    calls = []

    async def run(setup: Any, ready: Any, watchers: Any, beside: Any, probe: Any, reload: Any) -> None:
        setup = pickle.loads(pickle.dumps(setup))
        inputs = setup.inputs
        service = setup.make_service(
            inputs.make_scheduler, token=inputs.token, tokens=inputs.tokens, tenants=inputs.tenants
        )
        calls.append((service, setup.address, setup.host))
        async with beside():
            ready("HERE")

    monkeypatch.setattr("decima.service.answering.run", run)
    return calls


def serve(*options: str) -> Result:
    return CliRunner().invoke(cli, ["serve", *options])


def test_what_is_served_where_is_told(served: list[tuple[Any, str, str]], tmp_path: Path) -> None:
    token = str(tmp_path / "token")
    assert serve("--policy", "srpt", "--token-file", token).stdout == (f"serving srpt on HERE\ntoken file: {token}\n")
    result = serve("--policy", "fifo", "--no-token", "--shadow", "--host", "::1", "--spark", "unix:/x", "--slots", "3")
    assert result.stdout == "serving fifo, in the shadow on HERE\n"
    (first, *default), (second, *other) = served
    assert default == ["7733", "127.0.0.1"]
    assert other == ["unix:/x", "::1"]
    assert Path(token).read_text().strip()
    assert first._shadow is False
    assert second._shadow is True


def test_a_log_and_a_page_stand_beside(served: list[tuple[Any, str, str]], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    result = succeeded(serve("--policy", "fifo", "--no-token", "--log", str(log), "--http", "0", "--spark", "0"))
    assert result.stdout.startswith("page: http://127.0.0.1:")
    assert result.stdout.endswith("serving fifo on HERE\n")
    assert log.exists()


@pytest.mark.parametrize("address", ["0", "65535", "unix:a"])
def test_where_a_driver_can_connect_is_taken(served: list[tuple[Any, str, str]], address: str) -> None:
    succeeded(serve("--policy", "fifo", "--no-token", "--spark", address))
    assert served[0][1] == address


def test_tokens_of_tenants_stand_in_for_the_token(served: list[tuple[Any, str, str]], tmp_path: Path) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("tokens: {etl: {secret: 0123456789abcdefg}}")
    tenants.chmod(0o600)
    assert serve("--policy", "fifo", "--tenants", str(tenants)).stdout == (
        f"tenants: {tenants}\n".join(("serving fifo on HERE\n", ""))
    )
    assert served[0][0]._tokens.find("0123456789abcdefg").name == "etl"
    assert_one_line_error(
        serve("--policy", "fifo", "--tenants", str(tenants), "--no-token"),
        f"{tenants}: tokens: not together with --token-file and --no-token",
    )
    assert_one_line_error(serve("--policy", "fifo", "--tenants", str(tmp_path / "no")), "cannot be read")
    assert len(served) == 1


@needs_openssl
def test_with_a_certificate_page_and_metrics_need_the_token(
    served: list[tuple[Any, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = map(str, make_ca(tmp_path))
    given: list[Any] = []
    monkeypatch.setattr(
        "decima.service.metrics.Metrics.listen", lambda self, *arguments: given.extend(arguments) or ("AT", list)
    )
    options = ("--policy", "fifo", "--token-file", str(tmp_path / "token"), "--metrics", "0")
    succeeded(serve(*options, "--tls-cert", cert, "--tls-key", key))
    *_, tokens, tls, _ = given
    assert tokens.find((tmp_path / "token").read_text().strip()).name == "the token file"
    assert isinstance(tls, ssl.SSLContext)
    succeeded(serve(*options))
    assert given[-3:-1] == [None, None]
    for one in (("--tls-cert", cert), ("--tls-key", key)):
        assert_one_line_error(serve(*options, *one), "--tls-cert and --tls-key need each other")
    assert_one_line_error(serve(*options, "--tls-cert", cert, "--tls-key", cert), "every user can read this key")


def test_a_file_of_pools_is_read(served: list[tuple[Any, str, str]], tmp_path: Path) -> None:
    pools = tmp_path / "pools.xml"
    pools.write_text('<allocations><pool name="a"><schedulingMode>FAIR</schedulingMode></pool></allocations>')
    options = ("--policy", "fair-pools", "--no-token", "--pools", str(pools))
    result = succeeded(serve(*options))
    assert result.stderr.startswith("pool a: schedulingMode FAIR has no effect")
    assert list(served[0][0]._pools) == ["a"]
    assert_one_line_error(serve(*options, "--slots", "3"), "--pools has no effect with --slots")
    pools.write_text("<!DOCTYPE a><allocations/>")
    assert_one_line_error(serve(*options), "line 1: document type and entity declarations")
    assert len(served) == 1


def test_unknown_policies_are_refused_and_defaults_told(served: list[tuple[Any, str, str]]) -> None:
    unknown = serve("--policy", "fife")
    assert_one_line_error(unknown, "unknown scheduler 'fife'")
    assert unknown.stderr.endswith(f"{[*SHIPPED][-1]}\n")
    assert not serve("--policy", "fife:3").stderr.endswith(f"{[*SHIPPED][-1]}\n")
    assert not served
    told = " ".join(serve("--help").stdout.split())
    for default in ("127.0.0.1", "7733", "srpt-tuned", "~/.decima/token"):
        assert f"[default: {default}]" in told


def test_a_crash_leaves_a_traceback_on_the_stderr_that_there_is(
    served: list[tuple[Any, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr("faulthandler.is_enabled", lambda: False)
    monkeypatch.setattr("faulthandler.enable", opened.append)
    monkeypatch.setattr("sys.__stderr__", None)
    serve("--spark", "x")
    assert opened == [2]
    monkeypatch.setattr("faulthandler.is_enabled", lambda: True)
    serve("--spark", "x")
    assert opened == [2], "what is on stays as it is"
