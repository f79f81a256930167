"""Job sets for a grid of resources (``JobSets``), and the random jobs of DeepRM (``draw_jobs``).

A job enters in a step, lasts for a number of steps and needs a constant number of units of each resource.

Source: DeepRM (HotNets 2016), section 4.1, and its published code (github.com/hongzimao/deeprm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.arrivals import RandomStream, random_stream
from workloads.errors import check_instance, check_number, check_whole
from workloads.job import WorkloadError

__all__ = ["DISTRIBUTIONS", "JobDistribution", "JobSets", "draw_jobs"]

#: A job as a tuple: step in which it enters, duration, demand of each resource.
GridJob = tuple[int, int, Sequence[int]]


@dataclass(frozen=True, eq=False)
class JobSets:
    """N sets of jobs that enter a grid of R resources in steps.

    A set has at most J jobs. The rest of its row is padding, which never enters: ``enter`` = ``steps``, ``duration``
    and ``demand`` 0. The arrays are copied, and read-only.

    Args:
        enter: int32 [N, J], step in which a job enters, ascending along a row; several jobs may enter in one step.
        duration: int32 [N, J], number of steps, at least 1.
        demand: int32 [N, J, R], units of each resource, at least 0, and at least 1 of some resource.
        num_jobs: int32 [N], number of jobs of each set, 0 to J.
        steps: number of steps in which jobs enter: 0 .. ``steps`` - 1.

    Raises:
        WorkloadError: a shape or type is wrong, there are no sets, or a job or padding is out of range.
    """

    enter: NDArray[np.int32]
    duration: NDArray[np.int32]
    demand: NDArray[np.int32]
    num_jobs: NDArray[np.int32]
    steps: int

    def __post_init__(self) -> None:
        check_whole(self.steps, "steps", WorkloadError, 1)
        for name in ("enter", "duration", "demand", "num_jobs"):
            object.__setattr__(self, name, _whole_numbers(getattr(self, name), name))
        if self.enter.ndim != 2 or not len(self.enter):
            raise WorkloadError(f"enter must have shape (sets, jobs), with sets, got {self.enter.shape}")
        sets, jobs = self.enter.shape
        for name, shape in (("duration", (sets, jobs)), ("num_jobs", (sets,))):
            if getattr(self, name).shape != shape:
                raise WorkloadError(f"{name} must have shape {shape}, got {getattr(self, name).shape}")
        shape = self.demand.shape
        if len(shape) != 3 or shape[:2] != (sets, jobs) or not self.num_resources:
            raise WorkloadError(f"demand must have shape ({sets}, {jobs}, resources), got {shape}")
        if (self.num_jobs < 0).any() or (self.num_jobs > jobs).any():
            raise WorkloadError(f"num_jobs must be 0 to {jobs}, got {self.num_jobs.tolist()}")
        self._check_jobs()

    def _check_jobs(self) -> None:
        enter, duration, demand, steps = self.enter, self.duration, self.demand, self.steps
        job = np.arange(enter.shape[1]) < self.num_jobs[:, None]
        late = np.zeros_like(job)
        late[:, 1:] = np.diff(enter, axis=1) < 0
        for wrong, expected in (
            (job & ((enter < 0) | (enter >= steps)), f"must enter in steps 0 to {steps - 1}"),
            (job & late, "must not enter before the job in front of it"),
            (job & (duration < 1), "must last at least one step"),
            (job & (demand < 0).any(axis=2), "must not demand less than 0 units"),
            (job & ~(demand > 0).any(axis=2), "must demand at least one unit of some resource"),
            (
                ~job & ((enter != steps) | (duration != 0) | (demand != 0).any(axis=2)),
                f"is padding, expected enter {steps}, duration 0 and demand 0",
            ),
        ):
            if wrong.any():
                row, column = np.argwhere(wrong)[0]
                got = f"enter {enter[row, column]}, duration {duration[row, column]}"
                got += f", demand {demand[row, column].tolist()}"
                raise WorkloadError(f"set {row}, job {column} {expected}, got {got}")

    @classmethod
    def of(cls, sets: Sequence[Sequence[GridJob]], steps: int) -> JobSets:
        """Build job sets from tuples: ``of([[(enter, duration, (units, ..)), ..], ..], steps)``.

        Raises:
            WorkloadError: there are no jobs, their numbers of resources differ, or a job is out of range.
        """
        jobs = [job for jobs in sets for job in jobs]
        if len({len(demand) for *_, demand in jobs}) != 1:
            raise WorkloadError("expected at least one job, and demands of the same resources from each")
        enter, duration, demand = (np.array(column) for column in zip(*jobs, strict=True))
        return cls.padded(np.array([len(jobs) for jobs in sets]), enter, duration, demand, steps)

    @classmethod
    def padded(
        cls,
        num_jobs: NDArray[Any],
        enter: NDArray[Any],
        duration: NDArray[Any],
        demand: NDArray[Any],
        steps: int,
    ) -> JobSets:
        """Build job sets from arrays that concatenate the jobs of all sets.

        Args:
            num_jobs: int [N], number of jobs of each set; M jobs in all.
            enter: int [M], step in which each job enters.
            duration: int [M], number of steps.
            demand: int [M, R], units of each resource.
            steps: number of steps in which jobs enter.

        Raises:
            WorkloadError: a job is out of range.
        """
        job = np.arange(num_jobs.max(initial=0)) < num_jobs[:, None]

        def pad(values: NDArray[Any], padding: int) -> NDArray[Any]:
            rows = np.full(job.shape + values.shape[1:], padding, dtype=values.dtype)
            rows[job] = values
            return rows

        return cls(pad(enter, steps), pad(duration, 0), pad(demand, 0), num_jobs, steps)

    def __len__(self) -> int:
        return len(self.num_jobs)

    def __getitem__(self, sets: slice | NDArray[np.int64]) -> JobSets:
        """Return the sets of a slice, or of an int array [K] of indices, which may repeat."""
        return JobSets(
            self.enter[sets], self.duration[sets], self.demand[sets], self.num_jobs[sets], self.steps
        )

    @property
    def num_resources(self) -> int:
        """Number of resources, R."""
        return int(self.demand.shape[2])

    def load(self, slots: int) -> NDArray[np.float64]:
        """Return the load of each set on each resource while jobs enter, float64 [N, R].

        The load is sum(duration * demand) / (slots * steps); above 1, the grid is overloaded.

        Args:
            slots: units of each resource of the grid.
        """
        work: NDArray[np.float64] = np.einsum("nj,njr->nr", self.duration, self.demand, dtype=np.float64)
        return work / (slots * self.steps)


@dataclass(frozen=True)
class JobDistribution:
    """Distribution of DeepRM's random jobs; the defaults are those of its paper (HotNets 2016, section 4.1).

    Durations and demands are uniform over ranges of integers (min, max). A job is short or long, and has one dominant
    resource, which is chosen uniformly.

    Args:
        num_resources: number of resources, R.
        slots: units of each resource of the grid.
        short: range of the duration of short jobs, steps.
        long: range of the duration of long jobs, steps.
        short_share: probability that a job is short.
        dominant: range of the demand of the dominant resource, units, at least 1 and at most ``slots``.
        other: range of the demand of every other resource, units, at most ``slots``.

    Raises:
        WorkloadError: a number is out of range, or a range is empty.
    """

    num_resources: int = 2
    slots: int = 20
    short: tuple[int, int] = (1, 3)
    long: tuple[int, int] = (10, 15)
    short_share: float = 0.8
    dominant: tuple[int, int] = (5, 10)
    other: tuple[int, int] = (1, 2)

    def __post_init__(self) -> None:
        check_whole(self.num_resources, "num_resources", WorkloadError, 1)
        check_whole(self.slots, "slots", WorkloadError, 1)
        for name, least in (("short", 1), ("long", 1), ("dominant", 1), ("other", 0)):
            given = check_instance(getattr(self, name), tuple, name, WorkloadError)
            if len(given) != 2:
                raise WorkloadError(f"{name} must be the least and the most, got {given!r:.60}")
            low, high = given
            check_whole(low, f"the least of {name}", WorkloadError, least)
            check_whole(high, f"the most of {name}", WorkloadError, low)
        if max(self.dominant[1], self.other[1]) > self.slots:
            demands = f"dominant {self.dominant} and other {self.other}"
            raise WorkloadError(f"a job may demand at most the {self.slots} slots, got {demands}")
        if not 0 <= check_number(self.short_share, "short_share", WorkloadError) <= 1:
            raise WorkloadError(f"short_share must be 0 to 1, got {self.short_share}")

    @property
    def mean_duration(self) -> float:
        """Mean duration of a job, steps."""
        short, long = sum(self.short) / 2, sum(self.long) / 2
        return self.short_share * short + (1 - self.short_share) * long

    @property
    def mean_demand(self) -> float:
        """Mean demand of a job, units of each resource."""
        dominant, other = sum(self.dominant) / 2, sum(self.other) / 2
        return (dominant + (self.num_resources - 1) * other) / self.num_resources

    def load(self, rate: float) -> float:
        """Return the mean load of each resource if a job enters in a step with probability ``rate``.

        Raises:
            WorkloadError: the rate is not above 0 and at most 1.
        """
        if not 0 < check_number(rate, "the rate", WorkloadError) <= 1:
            raise WorkloadError(f"the rate must be above 0 and at most 1, a job in every step, got {rate}")
        return rate * self.mean_duration * self.mean_demand / self.slots

    def rate(self, load: float) -> float:
        """Return the probability that a job enters in a step, for a mean load; the inverse of ``load``.

        Raises:
            WorkloadError: the load is not above 0, or above the load of a job in every step.
        """
        highest, load = self.load(1.0), check_number(load, "the load", WorkloadError)
        # The highest load in decimals may be rounded up.
        if not 0 < load <= highest * (1 + 1e-9):
            possible = f"above 0 and at most {highest:.6g}, that of a job in every step"
            raise WorkloadError(f"the load must be {possible}, got {load}")
        return min(load / highest, 1.0)


#: Three versions of DeepRM's jobs, because its paper and its public code differ.
#:
#: * ``paper``: the paper's text, which needs 20 slots: demands of 25 to 50 % of the dominant resource and 5 to
#:   10 % of the others. The load is 0.9225 x rate.
#: * ``code``: the public code's defaults with 10 slots and so twice the demands: 50 to 100 % and 10 to 20 %. The
#:   load is 1.845 x rate, which nearly reaches the 190 % of the paper's figures.
#: * ``coarse``: 10 slots and demands as close to the paper's text as possible: 20 to 50 % and 10 %. The load is
#:   0.9225 x rate.
DISTRIBUTIONS = {
    "paper": JobDistribution(),
    "code": JobDistribution(slots=10),
    "coarse": JobDistribution(slots=10, dominant=(2, 5), other=(1, 1)),
}


def draw_jobs(
    distribution: JobDistribution,
    *,
    load: float | Sequence[float] | None = None,
    rate: float | Sequence[float] | None = None,
    steps: int = 50,
    sets: int,
    seed: int,
) -> JobSets:
    """Draw sets of random jobs, which enter in a Bernoulli process: at most one job per step.

    A set depends on the seed, its index and ``steps``, not on the number of sets. At a higher load a set has the same
    jobs and further ones.

    Args:
        load: mean load of each resource, or several loads, which the sets use in turn; either this or ``rate``.
        rate: probability that a job enters in a step, or several, which the sets use in turn.
        steps: number of steps in which jobs enter: 0 .. ``steps`` - 1.

    Raises:
        WorkloadError: an argument is out of range, or not exactly one of ``load`` and ``rate`` is given.
    """
    check_instance(distribution, JobDistribution, "distribution", WorkloadError)
    check_whole(steps, "steps", WorkloadError, 1)
    check_whole(sets, "sets", WorkloadError, 1)
    if load is not None and rate is None:
        rates = [distribution.rate(each) for each in np.atleast_1d(load).tolist()]
    elif rate is not None and load is None:
        rates = np.atleast_1d(rate).tolist()
        for each in rates:
            distribution.load(each)  # raises on an impossible rate
    else:
        raise WorkloadError(f"expected either a load or a rate, got load {load} and rate {rate}")
    if not rates:
        raise WorkloadError("expected at least one load or rate, got none")
    drawn = [
        _draw_set(distribution, rates[number % len(rates)], steps, seed, number) for number in range(sets)
    ]
    enter, duration, demand = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    return JobSets.padded(np.array([len(jobs) for jobs, *_ in drawn]), enter, duration, demand, steps)


def _draw_set(
    distribution: JobDistribution, rate: float, steps: int, seed: int, number: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return ``enter``, ``duration`` and ``demand`` of one set. A job is drawn for each step, also if none enters."""
    enter = np.flatnonzero(random_stream(seed, RandomStream.ARRIVALS, number).random(steps) < rate)
    random = random_stream(seed, RandomStream.GENERATOR, number)

    def uniform(limits: tuple[int, int], *shape: int) -> NDArray[np.int64]:
        return random.integers(*limits, size=shape, endpoint=True)

    is_short = random.random(steps) < distribution.short_share
    duration = np.where(is_short, uniform(distribution.short, steps), uniform(distribution.long, steps))
    demand = uniform(distribution.other, steps, distribution.num_resources)
    dominant = random.integers(distribution.num_resources, size=steps)
    demand[np.arange(steps), dominant] = uniform(distribution.dominant, steps)
    return enter, duration[enter], demand[enter]


def _whole_numbers(value: ArrayLike, name: str) -> NDArray[np.int32]:
    """Copy an array to a read-only int32 array; raise if that cannot represent the values."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise WorkloadError(f"{name} must be an array of int32, got {array.dtype}")
    result = array.astype(np.int32, order="C")
    if array.dtype.kind not in "iu" or not np.array_equal(array, result):
        raise WorkloadError(f"{name} must be an array of int32, got {array.dtype} that it cannot hold")
    result.setflags(write=False)
    return result
