"""Tetris, dominant resource fairness and Graphene*, in small cases."""

import tracemalloc

import numpy as np
import pytest

from decima.schedulers import Drf, GrapheneStar, Tetris, WeightedFair
from decima.schedulers.graphene.planner import troublesome_stages
from decima.schedulers.packing import demands
from simulator import Cluster, ClusterConfig, Decision, ExecutorClass, run_episode
from tests.cases import cases
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads.arrivals import JobSequence

CLASSES = ClusterConfig(executor_classes=(ExecutorClass(4, 1, 0.5), ExecutorClass(4, 1, 1.0)))


def chosen(scheduler: Tetris, sequence: JobSequence, config: ClusterConfig = CLASSES) -> list[int]:
    """Return the stages, over all jobs, that get executors of each class in the first round."""
    cluster, stages = Cluster(config, sequence), {}
    while not cluster.done and cluster.clock.now == 0:
        observation = cluster.observe()
        decision = scheduler.decide(observation) if observation.num_schedulable else None
        if decision is not None:
            stages.setdefault(observation.executor_class, []).append(decision.stage)
        cluster.decide(decision)
    return [found[0] for _, found in sorted(stages.items())]


def test_the_largest_demand_in_shares_goes_first() -> None:
    # On the small class this is 0.4 of 0.5, on the large class 0.9.
    sequence = jobs(*(job(stage(9, 100.0, memory=memory)) for memory in (0.1, 0.9, 0.4, 0.6)))
    assert chosen(Tetris(), sequence) == [2, 1]
    # A unit of memory ten times as small changes no decision, though memory then has larger numbers than CPU.
    sizes = ((2.0, 0.2), (1.0, 0.4))
    plain = jobs(*(job(stage(9, 100.0, cpu=cpu, memory=memory)) for cpu, memory in sizes))
    tenfold = jobs(*(job(stage(9, 100.0, cpu=cpu, memory=10 * memory)) for cpu, memory in sizes))
    small = ClusterConfig(executor_classes=(ExecutorClass(4, 4, 1),))
    large = ClusterConfig(executor_classes=(ExecutorClass(4, 4, 10),))
    assert chosen(Tetris(), plain, small) == chosen(Tetris(), tenfold, large) == [0]
    sequence = jobs(*(job(stage(9, 100.0, cpu=cpu)) for cpu in (0.2, 0.9, 0.5)))
    config = ClusterConfig(executor_classes=(ExecutorClass(2, memory=0.0),))
    needs, offered = demands(Cluster(config, sequence).observe())
    assert (needs.tolist(), offered.tolist()) == ([[0.2, 0.0], [0.9, 0.0], [0.5, 0.0]], [1.0, 0.0])
    assert chosen(Tetris(), sequence, config) == [1]


def test_demands_are_met_and_jobs_that_hold_much_passed_over() -> None:
    sequence = jobs(job(stage(3, 100.0, memory=0.4)), job(stage(9, 100.0, memory=0.3)))
    cluster = Cluster(CLASSES, sequence)
    decision = Tetris().decide(cluster.observe())
    assert decision == Decision(0, 4)
    cluster.decide(decision)
    assert cluster.observe().unclaimed_tasks.tolist() == [0, 9]
    # Job 0 fits best and holds an executor when another executor becomes free.
    fits, other = (job(*[stage(9, 100.0, memory=memory)] * 2) for memory in (0.9, 0.1))
    sequence = jobs(fits, other)
    config = ClusterConfig(executor_classes=(ExecutorClass(2),), moving_delay_ms=0)
    for fairness, best in ((0.0, 1), (0.5, 2)):
        cluster = Cluster(config, sequence)
        cluster.decide(Decision(0, 1))
        decision = Tetris(fairness=fairness).decide(cluster.observe())
        assert decision is not None
        assert decision.stage == best


