"""Arrival patterns of a stream: bursts of jobs, day and night, and a rate that changes within the stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from workloads.arrivals import JobSequence
from workloads.declaration import Number, Whole, declared, described
from workloads.job import WorkloadError

__all__ = ["STEADY", "ArrivalPattern"]

#: Length of a day and a night together, in units of the mean time between arrivals.
DAY = 20


_Positive = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


@declared(error=WorkloadError)
class ArrivalPattern:
    """Pattern by which the arrival times of a stream are changed. Jobs, their order and their number stay the same.

    Raises:
        WorkloadError: a value is out of range.
    """

    burst: Annotated[Whole, Field(ge=1)] = described(
        1, "Number of consecutive jobs that arrive together, at the time of the first one."
    )
    drift: _Positive = described(1.0, "Factor of the arrival rate in the second half of the jobs.")
    night: Annotated[Number, Field(ge=0, lt=1)] = described(
        0.0,
        "Fraction by which the arrival rate is lower than the mean at night, and higher by day; each lasts "
        f"{DAY // 2} mean times between arrivals.",
    )

    def __str__(self) -> str:
        """Describe the pattern in words; empty for an unchanged stream."""
        words = [f"{self.burst} jobs at once"] if self.burst > 1 else []
        words += [f"{self.drift:.3g} times the rate in the second half"] if self.drift != 1 else []
        words += [f"{self.night:.0%} fewer arrivals at night"] if self.night else []
        return ", ".join(words)

    def applied(self, sequence: JobSequence) -> JobSequence:
        """Return a sequence with changed arrival times. The given sequence must have no deadlines yet."""
        times_ms, count = sequence.arrival_ms, len(sequence)
        if self == STEADY or count < 2:
            return sequence
        if self.night:
            # Rates 1 + night by day and 1 - night at night give as many jobs as the mean rate.
            half_ms = DAY / 2 * times_ms[-1] / (count - 1)
            halves = np.arange(2 * count)
            rate = np.where(halves % 2 == 0, 1 + self.night, 1 - self.night)
            times_ms = np.interp(
                times_ms, half_ms * np.append(0, np.cumsum(rate)), half_ms * np.append(halves, 2 * count)
            )
        if self.drift != 1:
            middle_ms = times_ms[count // 2]
            times_ms = np.where(
                times_ms > middle_ms, middle_ms + (times_ms - middle_ms) / self.drift, times_ms
            )
        times_ms = times_ms[np.arange(count) // self.burst * self.burst]
        return replace(sequence, arrival_ms=times_ms)


#: The pattern of an unchanged stream.
STEADY = ArrivalPattern()
