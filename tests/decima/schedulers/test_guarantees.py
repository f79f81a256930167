"""Guarantees around schedulers: theorems on random episodes, and changed decisions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from decima.registry import SCHEDULERS, make_scheduler, split_names
from decima.schedulers.base import Kind, Scheduler, SchedulerError
from decima.schedulers.decisions import all_offered
from decima.schedulers.guarantees import Guarantees
from decima.schedulers.guarded import Guarded
from decima.schedulers.lateness import VirtualCluster, speed_of
from simulator import ClusterConfig, Decision, EpisodeRecord, Faults, Observation, run_episode
from simulator.cluster.config import PAPER, SPARK, ExecutorClass, Knowledge, Semantics
from tests.cases import cases
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads import JobAttributes, JobProfile, JobSequence, poisson_arrivals, synthetic_profiles

TASK_MS = 10.0
EXECUTORS = 4


def fluid(semantics: Semantics = SPARK, executors: int = EXECUTORS) -> ClusterConfig:
    return ClusterConfig(executors, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=semantics)


class LargestFirst(Scheduler):
    """Serves the largest job first, which starves short jobs."""

    def decide(self, observation: Observation) -> Decision | None:
        work = np.where(observation.next_stage >= 0, observation.work_ms(observation.remaining_tasks), -1.0)
        return all_offered(observation, int(observation.next_stage[work.argmax()]))


class Waits(Scheduler):
    """Leaves executors idle as long as a task runs."""

    def decide(self, observation: Observation) -> Decision | None:
        if not observation.last_call and observation.running_executors.any():
            return None
        return Decision(int(observation.schedulable.argmax()), observation.num_executors)


def malleable(draw: np.random.Generator) -> JobSequence:
    """Return jobs of one stage with many tasks, at high load, some of them tiny."""
    count = int(draw.integers(2, 12))
    tasks = np.maximum(draw.lognormal(3.0, 1.2, count).astype(int), 1)
    gaps = draw.exponential(tasks.mean() * TASK_MS / EXECUTORS / draw.uniform(0.7, 1.3), count)
    return jobs(*(job(stage(int(each), TASK_MS)) for each in tasks), at=np.cumsum(gaps) - gaps[0])


def processor_sharing(work_ms: Sequence[float], arrival_ms: Sequence[float], executors: int) -> list[float]:
    """Return completion times under fluid processor sharing, in small steps of plain Python."""
    left, end = list(work_ms), [math.inf] * len(work_ms)
    now = 0.0
    while any(map(math.isinf, end)):
        live = [each for each, ms in enumerate(arrival_ms) if ms <= now and math.isinf(end[each])]
        later = [ms for ms in arrival_ms if ms > now]
        until = min(later, default=math.inf)
        if live:
            until = min(until, now + min(left[each] for each in live) * len(live) / executors)
        for each in live:
            left[each] -= (until - now) * executors / len(live)
            if left[each] <= 1e-6:
                end[each] = until
        now = until
    return end


def virtual_ms(config: ClusterConfig, sequence: JobSequence) -> NDArray[np.float64]:
    cluster = VirtualCluster(config)
    for number, profile in enumerate(sequence.profiles):
        cluster.arrive(number, float(sequence.arrival_ms[number]), speed_of(profile, config))
    cluster.advance(1e9)
    return np.array([cluster.completion_ms[each] for each in range(len(sequence))])


@pytest.mark.parametrize("seed", range(5))
def test_the_virtual_cluster_is_processor_sharing(seed: int) -> None:
    sequence = malleable(np.random.default_rng(seed))
    work_ms = [profile.work_ms for profile in sequence.profiles]
    expected = processor_sharing(work_ms, sequence.arrival_ms.tolist(), EXECUTORS)
    assert virtual_ms(fluid(), sequence) == pytest.approx(expected)


def test_executors_stay_under_the_paper_semantics_and_only_where_they_help() -> None:
    # The first job has all executors. The second job waits for them, and then has all executors.
    sequence = jobs(job(stage(40, TASK_MS)), job(stage(8, TASK_MS)), at=[0.0, 20.0])
    assert virtual_ms(fluid(PAPER), sequence).tolist() == [100.0, 120.0]
    assert virtual_ms(fluid(SPARK), sequence).tolist() == [120.0, 60.0]
    # A chain of single tasks uses one executor; the other job has the other executors.
    sequence = jobs(chain(*(stage(1, TASK_MS) for _ in range(6))), job(stage(30, TASK_MS)))
    assert virtual_ms(fluid(), sequence).tolist() == [60.0, 90.0]


#: Schedulers that run on jobs without further knowledge.
NAMES = [name for name in SCHEDULERS if name != "graphene"]


@cases("seeds", *([seed] for seed in range(40)), pytest.param(range(1000, 2000), marks=pytest.mark.slow))
def test_no_job_is_later_than_in_theory(seeds: Sequence[int]) -> None:
    for seed in seeds:
        draw, factor = np.random.default_rng(seed), (1.0, 1.5, 3.0)[seed % 3]
        sequence, name = malleable(draw), str(draw.choice([*NAMES, "decima:tpch-batch", "largest", "waits"]))
        inner = {"largest": LargestFirst, "waits": Waits}.get(name, lambda: make_scheduler(name, seed))()  # noqa: B023
        record = run_episode(fluid(), sequence, Guarded(inner, Guarantees(no_later_than=factor)))
        work_ms = [profile.work_ms for profile in sequence.profiles]
        due = np.array(processor_sharing(work_ms, sequence.arrival_ms.tolist(), EXECUTORS))
        late = record.completion_ms - due - record.kept.slack_ms - 2 * TASK_MS
        assert late.max() <= 1e-6, f"{name}, seed {seed}, factor {factor}: {late.max()} ms late"


def test_guards_change_nothing_without_need() -> None:
    # A short job waits for a long job; under fair sharing it has half of the executors.
    sequence = jobs(job(stage(400, TASK_MS)), job(stage(4, TASK_MS)), at=[0.0, 5.0])
    alone = run_episode(fluid(), sequence, LargestFirst())
    kept = run_episode(fluid(), sequence, Guarded(LargestFirst(), Guarantees(no_later_than=1.0)))
    assert alone.jct_ms[1] > 900
    assert kept.jct_ms[1] <= 20.0 + 2 * TASK_MS
    assert {each.guarantee for each in kept.kept.overruled} == {"no-later-than"}
    assert alone.kept is None
    sequence = malleable(np.random.default_rng(1))
    for name in ("srpt", "fifo", "decima:tpch-batch"):
        plain = run_episode(fluid(), sequence, make_scheduler(name))
        kept = run_episode(fluid(), sequence, make_scheduler(f"{name},no-later-than=1000"))
        assert (kept.completion_ms.tolist(), kept.kept.overruled) == (plain.completion_ms.tolist(), ())


def test_times_without_a_check_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterConfig(8)
    sequences = [poisson_arrivals(synthetic_profiles(8), 30, 3_000, seed=seed) for seed in range(3)]

    def episodes() -> list[EpisodeRecord]:
        names = ("fair", "las", "srpt")
        return [
            run_episode(cluster, sequence, make_scheduler(f"{name},no-later-than=1.2"))
            for name in names
            for sequence in sequences
        ]

    found = episodes()
    assert sum(len(each.kept.overruled) for each in found) > 100
    monkeypatch.setattr(Guarded, "watch", lambda *_: None)  # all decisions are checked
    for one, other in zip(found, episodes(), strict=True):
        assert one.kept == other.kept
        assert one.task_start_ms.tobytes() == other.task_start_ms.tobytes()


def test_overruled_decisions_and_late_guards() -> None:
    # Decisions are numbered by the calls of ``decide``.
    calls: list[float] = []

    class Counting(LargestFirst):
        def decide(self, observation: Observation) -> Decision | None:
            calls.append(observation.time_ms)
            return super().decide(observation)

    sequence = malleable(np.random.default_rng(3))
    record = run_episode(fluid(), sequence, Guarded(Counting(), Guarantees(no_later_than=1.0)))
    assert record.kept.overruled
    assert all(calls[each.decision] == each.time_ms for each in record.kept.overruled)
    # Half of the first job is done, and the second job arrives now. Each job has half of the executors.
    cluster = VirtualCluster(fluid())
    long = job(stage(40, TASK_MS))
    cluster.arrive(7, 50.0, speed_of(long, fluid()), 0.5)
    cluster.arrive(8, 50.0, speed_of(long, fluid()))
    cluster.project()
    assert cluster.completion_ms == pytest.approx({7: 150.0, 8: 200.0})
    cluster.advance(160.0)
    cluster.forget({8})
    assert set(cluster.completion_ms) == {8}


def of_tenants(draw: np.random.Generator, names: Sequence[str] = ("bi", "etl", "ml")) -> JobSequence:
    """Return chains of stages whose tenants are drawn."""
    count = int(draw.integers(3, 12))
    profiles = [
        chain(*(stage(int(draw.integers(1, 12)), float(draw.integers(5, 40))) for _ in range(draw.integers(1, 4))))
        for _ in range(count)
    ]
    tenants = tuple(JobAttributes(tenant=str(draw.choice(list(names)))) for _ in range(count))
    arrival_ms = np.sort(draw.uniform(0, 300, count)) - 0.0
    return JobSequence(tuple(profiles), arrival_ms - arrival_ms[0], int(draw.integers(100)), attributes=tenants)


def owned(*of: tuple[str, JobProfile], at: Sequence[float] = ()) -> JobSequence:
    """Return jobs of tenants, by default all at time 0."""
    tenants = tuple(JobAttributes(tenant=name) for name, _ in of)
    return JobSequence(tuple(each for _, each in of), np.array(at or [0.0] * len(of)), attributes=tenants)


def most_executors(record: EpisodeRecord, tenant: str) -> int:
    """Return the largest number of executors that run tasks of a tenant, or move to its jobs, at once."""
    mine = np.array([each.tenant == tenant for each in record.sequence.attributes])
    tasks, moves = mine[record.task_job], mine[record.move_job]
    begin = np.concatenate([record.task_start_ms[tasks], record.move_depart_ms[moves]])
    end = np.concatenate([record.task_finish_ms[tasks], record.move_arrive_ms[moves]])
    times = np.concatenate([end, begin])
    steps = np.repeat([-1, 1], [end.size, begin.size])
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max(initial=0))


class Checking(Guarded):
    """Checks that no decision gives a tenant more than its ceiling."""

    def decide(self, observation: Observation) -> Decision | None:
        decision = super().decide(observation)
        if decision is not None:
            job = int(observation.stage_job[decision.stage])
            mine = np.flatnonzero(observation.job_tenant == observation.job_tenant[job]).tolist()
            others = sum(observation.held(each) for each in mine if each != job)
            name = observation.tenants[observation.job_tenant[job]].name
            more = min(observation.offered, int(observation.unclaimed_tasks[decision.stage]))
            then = others + min(decision.limit, observation.held(job) + more)
            if name in self.guarantees.ceiling:
                assert then <= self.guarantees.ceiling[name] * observation.num_executors
        return decision


@pytest.mark.parametrize("semantics", [PAPER, SPARK])
@pytest.mark.parametrize("delay_ms", [0.0, 15.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_ceiling_is_never_exceeded(seed: int, semantics: Semantics, delay_ms: float) -> None:
    draw = np.random.default_rng(seed)
    config = ClusterConfig(8, moving_delay_ms=delay_ms, warmup_delay_ms=0.0, semantics=semantics)
    sequence, name = of_tenants(draw), str(draw.choice(NAMES))
    inner = make_scheduler(name, seed)
    plain = run_episode(config, sequence, inner)
    record = run_episode(config, sequence, Checking(inner, Guarantees(ceiling={"bi": 0.25, "etl": 0.5})))
    assert not np.isnan(record.completion_ms).any()
    if semantics is SPARK:
        assert most_executors(record, "bi") <= 2
        assert most_executors(record, "etl") <= 4
    if most_executors(plain, "bi") > 2:
        assert any(each.guarantee == "ceiling" for each in record.kept.overruled)


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize(("semantics", "above"), [(PAPER, 9), (SPARK, 0)])
def test_executors_that_come_too_late_exceed_a_ceiling(
    engine: Literal["compiled", "simpy"], semantics: Semantics, above: int
) -> None:
    """Nine executors move to the second job, which ends before they arrive. Only the third job is left."""
    early = ("etl", job(stage(9, 30.0))), ("etl", job(stage(41, 1.0)))
    sequence = owned(*early, ("bi", job(stage(100, 1000.0))), at=[0.0, 0.0, 62.0])
    config = ClusterConfig(10, moving_delay_ms=20.0, warmup_delay_ms=0.0, semantics=semantics, engine=engine)
    record = run_episode(config, sequence, Checking(make_scheduler("fifo"), Guarantees(ceiling={"bi": 0.1})))
    assert most_executors(record, "bi") == 1 + above  # at most all executors


@pytest.mark.parametrize("name", ["fifo", "srpt", "las", "srpt-tuned"])
def test_a_tenant_has_its_floor_as_soon_as_tasks_end(name: str) -> None:
    """The long job arrived first and has all executors. The tenant has its floor when tasks of this job end."""
    sequence = owned(("etl", job(stage(400, TASK_MS))), ("bi", job(stage(800, TASK_MS))), at=[0.0, 5.0])
    config = fluid(executors=10)
    record = run_episode(config, sequence, make_scheduler(f"{name},floor=bi:0.3"))
    started = np.sort(record.task_start_ms[record.task_job == 1])
    assert started[:3].tolist() == [10.0, 10.0, 10.0]
    while_both = record.task_finish_ms[record.task_job == 0].max()
    begin, end = (each[record.task_job == 1] for each in (record.task_start_ms, record.task_finish_ms))
    times = np.arange(11.0, while_both, 7.0)
    assert all(np.count_nonzero((begin <= now) & (now < end)) >= 3 for now in times)
    assert record.kept.below_floor_ms == 5.0  # from the arrival to the end of the first tasks


def test_floors_are_shared_and_kept_by_sparing_schedulers() -> None:
    sequence = owned(*((name, job(stage(40, TASK_MS))) for name in "abc"))
    record = run_episode(fluid(executors=10), sequence, make_scheduler("fifo,floor=b:0.4+c:0.3"))
    first = record.task_job[record.task_start_ms == 0.0]
    assert np.bincount(first).tolist() == [3, 4, 3]

    # The scheduler gives each stage one executor, and a stage can be chosen once per round.
    def sparing(observation: Observation) -> Decision:
        stage_ = int(observation.schedulable.argmax())
        return Decision(stage_, observation.held(int(observation.stage_job[stage_])) + 1)

    sequence = owned(*((name, job(stage(40, TASK_MS))) for name in "ab"))
    guarded = Guarded(make_scheduler(sparing), Guarantees(floor={"b": 0.4}))
    record = run_episode(fluid(executors=10), sequence, guarded)
    assert np.bincount(record.task_job[record.task_start_ms == 0.0]).tolist() == [1, 4]


def test_what_tenants_do_not_need_goes_to_others_and_unknown_ones_have_no_effect() -> None:
    sequence = owned(("a", job(stage(20, TASK_MS))), ("b", job(stage(2, TASK_MS))))
    record = run_episode(fluid(executors=10), sequence, make_scheduler("fifo,floor=b:0.9"))
    assert np.bincount(record.task_job[record.task_start_ms == 0.0]).tolist() == [8, 2]
    sequence = of_tenants(np.random.default_rng(0))
    plain = run_episode(fluid(), sequence, make_scheduler("fifo"))
    kept = run_episode(fluid(), sequence, make_scheduler("fifo,floor=other:0.5"))
    assert kept.completion_ms.tolist() == plain.completion_ms.tolist()


def test_names_hold_guarantees_of_known_tenants() -> None:
    found = make_scheduler("srpt:jitter=0.1,floor=etl:0.2+bi:0.1,ceiling=bi:0.5,no-later-than=1.5")
    assert isinstance(found, Guarded)
    assert found.guarantees == Guarantees({"etl": 0.2, "bi": 0.1}, {"bi": 0.5}, 1.5)
    assert Guarantees.from_suffix(found.guarantees.suffix) == found.guarantees
    assert split_names("fair,las,no-later-than=1.5,fifo") == ["fair", "las,no-later-than=1.5", "fifo"]
    assert make_scheduler("decima:embedded-batch,guard=off,no-later-than=2").kind == Kind.NETWORK
    assert not isinstance(make_scheduler("fair"), Guarded)
    wanted = Guarantees(floor={"elt": 0.2})
    with pytest.raises(SchedulerError, match=r"floor: unknown tenant 'elt' .*: expected one of bi, etl"):
        wanted.check_tenants(["bi", "etl"])
    with pytest.raises(SchedulerError, match="the jobs have no tenants"):
        wanted.check_tenants([])


@cases(
    "suffix, message",
    (",floor=a:0.7+b:0.4", "the sum of the floors must be at most 1, got 1.1"),
    (",floor=a:0.5,ceiling=a:0.2", "the ceiling of a, 0.2, is below its floor, 0.5"),
    (",no-later-than=0.9", "no-later-than must be at least 1, got 0.9"),
    (",no-later-than=x", "no-later-than: expected a number, got 'x'"),
    (",floor=a:0", "the floor of a must be above 0 and at most 1, got 0"),
    (",ceiling=a:nan", "ceiling of a: expected a number, got 'nan'"),
    (",floor=a", "floor: expected TENANT:SHARE, such as etl:0.2, got 'a'"),
    (",floor=a:0.1+a:0.2", "floor: the tenant 'a' is named twice"),
    (",no-later-than=2,no-later-than=3", "no-later-than is given twice"),
)
def test_impossible_guarantees_are_refused_in_a_line(suffix: str, message: str) -> None:
    with pytest.raises(SchedulerError) as raised:
        make_scheduler(f"fair{suffix}")
    assert str(raised.value) == f"scheduler 'fair{suffix}': {message}"


@pytest.mark.parametrize("seed", range(4))
def test_both_engines_agree(seed: int) -> None:
    draw = np.random.default_rng(seed)
    config = ClusterConfig(6, moving_delay_ms=5.0, warmup_delay_ms=2.0)
    sequence = of_tenants(draw)
    for name in ("sjf-cp", "srpt"):
        guarded = make_scheduler(f"{name},floor=bi:0.4,ceiling=ml:0.5,no-later-than=1.1")
        one, other = (
            run_episode(replace(config, engine=engine), sequence, guarded) for engine in ("compiled", "simpy")
        )
        assert (one.completion_ms.tolist(), one.kept) == (other.completion_ms.tolist(), other.kept)
        assert one.kept.overruled


@pytest.mark.parametrize("seed", range(6))
def test_guards_cope_with_faults_wrong_estimates_and_classes(seed: int) -> None:
    draw = np.random.default_rng(seed)
    config = ClusterConfig(
        executor_classes=(ExecutorClass(2, memory=0.5), ExecutorClass(3)),
        moving_delay_ms=5.0,
        knowledge=Knowledge(job_error=0.7, task_count_error=0.5, unknown=0.3),
        faults=Faults(executor_lifetime_ms=400.0, executor_return_ms=50.0, task_failures=0.05),
    )
    guarded = make_scheduler("srpt,floor=bi:0.4,ceiling=ml:0.6,no-later-than=1.2")
    record = run_episode(config, of_tenants(draw), guarded)
    assert (~np.isnan(record.completion_ms)).sum() + len(record.failed_job) == len(record.sequence)
