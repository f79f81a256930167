"""Spark's FAIR mode, with a pool for each job, and its standalone master."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from decima.schedulers.spark import SparkFair, SparkStandalone
from simulator import SPARK, Cluster, ClusterConfig, Decision, EpisodeRecord, ExecutorClass, run_episode
from tests.cases import cases
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads.arrivals import JobSequence


def config(executors: int) -> ClusterConfig:
    return ClusterConfig(executors, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=SPARK)


def test_executors_are_shared_equally_and_by_name() -> None:
    # Each job has two of four executors until 20 ms, when the second job has one of its tasks of 10 ms left.
    record = run_episode(config(4), jobs(job(stage(9, 10.0)), job(stage(5, 10.0))), SparkFair())
    assert record.completion_ms.tolist() == [40.0, 30.0]
    at_once = np.bincount((record.task_start_ms[:9] / 10).astype(int)).tolist()
    assert at_once == [2, 2, 3, 2]
    # With eleven jobs and one executor, job 10 comes before job 2, and no job gets a second task before its turn.
    record = run_episode(config(1), jobs(*(job(stage(2, 10.0)) for _ in range(11))), SparkFair())
    order = np.argsort(record.completion_ms).tolist()
    assert order == [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9]
    # Job 0 waits for its long task from 10 to 100 ms; its second stage opens then, and gets half of the executors.
    waits = chain(stage(1, 100.0), stage(2, 10.0))
    record = run_episode(config(2), jobs(waits, job(stage(30, 10.0))), SparkFair())
    assert record.completion_ms[0] == 120.0
    assert (record.task_start_ms[3:] < 100).sum() == 10


@cases("executors, tasks, limits", (4, (9, 5), (2, 2)), (5, (9, 5), (3, 2)), (5, (1, 9), (1, 4)), (9, (2, 3), (2, 3)))
def test_all_offered_executors_are_handed_out_at_once(
    executors: int, tasks: tuple[int, int], limits: tuple[int, int]
) -> None:
    cluster, fair = (Cluster(config(executors), jobs(*(job(stage(count, 10.0)) for count in tasks))), SparkFair())
    for number, limit in enumerate(limits):
        assert fair.decide(cluster.observe()) == Decision(number, limit)
        cluster.decide(Decision(number, limit))


def run(
    sequence: JobSequence, executors_max: int, *, executors: int = 2, moving_ms: float = 0.0, threads: int = 0
) -> EpisodeRecord:
    cores = ExecutorClass(executors, cpu=1.0, memory=0.0)
    classes = (ExecutorClass(threads, cpu=0.0, memory=1.0), cores) if threads else (cores,)
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=moving_ms, warmup_delay_ms=0.0)
    return run_episode(config, sequence, SparkStandalone(executors_max))


NARROW_IN_THE_MIDDLE = chain(stage(2, 100), stage(1, 100), stage(2, 100))


@pytest.mark.parametrize(("executors_max", "completion_ms"), [(2, [300, 400]), (1, [500, 200])])
def test_an_application_keeps_the_whole_cluster_and_smaller_ones_run_side_by_side(
    executors_max: int, completion_ms: list[int]
) -> None:
    record = run(jobs(NARROW_IN_THE_MIDDLE, job(stage(2, 100))), executors_max)
    assert_array_equal(record.completion_ms, completion_ms)


def test_applications_wait_and_drivers_prepare() -> None:
    record = run(jobs(*[job(stage(1, 100))] * 3), executors_max=1, moving_ms=10)
    assert_array_equal(record.completion_ms, [110, 110, 220])
    record = run(jobs(job(stage(2, 100)), job(stage(4, 100))), executors_max=2, executors=3)
    assert_array_equal(record.completion_ms, [100, 300])
    assert_array_equal(np.sort(record.task_start_ms[2:]), [0, 100, 100, 200])
    # The next stage is not the stage that became ready first.
    late = job(stage(1, 100), stage(1, 100), stage(2, 100), edges=[(0, 1)])
    record = run(jobs(late), executors_max=1)
    assert_array_equal(record.task_start_ms, [0, 100, 200, 300])
    with pytest.raises(ValueError, match="at least one executor, got 0"):
        SparkStandalone(0)
    # Stage 0 ends while the parent of stage 2 runs. Other stages may open before and need the executor.
    profile = job(stage(1, 50), stage(1, 100), stage(1, 100), edges=[(1, 2)])
    cluster = Cluster(ClusterConfig(2, moving_delay_ms=0.0), jobs(profile))
    cluster.decide(Decision(0, 1))
    cluster.decide(Decision(1, 2))
    seen = cluster.observe()
    assert (seen.time_ms, seen.source, seen.schedulable.tolist()) == (50.0, 0, [False, False, True])
    assert SparkStandalone(2).decide(seen) is None
    planning, delay = (stage(count, 50, cpu=0.0, memory=1.0) for count in (2, 1))
    application = chain(planning, stage(2, 100, memory=0.0), delay, stage(1, 100))
    record = run(jobs(application, application), executors_max=2, moving_ms=10, threads=4)
    # 10 to come, 50 to plan, tasks, 50 between; the second one's driver has planned by then
    assert_array_equal(record.completion_ms, [310, 310 + 10 + 250])
