"""Inelastic first: jobs that cannot use more executors go before jobs that can (Berg et al., SPAA 2020)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.priced_srpt import PricedSrpt, place_of
from simulator.cluster.observation import Observation

__all__ = ["InelasticFirst"]


class InelasticFirst(PricedSrpt):
    """The job that uses the fewest executors well first, of equals the earlier one; limits as in ``priced-srpt``.

    Inelastic jobs cannot use executors that elastic ones leave behind, so that they should run while others could run
    too (B. Berg's thesis, 2021). The theory has two kinds of jobs, with exponential sizes and one executor for each
    inelastic job, and proves optimality where elastic jobs are the larger ones on average. Here elasticity is gradual.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the useful parallelism of each job."""
        return self._known(observation)[:, place_of(self.constants.measured)].copy()
