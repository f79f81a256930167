"""Random questions and observations, and the decisions of shipped policies and rules; a program for child processes.

``python -m tests.decima.service.questions SEED COUNT SCHEDULER ...`` prints a line for each scheduler: the number of
questions and observations, how many were decided, and a digest of all decisions. Questions include all valid
messages, not only those of a Spark: jobs whose stages are all done, stages without tasks, stages that are done
before their parents, inconsistent numbers, executors that left.
"""

import hashlib
import itertools
import sys
from collections.abc import Iterator

import numpy as np

from decima.policy.shipped import SHIPPED
from decima.registry import make_scheduler
from decima.service.history import History
from decima.service.jobs import QuestionError
from decima.service.protocol import Exchange, ExecutorMessage, JobMessage, StageMessage, StateMessage
from decima.service.service import Driver
from simulator.cluster.config import ClusterConfig, ExecutorClass
from simulator.cluster.episode import DecidesStages
from simulator.cluster.observation import CLASS, JOB, NO_ATTRIBUTES, STAGE, Observation
from workloads.job import JobProfile, StageProfile, TaskDurations

#: Questions that one driver asks; then a new one begins.
A_DRIVER = 25
#: Few numbers of slots, so that what follows from profile and cluster is worked out only once.
SLOTS = (0, 1, 2, 5, 20)
SIZES = (0, 1, 2, 7)
RULES = (
    "fifo", "fair", "weighted-fair:-1", "sjf-cp", "srpt", "srpt-tuned",
    "tetris", "drf",
)  # fmt: skip


def states(random: np.random.Generator, count: int) -> Iterator[StateMessage]:
    """Yield the questions of a driver."""
    for seq in range(count):
        names = [f"job-{number}" for number in random.permutation(14)[: random.choice([0, 1, 2, 3, 4, 6, 12])]]
        jobs = tuple(_job(random, name) for name in names)
        total = int(random.choice(SLOTS[1:] if random.random() < 0.9 else SLOTS))
        executors = tuple(_executor(random, number, 1, names) for number in range(total))
        if random.random() < 0.1:
            executors += tuple(_executor(random, 100 + number, int(random.integers(4)), names) for number in range(2))
        yield StateMessage(type="state", seq=seq, time_ms=1e6 + seq, executors=executors, jobs=jobs)


def _executor(random: np.random.Generator, number: int, slots: int, names: list[str]) -> ExecutorMessage:
    job = str(random.choice([*names, "gone"])) if random.random() < 0.5 else None
    leaving = bool(random.random() < 0.1)
    return ExecutorMessage(
        id=str(number), slots=slots, running=int(random.choice([0, 0, 0, 1, 2])), job=job, leaving=leaving
    )


def _job(random: np.random.Generator, name: str) -> JobMessage:
    is_over, huge = random.random() < 0.3, random.random() < 0.02
    stages: list[StageMessage] = []
    for number in range(random.choice([0, 1, 1, 2, 4, 9])):
        tasks, done, running, pending = (int(random.choice(SIZES)) for _ in range(4))
        if random.random() < 0.7:  # as the protocol has it
            tasks = done + running + pending
        state = "done" if is_over else str(random.choice(["waiting", "ready", "ready", "ready", "done"]))
        if state == "done" and random.random() < 0.8:
            tasks, done, running, pending = max(tasks, 1), max(tasks, 1), 0, 0
        if huge:
            tasks, pending = 10**9, 10**9
        stages.append(
            StageMessage(
                id=100 * int(name.removeprefix("job-")) + number,
                state=state,  # type: ignore[arg-type]
                tasks=tasks,
                done=done,
                running=running,
                pending=pending,
                mean_ms=float(random.choice([0.0, 30.0, 2000.0])) if random.random() < 0.5 else None,
                parents=tuple(stage.id for stage in stages if random.random() < 0.3),
            )
        )
    exchanges = tuple(
        Exchange(id=number, kind="Exchange", partitions=int(random.choice(SIZES)), parents=tuple(range(number))[-1:])
        for number in range(random.choice([0, 0, 3]))
    )
    submitted_ms = float(random.choice([0.0, 500.0, 5000.0]))
    return JobMessage(id=name, submitted_time_ms=submitted_ms, exchanges=exchanges, running=0, stages=tuple(stages))


