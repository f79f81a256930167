"""Count jobs that a scheduler withholds: they could start, but it lets time pass (DeepRM, section 4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.grid import GridScheduler
from simulator.grid.grid import Grid

__all__ = ["Withholding"]


class Withholding:
    """Wrap a scheduler to count the jobs that it withholds; a ``GridScheduler`` for one run of a grid.

    Attributes:
        held: int64 [N, J], number of steps in which each job was withheld.
        steps: int64 [N], number of steps that passed.
        held_steps: int64 [N], number of steps in which a job was withheld (not work-conserving).
    """

    def __init__(self, scheduler: GridScheduler, grid: Grid) -> None:
        self.scheduler = scheduler
        self.held = np.zeros(grid.jobs.enter.shape, dtype=np.int64)
        self.steps = np.zeros(len(grid), dtype=np.int64)
        self.held_steps = np.zeros(len(grid), dtype=np.int64)

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """Return the scheduler's actions, int64 [N]."""
        actions = self.scheduler(grid)
        books = grid.action_mask()[np.arange(len(grid)), actions] & (actions < grid.config.num_actions - 1)
        passes = ~grid.done & ~books
        could_start = grid.startable().any(axis=1) & passes[:, None]
        episode, slot = np.nonzero(could_start)
        self.held[episode, grid.slots[episode, slot]] += 1
        self.steps += passes
        self.held_steps += could_start.any(axis=1)
        return actions
