"""The time budget of expensive questions: a driver with thousands of jobs does not delay the other drivers."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.schedulers.srpt import Srpt
from decima.service.budget import BURST_S, CHEAP_S, QUIET_S, SHARE, TimeBudget
from decima.service.log import DecisionLog, Question, Skipped, read_log
from decima.service.metrics import Metrics
from decima.service.server import warm_up
from decima.service.service import Service
from tests.decima.service.serving import Client, a_hello, a_job, a_stage, a_state, executors, serving

HEAVY, LIGHT = 1, 2
#: Length of a line, bytes, and CPU time of its question, s.
SIZE, COST_S = 500_000, 0.07


class Clock:
    """Time that only the test advances, s."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def ask(budget: TimeBudget, clock: Clock, driver: int, cost_s: float = COST_S) -> bool:
    """Ask a question; return whether it is decided, which takes ``cost_s``."""
    size = SIZE if cost_s > CHEAP_S else 1_000
    if budget.check(driver, size):
        return False
    clock.now_s += cost_s
    budget.spend(driver, size, cost_s, cost_s)
    return True


def test_expensive_questions_get_their_share_and_cheap_ones_are_always_decided() -> None:
    clock = Clock()
    budget = TimeBudget(clock)
    decided = 0
    for _ in range(10_000):
        clock.now_s += 0.005
        assert ask(budget, clock, LIGHT, 0.0005)
        decided += ask(budget, clock, HEAVY)
    assert 0.95 * SHARE < decided * COST_S / clock.now_s < SHARE + BURST_S / clock.now_s


def test_a_driver_alone_has_no_limit() -> None:
    clock = Clock()
    budget = TimeBudget(clock)
    assert all(ask(budget, clock, HEAVY) for _ in range(50))
    ask(budget, clock, LIGHT, 0.0005)
    assert not ask(budget, clock, HEAVY)
    clock.now_s += QUIET_S + 1
    assert all(ask(budget, clock, HEAVY) for _ in range(50))
    ask(budget, clock, LIGHT, 0.0005)
    budget.leave(LIGHT)
    assert all(ask(budget, clock, HEAVY) for _ in range(50))


def test_a_slow_first_question_and_waits_for_a_cpu_make_no_question_expensive() -> None:
    clock = Clock()
    budget = TimeBudget(clock)
    for driver in (LIGHT, HEAVY):
        assert not budget.check(driver, 1_000)
        budget.spend(driver, 1_000, 1.0, 1.0)  # compiled code is loaded
    for _ in range(5):
        assert not budget.check(LIGHT, 1_000)
        budget.spend(LIGHT, 1_000, 0.001, 0.5)
    assert budget.check(HEAVY, SIZE)


def test_drivers_with_expensive_questions_take_turns() -> None:
    """The first driver asks ten times as often as the others."""
    clock = Clock()
    budget = TimeBudget(clock)
    decided = dict.fromkeys((1, 2, 3), 0)
    for step in range(30_000):
        clock.now_s += 0.001
        decided[1] += ask(budget, clock, 1)
        for driver in (2, 3):
            decided[driver] += step % 10 == 0 and ask(budget, clock, driver)
    assert max(decided.values()) - min(decided.values()) <= 1


def line(seq: int, num_jobs: int) -> bytes:
    jobs = (a_job(f"job-{number}", a_stage(number, done=seq % 5)) for number in range(num_jobs))
    return a_state(seq, *jobs, having=executors(8)).model_dump_json().encode()


def test_the_reason_is_in_answer_log_and_metrics(tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.service.budget.BURST_S", 1e-6)  # used up by one question, also on a fast machine
    warm_up(Srpt)
    clock, metrics, path = Clock(), Metrics(), tmp_path / "log.jsonl"
    service = Service(Srpt, watchers=[metrics, DecisionLog(path, "srpt")], clock=clock)
    heavy, light = (service.welcome(a_hello().model_dump_json().encode())[0] for _ in range(2))
    answers = []
    for seq in range(1, 11):
        for driver, num_jobs in ((light, 1), (heavy, 2_000)):
            answers.append(service.answer(driver, line(seq, num_jobs)))
            service.answered(driver)
    assert all(answer.reason is None and answer.stages for answer in answers[::2])
    assert [answer.seq for answer in answers[1::2]] == list(range(1, 11))
    [decided, *skipped] = answers[1::2]
    assert decided.stages
    for answer in skipped:
        assert answer.reason is not None
        assert "more than the driver's share of the time" in answer.reason
        assert (answer.stages, answer.limits, answer.rest) == ((), {}, "fill")
    lines = list(read_log(path))
    assert [each.seq for each in lines if isinstance(each, Skipped) and each.driver == heavy.number] == [*range(2, 11)]
    assert sum(isinstance(each, Question) for each in lines) == 11
    assert metrics.registry.get_sample_value("decima_skipped_questions_total", {"application": "test"}) == 9
    assert metrics.registry.get_sample_value("decima_questions_total") == 11
    [warning] = caplog.messages
    assert "test (app-1): a question of about" in warning
    clock.now_s += 60
    assert service.answer(heavy, line(11, 2_000)).stages


def test_a_driver_with_2000_jobs_does_not_double_the_median_answer_of_another() -> None:
    """The driver with 2,000 jobs of one stage asks again as soon as it has an answer, in every second phase."""
    own_ms: tuple[list[float], list[float]] = [], []
    is_noisy, has_ended = threading.Event(), threading.Event()
    answers = {True: 0, False: 0}

    def disturb(where: str) -> None:
        template = line(0, 2_000)
        with Client(where, application="heavy") as client:
            for seq in range(1, 10**6):
                while not is_noisy.wait(0.01) and not has_ended.is_set():
                    pass
                if has_ended.is_set():
                    return
                client.socket.sendall(template.replace(b'"seq":0', b'"seq":%d' % seq, 1) + b"\n")
                answers[b"reason" in client.read_line()] += 1

    warm_up(Srpt)
    with serving(Service(Srpt)) as where, Client(where, application="light") as client:
        thread = threading.Thread(target=disturb, args=(where,))
        thread.start()
        for phase in range(8):
            (is_noisy.set if phase % 2 else is_noisy.clear)()
            for question in range(40):
                time.sleep(0.01)
                start_s = time.perf_counter()
                assert client.ask(a_state(100 * phase + question, a_job("a", a_stage(1)), having=executors(2))).stages
                own_ms[phase % 2].append(1000 * (time.perf_counter() - start_s))
        has_ended.set()
        thread.join()
    quiet_ms, noisy_ms = map(np.median, own_ms)
    print(f"median answer {quiet_ms:.2f} ms, beside the other driver {noisy_ms:.2f} ms; its answers {answers}")
    assert noisy_ms < 2 * quiet_ms
    assert answers[False] > 0
