"""Shortest remaining work first: order, limits, and which executors stay."""

import pytest

from decima.schedulers.priced_srpt import STAYING, WORTH_LEAVING, WORTH_MOVING, CappedSrpt, PricedSrpt, ProfiledSrpt
from simulator import Cluster, ClusterConfig, Decision
from simulator.cluster.alone import useful_executors
from tests.simulator.cluster.build import chain, inflating, job, jobs, stage
from workloads.arrivals import JobSequence

DELAY_MS = 100.0


def first_decisions(
    scheduler: CappedSrpt | ProfiledSrpt, executors: int, sequence: JobSequence
) -> list[Decision | None]:
    """Return the decisions at time 0, until no executor is left or the rest is left idle."""
    config = ClusterConfig(executors, moving_delay_ms=DELAY_MS)
    scheduler.reset(config)
    cluster, made = Cluster(config, sequence), []
    while not cluster.done and cluster.clock.now == 0:
        observation = cluster.observe()
        made.append(scheduler.decide(observation) if observation.num_schedulable else None)
        cluster.decide(made[-1])
    return made


def test_executors_move_to_work_up_to_limits_of_profiles() -> None:
    sequence = jobs(job(stage(50, 1000)), job(stage(40, 1000)), job(stage(45, 1000)))
    made = first_decisions(CappedSrpt(), 12, sequence)
    assert [decision.stage for decision in made if decision] == [1, 2, 0]
    # Ten tasks are enough work for executors with three moving delays of work each; other executors stay free.
    task_ms = WORTH_MOVING * DELAY_MS / 2
    made = first_decisions(CappedSrpt(coefficient=1000), 8, jobs(job(stage(10, task_ms))))
    assert made == [Decision(0, 5), None]
    made = first_decisions(CappedSrpt(), 8, jobs(job(stage(10, 1.0))))
    assert made == [Decision(0, 1), None]
    config = ClusterConfig(8, moving_delay_ms=0)
    cluster = Cluster(config, jobs(job(stage(8, 1.0))))
    assert CappedSrpt(1000).decide(cluster.observe()) == Decision(0, 8)
    profile = inflating(400, {5: 1000.0, 10: 1200.0, 20: 4000.0, 40: 9000.0})
    config = ClusterConfig(40, moving_delay_ms=DELAY_MS)
    scheduler = ProfiledSrpt(2.5)
    several = jobs(*[profile] * 8)
    scheduler.reset(config)
    best = useful_executors(profile, config, 2.5)
    assert 40 // 8 < best < 40
    assert scheduler.decide(Cluster(config, several).observe()) == Decision(0, best)


@pytest.mark.parametrize(("share", "stays"), [(STAYING * 1.1, True), (STAYING * 0.9, False)])
def test_executors_leave_their_job_only_for_a_clearly_shorter_one(share: float, stays: bool) -> None:
    """One executor finishes the first stage of a long job; another job has a fraction of its remaining work."""
    work_ms = 10 * WORTH_LEAVING * DELAY_MS
    own, other = chain(stage(1, 50), stage(10, work_ms / 10)), job(stage(10, share * work_ms / 10))
    cluster = Cluster(ClusterConfig(1, moving_delay_ms=DELAY_MS), jobs(own, other))
    cluster.decide(Decision(0, 1))
    while cluster.observe().source < 0:
        cluster.decide(None)
    for scheduler in (CappedSrpt(), PricedSrpt()):
        decision = scheduler.decide(cluster.observe())
        assert decision is not None
        assert (decision.stage == 1) == stays


@pytest.mark.parametrize(("left", "leaves"), [(15, False), (16, True)])
def test_an_executor_leaves_its_job_for_eight_moving_delays_of_work(left: int, leaves: bool) -> None:
    """Executor 0 finishes the first stage of a long job; the short job, with executor 1, has some tasks left."""
    long, short = chain(stage(1, 50), stage(10, 10_000)), job(stage(1 + left, DELAY_MS))
    cluster = Cluster(ClusterConfig(2, moving_delay_ms=DELAY_MS), jobs(long, short))
    cluster.decide(Decision(0, 1))
    cluster.decide(Decision(2, 1))
    observation = cluster.observe()
    assert (cluster.acting, observation.source, observation.unclaimed_tasks.tolist()) == ([0], 0, [0, 10, left])
    assert CappedSrpt().decide(observation) == (Decision(2, 2) if leaves else Decision(1, 2))


@pytest.mark.parametrize(("left", "executors"), [(8, 1), (15, 1), (16, 2)])
def test_with_a_price_it_does_so_where_most_of_the_work_is_claimed(left: int, executors: int) -> None:
    """A long task of the other job runs, so that its remaining work exceeds its useful parallelism."""
    long, other = chain(stage(1, 50), stage(10, 10_000)), job(stage(1, 100_000), stage(left, DELAY_MS))
    cluster = Cluster(ClusterConfig(4, moving_delay_ms=DELAY_MS), jobs(long, other))
    cluster.decide(Decision(0, 1))
    cluster.decide(Decision(2, 1))
    while cluster.observe().source < 0:
        cluster.decide(None)
    assert cluster.observe().unclaimed_tasks.tolist() == [0, 10, 0, left]
    assert PricedSrpt().ask(cluster.observe()).limits[1] == executors


@pytest.mark.parametrize(("tasks", "executors"), [(5, 1), (6, 2), (8, 2), (9, 3)])
def test_a_free_executor_moves_for_three_moving_delays_of_work(tasks: int, executors: int) -> None:
    made = first_decisions(CappedSrpt(), 4, jobs(job(stage(tasks, DELAY_MS))))
    assert made == [Decision(0, executors), None]
