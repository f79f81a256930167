"""Spark's ``fairscheduler.xml``, its pools under the rule ``fair-pools``, and pools as tenants with guarantees."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from decima.registry import make_scheduler
from decima.schedulers.guarded import Guarded
from decima.service.pools import Pools, PoolsError, read_pools
from decima.service.protocol import Answer, JobMessage, StateMessage
from decima.service.service import Driver, Service
from decima.service.shares import divide
from decima.service.snapshot import Share
from tests.cases import cases
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors, serving
from tests.decima.service.test_driver import PROFILES, SLOTS, arriving, driver
from tests.refusal import one_line
from workloads.arrivals import poisson_arrivals

SPARK = """<?xml version="1.0"?>
<!-- as in Spark's documentation -->
<allocations>
  <pool name="production">
    <schedulingMode>FAIR</schedulingMode>
    <weight>1</weight>
    <minShare>2</minShare>
  </pool>
  <pool name="test"><schedulingMode>FIFO</schedulingMode><weight> 2 </weight><minShare>3</minShare></pool>
  <pool name="r&amp;d"/>
</allocations>
"""


def read(folder: Path, text: str) -> Pools:
    (folder / "pools.xml").write_text(text)
    return read_pools(folder / "pools.xml")


def test_files_of_pools(tmp_path: Path) -> None:
    assert read(tmp_path, SPARK) == Pools(
        {"production": Share("production", 1.0, 2), "test": Share("test", 2.0, 3), "r&d": Share("r&d", 1.0, 0)},
        ("production",),
    )
    with pytest.raises(PoolsError, match="No such file"):
        read_pools(tmp_path / "none.xml")
    with pytest.raises(PoolsError, match="expected Spark's"):
        read(tmp_path, " " * (2 << 20))


def pool(inner: str) -> str:
    return f'<allocations>\n<pool name="a">{inner}</pool></allocations>'


@cases("text, reason",
        ('<!DOCTYPE a [<!ENTITY x "y">]>\n<allocations/>', "line 1: document type and entity declarations"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><allocations/>', "line 1: document type and entity"),
        (pool("<weight>&x;</weight>"), "line 2: not valid XML: undefined entity"),
        ("<allocations>", "line 1: not valid XML"),
        ("", "line 1: not valid XML: no element found"),
        ("<allocations/>", "no pool, expected"),
        ("<pools/>", "line 1: unexpected element 'pools'"),
        *((f'<?xml version="1.0" encoding="{name}"?>\n<a/>', "line ") for name in ("x", "zip", "rot13", "idna")),
        (pool("<weight>\u0663</weight>"), "line 2: pool 'a': weight '\u0663', expected a whole number"),
        (pool("<weight>0</weight>"), "line 2: pool 'a': "),
        (pool("<weight>2.5</weight>"), "line 2: pool 'a': weight '2.5', expected a whole number"),
        (pool("<minShare>-1</minShare>"), "line 2: pool 'a': minShare '-1'"),
        (pool("<schedulingMode>LIFO</schedulingMode>"), "line 2: pool 'a': schedulingMode 'LIFO'"),
        (pool("<maxShare>1</maxShare>"), "line 2: unexpected element 'maxShare'"),
        (pool("<weight>1</weight><weight>2</weight>"), "line 2: pool 'a': a second weight"),
        (pool("<weight><b/></weight>"), "line 2: unexpected element 'b'"),
        (pool("text"), "line 2: text outside of a pool"),
        ("<allocations><pool/></allocations>", "line 1: a pool without a name"),
        ('<allocations><pool name="a"/><pool name="a"/></allocations>', "line 1: a second pool 'a'"),
)  # fmt: skip
def test_a_malformed_file_is_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    assert one_line(PoolsError, read, tmp_path, text).startswith(f"{tmp_path / 'pools.xml'}: {reason}")


@cases("weight, min_share, slots", (None, 0, {1: 4, 2: 4}), (3.0, 0, {1: 2, 2: 6}), (1.0, 5, {1: 3, 2: 5}))
def test_fair_pools_keeps_weights_and_minimum_shares(
    weight: float | None, min_share: int, slots: dict[int, int]
) -> None:
    """Two pools have more tasks than the eight free slots."""
    known = None if weight is None else {"b": Share("b", weight, min_share)}
    service = Service(lambda: make_scheduler("fair-pools"), pools=known)
    assert slots_of(ask(service, *two_jobs(), free=8)) == slots


def ask(service: Service, *jobs: JobMessage, free: int = 0, running: int = 0, **hello: Any) -> Answer:
    having = executors(free, *["1"] * running)
    with serving(service) as where, Client(where, **hello) as client:
        return client.ask(a_state(1, *jobs, having=having))


def slots_of(answer: Answer) -> dict[int, int | None]:
    return {stage.id: stage.slots for stage in answer.stages}


def two_jobs(running: int = 0) -> tuple[JobMessage, JobMessage]:
    one = a_job("1", a_stage(1, tasks=20, running=running), pool="a")
    return one, a_job("2", a_stage(2, tasks=20), pool="b")


@pytest.mark.parametrize("policy", ["fifo", "srpt", "decima"])
@cases(
    "free, running, slots",
    (8, 0, {1: 3, 2: 5}),
    (0, 8, {1: 3, 2: 5}),
    (2, 6, {1: 3, 2: 5}),
    (0, 2, {2: 2}),
    ids=["free", "busy", "between", "only the minimum share"],
)
def test_shares_hold_under_any_policy(policy: str, free: int, running: int, slots: dict[int, int]) -> None:
    """A pool above its share does not refill slots, and the other pool already has its limits."""
    service = Service(lambda: make_scheduler(policy), pools={"b": Share("b", 1.0, 5)})
    answer = ask(service, *two_jobs(running), free=free, running=running)
    found = slots_of(answer)
    assert {stage: most for stage, most in found.items() if most} == slots
    assert answer.rest == "hold"
    assert answer.limits["2"] >= slots[2]


def test_pools_are_those_that_the_driver_reports() -> None:
    reported = {"pools": ({"name": "b", "weight": 3, "min_share": 0},)}
    assert slots_of(ask(Service(lambda: make_scheduler("fifo")), *two_jobs(), free=8, **reported)) == {1: 2, 2: 6}
    known = Service(lambda: make_scheduler("fifo"), pools={"a": Share("a", 3.0)})
    assert slots_of(ask(known, *two_jobs(), free=8, **reported)) == {1: 6, 2: 2}
    assert slots_of(ask(Service(lambda: make_scheduler("fifo")), *two_jobs(), free=8)) == {1: 8}


def test_slots_are_divided_by_pools() -> None:
    # The answer is identical to the answer without pools.
    jobs = [job.model_copy(update={"pool": "a"}) for job in two_jobs(2)]
    answers = [
        ask(Service(lambda: make_scheduler("srpt"), pools=known), *jobs, free=6, running=2)
        for known in ({"b": Share("b", 1.0, 5)}, None)
    ]
    assert answers[0] == answers[1]
    # Slots are assigned one by one in order of need; no pool gets more than its demand.
    pools = [Share("adhoc"), Share("etl", 3.0), Share("prod", 1.0, 4)]
    assert divide(pools, [99, 99, 99], 8) == [1, 3, 4]
    assert divide(pools, [99, 99, 2], 8) == [2, 4, 2]
    assert divide(pools, [1, 0, 2], 8) == [1, 0, 2]
    assert divide(pools, [99, 99, 99], 3) == [0, 0, 3]


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

    def answer(by: Driver, state: StateMessage) -> Answer:
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

    def answer(state: StateMessage):  # type: ignore[no-untyped-def]
        return drivers[next(count) >= after].decide(state).answer

    jct_ms = ScriptedSpark(arriving(sequence), answer, SLOTS, False).run()
    assert len(jct_ms) == len(sequence)
    due = guard_of(drivers[1])._due
    assert due is not None
    assert 0 < len(due.virtual.completion_ms) < len(sequence) + (after == 5)
