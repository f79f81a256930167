"""Actor: a network as a scheduler of DeepRM's grid, and the steps that it records for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.policy.errors import NotFiniteError
from decima.policy.grid.config import Mask

if TYPE_CHECKING:
    from simulator.grid.grid import Grid

__all__ = ["CLONING", "COMPARED", "VALIDATED", "Actor", "Steps", "log_probabilities", "look"]

#: Keys of the random stream POLICY for comparison, validation and behaviour cloning; keys of iterations are smaller.
COMPARED, VALIDATED, CLONING = 2**29, 2**30, 2**31 - 1

#: Score of masked actions.
IMPOSSIBLE = -1e30


@dataclass(frozen=True, eq=False)
class Steps:
    """Inputs and actions of the network in n steps, of one or more episodes.

    Attributes:
        episode: int64 [n], index of each step's episode.
        pictures: uint8 or float32 [n, H, W], inputs.
        allowed: bool [n, actions], action mask; None if all actions are allowed.
        action: int64 [n], chosen actions.
    """

    episode: NDArray[np.int64]
    pictures: Tensor
    allowed: Tensor | None
    action: Tensor


class Actor:
    """Scheduler of grids that chooses the actions of a network; a ``GridScheduler``.

    Args:
        network: maps pictures to a score for each action.
        random: generator to sample actions; by default the most likely action is chosen (greedy).
        mask: allowed actions: ``all``; ``bookable``, jobs that can be booked, and void; ``startable``, jobs that can
            start at once, and void. The network is not evaluated where only void is allowed.
    """

    def __init__(
        self, network: nn.Module, random: np.random.Generator | None = None, *, mask: Mask = "startable"
    ) -> None:
        self.network = network
        self.random = random
        self.mask = mask

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """Return an action for each of N episodes, int64 [N]."""
        return self.decide(grid)[0]

    def decide(self, grid: Grid) -> tuple[NDArray[np.int64], Steps]:
        """Return an action for each of N episodes, int64 [N], and the steps in which the network was evaluated."""
        asked, pictures, allowed = look(grid, self.mask)
        actions = np.full(len(grid), grid.config.num_actions - 1, dtype=np.int64)
        if asked.size:
            with torch.no_grad():
                scores = log_probabilities(self.network, pictures, allowed)
            chosen = self._choose(scores.double().exp().numpy())
            actions[asked] = chosen
        else:
            chosen = np.empty(0, dtype=np.int64)
        return actions, Steps(asked, pictures, allowed, torch.from_numpy(chosen))

    def _choose(self, probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
        if not np.isfinite(probabilities).all():
            raise NotFiniteError("the probability of an action is not finite")
        if self.random is None:
            return np.asarray(probabilities.argmax(axis=1))
        sums = probabilities.cumsum(axis=1)
        drawn = self.random.random((len(sums), 1)) * sums[:, -1:]
        return np.asarray((sums <= drawn).sum(axis=1))


def look(grid: Grid, mask: Mask) -> tuple[NDArray[np.int64], Tensor, Tensor | None]:
    """Return the episodes in which the network has a choice, int64 [n], their pictures and masks, see ``Steps``."""
    if mask == "all":
        asked = np.flatnonzero(~grid.done)
        return asked, torch.from_numpy(grid.pictures[asked]), None
    allowed = grid.action_mask(now=mask == "startable")
    asked = np.flatnonzero(allowed[:, :-1].any(axis=1))
    return asked, torch.from_numpy(grid.pictures[asked]), torch.from_numpy(allowed[asked])


def log_probabilities(network: nn.Module, pictures: Tensor, allowed: Tensor | None) -> Tensor:
    """Return log-probabilities of all actions, float32 [n, actions]; masked actions have probability 0."""
    scores: Tensor = network(pictures)
    if allowed is not None:
        # A finite score, since minus infinity times a probability of 0 would make the entropy NaN.
        scores = scores.masked_fill(~allowed, IMPOSSIBLE)
    return scores.log_softmax(dim=1)
