"""The result of the rule ``srpt`` and its like, and what their compiled code shares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import inner

__all__ = [
    "LEAVE_MIN_DELAYS", "LOG_PRICES", "MOVE_MIN_DELAYS", "NO_RULE", "PRICES",
    "SOURCE_FACTOR", "Rule", "between_prices", "bounded", "weighted_sum",
]  # fmt: skip

#: Minimum work, in moving delays, that justifies moving another job's executor, and moving a free executor.
LEAVE_MIN_DELAYS, MOVE_MIN_DELAYS = 8.0, 3.0
#: Prices: cost exponents of executors, see ``simulator.cluster.alone.useful_parallelism``.
PRICES = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
LOG_PRICES = np.log(np.array(PRICES))
#: Factor on the remaining work of the source job in the order of jobs; below 1, so that executors tend to stay.
SOURCE_FACTOR = 0.6


class Rule(NamedTuple):
    """The decision of a rule, and the quantities that it follows from.

    Attributes:
        stage: stage that runs next, index in the stage arrays; -1 leaves the executors idle.
        limits: parallelism limit of each live job, int64 [J].
        price: current cost exponent of executors.
    """

    stage: int
    limits: NDArray[np.int64]
    price: float


#: Value for observations without jobs.
NO_RULE = Rule(-1, np.zeros(0, np.int64), 0.0)


@inner
def between_prices(log_price):  # type: ignore[no-untyped-def]
    """Return the index of the largest price that is not above a price, and the place between it and the next one."""
    index = 0
    while index + 2 < len(LOG_PRICES) and LOG_PRICES[index + 1] <= log_price:
        index += 1
    between = (log_price - LOG_PRICES[index]) / (LOG_PRICES[index + 1] - LOG_PRICES[index])
    return index, min(max(between, 0.0), 1.0)


@inner
def weighted_sum(weights, features, first=0):  # type: ignore[no-untyped-def]
    """Return the weighted sum of features; the weight of the first feature has the index ``first``."""
    total = 0.0
    for index in range(min(len(features), len(weights) - first)):
        total += weights[first + index] * features[index]
    return total


@inner
def bounded(value, most):  # type: ignore[no-untyped-def]
    """Return a number, but not above ``most`` or below ``-most``."""
    return min(max(value, -most), most)
