"""Drift of a job stream: from some time on, jobs arrive at another rate, or are other jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.display import number_text
from workloads.errors import LONGEST_MS, WorkloadError, check_all, check_number
from workloads.job import JobProfile

__all__ = ["Drift"]

#: Maximum factor on an arrival rate; the minimum factor is its inverse.
MOST_TIMES = 1e6


@dataclass(frozen=True, eq=False)
class Drift:
    """A change within a job stream: another arrival rate, and possibly jobs of another workload.

    Args:
        at_ms: time of the change, ms.
        rate: factor on the arrival rate after the change.
        profiles: profiles from which jobs are drawn after the change; empty if the jobs stay the same.
        name: display name of the workload of ``profiles``.
        source: name or path of this workload, for the text form.

    Raises:
        WorkloadError: the time is negative, or the factor is not positive or too large.
    """

    at_ms: float
    rate: float
    profiles: tuple[JobProfile, ...] = ()
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", check_all(self.profiles, JobProfile, "profiles", WorkloadError))
        for name in ("at_ms", "rate"):
            object.__setattr__(self, name, check_number(getattr(self, name), name, WorkloadError))
        if not 0 <= self.at_ms <= LONGEST_MS:
            raise WorkloadError(
                f"a drift begins between 0 and {LONGEST_MS / 1000:g} s, got {self.at_ms / 1000:g} s"
            )
        if not 1 / MOST_TIMES <= self.rate <= MOST_TIMES:
            raise WorkloadError(
                f"a drift's factor on the arrival rate is between {1 / MOST_TIMES:g} and {MOST_TIMES:g}, "
                f"got {self.rate:g}"
            )

    def __str__(self) -> str:
        """Describe the change in words."""
        rate = [f"{self.rate:g} times the rate"] if self.rate != 1 or not self.profiles else []
        jobs = [f"jobs of {self.name}"] if self.profiles else []
        return f"{' and '.join(rate + jobs)} from {self.at_ms / 1000:g} s on"

    def change(
        self, jobs: list[JobProfile], arrival_ms: NDArray[np.float64], random: np.random.Generator
    ) -> None:
        """Change the later jobs of a stream, and their arrival times, float64 [jobs], ms, in place."""
        first = int(np.searchsorted(arrival_ms, self.at_ms))
        arrival_ms[first:] = self.at_ms + (arrival_ms[first:] - self.at_ms) / self.rate
        if self.profiles:
            others = random.integers(len(self.profiles), size=len(jobs))
            jobs[first:] = [self.profiles[index] for index in others[first:]]

    @property
    def text(self) -> str:
        """Text form, ``AT:RATE[:WORKLOAD]``."""
        start = f"{number_text(self.at_ms / 1000)}:{number_text(self.rate)}"
        return f"{start}:{self.source or self.name}" if self.profiles else start
