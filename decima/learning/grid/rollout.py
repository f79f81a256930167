"""Episodes for training: all grids in lock-step, one pass through the network for those that are not over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.cluster.rollout import NotFiniteError
from decima.schedulers.grid import GridScheduler
from simulator.grid import Grid, GridRecord

__all__ = [
    "COMPARED",
    "IMITATES",
    "VALIDATED",
    "Actor",
    "Episodes",
    "Mask",
    "States",
    "Steps",
    "Watched",
    "action_baseline",
    "allowed_actions",
    "log_probabilities",
    "multi_step_returns",
    "returns_to_go",
    "roll_out",
    "time_baseline",
]


#: Which actions are possible; see ``Actor``.
Mask = Literal["all", "bookable", "startable"]

#: Parts of the random stream POLICY beside those of iterations: a network is compared, is validated, imitates.
COMPARED, VALIDATED, IMITATES = 2**29, 2**30, 2**31 - 1

#: The score of an action that is not allowed.
IMPOSSIBLE = -1e30


class Actor:
    """A network that chooses actions; a ``GridScheduler``.

    Args:
        network: gives a score for each action.
        random: what actions are drawn with; without it the likeliest are taken.
        mask: what is possible: ``all`` actions; ``bookable`` jobs and void; or ``startable`` jobs, those that can start
            at once, and void. Where only void is, the network is not asked.
    """

    def __init__(
        self, network: nn.Module, random: np.random.Generator | None = None, *, mask: Mask = "startable"
    ) -> None:
        self.network = network
        self.random = random
        self.mask = mask

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """The actions, int64 [N]."""
        return self.decide(grid)[0]

    def decide(self, grid: Grid) -> tuple[NDArray[np.int64], Steps]:
        """The actions, int64 [N], and what was seen where the network was asked."""
        asked, pictures, allowed = _look(grid, self.mask)
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
        asked, pictures, allowed = _look(grid, self.mask)
        return actions, Steps(asked, pictures, allowed, torch.from_numpy(actions[asked]))


def allowed_actions(grid: Grid, mask: Mask) -> NDArray[np.bool_] | None:
    """Which actions are possible, bool [N, actions]; None if all are."""
    if mask == "all":
        return None
    return grid.action_mask(now=mask == "startable")


def _look(grid: Grid, mask: Mask) -> tuple[NDArray[np.int64], Tensor, Tensor | None]:
    """The episodes that have a choice, int64 [n], what is seen there, and what is allowed; see ``Steps``."""
    allowed = allowed_actions(grid, mask)
    if allowed is None:
        asked = np.flatnonzero(~grid.done)
        return asked, torch.from_numpy(grid.pictures[asked]), None
    asked = np.flatnonzero(allowed[:, :-1].any(axis=1))
    return asked, torch.from_numpy(grid.pictures[asked]), torch.from_numpy(allowed[asked])


def log_probabilities(network: nn.Module, pictures: Tensor, allowed: Tensor | None) -> Tensor:
    """Of all actions, float32 [n, actions]; those that are not allowed have a probability of 0."""
    scores: Tensor = network(pictures)
    if allowed is not None:
        # Not minus infinity, which times a probability of 0 would be no number in the entropy.
        scores = scores.masked_fill(~allowed, IMPOSSIBLE)
    return scores.log_softmax(dim=1)


@dataclass(frozen=True, eq=False)
class Steps:
    """What was seen and chosen in the episodes that the network was asked for.

    Attributes:
        episode: int64 [n].
        pictures: uint8 or float32 [n, H, W].
        allowed: bool [n, actions]; None if all actions were.
        action: int64 [n].
    """

    episode: NDArray[np.int64]
    pictures: Tensor
    allowed: Tensor | None
    action: Tensor


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


def roll_out(grid: Grid, actor: Actor | Watched, *, keep_states: bool = False) -> Episodes:
    """Run the grid's episodes to their end.

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
    return Episodes(steps, np.array(rewards).reshape(-1, len(grid)), np.array(clock), grid.record(), states)


def returns_to_go(
    rewards: NDArray[np.float64], clock: NDArray[np.int32], discount: float = 1.0
) -> NDArray[np.float64]:
    """What follows each action, float64 [S, N].

    Args:
        rewards: float64 [S, N].
        clock: int32 [S + 1, N].
        discount: of what comes after a step of the clock.
    """
    returns = np.empty_like(rewards)
    later = np.zeros(rewards.shape[1])
    for step in range(len(rewards) - 1, -1, -1):
        later = rewards[step] + np.where(clock[step + 1] > clock[step], discount, 1.0) * later
        returns[step] = later
    return returns


def multi_step_returns(
    rewards: NDArray[np.float64],
    clock: NDArray[np.int32],
    values: NDArray[np.float64],
    steps: int,
    discount: float = 1.0,
) -> NDArray[np.float64]:
    """What follows each action within a few actions, and the value of the state after them, float64 [S, N].

    Args:
        rewards: float64 [S, N].
        clock: int32 [S + 1, N].
        values: float64 [S + 1, N]; a critic's, of the state before each action and at the end.
        steps: how many actions.
        discount: of what comes after a step of the clock.
    """
    length = len(rewards)
    factors = np.where(np.diff(clock, axis=0) > 0, discount, 1.0)
    returns = values[np.minimum(np.arange(length) + steps, length)]
    for ahead in range(min(steps, length) - 1, -1, -1):
        first = length - ahead  # from here on an episode ends earlier
        returns[:first] = rewards[ahead:] + factors[ahead:] * returns[:first]
    return returns


def action_baseline(returns: NDArray[np.float64], per_set: int) -> NDArray[np.float64]:
    """The mean return after as many actions, over the episodes of a set: that of DeepRM's code; float64 [S, N].

    Args:
        returns: float64 [S, N]; the episodes of a set lie side by side.
        per_set: how many they are.
    """
    means = returns.reshape(len(returns), -1, per_set).mean(axis=2)
    return np.repeat(means, per_set, axis=1)


def time_baseline(
    returns: NDArray[np.float64], clock: NDArray[np.int32], per_set: int
) -> NDArray[np.float64]:
    """The mean return at the same time, over the other episodes of a set; float64 [S, N].

    They meet the same jobs at the same times, so that what differs is what was chosen (Decima, section 5.3).

    Args:
        returns: float64 [S, N]; the episodes of a set lie side by side.
        clock: int32 [S, N] or longer.
        per_set: how many they are, at least 2.
    """
    episodes = np.arange(returns.shape[1])
    by_time = np.zeros((returns.shape[1], int(clock.max()) + 1))
    for step in range(len(returns) - 1, -1, -1):  # the first action at a time is written last
        by_time[episodes, clock[step]] = returns[step]
    sets = by_time.reshape(-1, per_set, by_time.shape[1])
    others = (sets.sum(axis=1, keepdims=True) - sets) / (per_set - 1)
    return np.asarray(others.reshape(by_time.shape)[episodes, clock[: len(returns)]])
