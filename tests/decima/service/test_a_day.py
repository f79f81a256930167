"""A day of operation in some minutes: 24 hours of a few seconds each, with what goes wrong in a year.

Drivers ask through rotations of the log, good and bad reloads, two crashes of the answering process, a full disk, a
driver with 2,000 jobs, a certificate that expires, and a token that is revoked. A kernel limit on the size of files
stands in for the full disk. ``pytest -n 0 -m slow -s tests/decima/service/test_a_day.py`` prints the figures.
"""

import datetime
import os
import resource
import signal
import ssl
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.policy.shipped import SHIPPED
from decima.service.audit import Event
from decima.service.log import Answered, Question, Skipped, Welcomed, read_log
from decima.service.protocol import Answer, Missed, Refusal, StateMessage
from tests.certificates import Pair, make_ca, make_certificate, needs_openssl, trusting
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors
from tests.decima.service.test_serve import decima_serve

pytestmark = [
    pytest.mark.slow,
    needs_openssl,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux"),
]

HOUR_S = 4.0
#: Mean time between two questions of a driver, and the time after which it no longer waits for an answer, s.
EVERY_S, TIMEOUT_S = 0.1, 0.2
#: Maximum share of late answers outside of the intended outages; other programs may delay an answer.
MOST_LATE = 0.02
NAMES = ("etl-1", "etl-2", "bi-1", "revoked")
READER = "a-token-to-read-with"


def secret(name: str) -> str:
    return f"secret-of-{name}-0123456789"


def tenants(*names: str, quota: int) -> str:
    tokens = ", ".join(f"{name}: {{secret: {secret(name)}}}" for name in names)
    return (
        f"tenants: {{etl: {{applications: [etl-*], quota: {quota}}}}}\n"
        f"tokens: {{{tokens}, reader: {{secret: {READER}, role: reader}}}}\n"
    )


