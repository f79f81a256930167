"""Shortest remaining work first on several executor classes: use of large executors, and limits."""

import numpy as np
import pytest

from decima.evaluation.run import run_scheduler
from decima.registry import make_scheduler
from decima.schedulers.packed_srpt import PackedSrpt
from simulator import Cluster, ClusterConfig, Decision, ExecutorClass
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads import JobSequence

SMALL_AND_LARGE = (ExecutorClass(2, memory=0.5), ExecutorClass(2, memory=1.0))


def cluster_of(sequence: JobSequence, classes: tuple[ExecutorClass, ...] = SMALL_AND_LARGE) -> Cluster:
    return Cluster(ClusterConfig(executor_classes=classes, moving_delay_ms=0), sequence)


def test_stages_far_from_the_end_and_parameters() -> None:
    ends, goes_on = stage(1, 900.0), stage(1, 500.0)
    profile = job(ends, goes_on, stage(1, 500.0), edges=[(1, 2)])
    decision = PackedSrpt().decide(cluster_of(jobs(profile)).observe())
    assert decision is not None
    assert decision.stage == 1
    scheduler = make_scheduler("packed-srpt:2:0.5")
    assert isinstance(scheduler, PackedSrpt)
    assert (scheduler.constants.thrift, scheduler.constants.waste) == (2.0, 0.5)


@pytest.mark.parametrize(("times", "goes_to_the_small"), [(1.9, True), (2.1, False)])
def test_a_large_executor_goes_to_what_only_it_can_run(times: float, goes_to_the_small: bool) -> None:
    """Half of the executors are large. With exponent 1, a stage that needs no large executor has twice the key."""
    small, large = job(stage(2, 1000.0, memory=0.5)), job(stage(2, 1000.0 * times, memory=1.0))
    cluster = cluster_of(jobs(small, large, small))
    scheduler = PackedSrpt(waste=1.0)
    assert scheduler.decide(cluster.observe()) == Decision(0, 2)
    cluster.decide(Decision(0, 2))
    seen = cluster.observe()
    assert seen.executor_class == 1
    decision = scheduler.decide(seen)
    assert decision is not None
    assert (decision.stage == 2) == (not goes_to_the_small)


def test_stages_that_few_can_run_come_first_and_no_executor_waits_elsewhere() -> None:
    either, large = stage(4, 1000.0, memory=0.25), stage(2, 1000.0, memory=1.0)
    cluster = cluster_of(jobs(job(either, large)))
    scheduler = PackedSrpt()
    stages = []
    while cluster.offered and cluster.clock.now == 0:
        decision = scheduler.decide(cluster.observe())
        assert decision is not None
        stages.append(decision.stage)
        cluster.decide(decision)
    assert stages == [0, 1]
    # The first job's second stage is not ready, so executors that the first stage does not need would only wait.
    cluster = cluster_of(jobs(chain(stage(1, 1000.0), stage(4, 1000.0)), job(stage(1, 10.0))))
    scheduler = PackedSrpt()
    for expected in (Decision(2, 1), Decision(0, 1), None):
        decision = scheduler.decide(cluster.observe())
        assert (decision.stage if decision else None) == (expected.stage if expected else None)
        if decision:
            cluster.decide(decision)


def test_executors_too_small_for_what_is_left_do_not_count_in_the_limit() -> None:
    """The job's small executors wait for its last stage, which is not ready before the previous stage ends."""
    sequence = jobs(
        chain(stage(2, 10.0, memory=0.5), stage(2, 1000.0, memory=1.0), stage(2, 10.0, memory=0.5)),
        job(stage(50, 300.0, memory=1.0)),
    )
    record = run_scheduler(
        ClusterConfig(executor_classes=SMALL_AND_LARGE, moving_delay_ms=1.0), sequence, "packed-srpt"
    )
    assert not np.isnan(record.completion_ms).any()
    # Both large executors join it although its limit is its share of the cluster, two executors.
    second = slice(2, 4)
    assert sorted(record.task_executor[second]) == [2, 3]


@pytest.mark.parametrize("name", ["packed-srpt", "adaptive-packed-srpt", "profiled-srpt", "capped-srpt"])
def test_no_class_is_waited_for_for_ever(name: str) -> None:
    """A job holds as many small executors as its limit allows, and needs a large executor."""
    sequence = jobs(chain(stage(1, 10.0, memory=0.5), stage(1, 10.0, memory=1.0), stage(9, 10.0, memory=0.5)))
    classes = (ExecutorClass(20, memory=0.5), ExecutorClass(1, memory=1.0))
    record = run_scheduler(ClusterConfig(executor_classes=classes), sequence, name)
    assert not np.isnan(record.completion_ms).any()
