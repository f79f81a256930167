"""Sleeping jobs for a real Spark: supported DAGs, durations, predictions."""

import numpy as np

from reproduce.spark.live import Overhead, runs_unchanged
from reproduce.spark.sleeping import SparkSetting, sleeping
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations, embedded_tpch


def a_job(sizes: list[int], edges: list[tuple[int, int]]) -> JobProfile:
    stages = tuple(StageProfile(size, TaskDurations.constant(100.0)) for size in sizes)
    return JobProfile("job", stages, np.array(edges))


def test_sleeping_jobs_and_durations_of_their_tasks() -> None:
    assert runs_unchanged(a_job([3, 2, 2], [(0, 1), (0, 2), (1, 2)]))
    assert not runs_unchanged(a_job([3, 2, 4], [(0, 1), (0, 2), (1, 2)])), "one shuffle has one number of readers"
    assert not runs_unchanged(a_job([3, 2, 2], [(0, 1), (0, 2)])), "a job ends in one stage"
    # One executor runs stages of two tasks of 100 ms. Under Spark's own scheduler no task waits for a stage.
    jobs = JobSequence((a_job([2, 2], [(0, 1)]),), np.zeros(1))
    setting, overhead = SparkSetting(executors=1), Overhead(20.0, 50.0)
    assert setting.predicted_ms(jobs, "decima", "fifo", overhead) == 2 * (170 + 120)
    assert setting.predicted_ms(jobs, "Spark FIFO", "fifo", overhead) == 4 * 120
    assert setting.predicted_ms(jobs, "Spark FAIR", "fair", overhead) == 4 * 120
    setting = SparkSetting(scale=2.0, tasks=0.05)
    for profile in embedded_tpch()[:8]:
        nap = sleeping(profile, setting)
        assert nap.edges.tolist() == profile.edges.tolist()
        for before, stage, again in zip(profile.stages, nap.stages, sleeping(profile, setting).stages, strict=True):
            assert stage.num_tasks == max(1, round(0.05 * before.num_tasks)) == len(stage.durations.values)
            assert list(stage.durations.values) == list(again.durations.values)
            assert max(stage.durations.values) <= np.round(2 * max(before.durations.values))
