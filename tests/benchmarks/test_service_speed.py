"""CPU time of an answer over the socket, relative to matrix products, and the delay that a live Spark sees."""

import time

import numpy as np
import pytest

from decima.registry import make_scheduler
from decima.service.protocol import StateMessage
from decima.service.service import Connected, Service, Watcher
from tests.benchmarks.yardstick import product_s
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors, serving

pytestmark = pytest.mark.benchmark

JOBS, QUESTIONS, WARM = 20, 1500, 100


class PolicyPart(Watcher):
    def __init__(self) -> None:
        self.policy_ms: list[float] = []

    def answered(self, driver: Connected) -> None:
        assert driver.decided is not None
        self.policy_ms.append(driver.decided.policy_ms)


def question(seq: int) -> StateMessage:
    """Return a question with 20 jobs of two stages, changed each time; three jobs run, and two slots are free."""
    jobs = []
    for number in range(JOBS):
        running = 2 if number < 3 else 0
        done = seq // 7 % 60
        scan = a_stage(2 * number, tasks=200 + number, done=done, running=running, mean_ms=400.0 + 30 * number)
        join = a_stage(2 * number + 1, "waiting", 20, parents=(2 * number,))
        jobs.append(a_job(f"sql-{number}", scan, join, name=f"query {number}", submitted_time_ms=700.0 * number))
    return a_state(
        seq, *jobs, having=executors(2, *(f"sql-{number % 3}" for number in range(6))), time_ms=1e6 + 50 * seq
    )


def test_a_decision_takes_as_long_as_some_products() -> None:
    part = PolicyPart()
    took_ms = []
    with serving(Service(lambda: make_scheduler("decima"), watchers=[part])) as where, Client(where) as client:
        for seq in range(QUESTIONS):
            if seq == WARM:
                warm_s = time.process_time()
            line = question(seq).model_dump_json().encode() + b"\n"
            start_s = time.perf_counter()
            client.socket.sendall(line)
            client.read_line()
            took_ms.append((time.perf_counter() - start_s) * 1000)
            time.sleep(0.002)
        cpu_ms = 1000 * (time.process_time() - warm_s) / (QUESTIONS - WARM)
    p50, p99 = np.percentile(took_ms[WARM:], (50, 99))
    policy = float(np.median(part.policy_ms[WARM:]))
    unit_ms = 1000 * product_s()
    print(
        f"\n{JOBS} jobs, {len(line)} bytes: p50 {p50:.2f} ms, p99 {p99:.2f} ms; CPU {cpu_ms:.2f} ms on both sides, the "
        f"policy {policy:.2f} ms, a product {unit_ms:.2f} ms"
    )
    assert cpu_ms < 9 * unit_ms
    assert policy < 1.2 * unit_ms
