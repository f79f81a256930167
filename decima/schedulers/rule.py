"""A rule's decision with its surroundings: input of policies that learn where to deviate from the rule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["AWAY_BY_RANK", "FARTHEST_AWAY", "NO_RULE", "Rule"]

#: Distance from the rule's choice per rank, and the largest distance.
AWAY_BY_RANK, FARTHEST_AWAY = 0.5, 4.0


class Rule(NamedTuple):
    """The decision of a rule, and each stage's distance from it.

    Attributes:
        stage: the stage that runs next, place in the stage arrays; -1 to leave the executors idle.
        limits: int64 [J], parallelism limit of each live job.
        price: cost exponent of executors now; 0 if the rule has none.
        away: float64 [S], 0 for the first stage in the rule's order, up to ``FARTHEST_AWAY`` for later ones.
    """

    stage: int
    limits: NDArray[np.int64]
    price: float
    away: NDArray[np.float64]


#: Value without a rule.
NO_RULE = Rule(-1, np.zeros(0, np.int64), 0.0, np.zeros(0))
