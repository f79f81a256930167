"""Job sequences: finite, seeded sequences of arrival times and job profiles; batch, Poisson and trace arrivals.

A seed determines a sequence. Each purpose has its own random stream, so that a seed gives the same jobs whatever else
is drawn. Task noise belongs to the sequence, not to a scheduler (common random numbers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.display import count_text
from workloads.errors import LONGEST_MS, check_all, check_instance, check_number, check_whole
from workloads.job import MOST_TASKS, JobProfile, WorkloadError

if TYPE_CHECKING:
    from workloads.attributes import JobAttributes, Tenant
    from workloads.drift import Drift

__all__ = [
    "JobSequence", "RandomStream", "WorkPrior", "batch_arrivals", "poisson_arrivals", "random_stream", "task_noise",
    "trace_arrivals",
]  # fmt: skip


#: Maximum number of jobs of a random sequence.
MOST_JOBS = 10_000_000


class RandomStream(IntEnum):
    """Purpose of random numbers; each purpose has its own random stream."""

    ARRIVALS = 0
    TASK_DURATIONS = 1
    POLICY = 2
    GENERATOR = 3
    TRAINING = 4
    DEMANDS = 5
    MODEL_ERRORS = 6
    ESTIMATES = 7
    FAULTS = 8
    ATTRIBUTES = 9
    TASK_TIMES = 10
    SIGNAL = 11


def random_stream(seed: int, purpose: RandomStream, *path: int) -> np.random.Generator:
    """Return the random generator for one purpose; ``path`` identifies a part, such as the tasks of one job.

    Raises:
        WorkloadError: the seed is negative or not an integer.
    """
    _check_seed(seed)
    check_whole(purpose, "purpose", WorkloadError)
    # A list of numbers would be an ambiguous seed: NumPy pads lists with zeros and splits large numbers.
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *path)))


def task_noise(seed: int, job: int, num_tasks: int) -> NDArray[np.float32]:
    """Draw the noise of a job's tasks, stage by stage: float32 [2, num_tasks], uniform on [0, 1).

    The first row chooses the parallelism level, the second row the duration within a cell.
    """
    return random_stream(seed, RandomStream.TASK_DURATIONS, job).random((2, num_tasks), dtype=np.float32)


@dataclass(frozen=True)
class WorkPrior:
    """Prior knowledge about a job: log-normal distributions of the jobs of a workload.

    Attributes:
        mean_log_ms: mean of the logarithm of a job's work (executor time, ms).
        sd_log: standard deviation of the logarithm of a job's work.
        task_log_ms: mean of the logarithm of a job's mean task time, ms.
        task_sd_log: standard deviation of the logarithm of a job's mean task time.
        stage_sd_log: standard deviation of the logarithm of a stage's task time relative to its job's; stages are
            weighted by their number of tasks.
    """

    mean_log_ms: float
    sd_log: float
    task_log_ms: float = 0.0
    task_sd_log: float = 0.0
    stage_sd_log: float = 0.0

    def times(self, factor: float) -> WorkPrior:
        """Return the distribution for jobs whose tasks are longer by ``factor``."""
        longer = math.log(factor)
        return replace(self, mean_log_ms=self.mean_log_ms + longer, task_log_ms=self.task_log_ms + longer)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(profiles: tuple[JobProfile, ...]) -> WorkPrior:
        """Return the distribution of jobs drawn uniformly from ``profiles``."""
        num_stages = [profile.num_stages for profile in profiles]
        stages = [stage for profile in profiles for stage in profile.stages]
        tasks = np.array([stage.num_tasks for stage in stages], dtype=np.float64)
        # Without a lower bound, the logarithm for a job of zero length would be infinite.
        task_ms = np.maximum([stage.durations.mean_ms for stage in stages], 1.0)
        job = np.repeat(np.arange(len(profiles)), num_stages)
        work, num_tasks = np.log(np.bincount(job, tasks * task_ms)), np.bincount(job, tasks)
        mean_task = work - np.log(num_tasks)
        apart = (np.log(task_ms) - mean_task[job]) ** 2 * tasks / num_tasks[job]

        def sd(variance: float) -> float:
            """Return the standard deviation with one additional job, a factor of e from the mean."""
            return math.sqrt((len(profiles) * variance + 1) / (len(profiles) + 1))

        return WorkPrior(
            float(work.mean()),
            sd(work.var()),
            float(mean_task.mean()),
            sd(mean_task.var()),
            sd(apart.sum() / len(profiles)),
        )


@dataclass(frozen=True, eq=False, repr=False)
class JobSequence:
    """Jobs in order of arrival, with the seed of their task noise.

    Args:
        profiles: the jobs; the number of a job is its index. The same profile may occur many times.
        arrival_ms: float64 [num_jobs], ms, ascending, not negative.
        seed: seed of the task noise.
        prior: distribution of the workload from which the jobs are drawn; by default the distribution of these jobs.
        attributes: attributes of each job; empty if no job has any.
        tenants: tenants of the jobs; by default the tenants that the jobs name, sorted; empty if no job names one.
        library: profiles from which the jobs are drawn; by default those of these jobs, each once.

    Raises:
        WorkloadError: there is no job, numbers of arrivals and jobs differ, arrivals do not ascend, a deadline is
            before the arrival, or a tenant is unknown.
    """

    profiles: tuple[JobProfile, ...]
    arrival_ms: NDArray[np.float64]
    seed: int = 0
    prior: WorkPrior | None = None
    attributes: tuple[JobAttributes, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    library: tuple[JobProfile, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", check_all(self.profiles, JobProfile, "profiles", WorkloadError))
        arrival = _times(self.arrival_ms)
        if not self.profiles:
            raise WorkloadError("a job sequence needs at least one job")
        if arrival.shape != (len(self.profiles),):
            expected = f"{len(self.profiles)} jobs need as many arrival times"
            raise WorkloadError(f"{expected}, got shape {arrival.shape}")
        if not ((arrival >= 0) & (arrival <= LONGEST_MS)).all():
            raise WorkloadError(f"arrival times must be between 0 and {LONGEST_MS:g} ms")
        if (np.diff(arrival) < 0).any():
            late = int(np.flatnonzero(np.diff(arrival) < 0)[0]) + 1
            raise WorkloadError(f"arrival times must ascend, job {late} arrives before job {late - 1}")
        tasks = sum(profile.num_tasks for profile in self.profiles)
        if tasks > MOST_TASKS:
            raise WorkloadError(f"{tasks:,} tasks in all, expected at most {MOST_TASKS:,}")
        _check_seed(self.seed)
        if self.prior is not None:
            check_instance(self.prior, WorkPrior, "prior", WorkloadError)
        library = check_all(self.library, JobProfile, "library", WorkloadError)
        object.__setattr__(self, "library", library or tuple(dict.fromkeys(self.profiles)))
        arrival.setflags(write=False)
        object.__setattr__(self, "arrival_ms", arrival)
        if self.attributes != () or self.tenants != ():
            from workloads.attributes import check_attributes

            attributes, tenants = check_attributes(self.attributes, self.tenants, arrival)
            object.__setattr__(self, "attributes", attributes)
            object.__setattr__(self, "tenants", tenants)

    def __len__(self) -> int:
        return len(self.profiles)

    def __repr__(self) -> str:
        counts = f"{count_text(len(self), 'job')}, {count_text(self.num_tasks, 'task')}"
        return f"JobSequence({counts}, arrivals 0 to {self.arrival_ms[-1] / 1000:.1f} s, seed {self.seed})"

    @property
    def num_tasks(self) -> int:
        """Number of tasks over all jobs."""
        return sum(profile.num_tasks for profile in self.profiles)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Weight of each job, float64 [num_jobs]; 1 without attributes."""
        return np.array([attributes.weight for attributes in self.attributes] or [1.0] * len(self))

    @cached_property
    def tenant(self) -> NDArray[np.int64]:
        """Tenant of each job, index in ``tenants``, int64 [num_jobs]; 0 without attributes."""
        index = {tenant.name: position for position, tenant in enumerate(self.tenants)}
        return np.array(
            [index[attributes.tenant] for attributes in self.attributes] or [0] * len(self), dtype=np.int64
        )

    @cached_property
    def work_prior(self) -> WorkPrior:
        """Distribution of the workload: ``prior`` if given, else the distribution of the jobs."""
        return WorkPrior.of(self.profiles) if self.prior is None else self.prior