def observation(random: np.random.Generator, classes: int = 4) -> Observation:
    """Return a random observation within the documented bounds."""
    kinds = [
        (
            int(random.choice([0, 1, 3, 9])),
            int(random.integers(3)),
            float(random.choice([0.5, 1])),
            float(random.choice([0.0, 0.5, 1])),
        )
        for _ in range(random.integers(1, classes + 1))
    ]
    offered, rows, jobs, profiles = int(random.integers(1, 4)), [], [], []
    for place in range(random.choice([0, 1, 2, 4, 6])):
        profile = _profile(random)
        first, is_over = len(rows), random.random() < 0.4
        for stage in range(profile.num_stages):
            tasks = int(random.choice(SIZES))
            finished = tasks if is_over or random.random() < 0.3 else int(random.integers(tasks + 1))
            remaining = int(random.integers(tasks - finished + 1))
            unclaimed = int(random.integers(remaining + 1))
            rank = int(random.permutation(40)[0]) if remaining and random.random() < 0.6 else -1
            may = int(unclaimed > 0 and random.random() < 0.7)
            mean_ms, memory = profile.stages[stage].durations.mean_ms, float(random.choice([0, 0.5, 2]))
            rows.append(
                (
                    place, tasks, remaining, unclaimed, int(random.integers(3)), finished, rank, may, mean_ms, 0.5,
                    memory, 0.0, finished * mean_ms,
                )
            )  # fmt: skip
        own = [at for at in range(first, len(rows)) if rows[at][7]]
        following = own[int(random.integers(len(own)))] if own else -1
        left = sum(row[3] > 0 for row in rows[first:])
        arrival_ms = float(random.choice([0.0, 10.0]))
        jobs.append(
            (
                3 * place, first, int(random.integers(6)), left, len(rows) - first, following, arrival_ms, 0.0, 1.0,
                *NO_ATTRIBUTES,
            )
        )  # fmt: skip
        profiles.append(profile)
    sizes = tuple(ExecutorClass(max(number, 1), cpu, memory) for number, _, cpu, memory in kinds)
    delay_ms = float(random.choice([0.0, 500.0]))
    return Observation(
        ClusterConfig(executor_classes=sizes, moving_delay_ms=delay_ms),
        time_ms=20.0,
        offered=offered,
        executor_class=int(random.integers(len(kinds))),
        source=int(random.integers(-1, len(jobs))),
        num_schedulable=sum(row[7] for row in rows),
        jobs=np.array(jobs, dtype=JOB),
        stages=np.array(rows, dtype=STAGE),
        classes=np.array(kinds, dtype=CLASS),
        profiles=tuple(profiles),
        last_call=bool(random.random() < 0.1),
    )


def _profile(random: np.random.Generator) -> JobProfile:
    """Return one of a few profiles."""
    shape = np.random.default_rng(int(random.integers(20)))
    size = int(shape.integers(1, 7))
    edges = [(parent, child) for child in range(size) for parent in range(child) if shape.random() < 0.4]
    stages = tuple(
        StageProfile(int(shape.integers(1, 5)), TaskDurations.constant(float(shape.choice([1.0, 300.0, 9000.0]))))
        for _ in range(size)
    )
    return JobProfile("random", stages, np.array(edges, dtype=np.int64).reshape(-1, 2))


def asked(scheduler: DecidesStages, seed: int, count: int) -> Iterator[object]:
    """Return the outcome of each question: decisions, or an error that is not a crash."""
    for number in range(-(-count // A_DRIVER)):
        random = np.random.default_rng((seed, number))
        delay_ms = float(random.choice([0.0, 2000.0]))
        driver = Driver(scheduler, History(), itertools.count(), itertools.count(), delay_ms)
        for state in states(random, min(A_DRIVER, count - number * A_DRIVER)):
            try:
                yield [(choice.job, choice.stage, choice.limit) for choice in driver.decide(state).choices]
            except QuestionError as error:
                yield str(error)


def shown(scheduler: DecidesStages, seed: int, count: int) -> Iterator[object]:
    """Return the decisions on observations with a schedulable stage."""
    for number in range(count):
        seen = observation(np.random.default_rng((seed, number)))
        if seen.num_schedulable:
            scheduler.reset(seen.config)
            decision = scheduler.decide(seen)
            # Numbers of Python: plain Python gives some as NumPy's, which are shown otherwise.
            yield None if decision is None else (int(decision.stage), int(decision.limit))


def main(seed: int, count: int, names: list[str]) -> None:
    for name in names:
        scheduler = make_scheduler(f"decima:{name}" if name in SHIPPED else name)
        found = [*asked(scheduler, seed, count), *shown(scheduler, seed, count)]
        decided = sum(bool(each) and not isinstance(each, str) for each in found)
        print(name, len(found), decided, hashlib.sha256(repr(found).encode()).hexdigest(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or [*SHIPPED, *RULES])
