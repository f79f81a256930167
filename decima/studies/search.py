"""Searches for the minimum of a noisy function of many variables, for ``decima tune``.

A search asks for candidates for each sequence of a generation, and is told their costs.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError

__all__ = ["SEARCHES", "CmaEs", "ResponseSurface", "Search"]

#: Initial standard deviation of the variables of CMA-ES.
FIRST_STEP = 0.3


class Search(Protocol):
    """Search for the minimum of a function.

    Args:
        most: bounds of the absolute values of the variables, float64 [size]; the search begins at 0.
        seed: random seed.

    Attributes:
        centre: best estimate of the minimum, float64 [size].
    """

    centre: NDArray[np.float64]

    def __init__(self, most: NDArray[np.float64], seed: int) -> None: ...

    def ask(self, sequences: int) -> NDArray[np.float64]:
        """Return candidates for each sequence of a generation, float64 [sequences, candidates, size]."""

    def tell(self, candidates: NDArray[np.float64], costs: NDArray[np.float64]) -> None:
        """Learn the costs of candidates, float64 [sequences, candidates]. Costs of one sequence are comparable."""


class CmaEs:
    """CMA-ES with a diagonal covariance matrix (Ros and Hansen, PPSN 2008).

    All sequences have the same candidates. For a few variables.

    Raises:
        CompareError: the package cma is not installed.
    """

    def __init__(self, most: NDArray[np.float64], seed: int) -> None:
        try:
            import cma
        except ImportError:
            raise CompareError("the search needs the package cma: pip install -e '.[tune]'") from None
        options = {"CMA_diagonal": True, "bounds": [-most, most], "seed": 1 + seed, "verbose": -9}
        self._search = cma.CMAEvolutionStrategy(np.zeros(len(most)), FIRST_STEP, options)
        self.centre = np.zeros(len(most))

    def ask(self, sequences: int) -> NDArray[np.float64]:
        """See ``Search``."""
        asked = np.array(self._search.ask())
        return np.broadcast_to(asked, (sequences, *asked.shape))

    def tell(self, candidates: NDArray[np.float64], costs: NDArray[np.float64]) -> None:
        """See ``Search``."""
        self._search.tell(list(candidates[0]), costs.mean(axis=0).tolist())
        self.centre = self._search.result.xfavorite


class ResponseSurface:
    """Minimum of a quadratic function that is fitted to all costs so far (Box and Wilson, JRSS B, 1951).

    Each sequence has its own candidates: the centre, and pairs of points that lie opposite each other around the
    centre. Half the difference of a pair contains the slopes, its mean the curvatures. The function has no products of
    variables. The fit is Bayesian: without information from the costs, slopes are 0 and all curvatures are equal. For
    many variables, each of which changes costs by less than their noise.
    """

    #: Pairs of candidates of a sequence.
    PAIRS = 3
    #: Standard deviation of draws in the first generation, and the smallest one. Wide draws find the minimum of a
    #: smoother function.
    FIRST, LEAST = 0.3, 0.1
    #: Factor of the standard deviation of draws from generation to generation.
    NARROWING = 0.97
    #: Factor of the weight of a generation's costs after each further generation.
    FORGETTING = 0.97
    #: Standard deviation of the distance of the minimum from the centre, in the prior distribution.
    REACH = 0.2
    #: Share of the way from the centre to the fitted minimum for the next centre.
    DAMPING = 0.5

    def __init__(self, most: NDArray[np.float64], seed: int) -> None:
        self.centre, self._most = np.zeros(len(most)), most
        self._random = np.random.default_rng(seed)
        self._scale = self.FIRST
        #: Rows of all generations: centre, distance of a pair from it, half the difference of a pair's costs, and the
        #: pair's mean cost minus the cost of the centre.
        self._rows = np.zeros((0, 2 * len(most) + 2))
        self._weights = np.zeros(0)

    def ask(self, sequences: int) -> NDArray[np.float64]:
        """See ``Search``."""
        distances = self._scale * self._random.standard_normal((sequences, self.PAIRS, len(self.centre)))
        pairs = np.stack([distances, -distances], axis=2).reshape(sequences, 2 * self.PAIRS, -1)
        pairs = np.clip(self.centre + pairs, -self._most, self._most)
        return np.concatenate([np.broadcast_to(self.centre, (sequences, 1, len(self.centre))), pairs], axis=1)

    def tell(self, candidates: NDArray[np.float64], costs: NDArray[np.float64]) -> None:
        """See ``Search``."""
        size = len(self.centre)
        first, second = candidates[:, 1::2].reshape(-1, size), candidates[:, 2::2].reshape(-1, size)
        one, other = costs[:, 1::2].ravel(), costs[:, 2::2].ravel()
        bend = (one + other) / 2 - np.repeat(costs[:, 0], self.PAIRS)
        rows = np.column_stack([(first + second) / 2, (first - second) / 2, (one - other) / 2, bend])
        self._rows = np.concatenate([self._rows, rows])
        self._weights = np.append(self.FORGETTING * self._weights, np.ones(len(rows)))
        step = np.clip(self.DAMPING * self._way(), -self._scale, self._scale)
        self.centre = np.clip(self.centre + step, -self._most, self._most)
        self._scale = max(self.NARROWING * self._scale, self.LEAST)

    def _way(self) -> NDArray[np.float64]:
        """Return the way from the centre to the minimum of the fitted function, ``slopes @ x + curvatures @ x**2``."""
        size = len(self.centre)
        centres, away = self._rows[:, :size] - self.centre, self._rows[:, size : 2 * size]
        slope, bend = _clipped(self._rows[:, -2]), _clipped(self._rows[:, -1])
        # Costs of few sequences may have a mean curvature below 0; half a standard error is a small positive one.
        total = (away**2).sum(axis=1)
        error = bend.std() / total.mean() / np.sqrt(len(bend))
        usual = max(float(self._weights @ bend / (self._weights @ total)), 0.5 * float(error), 1e-12)
        weights = np.sqrt(self._weights)[:, None]
        of_slope = weights * np.column_stack([away, 2 * centres * away]) / max(slope.std(), 1e-12)
        of_bend = weights * np.column_stack([np.zeros_like(away), away**2]) / max(bend.std(), 1e-12)
        known = np.concatenate([of_slope, of_bend])
        values = np.concatenate([slope / max(slope.std(), 1e-12), bend / max(bend.std(), 1e-12)])
        values = values * np.tile(weights[:, 0], 2)
        mean = np.append(np.zeros(size), np.full(size, usual))
        precision = np.append(
            np.full(size, (2 * usual * self.REACH) ** -2), np.full(size, (0.5 * usual) ** -2)
        )
        fitted = mean + np.linalg.solve(
            known.T @ known + np.diag(precision), known.T @ (values - known @ mean)
        )
        way: NDArray[np.float64] = -fitted[:size] / (2 * np.maximum(fitted[size:], 0.3 * usual))
        return way


def _clipped(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values without outliers: larger ones than 98 % of all are reduced."""
    most = np.quantile(np.abs(values), 0.98)
    return np.clip(values, -most, most)


#: Name -> search.
SEARCHES: dict[str, type[Search]] = {"cma-es": CmaEs, "response-surface": ResponseSurface}