def batch_arrivals(profiles: Sequence[JobProfile], num_jobs: int, seed: int) -> JobSequence:
    """Draw ``num_jobs`` jobs uniformly from ``profiles``; all arrive at time 0 (Decima, section 7.2).

    Raises:
        WorkloadError: there are no profiles or no jobs.
    """
    return _sampled(profiles, num_jobs, seed, mean_interval_ms=0.0)


def poisson_arrivals(
    profiles: Sequence[JobProfile],
    num_jobs: int,
    mean_interval_ms: float,
    seed: int,
    drift: Drift | None = None,
) -> JobSequence:
    """Draw jobs uniformly from ``profiles``; the first arrives at time 0, further ones in a Poisson process.

    Args:
        num_jobs: number of jobs, at least 1.
        mean_interval_ms: mean time between arrivals, ms (Decima, section 7.2: 45 s; its code: 25 s).
        seed: seed of the draws and of the task noise.
        drift: change of rate and jobs; earlier jobs are the same with and without it.

    Raises:
        WorkloadError: there are no profiles or no jobs, or the interval is not positive and finite.
    """
    check_number(mean_interval_ms, "mean_interval_ms", WorkloadError)
    if not np.isfinite(mean_interval_ms) or mean_interval_ms <= 0:
        raise WorkloadError(f"the mean interval between arrivals must be positive, got {mean_interval_ms} ms")
    if drift is not None:
        from workloads.drift import Drift

        check_instance(drift, Drift, "drift", WorkloadError)
    return _sampled(profiles, num_jobs, seed, mean_interval_ms, drift)


