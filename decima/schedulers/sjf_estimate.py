"""Preemptive shortest job first by the work estimated at arrival (Scully, Grosof and Mitzenmacher, ITCS 2022)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation

__all__ = ["SjfEstimate"]


class SjfEstimate(PricedSrpt):
    """Smallest estimate of the total work first, whatever is observed later; limits as in ``priced-srpt``.

    On one server the mean response time is within a constant factor of the optimum if estimates are off by bounded
    factors (2110.00633). The bound does not cover a cluster: jobs run in parallel, executors finish their task before
    they leave, and moves take time.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the work of each job as estimated at its arrival, ms."""
        return observation.job_first_work_ms
