"""Guarantees in the service: pools are tenants, and the virtual cluster follows the questions."""

import itertools
from functools import partial

import pytest

from decima.registry import make_scheduler
from decima.schedulers.guarantees import Guarded
from decima.service.history import History
from decima.service.protocol import Answer, State
from decima.service.service import Driver, Service
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors, serving
from tests.decima.service.test_driver import PROFILES, SLOTS, arriving
from workloads.arrivals import poisson_arrivals

NAME = "fifo"


def slots_of(guarantees: str, seq: int = 1) -> dict[int, int]:
    """Return stage -> slots in the answer of a service to a question with a job of pool a, then one of pool b."""
    jobs = (a_job("1", a_stage(1, tasks=20), pool="a"), a_job("2", a_stage(2, tasks=20), pool="b"))
    service = Service(lambda: make_scheduler(f"{NAME}{guarantees}"))
    with serving(service) as where, Client(where) as client:
        answer = client.ask(a_state(seq, *jobs, having=executors(10)))
    return {stage.id: stage.slots for stage in answer.stages}


def test_pools_and_virtual_clusters_keep_guarantees() -> None:
    assert slots_of("") == {1: 10}
    assert slots_of(",ceiling=a:0.3") == {1: 3, 2: 7}
    assert slots_of(",floor=b:0.4") == {1: 6, 2: 4}
    assert slots_of(",floor=unknown:0.4") == {1: 10}
    jobs = (
        a_job("1", a_stage(1, tasks=20, running=2), pool="a"),
        a_job("2", a_stage(2, tasks=20, running=1), pool="b"),
    )
    with serving(Service(lambda: make_scheduler("fifo,ceiling=a:0.4"))) as where, Client(where) as client:
        answer = client.ask(a_state(1, *jobs, having=executors(7, "1", "1", "2")))
    assert {stage.id: stage.slots for stage in answer.stages} == {1: 4, 2: 6}
    driving = driver("fifo,no-later-than=1.5")
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


def driver(name: str) -> Driver:
    return Driver(make_scheduler(name), History(PROFILES), itertools.count(), itertools.count())


def guard_of(serving: Driver) -> Guarded:
    assert isinstance(serving.scheduler, Guarded)
    return serving.scheduler


def test_the_virtual_cluster_follows_the_questions() -> None:
    """The scheduler serves small jobs first, until other jobs are due."""
    sequence = poisson_arrivals(PROFILES, 25, 3_000.0, 3)
    alone, kept = driver("sjf-cp"), driver("sjf-cp,no-later-than=1.2")
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
    drivers = [driver("sjf-cp,no-later-than=1.2"), driver("sjf-cp,no-later-than=1.2")]

    def answer(state: State):  # type: ignore[no-untyped-def]
        return drivers[next(count) >= after].decide(state).answer

    jct_ms = ScriptedSpark(arriving(sequence), answer, SLOTS, False).run()
    assert len(jct_ms) == len(sequence)
    due = guard_of(drivers[1])._due
    assert due is not None
    assert 0 < len(due.virtual.completion_ms) < len(sequence) + (after == 5)
