"""Rules for DeepRM's grid (HotNets 2016, section 4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.grid.grid import Grid
from simulator.grid.record import GridRecord

__all__ = [
    "GRID_SCHEDULERS",
    "KNOBS",
    "GridRandomChoice",
    "GridScheduler",
    "GridTetris",
    "Packer",
    "ScoredRule",
    "ShortestJobFirst",
    "play",
    "tune_tetris",
]  # fmt: skip

#: A function that returns the actions of all episodes, int64 [N].
GridScheduler = Callable[[Grid], NDArray[np.int64]]


class ScoredRule(ABC):
    """Base class of rules that start the job with the highest score, among the jobs that can start immediately.

    A rule maps a ``Grid`` to one action per episode: the startable pair of job and machine with the highest score, on a
    tie the action with the lowest number; the void action if no job can start or no score is above 0.

    Examples:
        >>> class LongestJobFirst(ScoredRule):
        ...     def score(self, grid):
        ...         return grid.slot_duration[:, None, :]
    """

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """Return the actions, int64 [N]."""
        scores = np.where(grid.startable(), self.score(grid), 0.0).reshape(len(grid), -1)
        best = scores.argmax(axis=1)
        is_positive = np.take_along_axis(scores, best[:, None], axis=1)[:, 0] > 0
        return np.where(is_positive, best, grid.config.num_actions - 1)

    @abstractmethod
    def score(self, grid: Grid) -> NDArray[Any]:
        """Return the scores of visible jobs on each machine, float [N, m or 1, M]; any value for empty slots."""


class ShortestJobFirst(ScoredRule):
    """Shortest job first: 1 / duration."""

    def score(self, grid: Grid) -> NDArray[np.float64]:
        """See the base class."""
        return 1.0 / np.maximum(grid.slot_duration, 1)[:, None, :]


class Packer(ScoredRule):
    """Best packing first: the dot product of demand and free resources, in units (Tetris, section 3.2)."""

    def score(self, grid: Grid) -> NDArray[np.float64]:
        """See the base class."""
        free = grid.free_units[:, :, 0, :]
        score: NDArray[np.float64] = np.einsum("nir,njr->nij", free, grid.slot_demand, dtype=np.float64)
        return score


class GridTetris(ScoredRule):
    """Tetris*: ``knob`` times the packer's score plus ``1 - knob`` times the score of shortest job first.

    The packer's score is up to 100 times the other score: 0.5 is nearly the packer, 0.01 gives both similar weights.
    """

    def __init__(self, knob: float = 0.5) -> None:
        self.knob = knob

    def score(self, grid: Grid) -> NDArray[np.float64]:
        """See the base class."""
        packing, shortness = Packer().score(grid), ShortestJobFirst().score(grid)
        return self.knob * packing + (1 - self.knob) * shortness


class GridRandomChoice:
    """Uniform random actions, which may reserve later times, or let time pass while jobs wait."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """Return the actions, int64 [N]."""
        return self.random.integers(grid.config.num_actions, size=len(grid))


#: Rules by their names.
GRID_SCHEDULERS: dict[str, Callable[[], GridScheduler]] = {
    "sjf": ShortestJobFirst,
    "packer": Packer,
    "tetris": GridTetris,
    "random": GridRandomChoice,
}

#: Candidate knobs in the tuning of Tetris*.
KNOBS = (0.5, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.003, 0.002, 0.001)


def tune_tetris(grid: Grid) -> float:
    """Run the grid's episodes with each of ``KNOBS``; return the knob with the least mean slowdown over all jobs."""
    slowdowns = []
    for knob in KNOBS:
        grid.reset()
        slowdowns.append(float(np.nanmean(play(grid, GridTetris(knob)).slowdown())))
    return KNOBS[int(np.argmin(slowdowns))]


def play(grid: Grid, scheduler: GridScheduler) -> GridRecord:
    """Run the grid's episodes to their end with a scheduler, and return the record."""
    while not grid.done.all():
        grid.step(scheduler(grid))
    return grid.record()
