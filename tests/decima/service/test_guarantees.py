"""Guarantees in the service: pools are tenants, and the virtual cluster follows the questions."""

import itertools
from functools import partial

import pytest

from decima.registry import make_scheduler
from decima.schedulers.guarantees import Guarded
from decima.service.protocol import Answer, State
from decima.service.service import Driver, Service
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import a_job, a_stage, a_state, executors
from tests.decima.service.test_driver import PROFILES, SLOTS, arriving, driver
from tests.decima.service.test_pools import ask, slots_of, two_jobs
from workloads.arrivals import poisson_arrivals


def guaranteed(guarantees: str, running: int = 0) -> dict[int, int | None]:
    """Return stage -> slots of a job in pool a, of which executors run tasks, and of a job in pool b."""
    service = Service(lambda: make_scheduler(f"fifo{guarantees}"))
    return slots_of(ask(service, *two_jobs(running), free=10 - running, running=running))


def test_pools_and_virtual_clusters_keep_guarantees() -> None:
    assert guaranteed("") == {1: 10}
    assert guaranteed(",ceiling=a:0.3") == {1: 3, 2: 7}
    assert guaranteed(",floor=b:0.4") == {1: 6, 2: 4}
    assert guaranteed(",floor=unknown:0.4") == {1: 10}
    assert guaranteed(",ceiling=a:0.4", running=3) == {1: 4, 2: 6}
    driving = driver("fifo,no-later-than=1.5", *PROFILES)
    job = a_job("1", a_stage(1, tasks=100))
    driving.decide(a_state(1, job, having=executors(10), time_ms=0.0))
    due = guard_of(driving)._due
    assert due is not None
    [(number, end_ms)] = due.virtual.completion_ms.items()
    later = a_job("1", a_stage(1, tasks=100, done=1, mean_ms=1000.0))
    driving.decide(a_state(2, later, having=executors(5), time_ms=end_ms / 2))
    resized = guard_of(driving)._due
    assert resized is not None
    assert resized is not due
    assert resized.virtual.left(number) == pytest.approx(0.5)
    assert resized.virtual.completion_ms[number] > 1.2 * end_ms


def guard_of(serving: Driver) -> Guarded:
    assert isinstance(serving.scheduler, Guarded)
    return serving.scheduler


def test_the_virtual_cluster_follows_the_questions() -> None:
    """The scheduler serves small jobs first, until other jobs are due."""
    sequence = poisson_arrivals(PROFILES, 25, 3_000.0, 3)
    alone, kept = driver("sjf-cp", *PROFILES), driver("sjf-cp,no-later-than=1.2", *PROFILES)
    reasons: set[str] = set()

    def answer(by: Driver, state: State) -> Answer:
        decided = by.decide(state)
        reasons.update(decided.overruled)
        return decided.answer

    alone_ms, kept_ms = (
        ScriptedSpark(arriving(sequence), partial(answer, each), SLOTS, False).run() for each in (alone, kept)
    )
    due = guard_of(kept)._due
    assert due is not None
    assert len(due.virtual.completion_ms) == len(sequence)
    assert reasons == {"no-later-than"}
    assert not guard_of(kept).overruled, "a service that runs for months must not keep them"
    assert max(kept_ms) < max(alone_ms)


@pytest.mark.parametrize("after", [5, 40])
def test_a_service_that_starts_again_takes_the_jobs_as_they_are(after: int) -> None:
    """A new driver reports jobs that are running, or complete in the virtual cluster."""
    sequence = poisson_arrivals(PROFILES, 10, 8_000.0, 3)
    count = itertools.count()
    drivers = [driver("sjf-cp,no-later-than=1.2", *PROFILES) for _ in range(2)]

    def answer(state: State):  # type: ignore[no-untyped-def]
        return drivers[next(count) >= after].decide(state).answer

    jct_ms = ScriptedSpark(arriving(sequence), answer, SLOTS, False).run()
    assert len(jct_ms) == len(sequence)
    due = guard_of(drivers[1])._due
    assert due is not None
    assert 0 < len(due.virtual.completion_ms) < len(sequence) + (after == 5)