@pytest.mark.parametrize(("remaining", "first"), [(0.0, 0), (0.09, 0), (0.1, 1), (2.0, 1)])
def test_little_remaining_work_outweighs_a_better_fit(remaining: float, first: int) -> None:
    """Scores 1.4 and 1.2; work 9 x 1.4 and 1 x 1.2, so 1.3 x (1.826, 0.174) is taken away, times the weight."""
    sequence = jobs(job(stage(9, 100.0, memory=0.4)), job(stage(1, 100.0, memory=0.2)))
    config = ClusterConfig(executor_classes=(ExecutorClass(1),))
    assert chosen(Tetris(remaining), sequence, config) == [first]


def held_at_first(config: ClusterConfig, sequence: JobSequence) -> list[int]:
    """Return the number of executors of each job after the first round."""
    cluster, scheduler, held = Cluster(config, sequence), Drf(), [0] * len(sequence)
    while not cluster.done and cluster.clock.now == 0:
        observation = cluster.observe()
        decision = scheduler.decide(observation) if observation.num_schedulable else None
        if decision is not None:
            held[int(observation.stage_job[decision.stage])] = decision.limit
        cluster.decide(decision)
    return held


def test_dominant_shares_and_executors_that_jobs_hold() -> None:
    # DRF, section 4.1: of 9 cpu and 18 GB, three tasks of <1 cpu, 4 GB> and two of <3 cpu, 1 GB>.
    sequence = jobs(job(stage(500, 1e6, cpu=1, memory=4)), job(stage(500, 1e6, cpu=3, memory=1)))
    config = ClusterConfig(executor_classes=(ExecutorClass(5, 9, 18),), moving_delay_ms=0)
    assert held_at_first(config, sequence) == [3, 2]
    sequence = jobs(*(job(stage(count, 1e6)) for count in (2, 50, 50)))
    assert held_at_first(ClusterConfig(21, moving_delay_ms=0), sequence) == [2, 10, 9]
    # Job 0 has two of three executors, committed or running, when job 1 arrives.
    profile = job(stage(40, 1000.0), stage(40, 1000.0))
    cluster, scheduler = Cluster(ClusterConfig(3, moving_delay_ms=0), jobs(profile, profile)), Drf()
    cluster.decide(Decision(0, 2))
    assert scheduler.decide(cluster.observe()) == Decision(2, 1)
    late = jobs(profile, profile, at=[0.0, 500.0])
    cluster = Cluster(ClusterConfig(3, moving_delay_ms=0), late)
    cluster.decide(Decision(0, 2))
    cluster.decide(None)
    while len(cluster.observe().jobs) < 2:
        cluster.decide(None)
    assert scheduler.decide(cluster.observe()) == Decision(2, 1)


NOBODY = {"long": 2.0, "fragmented": -1.0}  # thresholds that no stage reaches
CONFIG = ClusterConfig(4, moving_delay_ms=0)


@cases(
    "long, fragmented, expected",
    (2.0, -1.0, [0, 0, 0, 0]),
    (1.0, -1.0, [0, 1, 0, 0]),
    (0.5, -1.0, [0, 1, 1, 1]),  # the third lies between
    (2.0, 0.25, [0, 1, 0, 0]),  # one task on four executors
    (2.0, 0.75, [1, 1, 1, 0]),  # 4 + 2 tasks
    (2.0, 1.0, [1, 1, 1, 1]),
)
def test_long_stages_and_those_that_pack_badly_are_troublesome(
    long: float, fragmented: float, expected: list[int]
) -> None:
    profile = chain(stage(6, 10.0), stage(1, 100.0), stage(3, 20.0), stage(8, 50.0))
    assert troublesome_stages(profile, CONFIG, long, fragmented).tolist() == [bool(each) for each in expected]


