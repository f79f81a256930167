"""Deadlines of the jobs of a sequence on a cluster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import JobSequence

__all__ = ["deadlines_ms"]


def deadlines_ms(sequence: JobSequence, config: ClusterConfig) -> NDArray[np.float64]:
    """Return the deadline of each job, float64 [jobs], ms; infinite without a deadline.

    The deadline of a job with a slack is its arrival plus the slack times its shortest time alone on the cluster.
    """
    deadline_ms = np.full(len(sequence), np.inf)
    for job, attributes in enumerate(sequence.attributes):
        deadline_ms[job] = attributes.deadline_ms
        if not math.isinf(attributes.slack):
            from simulator.cluster.alone import alone_ms  # estimates each job alone

            shortest_ms = float(alone_ms(sequence.profiles[job], config).min())
            deadline_ms[job] = sequence.arrival_ms[job] + attributes.slack * shortest_ms
    return deadline_ms
