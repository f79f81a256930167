"""Windows of a job sequence: parts of equal length, each with the jobs that arrive in it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from workloads.arrivals import JobSequence
from workloads.errors import WorkloadError, check_number

__all__ = ["windows"]


def windows(sequence: JobSequence, length_ms: float) -> tuple[JobSequence, ...]:
    """Split a sequence into windows of length ``length_ms``, beginning with the first arrival.

    Windows without jobs are left out. In each window, the first job arrives at time 0.

    Raises:
        WorkloadError: the length is not positive.
    """
    if not check_number(length_ms, "the length of a window", WorkloadError) > 0:
        raise WorkloadError(f"a window must be longer than 0, got {length_ms} ms")
    window = (sequence.arrival_ms - sequence.arrival_ms[0]) // length_ms
    borders = [0, *(np.flatnonzero(np.diff(window)) + 1).tolist(), len(sequence)]
    return tuple(_window(sequence, first, stop) for first, stop in pairwise(borders))


def _window(sequence: JobSequence, first: int, stop: int) -> JobSequence:
    begin_ms = float(sequence.arrival_ms[first])
    return replace(
        sequence,
        profiles=sequence.profiles[first:stop],
        arrival_ms=sequence.arrival_ms[first:stop] - begin_ms,
        attributes=tuple(
            replace(attributes, deadline_ms=attributes.deadline_ms - begin_ms)
            for attributes in sequence.attributes[first:stop]
        ),
    )
