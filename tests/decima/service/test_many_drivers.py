"""1,000 drivers on one service, as a program of its own: right answers, bounded memory, and the times of answers.

``pytest -n 0 -m slow -s tests/decima/service/test_many_drivers.py`` prints the figures.
"""

import asyncio
import json
import os
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.service.log import Answered, read_log
from tests.decima.service.serving import a_hello, a_job, a_stage, a_state, executors
from tests.decima.service.test_serve import decima_serve

pytestmark = pytest.mark.slow

DRIVERS, QUESTIONS = 1_000, 3
#: Mean time between two questions of a driver, s: it asks when a stage appears, ends or has launched its last task.
EVERY_S = 15.0
#: Growth of memory when as many drivers come again, as a fraction.
GROWTH = 0.05


def question(driver: int, seq: int) -> bytes:
    """Return a question with three jobs: at each, one has ended and a new one has come."""
    jobs = []
    for number in range(seq, seq + 3):
        first = 1000 * driver + 2 * number
        scan = a_stage(first, tasks=20 + driver % 50, done=5 * (seq + 2 - number), running=2, mean_ms=500.0)
        join = a_stage(first + 1, "waiting", 8, parents=(first,))
        jobs.append(a_job(f"{driver}-{number}", scan, join, submitted_time_ms=1e6 + 1e4 * number))
    having = executors(3, *(job.id for job in jobs for _ in range(2)))
    return a_state(seq, *jobs, having=having, time_ms=1e6 + 1e4 * seq).model_dump_json().encode() + b"\n"


async def drive(driver: int, where: str, took_ms: list[float]) -> None:
    """Play a driver; check that each answer is about its own jobs."""
    host, _, port = where.rpartition(":")
    random = np.random.default_rng(driver)
    await asyncio.sleep(random.uniform(0, EVERY_S))
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    writer.write(a_hello(application=f"app-{driver}").model_dump_json().encode() + b"\n")
    assert json.loads(await reader.readline())["type"] == "welcome"
    for seq in range(QUESTIONS):
        await asyncio.sleep(random.uniform(0, 2 * EVERY_S))
        begin = time.perf_counter()
        writer.write(question(driver, seq))
        answer: dict[str, Any] = json.loads(await reader.readline())
        took_ms.append((time.perf_counter() - begin) * 1000)
        assert answer["type"] == "answer", answer
        assert answer["seq"] == seq
        assert answer["stages"]
        assert {stage["id"] // 1000 for stage in answer["stages"]} == {driver}
        assert {job.partition("-")[0] for job in answer["limits"]} == {str(driver)}
    writer.close()
    await writer.wait_closed()


async def drive_all(said: dict[str, str], took_ms: list[float]) -> int:
    """Play all drivers while the page is read; return the largest number of drivers that it showed."""
    drivers = asyncio.gather(*(drive(number, said["spark"], took_ms) for number in range(DRIVERS)))
    most = 0
    while not drivers.done():
        await asyncio.sleep(0.5)
        state = await asyncio.to_thread(urllib.request.urlopen, said["page"] + "state")
        most = max(most, json.loads(state.read())["num_drivers"])
    await drivers
    return most


def memory_mb(process: int) -> dict[str, float]:
    """Return the resident memory of the service's processes: of the one that answers, and of the other."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    found = {}
    for name, each in (("answering", children[-1]), ("other", str(process))):
        pages = int(Path(f"/proc/{each}/statm").read_text().split()[1])
        found[name] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return found


def test_a_thousand_drivers(tmp_path: Path) -> None:
    log = tmp_path / "live.jsonl"
    options = ("--no-token", "--log", str(log), "--http", "0", "--metrics", "0")
    with decima_serve(*options) as (process, said):
        assert process.stderr is not None
        threading.Thread(target=process.stderr.read, daemon=True).start()  # a line for each driver
        memory = []
        for _ in range(3):
            took_ms = list[float]()
            most = asyncio.run(drive_all(said, took_ms))
            assert most > DRIVERS / 2
            memory.append(memory_mb(process.pid))
            p50, p99 = np.percentile(took_ms, (50, 99))
            print(
                f"\n{most} drivers at once, {len(took_ms)} answers: p50 {p50:.1f} ms, p99 {p99:.1f} ms as seen by "
                f"the drivers; {memory[-1]}; load {os.getloadavg()[0]:.0f}",
                flush=True,
            )
        while "\ndecima_drivers 0.0\n" not in (values := urllib.request.urlopen(said["metrics"]).read().decode()):
            time.sleep(0.1)
        assert "\ndecima_jobs 0.0\n" in values
    answers = [line.took_ms for line in read_log(log) if isinstance(line, Answered)]
    assert len(answers) == 3 * DRIVERS * QUESTIONS
    p50, p99 = np.percentile(answers, (50, 99))
    print(f"in the service: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {max(answers):.0f} ms")
    for name in ("answering", "other"):
        assert memory[2][name] < (1 + GROWTH) * memory[1][name]
