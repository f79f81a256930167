"""For all questions, compiled code stays inside its memory, and decides like plain Python."""

import itertools
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.policy.shipped import SHIPPED
from decima.registry import make_scheduler
from decima.service.history import History
from decima.service.jobs import QuestionError
from decima.service.protocol import ExecutorMessage, JobMessage, StageMessage, StateMessage
from decima.service.service import Driver
from tests.decima.service.questions import RULES, observation, states

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="compares it with what is compiled")

#: The C library checks what is freed, and fills what is allocated or freed with this byte.
CHECKED = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
#: Frees a block behind whose end a byte was written.
OVERRUN = """
import ctypes, numpy
block = numpy.empty(5000, numpy.uint8)
ctypes.memset(block.ctypes.data, 7, 5001)
del block
"""


def child(*program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program],
        cwd=Path(__file__).parents[3],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def decided(seed: int, count: int, *names: str, **environment: str) -> str:
    """Return the output of a child process that decides random questions; see ``questions.py``."""
    done = child("-m", "tests.decima.service.questions", str(seed), str(count), *names, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def checked() -> dict[str, str]:
    """Return the environment of a process whose memory is checked."""
    if child("-c", OVERRUN, **CHECKED).returncode != -signal.SIGABRT:
        pytest.skip("this C library does not check memory")
    return CHECKED


#: Decides questions as the module ``questions`` does, after the question of jobs that are done.
FINISHED_FIRST = """
from tests.decima.service.questions import main
from tests.decima.service.test_questions import ask_of_finished_jobs
ask_of_finished_jobs()
main(1, 3, ["embedded-batch", "packing-tpch", "tpch-batch"])
"""


def ask_of_finished_jobs() -> None:
    """Ask about three jobs whose stages are done, one with a stage to run, and two slots."""

    def job(number: int, state: str) -> JobMessage:
        done = 2 * (state == "done")
        stage = StageMessage(id=number, state=state, tasks=2, done=done, running=0, pending=2 - done)  # type: ignore[arg-type]
        return JobMessage(id=str(number), submitted_time_ms=float(number), running=0, stages=(stage,))

    question = StateMessage(
        type="state",
        seq=1,
        time_ms=9.0,
        executors=tuple(ExecutorMessage(id=str(number), slots=1, running=0) for number in range(2)),
        jobs=(*(job(number, "done") for number in range(3)), job(3, "ready")),
    )
    for name in ("tpch-batch", "embedded-batch", "embedded-stream"):
        driver = Driver(make_scheduler(f"decima:{name}"), History(), itertools.count(), itertools.count())
        for _ in range(50):
            assert driver.decide(question).choices[0].job == 3


def test_random_questions_are_decided_as_by_plain_python(checked: dict[str, str]) -> None:
    """So is a question with more jobs without unfinished stages than slots."""
    compiled = child("-c", FINISHED_FIRST, **checked)
    assert compiled.returncode == 0, compiled.stderr[-2000:]
    assert len(compiled.stdout.splitlines()) == 3
    assert compiled.stdout == decided(1, 3, "embedded-batch", "packing-tpch", "tpch-batch", NUMBA_DISABLE_JIT="1")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from([*SHIPPED, *RULES]))
def test_random_questions_are_answered_or_refused(seed: int, name: str) -> None:
    random = np.random.default_rng(seed)
    scheduler = make_scheduler(f"decima:{name}" if name in SHIPPED else name)
    driver = Driver(scheduler, History(), itertools.count(), itertools.count(), float(random.choice([0.0, 2000.0])))
    for state in states(random, 4):
        with suppress(QuestionError):
            assert driver.decide(state).answer.seq == state.seq


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from([*SHIPPED, *RULES]))
def test_random_observations_are_decided(seed: int, name: str) -> None:
    seen = observation(np.random.default_rng(seed))
    if seen.num_schedulable:
        scheduler = make_scheduler(f"decima:{name}" if name in SHIPPED else name)
        scheduler.reset(seen.config)
        decision = scheduler.decide(seen)
        assert decision is None or seen.schedulable[decision.stage]


@pytest.mark.slow
def test_ten_thousand_questions(checked: dict[str, str]) -> None:
    """The questions go to all policies and rules."""
    assert len(decided(2, 10_000, **checked).splitlines()) == len(SHIPPED) + len(RULES)


@pytest.mark.slow
def test_a_thousand_questions_without_the_compiler_and_with_bounds_checks(
    tmp_path: Path, checked: dict[str, str]
) -> None:
    compiled = decided(3, 1000, **checked)
    assert compiled == decided(3, 1000, NUMBA_DISABLE_JIT="1")
    assert compiled == decided(3, 1000, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
