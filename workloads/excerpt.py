"""Excerpts of recorded job sequences: a time interval or a sample; arrivals may be faster, and tasks fewer.

Readers of recordings share the functions below: checks, the share of failed tasks, and reasons for dropping jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.arrivals import JobSequence, RandomStream, random_stream, trace_arrivals
from workloads.errors import check_number, check_whole
from workloads.imperfections import UNKNOWN, Imperfections
from workloads.job import JobProfile, WorkloadError

__all__ = ["Excerpt", "check_executor", "choose_jobs", "reasons", "task_failures"]

#: Maximum number of selected jobs. Their profiles need some hundred MB, and as much again when written to a file.
MOST_JOBS = 100_000


@dataclass(frozen=True)
class Excerpt:
    """Selection of a part of a recorded job sequence; by default all of it, unchanged.

    Args:
        from_s: earliest arrival, s on the clock of the record.
        until_s: end of the arrivals (exclusive), s.
        sample: maximum number of jobs, drawn without replacement from the interval; their order is kept.
        seed: seed of the sample.
        speed_up: factor on the arrival rate.
        scale_tasks: divisor of the numbers of tasks, which are rounded up; suits a smaller cluster.

    Raises:
        WorkloadError: a number is out of range.
    """

    from_s: float = -math.inf
    until_s: float = math.inf
    sample: int | None = None
    seed: int = 0
    speed_up: float = 1.0
    scale_tasks: float = 1.0

    def __post_init__(self) -> None:
        check_whole(self.seed, "seed", WorkloadError, 0)
        for name in ("from_s", "until_s", "speed_up", "scale_tasks"):
            check_number(getattr(self, name), name, WorkloadError)
        if not self.from_s < self.until_s:
            raise WorkloadError(
                f"expected a time that begins before it ends, got {self.from_s:g} to {self.until_s:g} s"
            )
        if self.sample is not None:
            check_whole(self.sample, "sample", WorkloadError, 1)
        for name in ("speed_up", "scale_tasks"):
            if not 0 < getattr(self, name) < math.inf:
                raise WorkloadError(f"{name} must be above 0 and finite, got {getattr(self, name)}")

    @property
    def about(self) -> dict[str, float]:
        """Settings that differ from the defaults, by name."""
        default = Excerpt()
        return {name: value for name, value in asdict(self).items() if value != getattr(default, name)}

    def choose(self, arrival_s: ArrayLike) -> NDArray[np.int64]:
        """Return the indices of the selected jobs, int64 [n], sorted stably by arrival.

        Args:
            arrival_s: float [num_jobs], s on the clock of the record, in any order.

        Raises:
            WorkloadError: no job is selected.
        """
        arrival = np.asarray(arrival_s, dtype=np.float64)
        order = np.argsort(arrival, kind="stable")
        inside = order[(arrival[order] >= self.from_s) & (arrival[order] < self.until_s)]
        if not inside.size:
            raise WorkloadError(
                f"expected jobs that arrive from {self.from_s:g} to {self.until_s:g} s, got none"
            )
        if self.sample is not None and self.sample < len(inside):
            random = random_stream(self.seed, RandomStream.ARRIVALS)
            inside = inside[np.sort(random.choice(len(inside), self.sample, replace=False))]
        return inside

    def sequence(self, profiles: Sequence[JobProfile], arrival_s: ArrayLike) -> JobSequence:
        """Return the sequence of selected jobs, which arrived at ``arrival_s`` (float [n], s); the first one at 0."""
        arrival = np.asarray(arrival_s, dtype=np.float64)
        return trace_arrivals(profiles, (arrival - arrival.min()) * 1000 / self.speed_up, self.seed)

    def num_tasks(self, recorded: int) -> int:
        """Return the reduced number of tasks of a stage that had ``recorded`` tasks."""
        return math.ceil(recorded / self.scale_tasks)


def choose_jobs(path: Path, excerpt: Excerpt, arrival_s: ArrayLike) -> NDArray[np.int64]:
    """Return the indices of the jobs that an excerpt selects from a file, see ``Excerpt.choose``.

    Raises:
        WorkloadError: no job is selected, or more than ``MOST_JOBS``. The message names the file.
    """
    try:
        chosen = excerpt.choose(arrival_s)
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None
    if len(chosen) > MOST_JOBS:
        raise WorkloadError(
            f"{path}: {len(chosen)} jobs at once, choose at most {MOST_JOBS} by time or sample"
        )
    return chosen


def check_executor(executor: tuple[float, float] | None, cores: str = "cores") -> None:
    """Raise if an executor size (``cores``, memory) is not positive and finite; None means no size."""
    if executor is not None and not all(0 < size < math.inf for size in executor):
        raise WorkloadError(f"an executor's {cores} and memory must be above 0 and finite, got {executor}")


def task_failures(
    failed: NDArray[np.bool_], ended: NDArray[np.bool_], num_tasks: NDArray[np.integer]
) -> Imperfections:
    """Estimate the fraction of failures from a trace that only has outcomes of groups of tasks.

    Args:
        failed: failed groups, bool [n]; one task of each group is counted as failed.
        ended: successful groups, bool [n].
        num_tasks: number of tasks of each group, int [n].
    """
    tasks = int(num_tasks[failed | ended].sum(dtype=np.int64))
    share = np.count_nonzero(failed) / tasks if tasks else 1.0
    return Imperfections(task_failures=share) if share < 1 else UNKNOWN


def reasons(dropped: Mapping[str, int]) -> str:
    """Format the reasons for dropping, with their counts."""
    return ", ".join(f"{count} with {why}" for why, count in dropped.items())
