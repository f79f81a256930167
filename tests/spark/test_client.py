"""The plugin's client without Spark: TLS, and several addresses of services. Its Java part needs a JDK."""

import datetime
import re
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from decima.schedulers.srpt import Srpt
from decima.service.credentials import Token, Tokens, load_certificate
from decima.service.plugin import JAR, PluginError, javac
from decima.service.server import warm_up
from decima.service.service import Service
from tests.certificates import make_ca, make_certificate, needs_openssl
from tests.decima.service.serving import serving
from tests.spark.harness import spark_home, why_not
from tests.spark.policy import PolicyServer, ordered
from workloads.spark.names import query_name

SOURCES = Path(__file__).with_name("client")
TOKEN = "0123456789abcdef"


def why_not_compiled() -> str | None:
    try:
        javac()
    except PluginError as error:
        return str(error)
    return why_not()


pytestmark = [pytest.mark.spark, pytest.mark.skipif(why_not_compiled() is not None, reason=str(why_not_compiled()))]


class Settled(NamedTuple):
    """A question: client, time since the start, time until it was settled, number, named stage (-1: no answer)."""

    client: int
    at_ms: float
    took_ms: float
    seq: int
    stage: int


class Asking:
    """Running clients.

    Attributes:
        settled: their questions so far.
        log: lines of their log.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.settled: list[Settled] = []
        self.log: list[str] = []
        self._threads = [threading.Thread(target=read) for read in (self._read_settled, self._read_log)]
        for thread in self._threads:
            thread.start()

    def _read_settled(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if len(words := line.split()) == len(Settled._fields):
                client, at_ms, took_ms, seq, stage = words
                self.settled.append(Settled(int(client), float(at_ms), float(took_ms), int(seq), int(stage)))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(line.strip() for line in self.process.stderr if "policy" in line)

    def wait(self) -> None:
        """Wait for their end."""
        assert self.process.wait(600) == 0
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the Java part and return the class path."""
    folder = tmp_path_factory.mktemp("classes")
    path = f"{JAR}:{spark_home()}/jars/*"
    options = ("--release", "8", "-nowarn", "-Xlint:none", "-implicit:none", "-cp", path, "-d", str(folder))
    subprocess.run([str(javac()), *options, *map(str, SOURCES.rglob("*.java"))], check=True)
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.err.ref = err\nappender.err.type = Console\n"
        "appender.err.name = err\nappender.err.target = SYSTEM_ERR\nappender.err.layout.type = PatternLayout\n"
        "appender.err.layout.pattern = %p %m%n\n"
    )
    return f"{folder}:{path}"


