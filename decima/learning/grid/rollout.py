"""Episodes for training: all grids in lock-step, one pass through the network for those that are not over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decima.policy.grid.scheduler import Actor, Steps, look

if TYPE_CHECKING:
    from decima.policy.grid.config import Mask
    from decima.schedulers.grid import GridScheduler
    from simulator.grid.grid import Grid
    from simulator.grid.record import GridRecord

__all__ = ["Episodes", "States", "Watched", "roll_out"]


class Watched:
    """A heuristic whose choices are noted as those of an ``Actor``.

    Args:
        heuristic: decides.
        mask: where there is a choice; see ``Actor``.
    """

    def __init__(self, heuristic: GridScheduler, mask: Mask = "startable") -> None:
        self.heuristic = heuristic
        self.mask = mask

    def decide(self, grid: Grid) -> tuple[NDArray[np.int64], Steps]:
        """The actions, int64 [N], and what was seen where there was a choice."""
        actions = self.heuristic(grid)
        asked, pictures, allowed = look(grid, self.mask)
        return actions, Steps(asked, pictures, allowed, torch.from_numpy(actions[asked]))


@dataclass(frozen=True, eq=False)
class States:
    """The episodes that are not over.

    Attributes:
        episode: int64 [n].
        pictures: uint8 or float32 [n, H, W].
    """

    episode: NDArray[np.int64]
    pictures: Tensor


@dataclass(frozen=True, eq=False)
class Episodes:
    """N episodes in lock-step; an episode that is over has rewards of 0 and a clock that stands still.

    Attributes:
        steps: what was chosen in each of S steps.
        rewards: float64 [S, N].
        clock: int32 [S + 1, N]; before each action, and at the end.
        record: what happened.
        states: what came before each step, of all episodes, with a choice or not; empty if nobody asked for it.
    """

    steps: list[Steps]
    rewards: NDArray[np.float64]
    clock: NDArray[np.int32]
    record: GridRecord
    states: list[States]


def roll_out(
    grid: Grid,
    actor: Actor | Watched,
    *,
    keep_states: bool = False,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Episodes:
    """Run the grid's episodes to their end.

    Args:
        grid: the episodes, not begun.
        actor: decides.
        keep_states: also keep what came before each step.
        on_step: called after each step with the number of episodes that are over, and of all.

    Raises:
        NotFiniteError: the network gives scores that are no numbers.
    """
    steps, rewards, clock, states = [], [], [grid.clock], []
    while not grid.done.all():
        if keep_states:
            live = np.flatnonzero(~grid.done)
            states.append(States(live, torch.from_numpy(grid.pictures[live])))
        actions, chosen = actor.decide(grid)
        steps.append(chosen)
        rewards.append(grid.step(actions))
        clock.append(grid.clock)
        on_step(int(grid.done.sum()), len(grid))
    return Episodes(steps, np.array(rewards).reshape(-1, len(grid)), np.array(clock), grid.record(), states)
