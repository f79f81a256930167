"""Jobs that a scheduler withholds: they could start at once, and it lets time pass instead (DeepRM, section 4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.grid import GridScheduler
from simulator.grid.grid import Grid

__all__ = ["Withholding"]


class Withholding:
    """A scheduler, and what it withholds; a ``GridScheduler`` for one run of a grid.

    Args:
        scheduler: whose choices are carried out.
        grid: that it will be asked about.

    Attributes:
        held: int64 [N, J], steps in which each job was withheld.
        steps: int64 [N], steps that passed.
        held_steps: int64 [N], those in which at least one job was withheld: the scheduler was not work-conserving.
    """

    def __init__(self, scheduler: GridScheduler, grid: Grid) -> None:
        self.scheduler = scheduler
        self.held = np.zeros(grid.jobs.enter.shape, dtype=np.int64)
        self.steps = np.zeros(len(grid), dtype=np.int64)
        self.held_steps = np.zeros(len(grid), dtype=np.int64)

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """The actions, int64 [N]."""
        actions = self.scheduler(grid)
        books = grid.action_mask()[np.arange(len(grid)), actions] & (actions < grid.config.num_actions - 1)
        passes = ~grid.done & ~books
        could_start = grid.startable().any(axis=1) & passes[:, None]
        episode, slot = np.nonzero(could_start)
        self.held[episode, grid.slots[episode, slot]] += 1
        self.steps += passes
        self.held_steps += could_start.any(axis=1)
        return actions
