"""TLS on the ports of the service: drivers, page and metrics."""

import datetime
import logging
import re
import socket
import ssl
import struct
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from decima.schedulers.srpt import Srpt
from decima.service.credentials import Token, Tokens, certificate_end, load_certificate
from decima.service.inputs import read_inputs
from decima.service.metrics import Metrics
from decima.service.protocol import Refusal, Welcome
from decima.service.service import ServeError, Service
from tests.cases import cases
from tests.certificates import Pair, make_ca, make_certificate, needs_openssl, trusting
from tests.decima.service.serving import Client, a_job, a_stage, a_state, connect, executors, listening, serving
from tests.refusal import one_line

pytestmark = needs_openssl
STATE = a_state(1, a_job("a", a_stage(1)), having=executors(2))


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_ca(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, ca: Pair) -> Pair:
    return make_certificate(tmp_path_factory.mktemp("service"), ca)


def test_drivers_are_served_over_tls_while_others_stop_in_the_handshake(ca: Pair, pair: Pair) -> None:
    service = Service(Srpt, token="secret")
    with serving(service, tls=load_certificate(*pair)) as where:
        with Client(where, trusting(ca), token="secret") as client:
            assert client.greeting == Welcome()
            for seq in (1, 2, 3):
                assert client.ask(STATE.model_copy(update={"seq": seq})).stages
            client.socket.sendall(b"x" * 100_000 + b"\n")
            assert isinstance(client.hear(), Refusal)
            assert client.is_closed()
        with Client(where, trusting(ca), token="wrong") as client:
            assert isinstance(client.greeting, Refusal)
    with serving(Service(Srpt), tls=load_certificate(*pair)) as where:
        silent = [connect(where) for _ in range(5)]
        with Client(where, trusting(ca)) as client:
            assert client.ask(STATE).stages
    for each in silent:
        assert each.recv(1) == b""  # closed at the end of the service
        each.close()


def test_a_hello_in_the_packet_of_the_handshake_is_read(ca: Pair, pair: Pair) -> None:
    """A client of TLS 1.3 may send its last message of the handshake and its first line at once."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(ca).wrap_bio(received, sent, server_hostname="localhost")
    with serving(Service(Srpt), tls=load_certificate(*pair)) as where, connect(where) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(sent.read())
                received.write(plain.recv(1 << 16))
        tls.write(Client.first_line())
        plain.sendall(sent.read())
        text = b""
        while not text:
            received.write(plain.recv(1 << 16))
            try:
                text = tls.read()
            except ssl.SSLWantReadError:
                continue
    assert text.startswith(b'{"type":"welcome"')


def test_what_fails_is_one_line_in_the_log(ca: Pair, pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    context = load_certificate(*pair)
    with serving(Service(Srpt), tls=context) as where:
        with connect(where) as plain:
            plain.sendall(Client.first_line())
            assert plain.makefile("rb").read().find(b"welcome") < 0
        with pytest.raises(ssl.SSLCertVerificationError), Client(where, ssl.create_default_context()):
            pass
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            trusting(ca).wrap_socket(connect(where), server_hostname="other.example")
        with Client(where, trusting(ca)) as client:
            assert client.ask(STATE).stages
    with serving(Service(Srpt)) as where:
        with pytest.raises(ssl.SSLError), Client(where, trusting(ca)):
            pass
        with Client(where) as client:
            assert client.ask(STATE).stages
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" refused: ")[2] for line in lines] == [
        "no TLS: wrong version number",
        "no TLS: tlsv1 alert unknown ca",
        "no TLS: sslv3 alert bad certificate",
        "the driver uses TLS, but this port does not",
    ]


def test_a_connection_that_is_closed_at_once_is_no_refusal(
    ca: Pair, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Probes of load balancers only connect."""
    metrics = Metrics()
    for tls in (None, load_certificate(*pair)):
        with serving(Service(Srpt, watchers=[metrics]), tls=tls) as where:
            for reset in (False, True):
                with connect(where) as probe:
                    if reset:
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with Client(where, tls and trusting(ca)) as client:
                assert client.ask(STATE).stages
    assert metrics.registry.get_sample_value("decima_refused_total") == 0
    assert not caplog.records


def test_a_unix_socket_is_not_encrypted(pair: Pair, tmp_path: Path) -> None:
    with serving(Service(Srpt), f"unix:{tmp_path}/s", tls=load_certificate(*pair)) as where, Client(where) as client:
        assert client.ask(STATE).stages


def get(address: str, tls: ssl.SSLContext, token: str) -> int:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=600, context=tls) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("what", ["page", "metrics"])
def test_page_and_metrics_use_tls(what: str, ca: Pair, pair: Pair) -> None:
    tokens = Tokens([Token.of("reader", "r" * 20, role="reader")], role="reader")
    with listening(what, tokens, pair) as address:
        assert address.startswith("https://127.0.0.1:")
        port = int(address.rstrip("/").split("/")[2].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=600) as plain:
            assert [get(address, trusting(ca), token) for token in ("r" * 20, "wrong")] == [200, 401]
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert b"200 OK" not in plain.makefile("rb").read()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(address, ssl.create_default_context(), "r" * 20)


def test_unusable_files_are_refused_in_one_line(ca: Pair, pair: Pair, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, ca, "other")
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    for cert, key, reason in [
        (tmp_path / "missing.pem", pair.key, "missing.pem: cannot be read: No such file or directory"),
        (pair.cert, tmp_path / "missing.key", "missing.key: cannot be read: No such file or directory"),
        (pair.cert, other.key, "not a certificate and its key in PEM: key values mismatch"),
        (bad, pair.key, "not a certificate and its key in PEM: "),
        (tmp_path, pair.key, f"{tmp_path}: cannot be read: Is a directory"),
    ]:
        assert re.search(reason, one_line(ServeError, load_certificate, cert, key))
    other.key.chmod(0o644)
    with pytest.raises(ServeError, match="every user can read this key: chmod 600 it"):
        load_certificate(*other)


@cases("days", 2, 20_000)
def test_the_end_of_a_certificate_is_that_of_openssl(days: int, tmp_path: Path) -> None:
    """From 2050 on it has another format in the certificate."""
    cert = tmp_path / "cert.pem"
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(tmp_path / "key.pem"))
    command = ("openssl", "req", "-x509", *key, "-out", str(cert), "-days", str(days), "-subj", "/CN=localhost")
    subprocess.run(command, check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(cert), "-noout", "-enddate"], capture_output=True, text=True, check=True
    )
    assert certificate_end(cert).timestamp() == ssl.cert_time_to_seconds(shown.stdout.strip().removeprefix("notAfter="))
    for text in ("", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"):
        cert.write_text(text)
        with pytest.raises(ServeError, match=r"cert\.pem: no certificate in PEM"):
            certificate_end(cert)


@cases("now, text", ("2100-01-01", "ended on"), ("2026-01-01", ""))
def test_a_certificate_that_has_expired_is_a_warning(
    now: str, text: str, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return datetime.datetime.fromisoformat(now).replace(tzinfo=tz)

    monkeypatch.setattr("decima.service.inputs.datetime.datetime", Clock)
    assert read_inputs("fifo", None, None, (pair.cert, pair.key), None).certificate_end == certificate_end(pair.cert)
    assert [text in message for message in caplog.messages] == ([True] if text else [])
