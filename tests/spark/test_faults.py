"""A policy that dies, hangs, is late or sends invalid answers during a job: Spark continues, and logs the reason."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spark.eventlog import Task, gaps
from tests.spark.harness import Sleeper, application, policy_program, until, why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLOTS = 6
TASKS = 240
TASK_MS = 100
TOKEN = "secret"
#: Spark waits so long for an answer, and may take so long to offer again.
TIMEOUT_MS, LEEWAY_MS = 200, 10


@pytest.fixture(scope="module")
def port() -> int:
    """A port for a policy that restarts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def sleeper(tmp_path_factory, port: int) -> Iterator[Sleeper]:
    folder = tmp_path_factory.mktemp("spark")
    (folder / "token").write_text(f"{TOKEN}\n")
    conf = {"tokenFile": folder / "token", "timeoutMs": TIMEOUT_MS, "retryMs": 300, "ask": "offer"}
    conf = {f"spark__decima__{key}": value for key, value in conf.items()}
    with application(folder / "app", f"127.0.0.1:{port}", f"local-cluster[{SLOTS},1,1024]", **conf) as sleeper:
        sleeper.start("warm", (4 * SLOTS, 50)).join()
        yield sleeper


@pytest.fixture(scope="module")
def usual_gap_ms(sleeper: Sleeper) -> float:
    """Return the longest idle time of an executor without a policy."""
    sleeper.start("nobody", (TASKS, TASK_MS)).join()
    return show("nobody there", tasks_of(sleeper, "nobody"))


def tasks_of(sleeper: Sleeper, name: str) -> list[Task]:
    return [task for task in sleeper.tasks() if task.job == name]


def show(what: str, tasks: list[Task]) -> float:
    """Print a row; return the longest gap."""
    idle = gaps(tasks)
    span = (max(task.finished for task in tasks) - min(task.launched for task in tasks)) / 1e3
    p50, p99 = idle[len(idle) // 2], idle[int(0.99 * len(idle))]
    print(
        f"\n{what:20} {sum(task.succeeded for task in tasks)} of {len(tasks)} tasks succeeded, "
        f"{sum(task.attempt > 0 for task in tasks)} retried, {span:.2f} s, "
        f"idle ms p50 {p50}, p99 {p99}, max {idle[-1]}; load {os.getloadavg()[0]:.0f}",
        end="",
    )
    return idle[-1]


#: Fault -> options of the policy, what must stand in the log.
FAULTS: dict[str, tuple[list[object], str]] = {
    "none": ([], ""),
    "killed": ([], "no policy at"),
    "killed and back": ([], "no policy at"),
    "hangs": ([], "did not answer within 200 ms"),
    "50 ms late": (["--slow-ms", 50], ""),
    "1 s late": (["--slow-ms", 1000], "did not answer within 200 ms"),
    "nonsense": (["--nonsense", 1], "3 answers in a row were not understood"),
    "nonsense now and then": (["--nonsense", 5], "answer of the policy not understood"),
    "half a message": (["--half", 1], "did not answer within 200 ms"),
    "a megabyte": (["--megabyte", 1], "answer of the policy not understood: no answer to question"),
    "a wrong token": ([], "it refuses: wrong token"),
    "holds everything": (["--hold", 1], "the policy holds everything back while nothing runs"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost(fault: str, sleeper: Sleeper, port: int, usual_gap_ms: float) -> None:
    options, reason = FAULTS[fault]
    known = len(sleeper.log())
    with ExitStack() as programs:
        program = programs.enter_context(policy_program(port, "--token", TOKEN, *options))
        until(lambda: "INFO spark: policy at" in sleeper.log()[known:])
        known = len(sleeper.log())
        job = sleeper.start(fault, (TASKS, TASK_MS))
        until(lambda: sleeper.running() == SLOTS)
        time.sleep(1.5)
        assert job.is_alive(), "too late for a fault"
        strike(fault, program, programs, port)
        job.join()
        if fault == "killed and back":
            until(lambda: "INFO spark: policy at" in sleeper.log()[known:])
    tasks = tasks_of(sleeper, fault)
    longest_ms = show(fault, tasks)
    assert len(tasks) == TASKS
    assert all(task.succeeded and task.attempt == 0 for task in tasks)
    assert reason in sleeper.log()[known:]
    if fault == "1 s late":
        assert sleeper.log()[known:].count("INFO spark: policy at") <= 6, "it is tried ever less"
    if fault != "holds everything":
        assert longest_ms <= TIMEOUT_MS + LEEWAY_MS + 10 * (usual_gap_ms + 20), "what is beyond is noise"


def strike(fault: str, program: subprocess.Popen[str], programs: ExitStack, port: int) -> None:
    match fault:
        case "killed" | "killed and back" | "a wrong token":
            program.kill()
            program.wait()
            if fault != "killed":
                time.sleep(0.7)
                token = TOKEN if fault == "killed and back" else "another"
                programs.enter_context(policy_program(port, "--token", token))
        case "hangs":
            program.send_signal(signal.SIGSTOP)
        case _:
            program.send_signal(signal.SIGUSR1)


def test_a_token_file_that_is_not_there(tmp_path: Path, port: int, sleeper: Sleeper) -> None:
    """The policy receives an empty token, or nothing; Spark runs, and the log names the file."""
    token = sleeper.spark.sparkContext.getConf().get("spark.decima.tokenFile")
    Path(token).rename(tmp_path / "elsewhere")
    known = len(sleeper.log())
    try:
        with policy_program(port, "--token", TOKEN):
            sleeper.start("no token", (SLOTS, 50)).join()
            until(lambda: "spark.decima.tokenFile cannot be read" in sleeper.log()[known:])
    finally:
        (tmp_path / "elsewhere").rename(token)
