"""Numbers of stages are names: with other numbers, jobs take the same time."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.registry import make_scheduler
from simulator import ClusterConfig, run_episode
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations

#: Names of rules and of a trained policy.
SCHEDULERS = ("fifo", "sjf-cp", "fair", "weighted-fair:-1", "tetris", "graphene-star", "priced-srpt", "decima:general")


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
