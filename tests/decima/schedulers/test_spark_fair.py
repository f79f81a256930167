"""Spark's FAIR mode, with a pool for each job."""

import numpy as np

from decima.schedulers.spark import SparkFair
from simulator import SPARK, Cluster, ClusterConfig, Decision, run_episode
from tests.cases import cases
from tests.simulator.cluster.build import chain, job, jobs, stage


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
