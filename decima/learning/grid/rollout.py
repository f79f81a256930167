"""Rollouts on DeepRM's grid: episodes in lock-step, with one pass of the network for all running episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.policy.grid.scheduler import Actor, Steps, look
from simulator.grid.grid import Grid

if TYPE_CHECKING:
    from decima.learning.grid.config import DeepRMConfig
    from decima.policy.grid.config import Mask
    from decima.schedulers.grid import GridScheduler
    from simulator.grid.record import GridRecord
    from workloads.grid_jobs import JobSets

__all__ = ["Episodes", "Recorder", "Seen", "join", "roll_out", "roll_out_sets"]


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
        record: record of the jobs.
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
        heuristic: scheduler to record.
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
        actor: scheduler that chooses the actions.
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
        jobs: jobs of all episodes.
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
