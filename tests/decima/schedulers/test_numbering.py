"""Numbers of stages are names: with other numbers, jobs take the same time. More executors do no harm."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.registry import make_scheduler
from simulator import ClusterConfig, run_episode
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations

#: Names of rules and of a trained policy.
SCHEDULERS = ("fifo", "sjf-cp", "fair", "weighted-fair:-1", "tetris", "graphene-star", "srpt", "decima:tpch-batch")


@st.composite
def dags(draw: st.DrawFn) -> list[JobProfile]:
    """Draw three jobs of up to six stages. Task times are constant, as noise depends on the numbers of stages."""
    return [
        JobProfile(
            f"job {number}",
            tuple(
                StageProfile(draw(st.integers(1, 8)), TaskDurations.constant(draw(st.floats(50.0, 9000.0))))
                for _ in range(size)
            ),
            np.array([(one, two) for two in range(size) for one in range(two) if draw(st.booleans())], dtype=np.int64),
        )
        for number, size in enumerate(draw(st.lists(st.integers(1, 6), min_size=3, max_size=3)))
    ]


def renumbered(profile: JobProfile, random: Random) -> JobProfile:
    """Return the same job with other numbers of stages."""
    order = list(range(profile.num_stages))
    random.shuffle(order)
    number = {stage: place for place, stage in enumerate(order)}
    edges = np.array([(number[parent], number[child]) for parent, child in profile.edges.tolist()], dtype=np.int64)
    return JobProfile(profile.name, tuple(profile.stages[stage] for stage in order), edges)


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=15, deadline=None)
@given(profiles=dags(), executors=st.integers(1, 12), random=st.randoms(use_true_random=False))
def test_completion_times_do_not_depend_on_the_numbers_of_stages(
    name: str, profiles: list[JobProfile], executors: int, random: Random
) -> None:
    scheduler, arrival_ms = make_scheduler(name), np.array([0.0, 0.0, 4000.0])
    one, other = (
        run_episode(ClusterConfig(executors), JobSequence(tuple(jobs), arrival_ms, seed=0), scheduler).completion_ms
        for jobs in (profiles, [renumbered(profile, random) for profile in profiles])
    )
    np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("name", ["fair", "srpt", "decima:tpch-batch"])
@settings(max_examples=15, deadline=None)
@given(
    stages=st.lists(st.tuples(st.integers(1, 20), st.floats(50.0, 20_000.0)), min_size=1, max_size=5),
    executors=st.tuples(st.integers(1, 100), st.integers(1, 100)).map(sorted),
)
def test_more_executors_make_a_job_alone_slower_by_at_most_a_moving_delay(
    name: str, stages: list[tuple[int, float]], executors: list[int]
) -> None:
    """The stages are independent. With edges, list scheduling has anomalies (Graham, 1969)."""
    profiles = tuple(StageProfile(tasks, TaskDurations.constant(ms)) for tasks, ms in stages)
    sequence = JobSequence((JobProfile("job", profiles),), np.zeros(1), seed=0)
    few_ms, many_ms = (
        run_episode(ClusterConfig(count), sequence, make_scheduler(name)).jct_ms[0] for count in executors
    )
    assert many_ms <= few_ms + ClusterConfig().moving_delay_ms


def test_a_job_alone_is_fastest_with_an_executor_for_each_task() -> None:
    stages = [(5, 2000.0), (5, 2000.0), (1, 3000.0)]
    profile = JobProfile("job", tuple(StageProfile(tasks, TaskDurations.constant(ms)) for tasks, ms in stages))
    jct_ms = {
        executors: run_episode(
            ClusterConfig(executors), JobSequence((profile,), np.zeros(1), seed=0), make_scheduler("srpt-tuned")
        ).jct_ms[0]
        for executors in (8, 16, 20, 30, 48)
    }
    assert jct_ms == {8: 6000.0, 16: 6000.0, 20: 5000.0, 30: 5000.0, 48: 5000.0}
