"""What a rule makes of an observation, for policies that begin with it and learn where to do otherwise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["AWAY_BY_RANK", "FARTHEST_AWAY", "NO_RULE", "Rule"]

#: How far away from its choice each further one is, and the farthest.
AWAY_BY_RANK, FARTHEST_AWAY = 0.5, 4.0


class Rule(NamedTuple):
    """What a rule would do, and how near to that everything else is.

    Attributes:
        stage: which runs next, a place in the stage arrays; -1 to leave the executors idle.
        limits: int64 [J]; executors that each live job may hold.
        price: what executors cost now; 0 if the rule knows no price.
        away: float64 [S]; 0 for the stage that comes first, and up to ``FARTHEST_AWAY`` for those that come later.
    """

    stage: int
    limits: NDArray[np.int64]
    price: float
    away: NDArray[np.float64]


#: Value where no rule is asked.
NO_RULE = Rule(-1, np.zeros(0, np.int64), 0.0, np.zeros(0))
