"""Tetris: the best fit goes first, unless its job has much remaining work or many executors."""

import pytest

from decima.schedulers import Tetris
from decima.schedulers.baselines import demands
from simulator import Cluster, ClusterConfig, Decision, ExecutorClass
from tests.simulator.cluster.build import job, jobs, stage
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
