"""Decisions of heuristics, and names of schedulers."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.registry import SCHEDULERS, make_scheduler
from decima.schedulers import Fair, Fifo, NaiveWeightedFair, RandomChoice, Scheduler, SjfCp, WeightedFair, all_offered
from decima.schedulers.base import SchedulerError
from simulator import (
    DECIMA_SIM,
    PAPER,
    Cluster,
    ClusterConfig,
    Decision,
    ExecutorClass,
    Observation,
    Semantics,
    run_episode,
)
from tests.cases import cases
from tests.refusal import one_line
from tests.simulator.cluster.build import chain, finish, give, job, jobs, runs, stage
from tests.simulator.cluster.strategies import LARGE, executor_classes
from tests.workloads.strategies import job_sequences
from workloads import JobSequence, batch_arrivals, poisson_arrivals, synthetic_profiles

Grant = tuple[int, int, int]
#: Rules with the limits of srpt and another order.
PRICED = (
    *("sjf-estimate", "srpt-bounce", "seh", "gittins", "las", "inelastic-first"),
    *("weighted-srpt", "edf", "least-slack", "gamma-boost", "atc"),
    *("cap", "pcaps", "greenest-first", "carbon-price"),
)


def grants(scheduler: Scheduler, cluster: int | ClusterConfig, sequence: JobSequence) -> list[Grant]:
    """Return (job, stage, executors) of the decisions at time 0 with a number of executors."""
    config = ClusterConfig(num_executors=cluster) if isinstance(cluster, int) else cluster
    scheduler.reset(config)
    episode, given_away = Cluster(config, sequence), []
    while not episode.done and episode.clock.now == 0:
        observation = episode.observe()
        decision = scheduler.decide(observation) if observation.schedulable.any() else None
        if decision is not None:
            place = int(observation.stage_job[decision.stage])
            number = decision.stage - observation.stages_of(place).start
            given_away.append((int(observation.job_id[place]), number, committed(observation, decision)))
        episode.decide(decision)
    return given_away


def committed(observation: Observation, decision: Decision) -> int:
    """Return the number of executors that a decision commits."""
    held = observation.held(int(observation.stage_job[decision.stage]))
    return min(decision.limit - held, observation.offered, int(observation.unclaimed_tasks[decision.stage]))


def one_stage(*sizes: int, task_ms: float = 1000.0) -> JobSequence:
    """Return jobs of one stage with these numbers of tasks."""
    return jobs(*(job(stage(tasks, task_ms)) for tasks in sizes))


def test_fifo_serves_jobs_by_arrival_and_stages_as_they_become_ready() -> None:
    assert grants(Fifo(), 10, one_stage(4, 20, 3)) == [(0, 0, 4), (1, 0, 6)]
    assert grants(Fifo(), 10, one_stage(20, 20, 3)) == [(0, 0, 10)]
    assert grants(Fifo(), 10, one_stage(1, 2, 3)) == [(0, 0, 1), (1, 0, 2), (2, 0, 3)]
    diamond = job(*(stage(2, 1000.0) for _ in range(4)), edges=[(0, 2), (1, 3), (2, 3)])
    assert grants(Fifo(), 7, jobs(diamond)) == [(0, 0, 2), (0, 1, 2), (0, 2, 2), (0, 3, 1)]
    sequence = jobs(job(stage(50, 1000.0)), job(stage(1, 1.0)), at=[0.0, 500.0])
    record = run_episode(ClusterConfig(num_executors=2, moving_delay_ms=0.0), sequence, Fifo())
    assert record.completion_ms.tolist() == [25_000.0, 25_001.0]


def test_the_published_fifo_counts_grants_and_keeps_executors() -> None:
    # A job of one stage is repeatedly offered three executors. After three grants it gets no executor.
    config = ClusterConfig(num_executors=3, semantics=DECIMA_SIM)
    sequence = one_stage(50, 50)
    observation = Cluster(config, sequence).observe()
    fifo = Fifo()
    fifo.reset(config)
    assert [fifo.decide(observation) for _ in range(3)] == [Decision(0, 3), Decision(1, 3), None]
    fifo.reset(config)
    assert fifo.decide(observation) == Decision(0, 3)
    # After two, one more.
    narrow = one_stage(2, 50)
    fifo.reset(config)
    offer = Cluster(config, narrow).observe()
    assert [fifo.decide(offer) for _ in range(4)] == [Decision(0, 2), Decision(0, 1), Decision(1, 3), None]
    plain = ClusterConfig(num_executors=3)
    fifo.reset(plain)
    assert [fifo.decide(observation) for _ in range(3)] == [Decision(0, 3)] * 3
    # Stage 0 waits for stage 1. At that time the job has used its only grant.
    config = ClusterConfig(1, moving_delay_ms=0.0, semantics=DECIMA_SIM)
    cluster = Cluster(config, jobs(job(stage(1, 10.0), stage(1, 10.0), edges=[(1, 0)]), job(stage(5, 10.0))))
    fifo.reset(config)
    assert fifo.decide(cluster.observe()) == Decision(1, 1)
    cluster.decide(Decision(1, 1))
    seen = cluster.observe()
    assert (seen.source, seen.next_stage.tolist()) == (0, [0, 2])
    assert fifo.decide(seen) == Decision(0, 1)


def test_paths_of_no_length_and_names_of_exponents() -> None:
    # Stage 0 has no unclaimed tasks; its child, stage 1, also has duration 0.
    cluster = Cluster(ClusterConfig(2, moving_delay_ms=0.0), jobs(chain(stage(1, 0.0), stage(1, 0.0))))
    assert SjfCp().decide(cluster.observe()) == Decision(0, 2)
    cluster.decide(Decision(0, 1))
    seen = cluster.observe()
    assert seen.schedulable.tolist() == [False, True]
    decision = SjfCp().decide(seen)
    assert decision is not None
    assert decision.stage == 1
    sequence = poisson_arrivals(synthetic_profiles(8), 6, 5000, seed=4)
    config = ClusterConfig(num_executors=12)

    def episode(scheduler: Scheduler) -> bytes:
        return run_episode(config, sequence, scheduler).tasks().to_numpy().tobytes()

    assert episode(WeightedFair(0.0)) == episode(Fair()) == episode(WeightedFair())
    assert episode(WeightedFair(1.0)) == episode(NaiveWeightedFair())
    assert episode(Fair()) != episode(NaiveWeightedFair())


def test_sjf_cp_runs_jobs_by_work_and_stages_by_path() -> None:
    sequence = jobs(
        job(stage(4, 3000.0)), job(stage(2, 1000.0), stage(3, 1000.0)), job(stage(2, 1000.0)), job(stage(9, 500.0))
    )
    assert grants(SjfCp(), 50, sequence) == [(2, 0, 2), (3, 0, 9), (1, 1, 3), (1, 0, 2), (0, 0, 4)]
    assert grants(SjfCp(), 5, one_stage(3, 3)) == [(0, 0, 3), (1, 0, 2)]
    sequence = jobs(job(stage(3, 1000.0), stage(3, 1000.0)))
    assert grants(SjfCp(), 5, sequence) == [(0, 0, 3), (0, 1, 2)]
    # Paths: stage 0: 1 + 9, 1: 5, 2: 2 + 3 + 1, 3: 9, 4: 3 + 1, 5: 1 (numbers of tasks of 1 s).
    sizes = (1, 5, 2, 9, 3, 1)
    profile = job(*(stage(size, 1000.0) for size in sizes), edges=[(0, 3), (2, 4), (4, 5)])
    assert profile.critical_path_ms.tolist() == [10_000.0, 5000.0, 6000.0, 9000.0, 4000.0, 1000.0]
    order = [number for _, number, _ in grants(SjfCp(), 50, jobs(profile))]
    # Stages that can start at once, by path; then those that wait for them, also by path.
    assert order == [0, 2, 1, 3, 4, 5]


def test_fair_gives_equal_shares_rounded_up() -> None:
    assert grants(Fair(), 10, one_stage(20, 20, 20)) == [(0, 0, 4), (1, 0, 4), (2, 0, 2)]
    assert grants(Fair(), 9, one_stage(20, 20, 20)) == [(0, 0, 3), (1, 0, 3), (2, 0, 3)]
    assert grants(Fair(), 2, one_stage(20, 20, 20)) == [(0, 0, 1), (1, 0, 1)]
    # Both shares are 2 of 4 executors, but job 1 can only use the large one. So job 0 gets all three small ones.
    sequence = jobs(job(stage(9, 1000.0), stage(9, 1000.0)), job(stage(9, 1000.0, memory=4.0)))
    config = ClusterConfig(executor_classes=(ExecutorClass(3), ExecutorClass(1, memory=4.0)))
    assert grants(Fair(), config, sequence) == [(0, 0, 2), (0, 1, 1), (1, 0, 1)]
    # Job 0 holds both executors when job 1 arrives; at 1 s they become idle and stay for its other stage.
    first = job(stage(2, 1000.0), stage(4, 500.0))
    sequence = jobs(first, job(stage(4, 10.0)), at=[0.0, 500.0])
    for scheduler in (Fair(), WeightedFair(-1.0), NaiveWeightedFair()):
        record = run_episode(ClusterConfig(num_executors=2, moving_delay_ms=0.0), sequence, scheduler)
        assert record.completion_ms.tolist() == [2000.0, 2020.0]


@cases(
    "alpha, shares",
    # Work 1 : 3, eight executors; a share is rounded up, and its job's tasks suffice.
    (0.0, [4, 4]),
    (1.0, [2, 6]),
    (-1.0, [6, 2]),
    (0.5, [3, 6]),  # 8 / (1 + sqrt 3) = 2.93, 5.07
    (2.0, [1, 8]),  # 0.8, 7.2
    (-2.0, [8, 1]),
    (50.0, [1, 8]),
    (-50.0, [8, 1]),
)
def test_shares_are_proportional_to_a_power_of_the_total_work(alpha: float, shares: list[int]) -> None:
    sequence = jobs(job(stage(10, 1000.0)), job(stage(30, 1000.0)))
    first, second = min(shares[0], 8), min(shares[1], 8 - shares[0])
    expected = [(0, 0, first)] + ([(1, 0, second)] if second > 0 else [])
    assert grants(WeightedFair(alpha), 8, sequence) == expected


def test_shares_are_not_upset_by_rounding_or_jobs_without_work() -> None:
    # Work 1 : 2 : 4 of 7: rounding errors must not round a share up.
    sequence = jobs(*(job(stage(20, work)) for work in (100.0, 200.0, 400.0)))
    assert grants(WeightedFair(1.0), 7, sequence) == [(0, 0, 1), (1, 0, 2), (2, 0, 4)]
    thirds = jobs(*(job(stage(20, 0.1)) for _ in range(3)))
    assert grants(WeightedFair(0.7), 9, thirds) == [(0, 0, 3), (1, 0, 3), (2, 0, 3)]
    sequence = jobs(job(stage(3, 0.0)), job(stage(20, 1000.0)), job(stage(3, 0.0)))
    for alpha in (-2.0, -1.0, 0.0, 1.0, 2.0):
        record = run_episode(ClusterConfig(num_executors=4), sequence, WeightedFair(alpha))
        assert np.isfinite(record.completion_ms).all()


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -math.inf, 1e308, -100.5])
def test_an_exponent_that_would_overflow_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be from -100 to 100"):
        WeightedFair(alpha)


def dynamic_partition(observation: Observation) -> list[tuple[int, int]] | None:
    """Return the decision of the published rule, word by word: (stage, number of executors), or ``None`` for idling."""
    executors = observation.job_executors.tolist()
    active = sum(count > 0 for count in observation.job_unsaturated_stages.tolist())
    cap = math.ceil(observation.num_executors / max(active, 1))

    def choice(place: int) -> int | None:
        stages = range(len(observation.stage_job))[observation.stages_of(place)]
        possible = [number for number in stages if observation.schedulable[number]]
        ready = [number for number in possible if observation.ready_rank[number] >= 0]
        if ready:
            return min(ready, key=lambda number: int(observation.ready_rank[number]))
        if possible and observation.config.semantics.longest_path_first:
            return int(observation.next_stage[place])  # of stages that are not ready, not the first one
        return possible[0] if possible else None

    def at_most(number: int, count: int) -> tuple[int, int]:
        return number, min(int(observation.unclaimed_tasks[number]), count, observation.offered)

    if observation.source >= 0:
        own = choice(observation.source)
        if own is not None:
            return [at_most(own, observation.offered)]
    for place, held in enumerate(executors):
        number = choice(place)
        if held < cap and number is not None:
            return [at_most(number, cap - held)]
    return None


@settings(max_examples=15)
@given(job_sequences(), executor_classes(), st.sampled_from([0.0, 20.0, 2000.0]))
def test_every_job_ends_whatever_the_executors_are(
    sequence: JobSequence, classes: tuple[ExecutorClass, ...], moving_delay_ms: float
) -> None:
    """All schedulers get the same jobs, as drawing jobs takes longer than an episode."""
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=moving_delay_ms)
    for name in SCHEDULERS:
        record = run_episode(config, sequence, make_scheduler(name))
        assert not np.isnan(record.completion_ms).any(), name


@settings(max_examples=30)
@given(job_sequences(), st.integers(1, 12), st.sampled_from([PAPER, DECIMA_SIM]))
def test_fair_decides_as_the_published_rule_but_leaves_no_executor_idle(
    sequence: JobSequence, executors: int, semantics: Semantics
) -> None:
    classes = (ExecutorClass(executors, **LARGE),)
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=20.0, semantics=semantics)
    fair = Fair()
    fair.reset(config)

    def decide(observation: Observation) -> Decision:
        decision = fair.decide(observation)
        assert decision is not None
        expected = dynamic_partition(observation)
        if expected is not None:
            assert [(decision.stage, committed(observation, decision))] == expected
        return decision

    finish(Cluster(config, sequence), decide)


def episode_of(scheduler: Scheduler, seed: int = 3) -> list[tuple[int, int, int, int, float, float]]:
    sequence = batch_arrivals(synthetic_profiles(4), 3, seed)
    return runs(run_episode(ClusterConfig(num_executors=10), sequence, scheduler))


def test_random_decisions_follow_the_seed_and_reach_every_stage() -> None:
    scheduler = RandomChoice(5)
    assert episode_of(scheduler) == episode_of(scheduler) == episode_of(RandomChoice(5))
    assert episode_of(scheduler) != episode_of(RandomChoice(6))
    assert episode_of(make_scheduler("random", seed=4)) == episode_of(RandomChoice(4))
    assert episode_of(make_scheduler("fair", seed=4)) == episode_of(Fair())
    config, sequence = ClusterConfig(num_executors=3), one_stage(5, 5)
    observation = Cluster(config, sequence).observe()
    scheduler = RandomChoice()
    scheduler.reset(config)
    seen = [scheduler.decide(observation) for _ in range(300)]
    assert set(seen) == {Decision(place, limit) for place in (0, 1) for limit in (1, 2, 3)}
    counts = [seen.count(each) for each in set(seen)]
    assert min(counts) > 25


@pytest.mark.parametrize("name", [*SCHEDULERS, "weighted-fair:-1.3", "weighted-fair:2"])
@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
def test_all_schedulers_leave_no_executor_idle_and_complete_all_jobs(name: str, semantics: Semantics) -> None:
    scheduler = make_scheduler(name, seed=1)
    sequence = poisson_arrivals(synthetic_profiles(6), 6, 8000, seed=2)
    config = ClusterConfig(num_executors=15, semantics=semantics)
    # The counter of one may idle executors; others do where they are asked again.
    if (name == "fifo" and semantics == DECIMA_SIM) or (
        (name.endswith("srpt") or name in PRICED) and semantics == PAPER
    ):
        assert np.isfinite(run_episode(config, sequence, scheduler).completion_ms).all()
        return
    scheduler.reset(config)

    def decide(observation: Observation) -> Decision | None:
        decision = scheduler.decide(observation)
        assert decision is not None
        return decision

    record, _ = finish(Cluster(config, sequence), decide)
    assert np.isfinite(record.completion_ms).all()


def test_names_and_offers_of_schedulers() -> None:
    for name, kind in SCHEDULERS.items():
        assert type(make_scheduler(name)) is kind
    weighted = make_scheduler("weighted-fair:-1.5")
    assert isinstance(weighted, WeightedFair)
    assert weighted.alpha == -1.5
    names = {"random", "fifo", "sjf-cp", "fair", "naive-weighted-fair", "weighted-fair", "spark-fair"}
    assert set(SCHEDULERS) == names | {
        "fair-pools", "carbon-slack", "srpt",
        "srpt-tuned", "atc-misses", "atc-weighted", *PRICED, "hesrpt", "tetris", "drf", "graphene-star", "graphene",
    }  # fmt: skip
    cluster = Cluster(ClusterConfig(num_executors=6), one_stage(2, 9))
    cluster.decide(all_offered(cluster.observe(), 0))
    assert cluster.offered == 4
    assert all_offered(cluster.observe(), 1) == Decision(1, 4) == give(cluster.observe(), 1)


@cases("spec, message",
        ("nobody", "unknown scheduler 'nobody': expected one of random, fifo, sjf-cp"),
        ("", "unknown scheduler ''"),
        ("Fair", "unknown scheduler 'Fair'"),
        ("fair:2", "unknown scheduler 'fair:2'"),
        ("random:7", "unknown scheduler 'random:7'"),
        ("weighted-fair:", "scheduler 'weighted-fair:': expected weighted-fair:ALPHA, numbers from -100 to 100"),
        ("weighted-fair:much",
         "scheduler 'weighted-fair:much': expected weighted-fair:ALPHA, numbers from -100 to 100"),
        ("weighted-fair:nan", "scheduler 'weighted-fair:nan': expected weighted-fair:ALPHA, numbers from -100 to 100"),
        ("tetris:x", "'tetris:x': expected tetris:REMAINING:FAIRNESS, numbers from -100 to 100"),
        ("tetris:1:inf", "'tetris:1:inf': expected tetris:REMAINING:FAIRNESS, numbers from -100 to 100"),
        ("tetris:1:0:0", "'tetris:1:0:0': expected tetris:REMAINING:FAIRNESS, numbers from -100 to 100"),
        ("tetris:-1", "'tetris:-1': the weight of remaining work must not be negative, got -1"),
        ("tetris:1:1", "'tetris:1:1': the fairness must be at least 0 and below 1, got 1"),
        ("srpt:coverage_exponent=-1", "coverage_exponent must not be negative, got -1"),
        ("seh:2", "from 0 to 1, got 2"),
        ("cap:0", "minimum must be above 0"),
        ("cap:1.5", "minimum must be above 0"),
        ("pcaps:2", "gamma must be from 0 to 1"),
        ("greenest-first:-1", "patience must be from 0 to 48"),
        ("carbon-price:-1", "must not be negative"),
        ("carbon-slack:0", "the seconds must be positive"),
        ("carbon-slack:margin=-1", "the margin must be positive"),
        ("cap:base=sun", "unknown scheduler 'sun'"),
        ("fifo:base=fair", "unknown scheduler"),
        ("cap:gamma=1", "no parameter 'gamma'"),
        ("atc:0", "positive"),
        ("atc:given_up=-1", "positive"),
        ("atc:price_in_batch=0", "positive"),
        ("atc:patience=2", "no parameter"),
        ("gamma-boost:decay=0", "decay"),
        ("gamma-boost:1", "the load must be at least 0 and below 1"),
        ("gamma-boost:-0.1", "the load must be at least 0 and below 1"),
        ("no_such_module:Mine", "scheduler 'no_such_module:Mine' cannot be loaded: ModuleNotFoundError: No module"),
        ("json:Mine", "scheduler 'json:Mine' cannot be loaded: AttributeError: "),
        ("json:", "scheduler 'json:' cannot be loaded: "),
        (":Mine", "scheduler ':Mine' cannot be loaded: "),
        ("json:dumps", "scheduler 'json:dumps' cannot be loaded: TypeError: "),
        ("tests.decima.schedulers.own_schedulers:Undecided", "needs the methods decide and reset"),
        ("decima.schedulers:Scheduler", "cannot be loaded: TypeError: Can't instantiate abstract class"),
)  # fmt: skip
def test_a_name_that_is_no_schedulers_is_refused_in_one_line(spec: str, message: str) -> None:
    assert message in one_line(SchedulerError, make_scheduler, spec)


OWN = """
from decima.schedulers import Scheduler, all_offered