def trace_arrivals(
    profiles: Sequence[JobProfile],
    arrival_ms: ArrayLike,
    seed: int = 0,
    attributes: Sequence[JobAttributes] = (),
    tenants: Sequence[Tenant] = (),
) -> JobSequence:
    """Return a sequence of jobs at given times (float [num_jobs], ms), sorted stably by time; see ``JobSequence``."""
    profiles, times = check_all(profiles, JobProfile, "profiles", WorkloadError), _times(arrival_ms)
    if times.shape != (len(profiles),):
        raise WorkloadError(f"{len(profiles)} jobs need as many arrival times, got shape {times.shape}")
    order = np.argsort(times, kind="stable")
    if attributes:
        attributes = tuple(attributes[job] for job in order)
    return JobSequence(
        tuple(profiles[job] for job in order),
        times[order],
        seed,
        attributes=tuple(attributes),
        tenants=tuple(tenants),
    )


def _sampled(
    profiles: Sequence[JobProfile],
    num_jobs: int,
    seed: int,
    mean_interval_ms: float,
    drift: Drift | None = None,
) -> JobSequence:
    profiles = check_all(profiles, JobProfile, "profiles", WorkloadError)
    if not profiles:
        raise WorkloadError("there are no job profiles to draw from")
    check_whole(num_jobs, "num_jobs", WorkloadError, 1, MOST_JOBS)
    random = random_stream(seed, RandomStream.ARRIVALS)
    chosen = random.integers(len(profiles), size=num_jobs)
    intervals = random.exponential(mean_interval_ms, size=num_jobs)
    intervals[0] = 0.0
    jobs, arrival_ms = [profiles[index] for index in chosen], np.cumsum(intervals)
    if drift is not None:
        drift.change(jobs, arrival_ms, random)
    return JobSequence(tuple(jobs), arrival_ms, seed, WorkPrior.of(profiles), library=profiles)


def _times(arrival_ms: ArrayLike) -> NDArray[np.float64]:
    """Copy arrival times to a float64 array; raise on types other than numbers."""
    times = np.array(arrival_ms)
    if times.dtype.kind not in "iuf":
        raise WorkloadError(f"arrival_ms must be numbers, got {arrival_ms!r:.60}")
    return times.astype(np.float64)


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise WorkloadError(f"the seed must be a whole number that is not negative, got {seed!r}")
