"""Excerpts of recorded job sequences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cases import cases
from workloads import Excerpt, JobProfile, StageProfile, TaskDurations, WorkloadError

JOBS = tuple(JobProfile(name, (StageProfile(2, TaskDurations.constant(1.0)),)) for name in "abcde")


def test_times_seeds_and_speed() -> None:
    arrival_s = [5.0, 1.0, 2.0, 3.0, 3.0]
    assert Excerpt(from_s=2, until_s=5).choose(arrival_s).tolist() == [2, 3, 4]
    with pytest.raises(WorkloadError, match="jobs that arrive from 6 to inf s, got none"):
        Excerpt(from_s=6).choose(arrival_s)
    samples = {tuple(Excerpt(sample=5, seed=seed).choose(np.arange(100.0)).tolist()) for seed in range(10)}
    assert len(samples) == 10
    sequence = Excerpt(speed_up=10, seed=4).sequence(JOBS[:3], [100.0, 105.0, 107.5])
    assert (sequence.arrival_ms.tolist(), sequence.profiles, sequence.seed) == ([0, 500, 750], JOBS[:3], 4)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(1, 25), st.integers(0, 5))
def test_a_sample_is_so_many_different_jobs_in_order(arrival_s: list[float], sample: int, seed: int) -> None:
    chosen = Excerpt(sample=sample, seed=seed).choose(arrival_s)
    assert len(set(chosen.tolist())) == len(chosen) == min(sample, len(arrival_s))
    assert (np.diff(np.array(arrival_s)[chosen]) >= 0).all()
    assert chosen.tolist() == Excerpt(sample=sample, seed=seed).choose(arrival_s).tolist()


@pytest.mark.parametrize(("recorded", "scale", "left"), [(1, 100, 1), (100, 10, 10), (101, 10, 11), (3, 0.5, 6)])
def test_tasks_are_divided_and_rounded_up(recorded: int, scale: float, left: int) -> None:
    assert Excerpt(scale_tasks=scale).num_tasks(recorded) == left


@cases(
    "settings, message",
    ({"from_s": 5.0, "until_s": 5.0}, "begins before it ends, got 5 to 5 s"),
    ({"from_s": float("nan")}, "begins before it ends"),
    ({"sample": 0}, "sample must be a whole number of at least 1, got 0"),
    ({"speed_up": 0.0}, "speed_up must be above 0 and finite, got 0.0"),
    ({"scale_tasks": float("inf")}, "scale_tasks must be above 0 and finite, got inf"),
    ({"scale_tasks": float("nan")}, "scale_tasks must be above 0"),
)
def test_numbers_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Excerpt(**settings)
