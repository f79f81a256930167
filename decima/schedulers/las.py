"""Least attained service, also called foreground-background (survey: Nuyens and Wierman, 2008)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation

__all__ = ["Las"]


class Las(PricedSrpt):
    """The job whose finished tasks took the least executor time first; limits as in ``priced-srpt``.

    Without any estimate of sizes this order is optimal on one server if the hazard rate of the sizes decreases. A
    running task counts when it ends, so that jobs do not share as finely as in theory.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the executor time of finished tasks of each job, ms."""
        return observation.job_attained_ms
