"""Changes (drift) of job streams from their text form."""

from __future__ import annotations

import math

from workloads.drift import Drift
from workloads.errors import WorkloadError
from workloads.sources.open import open_workload
from workloads.texts import number_in

__all__ = ["open_drift"]


def open_drift(text: str) -> Drift:
    """Parse a change (drift) of a job stream, ``AT:RATE[:WORKLOAD]``.

    Args:
        text: time of the change, s; factor on the arrival rate; and a name or path for ``open_workload``, whose
            profiles are drawn from then on. Without a workload, the jobs stay the same.

    Raises:
        WorkloadError: the text is malformed, a number is out of range, or the workload cannot be read.
    """
    at, _, rest = text.partition(":")
    rate, _, name = rest.partition(":")
    numbers = number_in(at), number_in(rate)
    if any(map(math.isnan, numbers)):
        raise WorkloadError(
            f"drift {text!r:.60}: expected AT:RATE[:WORKLOAD], a time in seconds and a factor on the arrival rate"
        )
    workload = open_workload(name) if name else None
    jobs = (workload.profiles, workload.name, name) if workload else ()
    return Drift(1000 * numbers[0], numbers[1], *jobs)
