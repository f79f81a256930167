"""Shortest remaining work first on executors of several classes, with large executors for stages that need them."""

from __future__ import annotations

import numpy as np

from decima.schedulers.adaptive_packed_srpt import PACKED_WEIGHTS, AdaptivePackedSrpt
from decima.schedulers.base import PRICES, STAYING, WORTH_LEAVING, WORTH_MOVING
from simulator.cluster.alone import useful_executors
from simulator.cluster.observation import PerJob

__all__ = ["PackedSrpt"]

_NO_WEIGHTS = dict.fromkeys(PACKED_WEIGHTS, 0.0)


class PackedSrpt(AdaptivePackedSrpt):
    """Shortest remaining work first, limits as in profiled-srpt, with large executors for stages that need them.

    The key of a stage is its job's remaining work times ``covered ** waste``, where ``covered`` is the number of
    executors that are large enough for the stage. So stages that few executors can run come first. Only busy and moving
    executors count towards a job's limit, as idle executors may be too small for its remaining stages. A job that has
    reached its own limit gets another limit: the number of executors that find lasting work there. No executor moves to
    another job to wait there. On a tie, ready stages come first, then stages that few executors can run, then stages
    farthest from the job's end.

    Args:
        thrift: cost exponent of executors, see ``ProfiledSrpt``.
        waste: exponent of the number of executors that can run a stage.
        staying: factor on the remaining work of the job whose executors are offered.
        worth_leaving: minimum work that justifies moving another job's executor, in moving delays.
        worth_moving: minimum work that justifies moving a free executor, in moving delays.

    Raises:
        ValueError: ``waste`` is negative, or another constant is not positive.
    """

    learned = False

    def __init__(
        self,
        thrift: float = 5.0,
        waste: float = 1.5,
        staying: float = STAYING,
        worth_leaving: float = WORTH_LEAVING,
        worth_moving: float = WORTH_MOVING,
    ) -> None:
        super().__init__(thrift, waste, staying, worth_leaving, worth_moving, **_NO_WEIGHTS)
        # The price is constant, so its useful parallelism stands for all prices of the table.
        self._log_useful = PerJob(
            lambda profile, config: np.full(
                len(PRICES), np.log(float(useful_executors(profile, config, thrift)))
            ),
            np.array,
        )
