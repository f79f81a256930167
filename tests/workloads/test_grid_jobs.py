"""Job sets for a grid: contents, validation, and the distribution of DeepRM's jobs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.cases import cases
from workloads import DISTRIBUTIONS, JobDistribution, JobSets, WorkloadError, draw_jobs

#: Jobs as tuples: enter, duration, demand of each resource.
Written = list[list[tuple[int, int, tuple[int, ...]]]]

SETS: Written = [[(0, 2, (1, 3)), (0, 1, (0, 2)), (4, 10, (5, 1))], [], [(3, 1, (2, 0))]]


def written(jobs: JobSets) -> Written:
    sets = zip(jobs.num_jobs, jobs.enter.tolist(), jobs.duration.tolist(), jobs.demand.tolist(), strict=True)
    return [
        [(enter[job], duration[job], tuple(demand[job])) for job in range(count)]
        for count, enter, duration, demand in sets
    ]


@st.composite
def written_sets(draw: st.DrawFn, steps: int) -> Written:
    num_resources = draw(st.integers(1, 3))
    demand = st.tuples(*[st.integers(0, 9)] * num_resources).filter(any)
    job = st.tuples(st.integers(0, steps - 1), st.integers(1, 20), demand)
    jobs = st.lists(job, max_size=5).map(lambda jobs: sorted(jobs, key=lambda job: job[0]))
    return draw(st.lists(jobs, min_size=1, max_size=4).filter(any))


@settings(deadline=None)
@given(sets=written_sets(steps=7))
def test_what_is_written_out_is_what_the_sets_hold(sets: Written) -> None:
    jobs = JobSets.of(sets, steps=7)
    assert written(jobs) == sets
    assert jobs.load(10).dtype == np.float64
    for row, each in enumerate(sets):
        needed = np.zeros(jobs.num_resources)
        for _, duration, demand in each:
            needed += duration * np.array(demand)
        assert jobs.load(10)[row] == pytest.approx(needed / 70)
    padding = np.arange(jobs.enter.shape[1]) >= jobs.num_jobs[:, None]
    assert (jobs.enter[padding] == 7).all()
    assert not jobs.duration[padding].any()
    assert not jobs.demand[padding].any()


def test_sets_are_sliced_and_shares_are_those_of_the_paper() -> None:
    jobs = JobSets.of(SETS, steps=5)
    assert written(jobs[1:]) == SETS[1:]
    assert written(jobs[np.repeat(np.array([2, 0]), 2)]) == [SETS[2], SETS[2], SETS[0], SETS[0]]
    assert jobs[1:].steps == 5
    paper, code = DISTRIBUTIONS["paper"], DISTRIBUTIONS["code"]
    assert [units / paper.slots for units in (*paper.dominant, *paper.other)] == [0.25, 0.5, 0.05, 0.1]
    assert [units / code.slots for units in (*code.dominant, *code.other)] == [0.5, 1.0, 0.1, 0.2]
    assert paper.mean_duration == pytest.approx(4.1)
    jobs = draw_jobs(JobDistribution(), rate=1.0, steps=20, sets=2, seed=0)
    assert jobs.enter.tolist() == [list(range(20))] * 2


def test_arrays_of_sets_cannot_be_changed() -> None:
    enter = np.array([[0, 2], [1, 1]])
    demand = np.asfortranarray(np.ones((2, 2, 3), dtype=np.int64))
    jobs = JobSets(enter, np.ones((2, 2), dtype=int), demand, np.array([2, 2]), 3)  # type: ignore[arg-type]
    enter[:] = 0
    assert jobs.enter.tolist() == [[0, 2], [1, 1]]
    for sets in (jobs, jobs[::-1]):
        for array in (sets.enter, sets.duration, sets.demand, sets.num_jobs):
            assert array.dtype == np.int32
            assert array.flags.c_contiguous
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
    jobs = draw_jobs(JobDistribution(num_resources=3), rate=1.0, steps=100, sets=100, seed=0)
    demand = jobs.demand.reshape(-1, 3)
    assert (demand >= 5).mean(axis=0) == pytest.approx(np.full(3, 1 / 3), abs=0.02)
    assert ((demand >= 5).sum(axis=1) == 1).all()
    # The other two are drawn one by one.
    others = np.sort(demand, axis=1)[:, :2]
    assert (others[:, 0] != others[:, 1]).mean() == pytest.approx(0.5, abs=0.02)
    assert jobs.load(20).mean() == pytest.approx(JobDistribution(num_resources=3).load(1.0), rel=0.02)


@cases(
    "changes, message",
    ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
    ({"steps": 2.5}, "steps must be a whole number of at least 1, got 2.5"),
    ({"enter": [0, 1]}, r"enter must have shape \(sets, jobs\), with sets, got \(2,\)"),
    ({"enter": np.zeros((0, 2), int)}, r"enter must have shape \(sets, jobs\), with sets, got \(0, 2\)"),
    ({"enter": [[0.5, 1.0]]}, "enter must be an array of int32, got float64"),
    ({"duration": [[1, 2**31]]}, "duration must be an array of int32, got int64 that it cannot hold"),
    ({"duration": [[1]]}, r"duration must have shape \(1, 2\), got \(1, 1\)"),
    ({"num_jobs": [2, 2]}, r"num_jobs must have shape \(1,\), got \(2,\)"),
    ({"num_jobs": [3]}, r"num_jobs must be 0 to 2, got \[3\]"),
    ({"num_jobs": [-1]}, r"num_jobs must be 0 to 2, got \[-1\]"),
    ({"demand": [[1, 1]]}, r"demand must have shape \(1, 2, resources\), got \(1, 2\)"),
    ({"demand": np.ones((1, 2, 0), int)}, r"demand must have shape \(1, 2, resources\), got \(1, 2, 0\)"),
    ({"enter": [[-1, 1]]}, "set 0, job 0 must enter in steps 0 to 2, got enter -1, duration 1"),
    ({"enter": [[0, 3]]}, "set 0, job 1 must enter in steps 0 to 2, got enter 3"),
    ({"enter": [[1, 0]]}, "set 0, job 1 must not enter before the job in front of it, got enter 0"),
    ({"duration": [[1, 0]]}, "set 0, job 1 must last at least one step, got enter 2, duration 0"),
    ({"demand": [[[1, 1], [3, -1]]]}, r"job 1 must not demand less than 0 units, got .*, demand \[3, -1\]"),
    ({"demand": [[[0, 0], [1, 0]]]}, r"job 0 must demand at least one unit of some resource, got .*\[0, 0\]"),
    ({"num_jobs": [1]}, "set 0, job 1 is padding, expected enter 3, duration 0 and demand 0, got enter 2"),
)
def test_impossible_sets(changes: dict[str, Any], message: str) -> None:
    valid = {"enter": [[0, 2]], "duration": [[1, 4]], "demand": [[[1, 0], [2, 2]]], "num_jobs": [2], "steps": 3}
    with pytest.raises(WorkloadError, match=message):
        JobSets(**valid | changes)


@pytest.mark.parametrize("sets", [[], [[]], [[(0, 1, (1,))], [(0, 1, (1, 1))]]])
def test_jobs_written_out_must_tell_the_number_of_resources(sets: Written) -> None:
    with pytest.raises(WorkloadError, match="at least one job, and demands of the same resources from each"):
        JobSets.of(sets, steps=3)


@pytest.mark.parametrize(("name", "slope"), [("paper", 0.9225), ("code", 1.845), ("coarse", 0.9225)])
def test_load_and_rate_of_the_three_versions(name: str, slope: float) -> None:
    distribution = DISTRIBUTIONS[name]
    assert distribution.load(0.4) == pytest.approx(0.4 * slope)
    assert distribution.rate(0.7) == pytest.approx(0.7 / slope)
    assert distribution.rate(slope) == distribution.rate(slope * (1 + 1e-12)) == 1.0
    # Drawn jobs have this load, here within four standard errors.
    load = draw_jobs(distribution, rate=0.6, sets=600, seed=4).load(distribution.slots)
    error = 4 * load.std(axis=0) / np.sqrt(len(load))
    assert (np.abs(load.mean(axis=0) - 0.6 * slope) < error).all()
    assert (error < 0.04 * slope).all()


def frequencies(values: np.ndarray) -> dict[int, float]:
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), (counts / counts.sum()).tolist(), strict=True))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_jobs_are_drawn_as_the_paper_says(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    jobs = draw_jobs(distribution, rate=0.7, steps=100, sets=300, seed=1)
    job = jobs.duration > 0
    count = int(jobs.num_jobs.sum())
    error = 4 / np.sqrt(count)  # four standard errors of a frequency are at most half of this
    assert count / (300 * 100) == pytest.approx(0.7, abs=error / 2)
    entered = frequencies(jobs.enter[job])
    assert set(entered) == set(range(100))
    assert max(entered.values()) < 2 * min(entered.values())

    expected = dict.fromkeys((1, 2, 3), 0.8 / 3) | dict.fromkeys(range(10, 16), 0.2 / 6)
    assert frequencies(jobs.duration[job]) == pytest.approx(expected, abs=error / 2)

    # The ranges of the dominant and the other resource do not overlap, so that each job shows which is which.
    demand = jobs.demand[job]
    least, most = distribution.dominant
    dominant = demand >= least
    assert (dominant.sum(axis=1) == 1).all()
    assert dominant[:, 0].mean() == pytest.approx(0.5, abs=error / 2)
    expected = dict.fromkeys(range(least, most + 1), 1 / (most - least + 1))
    assert frequencies(demand[dominant]) == pytest.approx(expected, abs=error / 2)
    least, most = distribution.other
    expected = dict.fromkeys(range(least, most + 1), 1 / (most - least + 1))
    assert frequencies(demand[~dominant]) == pytest.approx(expected, abs=error / 2)
    # Both are independent of the job's duration and of the step in which it enters.
    long = jobs.duration[job] >= 10
    assert demand[long].max(axis=1).mean() == pytest.approx(demand[~long].max(axis=1).mean(), rel=0.05)
    assert np.corrcoef(jobs.enter[job], jobs.duration[job])[0, 1] == pytest.approx(0, abs=error)


@settings(deadline=None)
@given(rate=st.floats(0.01, 1.0), steps=st.integers(1, 30), seed=st.integers(0, 2**64))
def test_at_most_one_job_enters_in_a_step(rate: float, steps: int, seed: int) -> None:
    jobs = draw_jobs(JobDistribution(num_resources=3), rate=rate, steps=steps, sets=3, seed=seed)
    assert len(jobs) == 3
    assert (jobs.num_resources, jobs.enter.shape[1]) == (3, jobs.num_jobs.max())
    for each in written(jobs):
        enters = [enter for enter, *_ in each]
        assert enters == sorted(set(enters))


def test_loads_rates_and_seeds_of_sets() -> None:
    mixed = written(draw_jobs(JobDistribution(), load=(0.3, 0.8), sets=5, seed=2))
    low, high = (written(draw_jobs(JobDistribution(), load=load, sets=5, seed=2)) for load in (0.3, 0.8))
    assert mixed == [low[0], high[1], low[2], high[3], low[4]]
    many = draw_jobs(JobDistribution(), load=0.6, sets=20, seed=7)
    assert written(many)[:3] == written(draw_jobs(JobDistribution(), load=0.6, sets=3, seed=7))
    assert written(many) != written(draw_jobs(JobDistribution(), load=0.6, sets=20, seed=8))
    assert len({str(jobs) for jobs in written(many)}) == 20
    low, high = (written(draw_jobs(JobDistribution(), load=load, sets=5, seed=2)) for load in (0.3, 0.8))
    for few, many in zip(low, high, strict=True):
        assert len(few) < len(many)
        assert set(few) < set(many)
    distribution = DISTRIBUTIONS["code"]
    by_load = draw_jobs(distribution, load=1.3, sets=3, seed=0)
    assert written(by_load) == written(draw_jobs(distribution, rate=distribution.rate(1.3), sets=3, seed=0))


@cases(
    "name, load, message",
    ("code", 1.9, "the load must be above 0 and at most 1.845, that of a job in every step, got 1.9"),
    ("paper", 0.93, "the load must be above 0 and at most 0.9225, that of a job in every step, got 0.93"),
    ("coarse", 0.93, "at most 0.9225"),
    ("paper", 0.0, "got 0.0"),
    ("paper", -0.5, "got -0.5"),
    ("paper", float("nan"), "got nan"),
)
def test_impossible_loads(name: str, load: float, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        draw_jobs(DISTRIBUTIONS[name], load=load, sets=1, seed=0)


@cases(
    "changes, message",
    ({"rate": 0.0}, "the rate must be above 0 and at most 1, a job in every step, got 0.0"),
    ({"rate": 1.1}, "the rate must be above 0 and at most 1, a job in every step, got 1.1"),
    ({"rate": [0.5, 1.1]}, "the rate must be above 0 and at most 1, a job in every step, got 1.1"),
    ({"rate": []}, "expected at least one load or rate, got none"),
    ({"rate": None}, "expected either a load or a rate, got load None and rate None"),
    ({"load": 0.5}, "expected either a load or a rate, got load 0.5 and rate 0.5"),
    ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
    ({"sets": 0}, "sets must be a whole number of at least 1, got 0"),
    ({"seed": -1}, "the seed must be a whole number that is not negative, got -1"),
)
def test_what_cannot_be_drawn(changes: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"rate": 0.5, "sets": 1, "seed": 0}
    with pytest.raises(WorkloadError, match=message):
        draw_jobs(JobDistribution(), **valid | changes)


@cases(
    "changes, message",
    ({"num_resources": 0}, "num_resources must be a whole number of at least 1, got 0"),
    ({"slots": True}, "slots must be a whole number of at least 1, got True"),
    ({"long": (12, 10)}, "the most of long must be a whole number of at least 12, got 10"),
    ({"dominant": (0, 5)}, "the least of dominant must be a whole number of at least 1, got 0"),
    ({"dominant": (5, 9.5)}, "the most of dominant must be a whole number of at least 5, got 9.5"),
    ({"other": (-1, 2)}, "the least of other must be a whole number of at least 0, got -1"),
    ({"slots": 9}, r"at most the 9 slots, got dominant \(5, 10\) and other \(1, 2\)"),
    ({"other": (1, 21)}, r"at most the 20 slots, got dominant \(5, 10\) and other \(1, 21\)"),
    ({"short_share": float("nan")}, "short_share must be 0 to 1, got nan"),
)
def test_impossible_distributions(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        replace(JobDistribution(), **changes)
