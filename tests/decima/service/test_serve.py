"""The command ``decima serve`` as a process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.service.log import Question, read_log
from decima.service.protocol import Refusal
from decima.service.replay import replayed
from tests.cases import cases
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors
from tests.decima.service.test_driver import PROFILES
from tests.programs import started
from workloads.sources.workload_file import Workload
from workloads.sources.workload_writer import write_workload

STATE = a_state(1, a_job("a", a_stage(7)), having=executors(3))


@contextmanager
def decima_serve(*options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Start the program and yield it with its output; ``spark`` is the address for drivers."""
    command = [sys.executable, "-m", "decima", "serve", "--spark", "0", *options]
    with started(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said: dict[str, str] = {}
        for line in process.stdout:
            name, _, value = line.strip().partition(": ")
            said[name] = value
            if found := re.fullmatch(r"serving (.+) on (\S+)", line.strip()):
                said |= {"policy": found[1], "spark": found[2]}
                break
        else:
            raise AssertionError(process.stderr.read() if process.stderr else "")
        yield process, said


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Stop the program; return exit status and stderr."""
    process.send_signal(number)
    _, text = process.communicate(timeout=600)
    return process.returncode, text


def test_from_the_first_line_to_a_clean_end(tmp_path: Path) -> None:
    """The run includes metrics, the log and JSON lines."""
    log, token = tmp_path / "log.jsonl", tmp_path / "token"
    options = ("--log", str(log), "--token-file", str(token), "--metrics", "0", "--json-logs", "--shadow")
    with decima_serve(*options) as (process, said):
        assert said["policy"] == "srpt-tuned, in the shadow"
        with Client(said["spark"], token="wrong") as stranger:
            assert isinstance(stranger.greeting, Refusal)
        with Client(said["spark"], token=token.read_text().strip(), name="etl") as client:
            for seq in range(1, 4):
                assert client.ask(STATE.model_copy(update={"seq": seq})).stages
            values: dict[str, str] = {}
            while values.get("decima_questions_total") != "3.0":  # it is told when the answer has gone out
                metrics = urllib.request.urlopen(said["metrics"], timeout=600).read().decode()
                lines = [line for line in metrics.splitlines() if not line.startswith("#")]
                values = dict(line.rsplit(" ", 1) for line in lines)
            status, text = end(process, signal.SIGTERM)
            assert client.is_closed()
    assert status == 0
    names = ("drivers", "jobs", "slots", "refused_total", "questions_total")
    found = {name: float(values[f"decima_{name}"]) for name in names}
    assert found == {"drivers": 1, "jobs": 1, "slots": 3, "refused_total": 1, "questions_total": 3}
    assert float(values["decima_answer_seconds_count"]) == 3
    assert float(values["decima_decisions_total"]) == 3
    messages = [json.loads(line) for line in text.splitlines()]
    assert [line["message"] for line in messages] == [
        "127.0.0.1 refused: wrong token: the driver needs the token of the service's token file",
        "etl (app-1) connected",
        "ending",
        "etl (app-1) left",
    ]
    assert messages[1]["spark"] == "3.5.9"
    [driver] = replayed(read_log(log))
    assert (driver.questions, driver.policy) == (3, "srpt-tuned, in the shadow")


def test_after_sighup_it_opens_its_log_again_and_after_ctrl_c_it_ends(tmp_path: Path) -> None:
    """SIGHUP may reach both processes, as with `pkill` or at the end of a terminal session."""
    log, renamed = tmp_path / "log.jsonl", tmp_path / "log.jsonl.1"
    with decima_serve("--no-token", "--policy", "srpt", "--log", str(log)) as (process, said):
        assert said["policy"] == "srpt"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        with Client(said["spark"]) as client:
            assert client.ask(STATE).stages
            numbers = [int(number) for number in children.read_text().split()] if children.exists() else []
            if numbers:
                policies = [os.sched_getscheduler(number) for number in (process.pid, numbers[-1])]
                assert policies == [os.SCHED_BATCH, os.SCHED_OTHER], "page and log delay no answer"
            log.rename(renamed)
            for number in (*numbers, process.pid):
                os.kill(number, signal.SIGHUP)
            while not log.exists():
                time.sleep(0.05)
            assert client.ask(STATE.model_copy(update={"seq": 2})).stages
            status, text = end(process, signal.SIGINT)
    assert status == 0
    assert "Traceback" not in text
    for file in (renamed, log):
        assert [line.event for line in read_log(file)][:4] == ["started", "welcomed", "question", "answered"]
        [driver] = replayed(read_log(file))
        assert driver.questions == 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_probes_see_that_the_answering_process_is_stopped_and_a_kill_leaves_none_behind() -> None:
    def status(path: str) -> int:
        try:
            return int(urllib.request.urlopen(said["metrics"].replace("metrics", path), timeout=600).status)
        except urllib.error.HTTPError as error:
            return error.code

    def wait_for(expected: int) -> None:
        """Wait, since earlier results hold for a second, and a busy machine may delay a decision."""
        for path in ("healthz", "readyz"):
            while status(path) != expected:
                time.sleep(0.05)

    with decima_serve("--no-token", "--policy", "fifo", "--metrics", "0") as (process, said):
        wait_for(200)
        answering = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1])
        os.kill(answering, signal.SIGSTOP)
        wait_for(503)
        os.kill(answering, signal.SIGCONT)
        wait_for(200)
        metrics = urllib.request.urlopen(said["metrics"], timeout=600).read().decode()
        assert "decima_questions_total 0.0" in metrics
        with Client(said["spark"]) as client:
            assert client.ask(STATE).stages
            process.kill()
            assert client.is_closed()
            while is_open(said["spark"]):
                time.sleep(0.1)


def is_open(where: str) -> bool:
    with suppress(ConnectionError):
        Client(where).close()
        return True
    return False


@cases(
    "option, module, library",
    ("--metrics", "decima.service.metrics", "prometheus_client"),
    ("--http", "decima.service.page", "uvicorn"),
)
def test_a_missing_library_is_named(option: str, module: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    result = CliRunner().invoke(cli, ["serve", "--policy", "fifo", "--no-token", "--spark", "0", option, "0"])
    assert result.stderr == f"decima: error: {option} needs {library}: pip install -e '.[serve]'\n"


@cases(
    "options, message",
    (("--policy", "nonsense"), "unknown scheduler 'nonsense'"),
    (("--policy", "decima:none.npz"), "neither a file nor a shipped policy"),
    (("--spark", "PORT"), "address already in use"),
    (("--metrics", "PORT", "--spark", "0"), "address already in use"),
    (("--spark", "x"), "expected a port or unix:PATH"),
    (("--spark", "unix:nowhere/socket"), "no such file"),
    (("--host", "nowhere.invalid"), "cannot listen on nowhere.invalid"),
    (("--history", "old.json"), "old.json: version: "),
    (("--history", "broken.json"), "broken.json: "),
    (("--log", "nowhere/log.jsonl"), "cannot write nowhere/log.jsonl"),
    (("--token-file", "token"), "exclude each other"),
    (("--log-size", "100"), "--log-size and --log-daily need --log"),
)
def test_what_is_wrong_is_said_in_one_line(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text('{"format": "decima-workload", "version": 99, "profiles": {}}')
    Path("broken.json").write_text("{")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = [port if option == "PORT" else option for option in options]
        result = CliRunner().invoke(cli, ["serve", "--policy", "fifo", "--no-token", *words])
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


CRASHING = """
import faulthandler
from decima.schedulers.srpt import Srpt

class Crashing(Srpt):
    def decide(self, observation):
        if observation.time_ms == 666.0:
            faulthandler._sigsegv()
        return super().decide(observation)
"""


def test_after_a_crash_drivers_are_answered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The crash leaves a traceback and the question that caused it."""
    (tmp_path / "crashing.py").write_text(CRASHING)
    log = tmp_path / "log.jsonl"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    options = ("--no-token", "--policy", "crashing:Crashing", "--log", str(log))
    with decima_serve(*options) as (process, said), Client(said["spark"]) as client:
        client.ask(STATE)
        client.socket.sendall(STATE.model_copy(update={"seq": 2, "time_ms": 666.0}).model_dump_json().encode() + b"\n")
        assert client.is_closed()
        with connected_again(said["spark"]) as again:
            assert again.ask(STATE).stages
            status, text = end(process, signal.SIGTERM)
    assert status == 0
    assert "Fatal Python error: Segmentation fault" in text
    assert "in decide" in text
    assert text.count("the process that answers drivers ended (SIGSEGV) and is started again") == 1
    lines = list(read_log(log))
    assert [line.event for line in lines] == [
        *("started", "welcomed", "question", "answered", "question", "left"),
        *("welcomed", "question", "answered", "left"),
    ]
    crashed = lines[4]
    assert isinstance(crashed, Question)
    assert (crashed.seq, crashed.time_ms) == (2, 666.0)


def connected_again(where: str) -> Client:
    """Try to connect every 0.1 s."""
    while True:
        with suppress(ConnectionError):
            return Client(where)
        time.sleep(0.1)


def test_the_unit_starts_the_service(tmp_path: Path) -> None:
    """The environment is that of systemd and the unit, with another folder for its files."""
    unit = (Path(__file__).parents[3] / "docs" / "systemd" / "decima.service").read_text()
    program, *options = unit.partition("ExecStart=")[2].partition("\n")[0].split()
    assert program == "/opt/decima/bin/decima"
    given = {"/etc/decima/policy.npz": "fifo", "/etc/decima/jobs.json": str(tmp_path / "jobs.json")}
    given |= {port: "0" for port in options if port.isdigit()}
    given |= {option: option.replace("/var/lib/decima", str(tmp_path)) for option in options if "/var/lib" in option}
    write_workload(tmp_path / "jobs.json", Workload(tuple(PROFILES[:1]), None, "jobs", {}))
    settings = dict(line.removeprefix("Environment=").split("=", 1) for line in re.findall(r"Environment=.*", unit))
    assert settings == {"NUMBA_CACHE_DIR": "/var/lib/decima/numba"}
    environment = {"HOME": "/", "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])}
    cache = os.environ.get("NUMBA_CACHE_DIR")
    environment |= {"NUMBA_CACHE_DIR": cache} if cache else {}
    command = [sys.executable, "-m", "decima", *(given.get(option, option) for option in options)]
    with started(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("metrics: ")
        where = process.stdout.readline().split()[-1]
        assert process.stdout.readline().strip() == f"token file: {tmp_path}/token"
        with Client(where, token=(tmp_path / "token").read_text().strip()) as client:
            assert client.ask(STATE).stages
        status, _ = end(process, signal.SIGTERM)
    assert status == 0
    assert (tmp_path / "live.jsonl").exists()