@contextmanager
def asking(
    classes: str, seconds: float, every_ms: int, addresses: Sequence[str], *others: Any, **settings: Any
) -> Iterator[Asking]:
    """Run a client of services at some addresses, and others with further settings in the same JVM."""
    command = [str(javac().with_name("java")), "-XX:TieredStopAtLevel=1", "-cp", classes]
    command += ["decima.spark.Asking", str(seconds), str(every_ms)]
    for number, given in enumerate(({"address": ",".join(addresses), **settings}, *others)):
        given = {"retryMs": 100, "timeoutMs": 2000, **given}
        command += ["--"] * (number > 0) + [f"{key}={value}" for key, value in given.items()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield Asking(process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of the CA ``ca``, for localhost and for another host, and of another CA; two files of tokens."""
    folder = tmp_path_factory.mktemp("certificates")
    warm_up(Srpt)
    ca, other = make_ca(folder), make_ca(folder, "other-ca")
    make_certificate(folder, ca)
    make_certificate(folder, ca, "elsewhere", "DNS:elsewhere.example")
    make_certificate(folder, other, "stranger")
    (folder / "token").write_text(TOKEN)
    (folder / "empty").write_text("")
    return folder


CASES = {
    "its certificate": ("localhost", {"tlsCa": "ca.pem"}, ""),
    "an unknown authority": ("stranger", {"tlsCa": "ca.pem"}, "no TLS: unable to find valid certification path"),
    "the authorities of Java": ("localhost", {"tls": "true"}, "no TLS: unable to find valid certification path"),
    "another host": ("elsewhere", {"tlsCa": "ca.pem"}, "No subject alternative names matching IP address"),
    "a plain client": ("localhost", {}, "before its first answer: does it expect TLS?"),
    "a plain service": (None, {"tlsCa": "ca.pem"}, "no TLS: Unsupported or unrecognized SSL message"),
    "an expired token": ("expired", {"tlsCa": "ca.pem"}, "it refuses: 403 the token of etl expired after 2020-01-01"),
    "no file": ("localhost", {"tlsCa": "missing.pem"}, "spark.decima.tlsCa cannot be read: "),
    "a file without certificates": ("localhost", {"tlsCa": "empty"}, "no certificate in it"),
}  # fmt: skip


@needs_openssl
def test_a_service_is_verified(classes: str, folder: Path) -> None:
    """A failure is one line, however often it is tried. All clients are in one JVM, which starts slowly."""
    clients: list[dict[str, Any]] = []
    with ExitStack() as services:
        for name, given, _ in CASES.values():
            expires = datetime.date(2020, 1, 1) if name == "expired" else None
            file = folder / ("localhost" if name == "expired" else str(name))
            tls = None if name is None else load_certificate(file.with_suffix(".pem"), file.with_suffix(".key"))
            service = Service(Srpt, tokens=Tokens([Token.of("etl", TOKEN, expires=expires)]))
            settings = {key: folder / value if key == "tlsCa" else value for key, value in given.items()}
            where = services.enter_context(serving(service, tls=tls))
            clients.append({"address": where, "tokenFile": folder / "token", **settings})
        for seconds in (1.5, 15):  # a busy machine needs longer for the first connection
            with asking(classes, seconds, 20, [clients[0]["address"]], *clients[1:], **clients[0]) as asked:
                asked.wait()
            answered = [each for each in asked.settled if each.stage >= 0]
            if len(answered) > 10 and len(asked.log) >= len(CASES):
                break
    assert len(answered) > 10
    assert all(each.client == 0 and each.stage == each.seq for each in answered)
    for (case, (_, _, complaint)), client in zip(CASES.items(), clients, strict=True):
        where = client["address"]
        [line] = [line for line in asked.log if re.search(rf" at {where}\b", line)]
        if complaint:
            assert line.startswith(f"WARN no policy at {where}, Spark's own order until there is one: "), case
            assert complaint in line, case
        else:
            assert line == f"INFO policy at {where}"
    assert len(asked.log) == len(CASES)


def test_the_next_service_is_asked_when_one_dies(classes: str) -> None:
    """No question is lost: each is settled, with its own answer or without one. The gap is printed."""
    servers = [PolicyServer(ordered()) for _ in range(2)]
    with asking(classes, 4, 5, [server.address for server in servers], timeoutMs=200) as client:
        while not servers[0].states:
            time.sleep(0.01)
        time.sleep(0.5)
        servers[0].close()
        client.wait()
    servers[1].close()
    gap_ms, without = gap(client.settled)
    print(f"\nfailover: {without} of {len(client.settled)} questions without an answer, {gap_ms:.0f} ms", end="")
    assert servers[1].states
    assert all(each.stage in (-1, each.seq) for each in client.settled)
    assert gap_ms < 1000


def gap(settled: Sequence[Settled]) -> tuple[float, int]:
    """Return the longest time between two answers, ms, and the number of questions without one between answers."""
    answered = [index for index, each in enumerate(settled) if each.stage >= 0]
    inside = settled[answered[0] : answered[-1] + 1]
    ends = [each.at_ms + each.took_ms for each in inside if each.stage >= 0]
    return max(after - before for before, after in pairwise(ends)), sum(each.stage < 0 for each in inside)


def test_a_service_that_is_late_is_left_for_the_next(classes: str) -> None:
    late, good = PolicyServer(ordered()), PolicyServer(ordered())
    late.faults = {"slow_ms": 3000}
    timeout_ms = 1000  # a busy machine may take half a second for an answer
    with asking(classes, 3, 10, [late.address, good.address], timeoutMs=timeout_ms) as client:
        client.wait()
    late.close()
    good.close()
    assert len(late.states) == 1
    assert len(good.states) > 20
    assert any(f"did not answer within {timeout_ms} ms" in line for line in client.log)


def test_an_error_does_not_end_the_client(classes: str) -> None:
    """The same error again is not logged."""
    server = PolicyServer(ordered())
    for seconds in (2, 15):  # a busy machine needs longer for the first answer
        with asking(classes, seconds, 20, [server.address], fails=3) as client:
            client.wait()
        if any(each.stage >= 0 for each in client.settled):
            break
    server.close()
    [warning] = [line for line in client.log if line.startswith("WARN")]
    assert "java.lang.StackOverflowError: for a test" in warning
    assert any(each.stage >= 0 for each in client.settled)


def test_an_error_at_every_answer_is_logged_once(classes: str, tmp_path: Path) -> None:
    """A class for reading answers is missing: the client connects again and again, and no question gets an answer."""
    broken = tmp_path / "decima-spark.jar"
    with zipfile.ZipFile(JAR) as whole, zipfile.ZipFile(broken, "w") as out:
        for name in whole.namelist():
            if name != "decima/spark/Answer$Test.class":
                out.writestr(name, whole.read(name))
    server = PolicyServer(ordered())
    with asking(classes.replace(str(JAR), str(broken)), 2, 20, [server.address]) as client:
        client.wait()
    server.close()
    [warning] = [line for line in client.log if line.startswith("WARN")]
    assert "Spark's own order until there is one: java.lang.NoClassDefFoundError: decima/spark/Answer$Test" in warning
    assert len(server.hellos) > 1
    assert all(each.stage == -1 for each in client.settled)


def test_the_description_of_a_query_names_its_job(classes: str) -> None:
    """Spark gives broadcasts, listings and call sites in place of a description; the import of event logs agrees."""
    site = "collect at etl.py:12"
    broadcast = "broadcast exchange (runId 66d0efdc-7c75-4203-bae3-8cbb009a6ac8)"
    listing = "Listing leaf files and directories for 43 paths:<br/>file:/a,\nfile:/b"
    given = [
        ("job", broadcast), ("job", listing), ("job", ""), ("job", "Job group for statement 3"), ("job", "x at y.py:1"),
        ("query", site), ("job", "report"), ("job", "another"), ("query", "nightly report"), ("job", "report"),
    ]  # fmt: skip
    command = [str(javac().with_name("java")), "-XX:TieredStopAtLevel=1", "-cp", classes, "decima.spark.Naming"]
    command += [f"{owner}:{text}" for owner, text in given]
    names = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert names == ["null"] * 4 + ["x at y.py:1", site, "report", "report", "nightly report", "nightly report"]
    for count, name in enumerate(names, 1):
        preferred = sorted(given[:count], key=lambda each: each[0] != "query")
        assert query_name([text for _, text in preferred], "", "") == name.replace("null", "")


HOURS, HOUR_S, TIMEOUT_MS = 24, 0.4, 50


@pytest.mark.slow
def test_a_day_with_a_failover_every_hour(classes: str) -> None:
    """24 hours of 0.4 s. At each, the active one of two services dies, hangs, or is late, in turn."""
    servers = [PolicyServer(ordered()) for _ in range(2)]
    ports = [server.port for server in servers]
    addresses = [server.address for server in servers]
    faults, replaced = [], []
    with (
        ExitStack() as ends,
        asking(classes, HOURS * HOUR_S + 1.5, 4, addresses, timeoutMs=TIMEOUT_MS, retryMs=20) as client,
    ):
        while not servers[0].states:
            time.sleep(0.005)
        for hour in range(HOURS):
            time.sleep(HOUR_S)
            active = max((0, 1), key=lambda index: servers[index].latest["asking"].seq if servers[index].latest else -1)
            server = servers[active]
            fault = ("dies", "hangs", "is late")[hour % 3]
            faults.append((client.settled[-1].at_ms, fault))
            if fault == "dies":
                server.close()
            else:
                server.faults = {"slow_ms": 3 * TIMEOUT_MS} if fault == "is late" else {"half": 1}
                time.sleep(HOUR_S / 2)
                server.close()
            replaced.append(server)
            servers[active] = PolicyServer(ordered(), port=ports[active])
        client.wait()
        for server in servers:
            ends.callback(server.close)
    answered = [each for each in client.settled if each.stage >= 0]
    gap_ms, without = gap(client.settled)
    oldest_ms = max(each.took_ms for each in answered)
    print(
        f"\n{len(faults)} failovers: {len(answered)} of {len(client.settled)} questions answered, {without} without "
        f"between answers, longest time without an answer {gap_ms:.0f} ms, oldest answer {oldest_ms:.0f} ms",
        end="",
    )
    assert len(faults) == HOURS
    assert [each.seq for each in client.settled] == list(range(1, len(client.settled) + 1)), "each is settled"
    assert all(each.stage in (-1, each.seq) for each in client.settled), "an answer is to its own question"
    assert oldest_ms <= TIMEOUT_MS + 5, "no older answer is taken"
    assert without <= 4 * HOURS
    assert not any(server.problems for server in (*servers, *replaced))
