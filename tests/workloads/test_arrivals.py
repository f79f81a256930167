"""Job sequences: arrivals; a seed determines a sequence."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cases import cases
from tests.simulator.cluster.build import chain, stage
from workloads import JobSequence, WorkloadError, poisson_arrivals
from workloads.arrivals import RandomStream, WorkPrior, batch_arrivals, random_stream, trace_arrivals
from workloads.drift import Drift
from workloads.job import JobProfile, StageProfile, TaskDurations
from workloads.patterns import STEADY, ArrivalPattern
from workloads.scaling import uniform_memory
from workloads.windows import windows

JOBS = tuple(JobProfile(name, (StageProfile(2, TaskDurations.constant(1.0)),)) for name in "abcde")


def names(sequence: JobSequence) -> str:
    return "".join(profile.name for profile in sequence.profiles)


def test_a_batch_is_drawn_uniformly_and_intervals_change_no_jobs() -> None:
    sequence = batch_arrivals(JOBS, 20, seed=3)
    assert len(sequence) == 20
    assert (sequence.num_tasks, sequence.seed) == (40, 3)
    assert not sequence.arrival_ms.any()
    drawn = names(batch_arrivals(JOBS, 10_000, seed=0))
    for name in "abcde":
        assert drawn.count(name) == pytest.approx(2000, abs=4 * np.sqrt(10_000 * 0.2 * 0.8))
    batch = batch_arrivals(JOBS, 50, seed=9)
    slow, fast = (poisson_arrivals(JOBS, 50, mean_ms, seed=9) for mean_ms in (1000.0, 500.0))
    assert names(batch) == names(slow) == names(fast)
    assert slow.arrival_ms.tolist() == pytest.approx(2 * fast.arrival_ms)
    assert names(batch) != names(batch_arrivals(JOBS, 50, seed=10))


def test_intervals_windows_and_streams() -> None:
    sequence = poisson_arrivals(JOBS, 20_001, mean_interval_ms=25_000.0, seed=1)
    intervals = np.diff(sequence.arrival_ms)
    assert sequence.arrival_ms[0] == 0.0
    # The bounds are four standard errors of an exponential distribution's statistics.
    error = 4 / np.sqrt(intervals.size)
    assert intervals.mean() == pytest.approx(25_000, rel=error)
    assert intervals.std() == pytest.approx(25_000, rel=np.sqrt(2) * error)
    assert (intervals > 25_000).mean() == pytest.approx(np.exp(-1), abs=error / 2)
    assert np.corrcoef(intervals[1:], intervals[:-1])[0, 1] == pytest.approx(0, abs=error)
    sequence = trace_arrivals(JOBS, [7.0, 16.9, 17.0, 40.0, 46.0], seed=8)
    parts = windows(sequence, 10.0)
    assert [names(window) for window in parts] == ["ab", "c", "de"]  # no jobs from 27 to 37
    assert [window.arrival_ms.tolist() for window in parts] == [[0, pytest.approx(9.9)], [0], [0, 6]]
    assert {window.seed for window in parts} == {8}
    assert [names(window) for window in windows(sequence, np.inf)] == ["abcde"]
    for length in (0.0, -1.0, np.nan):
        with pytest.raises(WorkloadError, match="must be longer than 0"):
            windows(sequence, length)
    seeds = (0, 1, 2**32, 2**32 + 1, 2**64)
    paths = ((), (0,), (1,), (0, 0), (0, 1))
    streams = [(seed, purpose, *path) for seed in seeds for purpose in RandomStream for path in paths]
    draws = {random_stream(*stream).integers(2**62) for stream in streams}
    assert len(draws) == len(streams)


@given(seed=st.integers(0, 2**64))
def test_one_seed_names_one_sequence(seed: int) -> None:
    one, other = (poisson_arrivals(JOBS, 10, 1000.0, seed) for _ in range(2))
    assert (one.profiles, one.arrival_ms.tolist()) == (other.profiles, other.arrival_ms.tolist())


#: Jobs other than ``JOBS``.
OTHERS = tuple(JobProfile(name, JOBS[0].stages) for name in "xyz")


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0])
def test_the_rate_changes_in_the_middle_and_nothing_before(rate: float) -> None:
    plain = poisson_arrivals(JOBS, 20_000, 1000.0, seed=1)
    drift = poisson_arrivals(JOBS, 20_000, 1000.0, 1, Drift(8e6, rate))
    before = int(np.sum(plain.arrival_ms < 8e6))
    assert drift.arrival_ms[:before].tolist() == plain.arrival_ms[:before].tolist()
    assert names(drift) == names(plain)
    # After the change, 8,000 s hold 8,000 * rate jobs; four standard deviations of a Poisson variable.
    window = ((drift.arrival_ms >= 8e6) & (drift.arrival_ms < 8e6 + 4e6)).sum()
    assert window == pytest.approx(4000 * rate, abs=4 * np.sqrt(4000 * rate))
    intervals = np.diff(drift.arrival_ms[before:])
    error = 4 / np.sqrt(intervals.size)
    assert intervals.mean() == pytest.approx(1000 / rate, rel=error)
    assert intervals.std() == pytest.approx(1000 / rate, rel=np.sqrt(2) * error)
    if rate == 1:
        assert drift.arrival_ms == pytest.approx(plain.arrival_ms, abs=1e-6)


def test_the_distribution_of_drawn_jobs_is_that_of_the_workload() -> None:
    """The logarithms of the jobs' work are 1 and 5; half of the second job's tasks take three times as long."""
    e = math.e

    def profile(*stages: tuple[int, float]) -> JobProfile:
        return JobProfile("", tuple(StageProfile(tasks, TaskDurations.constant(ms)) for tasks, ms in stages))

    profiles = (profile((1, e)), profile((2, e**5 / 4 * 0.5), (2, e**5 / 4 * 1.5)))
    prior = WorkPrior.of(profiles)
    task_logs = 1.0, 5 - math.log(4)

    def sd(variance: float) -> float:
        return math.sqrt((2 * variance + 1) / 3)

    apart = [math.log(0.5) ** 2, math.log(1.5) ** 2]
    assert prior.mean_log_ms == pytest.approx(3.0)
    assert prior.sd_log == pytest.approx(sd(4.0))
    assert (prior.task_log_ms, prior.task_sd_log) == pytest.approx((np.mean(task_logs), sd(float(np.var(task_logs)))))
    assert prior.stage_sd_log == pytest.approx(sd(float(np.mean(apart)) / 2))
    longer = prior.times(e**2)
    assert longer == replace(prior, mean_log_ms=pytest.approx(5.0), task_log_ms=pytest.approx(prior.task_log_ms + 2))
    for drawn in (batch_arrivals(profiles, 1, seed=0), poisson_arrivals(profiles, 1, 1000.0, seed=0)):
        assert drawn.prior == drawn.work_prior == prior
    assert trace_arrivals(profiles[:1], [0.0]).work_prior == WorkPrior.of(profiles[:1]) != prior


def test_jobs_of_another_workload_and_uniform_memory() -> None:
    plain = poisson_arrivals(JOBS, 3000, 1000.0, seed=2)
    drift = poisson_arrivals(JOBS, 3000, 1000.0, 2, Drift(1e6, 1.0, OTHERS, "others"))
    before = int(np.sum(plain.arrival_ms < 1e6))
    assert names(drift)[:before] == names(plain)[:before]
    after = names(drift)[before:]
    for name in "xyz":
        assert after.count(name) == pytest.approx(len(after) / 3, abs=4 * np.sqrt(len(after) * 2 / 9))
    assert set(after) == set("xyz")
    again = poisson_arrivals(JOBS, 3000, 1000.0, 2, Drift(1e6, 1.0, OTHERS, "others"))
    assert names(again) == names(drift)
    assert names(poisson_arrivals(JOBS, 3, 1000.0, 2, Drift(0.0, 1.0, OTHERS))).strip("xyz") == ""
    assert str(Drift(1e6, 2.0, OTHERS, "others")) == "2 times the rate and jobs of others from 1000 s on"
    assert str(Drift(1e6, 1.0, OTHERS, "others")) == "jobs of others from 1000 s on"
    assert str(Drift(1e6, 1.0)) == "1 times the rate from 1000 s on"
    assert Drift(1e6, 2.0).text == "1000:2"
    assert Drift(500.0, 0.1, OTHERS, "others", "dags.json").text == "0.5:0.1:dags.json"
    two_stages = tuple(replace(each, stages=each.stages * 2) for each in JOBS)
    sequence, unlike = (batch_arrivals(two_stages, 60, seed) for seed in (9, 8))
    drawn, again, other = (uniform_memory(each) for each in (sequence, sequence, unlike))

    def memory(jobs: JobSequence) -> list[float]:
        return [stage.memory for profile in jobs.profiles for stage in profile.stages]

    assert names(drawn) == names(sequence)
    assert drawn.arrival_ms.tolist() == sequence.arrival_ms.tolist()
    assert drawn.profiles is again.profiles  # values that are known by profile stay known
    copies = uniform_memory(replace(sequence, profiles=tuple(replace(each) for each in sequence.profiles)))
    assert copies.profiles is not drawn.profiles
    assert memory(drawn) == memory(copies) != memory(other)
    assert len(set(memory(drawn))) == len(memory(drawn))
    assert 0 < min(memory(drawn)) < 0.1 < 0.9 < max(memory(drawn)) <= 1
    assert all(
        [stage.durations for stage in one.stages] == [stage.durations for stage in two.stages]
        for one, two in zip(drawn.profiles, sequence.profiles, strict=True)
    )


@cases(
    "at_ms, rate, message",
    (-1.0, 2.0, "a drift begins between 0 and 1e.10 s, got -0.001 s"),
    (np.nan, 2.0, "got nan s"),
    (np.inf, 2.0, "got inf s"),
    (0.0, 0.0, "a drift's factor on the arrival rate is between 1e-06 and 1e.06, got 0"),
    (0.0, -2.0, "got -2"),
    (0.0, np.inf, "got inf"),
    (0.0, np.nan, "got nan"),
    (0.0, 1e7, "got 1e.07"),
    (0.0, "2", "rate"),
)
def test_impossible_drifts(at_ms: Any, rate: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Drift(at_ms, rate)


def test_a_trace_is_sorted_and_cannot_be_changed() -> None:
    sequence = trace_arrivals(JOBS, [5.0, 1.0, 5.0, 0.0, 1.0], seed=4)
    assert names(sequence) == "dbeac"
    assert (sequence.arrival_ms.tolist(), sequence.seed) == ([0, 1, 1, 5, 5], 4)
    with pytest.raises(WorkloadError, match=r"5 jobs need as many arrival times, got shape \(1,\)"):
        trace_arrivals(JOBS, [0.0])
    times = np.array([0.0, 1.0])
    sequence = JobSequence(JOBS[:2], times)
    times[0] = 7.0
    assert sequence.arrival_ms.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        sequence.arrival_ms[0] = 7.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=5), st.floats(1, 1e6))
def test_every_job_is_in_one_window(arrival_ms: list[float], length_ms: float) -> None:
    sequence = trace_arrivals(JOBS[: len(arrival_ms)], arrival_ms)
    parts = windows(sequence, length_ms)
    assert "".join(map(names, parts)) == names(sequence)
    assert all(window.arrival_ms[-1] <= length_ms for window in parts)


@cases(
    "profiles, arrival_ms, seed, message",
    ((), [], 0, "at least one job"),
    (JOBS[:2], [0.0], 0, r"2 jobs need as many arrival times, got shape \(1,\)"),
    (JOBS[:2], [[0.0, 1.0]], 0, r"2 jobs need as many arrival times, got shape \(1, 2\)"),
    (JOBS[:2], [1.0, 0.0], 0, "arrival times must ascend, job 1 arrives before job 0"),
    (JOBS[:2], [-1.0, 0.0], 0, "between 0 and 1e.13 ms"),
    (JOBS[:2], [0.0, np.nan], 0, "between 0 and 1e.13 ms"),
    (JOBS[:2], [0.0, np.inf], 0, "between 0 and 1e.13 ms"),
    (JOBS[:1], [0.0], -1, "the seed must be a whole number that is not negative, got -1"),
    (JOBS[:1], [0.0], 0.5, "the seed must be a whole number that is not negative, got 0.5"),
    (JOBS[:1], [0.0], True, "the seed must be a whole number that is not negative, got True"),
)
def test_impossible_sequences(profiles: Any, arrival_ms: Any, seed: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        JobSequence(profiles, np.array(arrival_ms), seed)


@cases(
    "arguments, message",
    ({"profiles": ()}, "no job profiles to draw from"),
    ({"num_jobs": 0}, "num_jobs must be a whole number of 1 to 10,000,000, got 0"),
    ({"mean_interval_ms": 0.0}, "must be positive, got 0.0 ms"),
    ({"mean_interval_ms": float("nan")}, "must be positive, got nan ms"),
    ({"mean_interval_ms": float("inf")}, "must be positive, got inf ms"),
    ({"seed": -1}, "the seed must be a whole number that is not negative, got -1"),
)
def test_what_cannot_be_drawn(arguments: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"profiles": JOBS, "num_jobs": 2, "mean_interval_ms": 1.0, "seed": 0}
    with pytest.raises(WorkloadError, match=message):
        poisson_arrivals(**valid | arguments)


PROFILES = (chain(stage(1, 10.0)),)


def stream(*times_ms: float) -> JobSequence:
    return JobSequence(PROFILES * len(times_ms), np.array(times_ms), 3)


def test_bursts_drifts_and_nights() -> None:
    changed = ArrivalPattern(burst=3).applied(stream(0, 1, 2, 5, 6, 7, 9))
    assert changed.arrival_ms.tolist() == [0, 0, 0, 5, 5, 5, 9]
    assert (len(changed), changed.seed) == (7, 3)
    assert ArrivalPattern(drift=2).applied(stream(0, 10, 20, 30, 50)).arrival_ms.tolist() == [0, 10, 20, 25, 35]
    assert ArrivalPattern(drift=0.5).applied(stream(0, 10, 20, 30)).arrival_ms.tolist() == [0, 10, 20, 40]
    whole = poisson_arrivals(PROFILES, 20_001, 1000.0, seed=1)
    mean_ms = whole.arrival_ms[-1] / 20_000
    changed = ArrivalPattern(night=0.8).applied(whole).arrival_ms
    assert changed[-1] == pytest.approx(whole.arrival_ms[-1], rel=0.01)
    by_day = (changed // (10 * mean_ms)).astype(int) % 2 == 0
    assert by_day.mean() == pytest.approx(0.9, abs=0.01)
    assert (np.diff(changed) >= 0).all()
    assert str(STEADY) == ""
    assert STEADY.applied(sequence := stream(0, 1)) is sequence
    assert (
        str(ArrivalPattern(4, 1.5, 0.25))
        == "4 jobs at once, 1.5 times the rate in the second half, 25% fewer arrivals at night"
    )


@cases(
    "values, message",
    ({"burst": 0}, "burst: expected a number of at least 1, got 0"),
    ({"drift": 0.0}, "drift: expected a number above 0, got 0.0"),
    ({"night": 1.0}, "night: expected a number below 1, got 1.0"),
)
def test_values_out_of_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        ArrivalPattern(**values)  # type: ignore[arg-type]
