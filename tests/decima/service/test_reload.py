"""SIGUSR1 replaces policy, tenants, tokens and certificate of a running service, or leaves all of them as they were.

A crashed answering process decides again after less than 3 s of CPU time, with the policy of the last good reload.
"""

import hashlib
import os
import re
import signal
import ssl
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from decima.policy.shipped import SHIPPED
from decima.service.audit import Event
from decima.service.protocol import Refusal, Welcome
from tests.certificates import make_ca, make_certificate, needs_openssl, trusting
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors
from tests.decima.service.test_serve import decima_serve, end

pytestmark = [needs_openssl, pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")]
STATE = a_state(1, a_job("a", a_stage(7)), having=executors(3))
OLD, NEW, READER = "an-old-token-1234", "a-new-token-12345", "a-token-to-read-with"


def until(found: Callable[[], object]) -> None:
    """Wait, however busy the machine is."""
    start_s = time.monotonic()
    while not found():
        assert time.monotonic() - start_s < 600
        time.sleep(0.05)


def test_policy_tokens_and_certificate_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    policy, tokens = tmp_path / "policy.npz", tmp_path / "tenants.yaml"
    audit = tmp_path / "audit.jsonl"
    ca, stranger = make_ca(tmp_path), make_ca(tmp_path, "stranger")
    cert, key = make_certificate(tmp_path, ca)
    policy.write_bytes(SHIPPED["embedded-stream"].read_bytes())
    tokens.write_text(f"tokens: {{old: {{secret: {OLD}}}, reader: {{secret: {READER}, role: reader}}}}")
    tokens.chmod(0o600)
    options = (
        "--policy",
        str(policy),
        "--tenants",
        str(tokens),
        "--audit",
        str(audit),
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(key),
    )

    def metrics(trusted: ssl.SSLContext) -> dict[str, str]:
        request = urllib.request.Request(said["metrics"], headers={"Authorization": f"Bearer {READER}"})
        request.full_url = request.full_url.replace("127.0.0.1", "localhost")
        text = urllib.request.urlopen(request, timeout=600, context=trusted).read().decode()
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def digest(values: dict[str, str]) -> str:
        [build] = [name for name in values if name.startswith("decima_build_info")]
        assert f'policy="decima:{policy}"' in build
        return re.findall('policy_sha256="([0-9a-f]{64})"', build)[0]

    with decima_serve("--metrics", "0", *options) as (process, said):
        trusted = trusting(ca)
        first = metrics(trusted)
        with Client(said["spark"], trusted, token=OLD) as client:
            assert client.ask(STATE).stages

            # A malformed policy: nothing changes, not even the tokens, also after a crash of the answering process.
            policy.write_bytes(b"garbage")
            tokens.write_text(f"tokens: {{new: {{secret: {NEW}}}, reader: {{secret: {READER}, role: reader}}}}")
            process.send_signal(signal.SIGUSR1)
            until(lambda: metrics(trusted)["decima_reload_ok"] == "0.0")
            assert digest(metrics(trusted)) == digest(first)
            assert client.ask(STATE.model_copy(update={"seq": 2})).stages
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGKILL)
            assert client.is_closed()
        until(lambda: answers(said["spark"], trusted, OLD))
        assert cpu_s(int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1])) < 3

        # New files, with a certificate of another authority. The connected driver has the removed token.
        policy.write_bytes(SHIPPED["embedded-batch"].read_bytes())
        for path, new in zip((cert, key), make_certificate(tmp_path, stranger, "other", "DNS:localhost"), strict=True):
            path.write_bytes(new.read_bytes())
        with Client(said["spark"], trusted, token=OLD) as client:
            assert client.ask(STATE).stages
            process.send_signal(signal.SIGUSR1)
            elsewhere = trusting(stranger)
            until(lambda: answers(said["spark"], elsewhere, NEW))
            refusal = client.say(STATE.model_copy(update={"seq": 2}))
            assert isinstance(refusal, Refusal)
            assert refusal.reason == "401 the token of old has been removed"
        second = metrics(elsewhere)
        assert digest(second) != digest(first)
        assert second["decima_reload_ok"] == "1.0"
        with Client(said["spark"], elsewhere, token=OLD) as client:
            assert isinstance(client.greeting, Refusal)
        status, text = end(process, signal.SIGTERM)
    assert status == 0
    [kept] = [line for line in text.splitlines() if "nothing is reloaded" in line]
    assert "policy, tenants, tokens and certificate stay as they were: " in kept
    assert f"{policy}: not a policy" in kept
    assert text.count("reloaded policy, tenants, tokens and certificate; SHA-256 of the policy: ") == 1
    assert f"the certificate {cert} ends on " in text
    check_audit(audit, policy, tokens, cert)


def check_audit(audit: Path, policy: Path, tokens: Path, cert: Path) -> None:
    """Check that there is a line for the start and for each reload, with the files before and after, and no secret."""
    lines = audit.read_text()
    started, refused, reloaded = map(Event.model_validate_json, lines.splitlines())
    assert [each.event for each in (started, refused, reloaded)] == ["started", "refused", "reloaded"]
    assert [each.by for each in (started, refused, reloaded)] == ["command", "SIGUSR1", "SIGUSR1"]
    for path, contents in (
        (policy, [SHIPPED[name].read_bytes() for name in ("embedded-stream", "embedded-batch")]),
        (tokens, [None, tokens.read_bytes()]),
        (cert, [None, cert.read_bytes()]),
    ):
        file = reloaded.files[str(path)]
        assert file.owner == path.owner()
        assert [digest for digest, content in zip((file.before, file.after), contents, strict=True) if content] == [
            hashlib.sha256(content).hexdigest() for content in contents if content
        ]
        assert file.before != file.after
        assert started.files[str(path)].before is None
        assert refused.files[str(path)].before == refused.files[str(path)].after == file.before
    assert f"{policy}: not a policy" in refused.reason
    assert refused.changes == ()
    assert [change.partition(": ")[0] for change in reloaded.changes] == [
        "tokens.new.role", "tokens.new.secret", "tokens.old.role", "tokens.old.secret",
    ]  # fmt: skip
    assert not any(secret in lines for secret in (OLD, NEW, READER))


def cpu_s(process: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answers(where: str, trusted: ssl.SSLContext, token: str) -> bool:
    try:
        with Client(where, trusted, token=token) as client:
            return isinstance(client.greeting, Welcome) and bool(client.ask(STATE).stages)
    except OSError:
        return False