class Last(Scheduler):
    def decide(self, observation):
        return all_offered(observation, int(observation.schedulable.nonzero()[0][-1]))

class Needy(Last):
    def __init__(self, what):
        pass

class Broken(Last):
    def __init__(self):
        raise RuntimeError("one\\ntwo")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """The current folder; ``folder(name, source)`` writes a module there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def put(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return put


def test_a_scheduler_of_ones_own_is_found_in_the_current_folder(folder: Callable[[str, str], None]) -> None:
    folder("my_own_schedulers", OWN)
    before = list(sys.path)
    scheduler = make_scheduler("my_own_schedulers:Last")
    assert sys.path == before
    assert grants(scheduler, 5, one_stage(3, 3)) == [(1, 0, 3), (0, 0, 2)]
    assert type(make_scheduler("tests.decima.schedulers.own_schedulers:Greedy")).__name__ == "Greedy"


@cases(
    "name, source, message",
    ("own_needy:Needy", OWN, "TypeError: "),
    ("own_broken:Broken", OWN, "RuntimeError: one"),
    ("own_syntax:Last", "class Last(", "SyntaxError: "),
    ("own_raises:Last", "raise ValueError('no')", "ValueError: no"),
)
def test_what_is_wrong_with_it_is_told_in_one_line(
    folder: Callable[[str, str], None], name: str, source: str, message: str
) -> None:
    folder(name.partition(":")[0], source)
    before = list(sys.path)
    assert one_line(SchedulerError, make_scheduler, name).startswith(f"scheduler {name!r} cannot be loaded: {message}")
    assert sys.path == before
