"""Rollouts on DeepRM's grid, in lock-step: one pass of the network for all running episodes; returns and baselines.

Arrays of rewards are of N episodes with S actions each. The clock of a grid advances in steps. An action that books a
job does not advance the clock, and causes no discount.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning.cluster.values import accumulate
from decima.policy.grid import Actor, Steps, look
from simulator.grid.grid import Grid

if TYPE_CHECKING:
    from decima.learning.grid.config import DeepRMConfig
    from decima.policy.grid import Mask
    from decima.schedulers.grid import GridScheduler
    from simulator.grid.grid import GridRecord
    from workloads.grid_jobs import JobSets

__all__ = [
    "BASELINES", "Episodes", "Recorder", "Seen", "action_baseline", "join", "n_step_returns",
    "no_baseline", "returns_to_go", "roll_out", "roll_out_sets", "time_baseline",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Seen:
    """Pictures and actions of N episodes in lock-step: n pictures in S steps, step by step.

    Attributes:
        counts: int64 [S], number of pictures in each step.
        episode: int64 [n], episode of each picture, ascending in each step.
        pictures: uint8 or float32 [n, H, W].
        allowed: bool [n, actions], action mask; None if all actions are allowed.
        action: int64 [n], chosen action; None for states without a choice.
    """

    counts: NDArray[np.int64]
    episode: NDArray[np.int64]
    pictures: NDArray[Any]
    allowed: NDArray[np.bool_] | None = None
    action: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self.episode.size

    def steps(self) -> Iterator[slice]:
        """Iterate over the slices of the pictures of each step."""
        ends = np.cumsum(self.counts).tolist()
        return map(slice, [0, *ends[:-1]], ends)

    @staticmethod
    def of(steps: Sequence[Steps]) -> Seen:
        """Concatenate the inputs and actions of all steps."""
        allowed = [step.allowed.numpy() for step in steps if step.allowed is not None]
        return Seen(
            counts=np.array([len(step.episode) for step in steps], dtype=np.int64),
            episode=np.concatenate([step.episode for step in steps]),
            pictures=np.concatenate([step.pictures.numpy() for step in steps]),
            allowed=np.concatenate(allowed) if allowed else None,
            action=np.concatenate([step.action.numpy() for step in steps]),
        )


@dataclass(frozen=True, eq=False)
class Episodes:
    """N episodes in lock-step; after its end, an episode has rewards of 0 and a constant clock.

    Attributes:
        choices: pictures and actions where the policy had a choice, of S steps.
        rewards: float64 [S, N], reward of each action.
        clock: int32 [S + 1, N], clock before each action and at the end.
        states: pictures of all running episodes before each step; None if not kept.
    """

    choices: Seen
    rewards: NDArray[np.float64]
    clock: NDArray[np.int32]
    record: GridRecord
    states: Seen | None = None


class Recorder:
    """Records the decisions of a scheduler like those of an ``Actor``, for behaviour cloning.

    Args:
        mask: action mask, which defines where there is a choice; see ``Actor``.
    """

    def __init__(self, heuristic: GridScheduler, mask: Mask = "startable") -> None:
        self.heuristic = heuristic
        self.mask = mask

    def decide(self, grid: Grid) -> tuple[NDArray[np.int64], Steps]:
        """Return an action for each of N episodes, int64 [N], and the steps with a choice."""
        actions = self.heuristic(grid)
        asked, pictures, allowed = look(grid, self.mask)
        return actions, Steps(asked, pictures, allowed, torch.from_numpy(actions[asked]))


def roll_out(
    grid: Grid,
    actor: Actor | Recorder,
    *,
    keep_states: bool = False,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Episodes:
    """Run the episodes of a grid to their ends in lock-step.

    Args:
        grid: new episodes.
        keep_states: whether to keep the pictures before each step, for a critic.
        on_step: progress callback, called with the number of finished episodes and of all episodes.

    Raises:
        NotFiniteError: the network returns scores that are not finite.
    """
    steps, rewards, clock = [], [], [grid.clock]
    live, pictures = [], []
    while not grid.done.all():
        if keep_states:
            live.append(np.flatnonzero(~grid.done))
            pictures.append(grid.pictures[live[-1]])
        actions, chosen = actor.decide(grid)
        steps.append(chosen)
        rewards.append(grid.step(actions))
        clock.append(grid.clock)
        on_step(int(grid.done.sum()), len(grid))
    states = None
    if keep_states:
        counts = np.array([each.size for each in live], dtype=np.int64)
        states = Seen(counts, np.concatenate(live), np.concatenate(pictures))
    return Episodes(
        Seen.of(steps), np.array(rewards).reshape(-1, len(grid)), np.array(clock), grid.record(), states
    )


def roll_out_sets(
    weights: dict[str, NDArray[np.float32]], config: DeepRMConfig, work: tuple[JobSets, np.random.Generator]
) -> Episodes:
    """Run the episodes of some job sets with a network of the given weights; a work item."""
    sets, random = work
    with torch.device("meta"):  # without initialisation, which would draw random numbers
        network = config.policy.build()
    # Copies, since Ray's arrays are read-only.
    network.load_state_dict({name: torch.tensor(array) for name, array in weights.items()}, assign=True)
    grid = Grid(config.grid.build(), sets[np.repeat(np.arange(len(sets)), config.episodes.per_set)])
    actor = Actor(network, random, mask=config.episodes.mask)
    return roll_out(grid, actor, keep_states=config.update.algorithm == "a2c")


def join(parts: Sequence[Episodes], jobs: JobSets) -> Episodes:
    """Join groups of episodes as if they had run in one lock-step.

    Args:
        parts: groups of episodes, in order.
    """
    length = max(len(part.rewards) for part in parts)
    rewards = [np.pad(part.rewards, ((0, length - len(part.rewards)), (0, 0))) for part in parts]
    clock = [np.pad(part.clock, ((0, length + 1 - len(part.clock)), (0, 0)), mode="edge") for part in parts]
    names = ("start", "machine", "dropped", "num_entered", "clock")
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part.record, name) for part in parts]) for name in names
    }
    states = [part.states for part in parts if part.states is not None]
    sizes = [part.rewards.shape[1] for part in parts]
    return Episodes(
        choices=_join([part.choices for part in parts], sizes, length),
        rewards=np.concatenate(rewards, axis=1),
        clock=np.concatenate(clock, axis=1),
        record=replace(parts[0].record, jobs=jobs, **columns),
        states=_join(states, sizes, length) if states else None,
    )


def _join(parts: Sequence[Seen], sizes: Sequence[int], length: int) -> Seen:
    """Join pictures and actions of groups with ``sizes`` episodes, step by step."""
    if len(parts) == 1 and parts[0].pictures.flags.writeable:  # Ray's arrays are read-only: PyTorch warns
        return parts[0]
    step = np.concatenate([np.repeat(np.arange(len(part.counts)), part.counts) for part in parts])
    order = np.argsort(step, kind="stable")
    episode = [part.episode + offset for part, offset in zip(parts, np.cumsum([0, *sizes]), strict=False)]

    def joined(arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
        some = [array for array in arrays if array is not None]
        if not some:
            return None
        return (some[0] if len(some) == 1 else np.concatenate(some))[order]

    pictures = joined([part.pictures for part in parts])
    assert pictures is not None
    return Seen(
        counts=np.bincount(step, minlength=length),
        episode=np.concatenate(episode)[order],
        pictures=pictures,
        allowed=joined([part.allowed for part in parts]),
        action=joined([part.action for part in parts]),
    )


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
