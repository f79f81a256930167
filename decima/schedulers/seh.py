"""Size estimate hedging: SRPT on estimates until a job is known to be underestimated (Akbari-Moghaddam and Down)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.observation import Observation

__all__ = ["Seh"]


class Seh(PricedSrpt):
    """The least that is left of the estimate first, but never less than a share of it; limits as in ``priced-srpt``.

    The priority of a job rises as in SRPT and is then frozen, so that an underestimated job does not go before all
    others (SEH, ACM TOMACS 33, 2023, for one server). The index of the paper has one parameter, too, but another form.

    Args:
        frozen: share of the estimate at which the priority is frozen. 0 is naive SRPT on estimates, 1 ``sjf-estimate``.

    Raises:
        ValueError: the share is not between 0 and 1.
    """

    def __init__(self, frozen: float = 0.5) -> None:
        if not 0 <= frozen <= 1:
            raise ValueError(f"the frozen share must be from 0 to 1, got {frozen:g}")
        super().__init__()
        self.frozen = frozen

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the remaining part of each job's first estimate, ms."""
        estimate = observation.job_first_work_ms
        left: NDArray[np.float64] = np.maximum(estimate - observation.job_attained_ms, self.frozen * estimate)
        return left