def test_memory_for_troublesome_stages_is_linear_in_the_number_of_stages() -> None:
    profile = chain(*(stage(1, 10.0 + number % 7) for number in range(4000)))
    profile.parents  # noqa: B018  # computed before the measurement
    tracemalloc.start()
    chosen = troublesome_stages(profile, CONFIG, 1.0, -1.0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * 2**20, "a closure of the edges would take hundreds of megabytes"
    # The longest stages, and all stages between the first and the last of them.
    assert np.flatnonzero(chosen).tolist() == list(range(6, 3997))


def test_packing_depends_on_executors_and_ready_stages_wait_for_nothing() -> None:
    # Four tasks run on two of six executors, those with memory 1; they need 4 x 0.8 of 4 units of memory.
    config = ClusterConfig(executor_classes=(ExecutorClass(4, 1, 0.5), ExecutorClass(2, 1, 1)))
    profile = job(stage(4, 10.0, cpu=0.1, memory=0.8))
    packs = 4 * 0.8 / 4 / 2
    assert troublesome_stages(profile, config, 2.0, packs + 1e-9).all()
    assert not troublesome_stages(profile, config, 2.0, packs - 1e-9).any()
    cluster = Cluster(CONFIG, jobs(job(stage(4, 1000.0), stage(8, 10.0))))
    assert cluster.observe().ready_rank.tolist() == [0, 1]
    assert GrapheneStar(long=0.9, fragmented=-1).next_stage(cluster.observe()).tolist() == [0]


def test_troublesome_stages_wait_and_then_go_first() -> None:
    # Stage 2 could start immediately, but stage 3 only after stage 0. Then both start before stage 1.
    stages = stage(2, 100.0), stage(8, 10.0), stage(4, 1000.0), stage(4, 1000.0), stage(1, 5.0)
    profile = job(*stages, edges=[(0, 3), (1, 4)])
    cluster, scheduler = Cluster(CONFIG, jobs(profile)), GrapheneStar(long=0.9, fragmented=-1)
    assert scheduler.decide(cluster.observe()) == Decision(0, 4)
    cluster.decide(Decision(0, 2))
    assert scheduler.decide(cluster.observe()) == Decision(1, 4)
    while cluster.observe().finished_tasks[0] < 2:
        cluster.decide(None)
    observation = cluster.observe()
    assert WeightedFair().next_stage(observation) == [1]
    assert scheduler.next_stage(observation) == [2]
    # All tasks of stage 1 run, so it is no longer ready; stage 2 starts nevertheless, and before stage 3.
    profile = job(stage(2, 10.0), stage(2, 1000.0), stage(4, 1000.0), stage(8, 10.0), edges=[(0, 2)])
    cluster = Cluster(ClusterConfig(5, moving_delay_ms=0), jobs(profile))
    scheduler = GrapheneStar(long=0.9, fragmented=-1)
    cluster.decide(Decision(0, 2))
    while cluster.observe().finished_tasks[0] < 2:
        cluster.decide(None)
    assert scheduler.decide(cluster.observe()) == Decision(1, 2)
    cluster.decide(Decision(1, 2))
    while cluster.observe().remaining_tasks[1]:
        cluster.decide(None)
    observation = cluster.observe()
    assert not observation.finished_tasks[1]
    assert not observation.schedulable[1]
    assert scheduler.next_stage(observation).tolist() == [2]


def test_troublesome_stages_wait_unless_nothing_else_could_run() -> None:
    profile = job(stage(2, 10.0), stage(4, 1000.0), stage(4, 1000.0), edges=[(0, 2)])
    cluster = Cluster(CONFIG, jobs(profile))
    cluster.decide(Decision(0, 2))
    assert GrapheneStar(long=0.9, fragmented=-1).decide(cluster.observe()) == Decision(1, 4)
    waits = job(stage(2, 10.0), stage(4, 1000.0), stage(4, 1000.0), edges=[(0, 2)])
    cluster = Cluster(CONFIG, jobs(waits, job(stage(9, 10.0))))
    cluster.decide(Decision(0, 2))
    decision = GrapheneStar(long=0.9, fragmented=-1).decide(cluster.observe())
    assert decision is not None
    assert decision.stage == 3


@pytest.mark.parametrize("alpha", [-1.0, 0.0])
def test_without_troublesome_stages_it_is_weighted_fair(alpha: float) -> None:
    random = np.random.default_rng(1)
    profiles = [chain(*(stage(int(n), 50.0) for n in random.integers(1, 9, 3))) for _ in range(10)]
    sequence, config = jobs(*profiles), ClusterConfig(6, moving_delay_ms=20)
    mine, fair = (run_episode(config, sequence, each) for each in (GrapheneStar(alpha, **NOBODY), WeightedFair(alpha)))
    assert mine.task_start_ms.tolist() == fair.task_start_ms.tolist()
