"""A fixed order of jobs; the search for the best order finds the optimum of exhaustive enumeration."""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from decima.schedulers import JobOrder, SjfCp
from decima.schedulers.order_search import OrderSearch, search_orders, simplified_cluster
from simulator import ClusterConfig, ExecutorClass, run_episode
from simulator.cluster.known import known_sequence
from tests.decima.schedulers.test_schedulers import grants, one_stage
from tests.simulator.cluster.build import chain, job, jobs, stage
from tests.simulator.cluster.strategies import LARGE
from tests.workloads.strategies import durations_ms, job_sequences
from workloads import JobProfile, JobSequence, batch_arrivals, load_tpch, simplified, synthetic_profiles


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


def mean_jct_ms(sequence: JobSequence, order: tuple[int, ...], executors: int, ahead: bool) -> float:
    return run_episode(simplified_cluster(executors), sequence, JobOrder(order, ahead)).mean_jct_ms


def best_of_all(sequence: JobSequence, executors: int, ahead: bool) -> float:
    orders = itertools.permutations(range(len(sequence)))
    return min(mean_jct_ms(sequence, order, executors, ahead) for order in orders)


def check_account(found: OrderSearch, sequence: JobSequence, executors: int) -> None:
    """Check that the fields of a result are consistent."""
    assert found.mean_jct_ms == mean_jct_ms(sequence, found.order, executors, found.ahead)
    assert found.num_orders == math.factorial(len(sequence))
    assert found.lower_bound_ms <= found.mean_jct_ms
    assert found.proven == (found.num_open == 0) == (found.lower_bound_ms == found.mean_jct_ms)
    assert found.num_evaluated + found.num_pruned + found.num_open >= found.num_orders


@st.composite
def small_jobs(draw: st.DrawFn) -> JobProfile:
    """Draw jobs with one to four stages of a few tasks, any DAG, without noise."""
    stages = [stage(draw(st.integers(1, 6)), draw(durations_ms())) for _ in range(draw(st.integers(1, 4)))]
    pairs = list(itertools.combinations(range(len(stages)), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return job(*stages, edges=edges)


@settings(deadline=None, max_examples=30)
@given(st.lists(small_jobs(), min_size=1, max_size=4), st.integers(1, 8), st.booleans())
def test_no_order_is_better_than_the_one_found(profiles: list[JobProfile], executors: int, ahead: bool) -> None:
    sequence = jobs(*profiles)
    found = search_orders(sequence, executors, ahead=ahead)
    assert found.proven
    assert found.mean_jct_ms == pytest.approx(best_of_all(sequence, executors, ahead), rel=1e-8)
    check_account(found, sequence, executors)


@settings(deadline=None, max_examples=20)
@given(st.lists(small_jobs(), min_size=2, max_size=4), st.integers(1, 8), st.booleans(), st.integers(1, 10))
def test_the_lower_bound_holds_whenever_the_search_stops(
    profiles: list[JobProfile], executors: int, ahead: bool, max_evaluations: int
) -> None:
    sequence = jobs(*profiles)
    found = search_orders(sequence, executors, ahead=ahead, max_evaluations=max_evaluations)
    assert found.lower_bound_ms <= best_of_all(sequence, executors, ahead) * (1 + 1e-8)
    assert found.num_evaluated <= max_evaluations + len(sequence)
    check_account(found, sequence, executors)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_six_published_jobs(shared: Callable[[str], Path], seed: int, ahead: bool) -> None:
    sequence = batch_arrivals([simplified(job) for job in load_tpch(shared("tpch"))], 6, seed)
    found = search_orders(sequence, ahead=ahead)
    assert found.proven
    assert found.mean_jct_ms == pytest.approx(best_of_all(sequence, 50, ahead), rel=1e-8)
    check_account(found, sequence, 50)


def test_the_shortest_job_may_go_first_or_not() -> None:
    # Then the bound is exact, and few evaluations suffice for all n! orders.
    sizes = [5, 3, 9, 1, 8, 2, 7, 4, 6, 10]
    found = search_orders(jobs(*(job(stage(2 * size, 1000.0)) for size in sizes)), 2)
    assert found.order == tuple(np.argsort(sizes).tolist())
    assert found.mean_jct_ms == np.cumsum(sorted(sizes)).mean() * 1000.0
    assert found.proven
    assert found.gap == 0.0
    assert found.num_evaluated < 150
    assert found.num_orders == 3_628_800
    # Two narrow jobs in parallel, with less work than the wide job, leave no executor idle.
    narrow = chain(*(stage(1, 1000.0) for _ in range(6)))
    wide = job(stage(8, 1000.0))
    sequence = jobs(narrow, narrow, wide)
    found = search_orders(sequence, 2, ahead=False)
    shortest = run_episode(simplified_cluster(2), sequence, SjfCp()).mean_jct_ms
    assert found.mean_jct_ms < shortest
    assert found.mean_jct_ms == best_of_all(sequence, 2, ahead=False)


def test_unfinished_searches_and_simplified_tasks() -> None:
    profiles = [simplified(profile) for profile in synthetic_profiles(12)]
    sequence = batch_arrivals(profiles, 6, seed=1)
    stopped = search_orders(sequence, 10, max_evaluations=3)
    assert not stopped.proven
    assert 0.0 < stopped.gap < 1.0
    assert stopped.gap == 1.0 - stopped.lower_bound_ms / stopped.mean_jct_ms
    further = search_orders(sequence, 10, max_evaluations=200)
    assert further.mean_jct_ms <= stopped.mean_jct_ms
    assert further.lower_bound_ms >= stopped.lower_bound_ms
    sequence = batch_arrivals([simplified(profile) for profile in synthetic_profiles(3, seed=1)], 3, 0)
    clusters = [replace(simplified_cluster(4), warmup_delay_ms=warmup_ms) for warmup_ms in (0.0, 5000.0)]
    ends_ms = [run_episode(cluster, sequence, SjfCp()).completion_ms for cluster in clusters]
    np.testing.assert_array_equal(*ends_ms)


def test_searches_without_a_choice_and_those_that_are_refused() -> None:
    found = search_orders(jobs(job(stage(4, 1000.0))), 2)
    assert found == OrderSearch((0,), True, 2000.0, 2000.0, 1, 1, 1, 0)
    with pytest.raises(ValueError, match="expected that all jobs arrive at time 0"):
        search_orders(jobs(job(stage(1, 1.0)), job(stage(1, 1.0)), at=[0.0, 1.0]))
    varied = job(stage(1, 1.0), stage(2, 5.0, fresh_ms=8.0), name="varied")
    with pytest.raises(ValueError, match="varied: expected a simplified profile, with equal tasks in each stage"):
        search_orders(jobs(varied))
    assert search_orders(jobs(simplified(varied))).proven
