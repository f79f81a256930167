"""Smith's ratio: least work for its weight first (Smith, 1956)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation

__all__ = ["WeightedSrpt"]


class WeightedSrpt(PricedSrpt):
    """The job with the least remaining work over its weight first; limits as in ``priced-srpt``.

    On one executor and for jobs that arrive together, this order has the least weighted mean JCT.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the remaining work of each job over its weight, ms."""
        return observation.work_ms(observation.remaining_tasks) / observation.job_weight
