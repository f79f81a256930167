"""SRPT on estimates with a bounce, which bounds the harm of estimates that are too small (2110.00633)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation

__all__ = ["SrptBounce"]


class SrptBounce(PricedSrpt):
    """Rank ``max(z - a, min(a, z))`` of estimate z and attained service a, lowest first; limits as in ``priced-srpt``.

    Up to half the estimate the rank is that of SRPT. Then it rises again, up to the estimate and no further: a job that
    outlives its estimate does not stay in front for ever, which is what makes naive SRPT on estimates arbitrarily bad
    (Scully, Grosof and Mitzenmacher, ITCS 2022). The proof is for one server and bounded errors. What tasks reveal of a
    job before its end is not used.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job, ms."""
        estimate, attained = observation.job_first_work_ms, observation.job_attained_ms
        rank: NDArray[np.float64] = np.maximum(estimate - attained, np.minimum(attained, estimate))
        return rank
