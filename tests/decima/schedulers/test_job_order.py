"""A fixed order of jobs."""

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from decima.schedulers import JobOrder, SjfCp
from simulator import ClusterConfig, ExecutorClass, run_episode
from simulator.cluster.alone import known_sequence
from tests.decima.schedulers.test_schedulers import grants, one_stage
from tests.simulator.cluster.build import chain, job, jobs, stage
from tests.simulator.cluster.strategies import LARGE
from tests.workloads.strategies import job_sequences
from workloads.arrivals import JobSequence


def test_jobs_and_their_stages_go_in_order() -> None:
    sequence = one_stage(4, 3, 20)
    assert grants(JobOrder((1, 0, 2)), 10, sequence) == [(1, 0, 3), (0, 0, 4), (2, 0, 3)]
    assert grants(JobOrder((2, 1, 0)), 10, sequence) == [(2, 0, 10)]
    assert grants(JobOrder((0, 2, 1)), 10, sequence) == [(0, 0, 4), (2, 0, 6)]
    two_stages = chain(stage(2, 1000.0), stage(8, 1000.0))
    sequence = jobs(two_stages, job(stage(10, 1000.0)), at=[0.0, 1500.0])
    config = ClusterConfig(num_executors=1, moving_delay_ms=0.0)
    assert run_episode(config, sequence, JobOrder((1, 0))).completion_ms.tolist() == [20_000.0, 12_000.0]
    assert run_episode(config, sequence, JobOrder((0, 1))).completion_ms.tolist() == [10_000.0, 20_000.0]
    sizes = (1, 5, 2, 9, 3, 1)
    profile = job(*(stage(size, 1000.0) for size in sizes), edges=[(0, 3), (2, 4), (4, 5)])
    assert [number for _, number, _ in grants(JobOrder([0]), 50, jobs(profile))] == [0, 2, 1, 3, 4, 5]
    assert [number for _, number, _ in grants(JobOrder([0], ahead=False), 50, jobs(profile))] == [0, 2, 1]
    with pytest.raises(ValueError, match=re.escape("an order of 2 jobs lacks some of the jobs [0, 1, 2]")):
        run_episode(ClusterConfig(), one_stage(1, 1, 1), JobOrder((0, 1)))


def test_executors_wait_for_the_next_stage_of_an_urgent_job_only_if_they_are_sent_ahead() -> None:
    """The second stage of job 0 opens after 1 s, while a task of job 1 takes 10 s."""
    sequence = jobs(chain(stage(1, 1000.0), stage(4, 1000.0)), job(stage(4, 10_000.0)))
    config = ClusterConfig(num_executors=4, moving_delay_ms=0.0)
    waiting = run_episode(config, sequence, JobOrder((0, 1)))
    assert waiting.completion_ms.tolist() == [2000.0, 12_000.0]
    busy = run_episode(config, sequence, JobOrder((0, 1), ahead=False))
    assert busy.completion_ms.tolist() == [5000.0, 15_000.0]


@settings(max_examples=25)
@given(job_sequences(), st.integers(1, 12))
def test_by_total_work_it_is_sjf_cp(sequence: JobSequence, executors: int) -> None:
    config = ClusterConfig(executor_classes=(ExecutorClass(executors, **LARGE),))
    work_ms = [profile.work_ms for profile in known_sequence(sequence, config).profiles]
    assume(len(set(work_ms)) == len(work_ms))  # of equal jobs, either may go first
    order = np.argsort(work_ms, kind="stable")
    ordered, shortest = (run_episode(config, sequence, rule) for rule in (JobOrder(order.tolist()), SjfCp()))
    assert np.array_equal(ordered.task_start_ms, shortest.task_start_ms)
    assert np.array_equal(ordered.task_executor, shortest.task_executor)


@pytest.mark.parametrize("order", [(0, 2), (1, 2), (0, 0), (-1, 0), (0.5, 1)])
def test_what_is_no_permutation_is_refused(order: tuple[int, ...]) -> None:
    message = f"expected a permutation of the numbers 0 to 1 as the order of the jobs, got {list(order)}"
    with pytest.raises(ValueError, match=re.escape(message)):
        JobOrder(order)
