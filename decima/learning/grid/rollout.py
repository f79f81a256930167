"""Rollouts on DeepRM's grid, in lock-step: one pass of the network for all running episodes; returns and baselines.

Arrays of rewards are of N episodes with S actions each. The clock of a grid advances in steps. An action that books a
job does not advance the clock, and causes no discount.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decima.learning.cluster.advantages import accumulate
from decima.policy.grid import GridView, look
from simulator.grid.grid import Grid

if TYPE_CHECKING:
    from decima.policy.grid_config import Mask
    from simulator.grid.record import GridRecord

__all__ = [
    "BASELINES", "GridEpisodes", "action_baseline", "n_step_returns", "no_baseline",
    "returns_to_go", "roll_out", "time_baseline", "values_at",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class GridEpisodes:
    """N episodes in lock-step; after its end, an episode has rewards of 0 and a constant clock.

    Attributes:
        choices: before each action, the view of the episodes in which the policy had a choice.
        states: before each action, the view of all running episodes; empty if not kept.
        actions: int64 [S, N], action of each episode.
        rewards: float64 [S, N], reward of each action.
        clock: int32 [S + 1, N], clock before each action and at the end.
    """

    choices: list[GridView]
    states: list[GridView]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    clock: NDArray[np.int32]
    record: GridRecord


def roll_out(
    grid: Grid,
    decide: Callable[[Grid, GridView], NDArray[np.int64]],
    mask: Mask = "startable",
    *,
    keep_states: bool = False,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> GridEpisodes:
    """Run the episodes of a grid to their ends in lock-step.

    Args:
        grid: new episodes.
        decide: function of a grid and its view that returns an action for each episode, such as ``GridActor.decide``.
        mask: action mask of the view, which defines where there is a choice; see ``GridActor``.
        keep_states: whether to keep the pictures before each step, for a critic.
        on_step: progress callback, called with the number of finished episodes and of all episodes.

    Raises:
        NotFiniteError: the network returns scores that are not finite.
    """
    choices: list[GridView] = []
    states: list[GridView] = []
    actions, rewards, clock = [], [], [grid.clock]
    while not grid.done.all():
        if keep_states:
            states.append(look(grid, "all"))
        choices.append(look(grid, mask))
        actions.append(decide(grid, choices[-1]))
        rewards.append(grid.step(actions[-1]))
        clock.append(grid.clock)
        on_step(int(grid.done.sum()), len(grid))
    return GridEpisodes(choices, states, np.array(actions), np.array(rewards), np.array(clock), grid.record())


def values_at(values: NDArray[Any], views: Sequence[GridView]) -> list[NDArray[Any]]:
    """Select, from the values before each action, [S, N] or [S + 1, N], those of the episodes of each view."""
    return [row[view.episode] for row, view in zip(values, views, strict=False)]


Floats = NDArray[np.float64]


def returns_to_go(rewards: Floats, clock: NDArray[np.int32], discount: float = 1.0) -> Floats:
    """Compute returns: the discounted sum of rewards from each action on, float64 [S, N].

    Args:
        rewards: float64 [S, N], reward of each action.
        clock: int32 [S + 1, N], clock before each action and at the end.
        discount: discount per step of the clock.
    """
    return accumulate(rewards, _discounts(clock, discount))


def n_step_returns(
    rewards: Floats, clock: NDArray[np.int32], values: Floats, steps: int, discount: float = 1.0
) -> Floats:
    """Compute n-step returns: the rewards of n actions plus the critic's bootstrap value, float64 [S, N].

    Args:
        rewards, clock, discount: see ``returns_to_go``.
        values: float64 [S + 1, N], the critic's values before each action and at the end.
        steps: number n of actions.
    """
    length, discounts = len(rewards), _discounts(clock, discount)
    returns = values[np.minimum(np.arange(length) + steps, length)]
    for ahead in range(min(steps, length) - 1, -1, -1):
        first = length - ahead  # after later actions, fewer than n actions are left
        returns[:first] = rewards[ahead:] + discounts[ahead:] * returns[:first]
    return returns


def _discounts(clock: NDArray[np.int32], discount: float) -> Floats:
    """Compute the discount of the return after each action, float64 [S, N]."""
    return np.where(np.diff(clock, axis=0) > 0, discount, 1.0)


def time_baseline(returns: Floats, clock: NDArray[np.int32], per_set: int) -> Floats:
    """Input-dependent baseline: the mean of the other episodes of the same job set at the same time, float64 [S, N].

    The value of an episode at a time is the return of its first action at that time; 0 if there is no action.

    Args:
        returns: float64 [S, N], returns; episodes of a set are consecutive.
        clock: int32 [S, N] or longer, clock before each action.
        per_set: number of episodes of a set, at least 2.
    """
    episodes = np.arange(returns.shape[1])
    by_time = np.zeros((returns.shape[1], int(clock.max()) + 1))
    for step in range(
        len(returns) - 1, -1, -1
    ):  # backwards, so that the first action at a time overwrites later ones
        by_time[episodes, clock[step]] = returns[step]
    sets = by_time.reshape(-1, per_set, by_time.shape[1])
    others = (sets.sum(axis=1, keepdims=True) - sets) / (per_set - 1)
    return np.asarray(others.reshape(by_time.shape)[episodes, clock[: len(returns)]])


def action_baseline(returns: Floats, clock: NDArray[np.int32], per_set: int) -> Floats:
    """Baseline of DeepRM's published code: the mean of all episodes of a set after the same number of actions.

    Arguments as in ``time_baseline``.
    """
    means = returns.reshape(len(returns), -1, per_set).mean(axis=2)
    return np.repeat(means, per_set, axis=1)


def no_baseline(returns: Floats, clock: NDArray[np.int32], per_set: int) -> Floats:
    """No baseline: zeros, float64 [S, N]; arguments as in ``time_baseline``."""
    return np.zeros_like(returns)


#: Value of the setting ``update.baseline`` -> function.
BASELINES: dict[str, Callable[[Floats, NDArray[np.int32], int], Floats]] = {
    "time": time_baseline,
    "action": action_baseline,
    "none": no_baseline,
}