@dataclass
class Driver:
    """A stand-in for a Spark driver, which asks until it is stopped, and connects again when it loses the connection.

    Attributes:
        received: time since the start of the test, s, and duration until the answer, s, by number of the question.
        reported: what the driver has missed, from its questions that were decided.
        refusals: reasons of refusals.
    """

    name: str
    where: str
    trusted: ssl.SSLContext
    start_s: float
    num_jobs: int = 1
    every_s: float = EVERY_S
    received: dict[int, tuple[float, float]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    reported: Missed = field(default_factory=Missed)
    refusals: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    missed: Missed = field(default_factory=Missed)
    stopped: bool = False

    def run(self) -> None:
        seq = 0
        while not self.stopped:
            try:
                with Client(
                    self.where, self.trusted, token=secret(self.name), name=self.name, application=self.name
                ) as client:
                    if isinstance(client.greeting, Refusal):
                        self.refusals[client.greeting.reason] += 1
                    else:
                        self.connections += 1
                        seq = self.ask(client, seq)
            except (OSError, ValueError):  # no connection, or half a line
                pass
            self.missed = self.missed.plus(Missed(fallback_ms=200.0, reason="no connection"))
            time.sleep(0.2)

    def ask(self, client: Client, seq: int) -> int:
        """Ask until the connection ends; return the number of the last question."""
        while not self.stopped:
            seq += 1
            state = self.question(seq)
            begin_s = time.monotonic()
            try:
                answer = client.say(state)
            except (OSError, ValueError):
                self.missed = self.missed.plus(Missed(lost=1, reason="the connection ended"))
                return seq
            took_s = time.monotonic() - begin_s
            if isinstance(answer, Refusal):
                self.refusals[answer.reason] += 1
                return seq
            assert isinstance(answer, Answer)
            assert answer.seq == seq
            self.received[seq] = begin_s - self.start_s, took_s
            if answer.reason is None:
                assert answer.stages
                assert state.missed is not None
                self.reported, self.missed = self.reported.plus(state.missed), Missed()
            else:
                self.reasons[answer.reason.partition(" of about ")[0]] += 1
            if took_s > TIMEOUT_S:
                late_ms = 1000 * took_s
                self.missed = self.missed.plus(Missed(late=1, fallback_ms=late_ms, reason="no answer within 200 ms"))
            time.sleep(self.every_s)
        return seq

    def question(self, seq: int) -> StateMessage:
        jobs = (a_job(f"job-{seq // 9}-{job}", a_stage(job, done=seq % 9)) for job in range(self.num_jobs))
        return a_state(seq, *jobs, having=executors(4)).model_copy(update={"missed": self.missed})


def certificate_that_ends(folder: Path, ca: Pair, seconds: float) -> Pair:
    """Make a certificate for localhost that is valid for some seconds."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    pair = make_certificate(folder, ca, "short")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    signer: Any = serialization.load_pem_private_key(ca.key.read_bytes(), None)
    now, long = datetime.datetime.now(datetime.UTC), x509.load_pem_x509_certificate(pair.cert.read_bytes())
    builder = x509.CertificateBuilder(long.issuer, long.subject, key.public_key(), x509.random_serial_number())  # type: ignore[arg-type]
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(seconds=seconds))
    for extension in long.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    pair.cert.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return pair


@contextmanager
def running(*drivers: Driver) -> Iterator[None]:
    threads = [threading.Thread(target=driver.run) for driver in drivers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for driver in drivers:
            driver.stopped = True
        for thread in threads:
            thread.join(600)


def until(is_so: Callable[[], object]) -> None:
    """Wait, however busy the machine is."""
    begin_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - begin_s < 600
        time.sleep(0.1)


def test_a_day(tmp_path: Path) -> None:
    log, audit, policy, file = (tmp_path / name for name in ("log.jsonl", "audit.jsonl", "policy.npz", "tenants.yaml"))
    ca = make_ca(tmp_path)
    cert, key = make_certificate(tmp_path, ca)
    trusted = trusting(ca)
    policy.write_bytes(SHIPPED["embedded-stream"].read_bytes())
    file.write_text(tenants(*NAMES, "noisy", quota=6))
    file.chmod(0o600)
    options = ("--policy", str(policy), "--tenants", str(file), "--tls-cert", str(cert), "--tls-key", str(key))
    options += ("--log", str(log), "--log-size", "1", "--audit", str(audit), "--metrics", "0", "--slots", "8")
    start_s = time.monotonic()
    outages: dict[str, tuple[float, float]] = {}

    @contextmanager
    def outage(name: str) -> Iterator[None]:
        """Time in which answers may be missing, late or not in the log, and two more seconds."""
        begin_s = time.monotonic() - start_s
        yield
        outages[name] = begin_s, time.monotonic() - start_s + 2

    def metrics(with_: ssl.SSLContext = trusted) -> dict[str, float]:
        url = said["metrics"].replace("127.0.0.1", "localhost")
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {READER}"})
        text = urllib.request.urlopen(request, timeout=600, context=with_).read().decode()
        return {
            name: float(value)
            for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        }

    def events() -> list[Event]:
        return [Event.model_validate_json(line) for line in audit.read_text().splitlines()]

    def reload(expected: str) -> None:
        """Reload and wait for the end of the reload, which the audit log has."""
        before = len(events())
        process.send_signal(signal.SIGUSR1)
        until(lambda: len(events()) > before)
        assert events()[-1].event == expected

    def crash() -> None:
        """Kill the answering process, and wait until each driver has another answer."""
        counts = [len(driver.received) for driver in drivers]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        until(lambda: all(len(driver.received) > count + 1 for driver, count in zip(drivers, counts, strict=True)))

    with decima_serve(*options) as (process, said):
        messages: list[str] = []
        threading.Thread(target=messages.extend, args=(process.stderr,), daemon=True).start()
        drivers = [Driver(name, said["spark"], trusted, start_s) for name in NAMES]
        noisy = Driver("noisy", said["spark"], trusted, start_s, num_jobs=2_000, every_s=0.0)
        with running(*drivers):
            until(lambda: all(driver.received for driver in drivers))
            time.sleep(3 * HOUR_S)  # hours 0 to 2

            log.rename(tmp_path / "log.jsonl.logrotate")  # hour 3
            process.send_signal(signal.SIGHUP)
            until(log.exists)
            time.sleep(HOUR_S)

            with outage("reload of a policy"):  # hour 4; the new policy is tried while drivers ask
                policy.write_bytes(SHIPPED["embedded-batch"].read_bytes())
                file.write_text(tenants(*NAMES, "noisy", quota=4))
                reload("reloaded")
            time.sleep(HOUR_S)
            policy.write_bytes(b"garbage")  # hour 5
            reload("refused")
            policy.write_bytes(SHIPPED["embedded-batch"].read_bytes())
            time.sleep(HOUR_S)
            file.write_text("tenants: {etl: {quota: none}}")  # hour 6
            reload("refused")
            file.write_text(tenants(*NAMES, "noisy", quota=4))
            time.sleep(HOUR_S)

            with outage("first crash"):  # hour 7
                crash()
            time.sleep(2 * HOUR_S)

            with outage("full disk"):  # hours 9 and 10
                hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size // 2, hard))
                until(lambda: metrics()["decima_log_ok"] == 0)
                time.sleep(HOUR_S)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
                until(lambda: metrics()["decima_log_ok"] == 1)
            time.sleep(2 * HOUR_S)

            begin_s = time.monotonic() - start_s
            with running(noisy):  # hours 13 to 15
                time.sleep(3 * HOUR_S)
            beside = begin_s, time.monotonic() - start_s

            with outage("certificate"):  # hours 16 and 17: connected drivers go on, new connections fail
                short = certificate_that_ends(tmp_path, ca, 3.0)
                saved = cert.read_bytes(), key.read_bytes()
                for path, new in zip((cert, key), short, strict=True):
                    path.write_bytes(new.read_bytes())
                reload("reloaded")

                def is_refused() -> bool:
                    with suppress(OSError):
                        Client(said["spark"], trusted).close()
                        return False
                    return True

                until(is_refused)
                lenient = trusting(ca)
                lenient.verify_flags |= 0x200000  # X509_V_FLAG_NO_CHECK_TIME, as an operator may read the metrics
                assert metrics(lenient)["decima_certificate_expiry_timestamp_seconds"] < time.time()
                for path, content in zip((cert, key), saved, strict=True):
                    path.write_bytes(content)
                reload("reloaded")
                assert metrics()["decima_certificate_expiry_timestamp_seconds"] > time.time()
            time.sleep(HOUR_S)

            file.write_text(tenants(*NAMES[:-1], "noisy", quota=4))  # hours 18 and 19
            reload("reloaded")
            until(lambda: drivers[-1].refusals)
            time.sleep(2 * HOUR_S)
            file.write_text(tenants(*NAMES, "noisy", quota=4))
            count = len(drivers[-1].received)
            reload("reloaded")
            until(lambda: len(drivers[-1].received) > count)

            with outage("second crash"):  # hour 21
                crash()
            time.sleep(2 * HOUR_S)  # hours 22 and 23
        values = metrics()
        lost_lines = int(values["decima_log_lost_lines_total"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0

    # Each answer that a driver has received is in the log, apart from lines that are counted as lost.
    logged: set[tuple[str, int]] = set()
    files = sorted(tmp_path.glob("log.jsonl*"))
    for path in files:
        application: dict[int, str] = {}
        asked: dict[int, int | None] = {}
        for line in read_log(path):
            if isinstance(line, Welcomed):
                application[line.driver] = line.application
            elif isinstance(line, Question):
                asked[line.driver] = line.seq
            elif isinstance(line, Answered):
                logged.add((application[line.driver], asked[line.driver] or 0))
            elif isinstance(line, Skipped):
                logged.add((application[line.driver], line.seq))

    def in_outage(time_s: float, *names: str) -> bool:
        return any(
            begin_s <= time_s <= end_s for name, (begin_s, end_s) in outages.items() if name in (names or outages)
        )

    everyone = (*drivers, noisy)
    unlogged = [
        time_s
        for driver in everyone
        for seq, (time_s, _) in driver.received.items()
        if (driver.name, seq) not in logged
    ]
    at_crash = sum(in_outage(time_s, "first crash", "second crash") for time_s in unlogged)
    assert all(in_outage(time_s, "full disk", "first crash", "second crash") for time_s in unlogged)
    assert 2 * (len(unlogged) - at_crash) <= lost_lines, "question and answer"
    assert at_crash <= 2 * len(everyone), "at most the answer that was sent at the crash"

    # Answers are late only around the intended outages.
    received = [answer for driver in drivers for answer in driver.received.values()]
    late = [time_s for time_s, took_s in received if took_s > TIMEOUT_S]
    unexpected = [time_s for time_s in late if not in_outage(time_s)]
    assert len(unexpected) <= MOST_LATE * len(received)
    medians_ms = [
        1000
        * float(np.median([took_s for time_s, took_s in received if (beside[0] <= time_s < beside[1]) is is_noisy]))
        for is_noisy in (False, True)
    ]
    assert noisy.received
    assert all(driver.connections >= 3 for driver in drivers), "the first connection, and one after each crash"

    # Late and lost answers and their reasons are counted as the drivers have counted them.
    for driver in everyone:
        label = f'{{application="{driver.name}"}}'
        for name, missed in (("late", driver.reported.late), ("lost", driver.reported.lost)):
            assert abs(values[f"decima_{name}_answers_total{label}"] - missed) <= 1, "an answer that was never read"
    assert set(drivers[-1].refusals) == {
        "401 the token of revoked has been removed",
        "401 wrong token: none of the service's tokens",
    }
    kinds = Counter(event.event for event in events())
    assert kinds == {"started": 1, "reloaded": 5, "refused": 2}
    assert ["tenants.etl.quota: 6 -> 4"] in [list(event.changes) for event in events()]
    restarts = sum("is started again" in message for message in messages)
    assert restarts == 2
    print(
        f"\n{time.monotonic() - start_s:.0f} s; {len(received)} answers to drivers and {len(noisy.received)} to the "
        f"noisy one ({sum(noisy.reasons.values())} not decided); late {len(late)}, of them {len(unexpected)} outside "
        f"of the outages; lost {sum(driver.reported.lost for driver in everyone)}; restarts {restarts}; "
        f"{len(files)} log files; {lost_lines} lost lines, {len(unlogged)} answers not in the log; "
        f"median answer {medians_ms[0]:.1f} ms, beside the noisy driver {medians_ms[1]:.1f} ms; {dict(kinds)}"
    )
