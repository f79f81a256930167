"""Arrival patterns: bursts of jobs, day and night, and a rate that changes within a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from workloads.arrivals import JobSequence
from workloads.errors import check_number, check_whole
from workloads.job import WorkloadError

__all__ = ["STEADY", "ArrivalPattern"]

#: Length of a day and a night together, in units of the mean time between arrivals.
DAY = 20


@dataclass(frozen=True)
class ArrivalPattern:
    """Pattern by which the arrival times of a stream are changed. Jobs, their order and their number stay the same.

    Args:
        burst: number of consecutive jobs that arrive together, at the time of the first one.
        drift: factor on the arrival rate in the second half of the jobs.
        night: fraction by which the rate is lower than the mean at night, and higher by day. A day and a night take
            ``DAY`` mean times between arrivals, half each.

    Raises:
        WorkloadError: a value is out of range.
    """

    burst: int = 1
    drift: float = 1.0
    night: float = 0.0

    def __post_init__(self) -> None:
        check_whole(self.burst, "burst", WorkloadError, 1)
        if check_number(self.drift, "drift", WorkloadError) <= 0:
            raise WorkloadError(f"drift must be positive, got {self.drift:g}")
        if not 0 <= check_number(self.night, "night", WorkloadError) < 1:
            raise WorkloadError(f"night must be at least 0 and below 1, got {self.night:g}")

    def __str__(self) -> str:
        """Describe the pattern in words; empty for an unchanged stream."""
        words = [f"{self.burst} jobs at once"] if self.burst > 1 else []
        words += [f"{self.drift:.3g} times the rate in the second half"] if self.drift != 1 else []
        words += [f"{self.night:.0%} fewer arrivals at night"] if self.night else []
        return ", ".join(words)

    def applied(self, sequence: JobSequence) -> JobSequence:
        """Return a sequence with changed arrival times. The given sequence must have no deadlines yet."""
        times_ms, number = sequence.arrival_ms, len(sequence)
        if self == STEADY or number < 2:
            return sequence
        if self.night:
            # Rates 1 + night by day and 1 - night at night give as many jobs as the mean rate.
            half_ms = DAY / 2 * times_ms[-1] / (number - 1)
            halves = np.arange(2 * number)
            rate = np.where(halves % 2 == 0, 1 + self.night, 1 - self.night)
            times_ms = np.interp(
                times_ms, half_ms * np.append(0, np.cumsum(rate)), half_ms * np.append(halves, 2 * number)
            )
        if self.drift != 1:
            middle_ms = times_ms[number // 2]
            times_ms = np.where(
                times_ms > middle_ms, middle_ms + (times_ms - middle_ms) / self.drift, times_ms
            )
        times_ms = times_ms[np.arange(number) // self.burst * self.burst]
        return replace(sequence, arrival_ms=times_ms)


#: The pattern of an unchanged stream.
STEADY = ArrivalPattern()
