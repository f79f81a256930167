"""Graphene*: troublesome stages wait for each other, and then go first."""

import numpy as np
import pytest

from decima.schedulers import GrapheneStar, WeightedFair
from decima.schedulers.graphene.planner import troublesome_stages
from simulator import Cluster, ClusterConfig, Decision, ExecutorClass, run_episode
from tests.cases import cases
from tests.simulator.cluster.build import chain, job, jobs, stage

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
    profile = job(stage(2, 100.0), stage(8, 10.0), stage(4, 1000.0), stage(4, 1000.0), edges=[(0, 3)])
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
