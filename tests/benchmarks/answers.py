"""Measure the times of answers of ``decima serve`` beside busy loops and readers of its page and metrics, with its log.

``python -m tests.benchmarks.answers`` starts the service, busy loops, readers of page and metrics, and drivers, which
ask in turn. A driver measures the time from its question to the answer. As root it has a high priority, so that its
own waits for a CPU do not count.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from decima.service.log import Answered, read_log
from decima.service.protocol import StateMessage
from tests.benchmarks.test_service_speed import question
from tests.decima.service.serving import Client, a_stage

#: Reads the page's state twice a second, and the metrics every second; follows the page's updates.
READER = """
import sys, threading, time, urllib.request
page, metrics = sys.argv[1:]

def follow():
    for _ in urllib.request.urlopen(page + "events"):
        pass

threading.Thread(target=follow, daemon=True).start()
while True:
    for path in (page, page + "state"):
        urllib.request.urlopen(path).read()
        time.sleep(0.5)
    urllib.request.urlopen(metrics).read()
"""


@contextmanager
def running(*command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program inside the block, in a session of its own, between which Linux divides the CPUs."""
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()


def measure(folder: Path, drivers: int, questions: int, every_s: float, stages: int, busy: int, readers: int) -> None:
    """Print p50, p99 and maximum of the times of answers, as drivers and as the service measured them."""
    log = folder / "live.jsonl"
    options = ["--metrics", "0", "--http", "0", "--log", str(log)] if readers else []
    command = [sys.executable, "-m", "decima", "serve", "--spark", "0", "--no-token", *options]
    random = np.random.default_rng(0)
    took_ms = []
    with ExitStack() as stack:
        service = stack.enter_context(running(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        assert service.stdout is not None
        said = {}
        for line in service.stdout:
            name, _, value = line.strip().partition(": ")
            said[name] = value
            if found := re.fullmatch(r"serving .+ on (\S+)", line.strip()):
                break
        assert found is not None
        for _ in range(readers):
            stack.enter_context(running(sys.executable, "-c", READER, said["page"], said["metrics"]))
        for _ in range(busy):
            stack.enter_context(running(sys.executable, "-c", "while True: pass"))
        clients = [stack.enter_context(Client(found[1], application=f"app-{number}")) for number in range(drivers)]
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)
            Path("/proc/self/autogroup").write_text("-20")
        lines = [with_stages(question(seq), stages).model_dump_json().encode() + b"\n" for seq in range(questions)]
        for seq, line in enumerate(lines):
            client = clients[seq % drivers]
            time.sleep(random.exponential(every_s))
            start_s = time.perf_counter()
            client.socket.sendall(line)
            client.read_line()
            took_ms.append((time.perf_counter() - start_s) * 1000)
        load = os.getloadavg()[0]
    print(f"{questions} questions of {len(lines[0])} bytes, {drivers} drivers, {busy} busy loops, load {load:.1f}")
    show("seen by the drivers", took_ms)
    if readers:
        show("in the service", [line.took_ms for line in read_log(log) if isinstance(line, Answered)])


def with_stages(state: StateMessage, stages: int) -> StateMessage:
    """Add waiting stages to jobs of two stages."""
    jobs = []
    for place, job in enumerate(state.jobs):
        ids = [1000 * (place + 1) + number for number in range(stages - 2)]
        more = [a_stage(number, "waiting", 20, parents=(job.stages[1].id,)) for number in ids]
        jobs.append(job.model_copy(update={"stages": (*job.stages, *more)}))
    return state.model_copy(update={"jobs": tuple(jobs)})


def show(name: str, took_ms: Sequence[float]) -> None:
    """Print quantiles."""
    took = np.array(took_ms)[len(took_ms) // 10 :]
    p50, p99 = np.percentile(took, (50, 99))
    late = (took > 20).mean()
    print(f"{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {took.max():.1f} ms, over 20 ms {late:.1%}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drivers", type=int, default=10)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--every-ms", type=float, default=15.0, help="mean time between an answer and a question")
    parser.add_argument("--busy", type=int, default=2, help="number of busy loops")
    parser.add_argument("--stages", type=int, default=2, help="stages of each of the 20 jobs of a question")
    parser.add_argument("--readers", type=int, default=1, help="readers; 0: no page, no metrics, no log")
    given = parser.parse_args(words)
    with TemporaryDirectory() as folder:
        measure(
            Path(folder),
            *(given.drivers, given.questions, given.every_ms / 1000, given.stages, given.busy, given.readers),
        )


if __name__ == "__main__":
    main()
