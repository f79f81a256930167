"""Episodes of a training on grids, run by several workers.

Sets run in lock-step, a few at once, whoever runs them: a network's result for one picture may differ in its last bit
with how many others there are. So how many, and what their actions are drawn with, follows from the settings alone:
each part has random numbers of its own, or all of an iteration go on with the same, and then one worker after the
other has them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.grid.rollout import Episodes, States, roll_out
from decima.learning.learner import copy_weights
from decima.learning.simulation import SharedSimulation
from decima.policy.grid.scheduler import Actor, Steps
from simulator.grid.grid import Grid
from workloads.arrivals import RandomStream, random_stream

if TYPE_CHECKING:
    from decima.learning.grid.config import DeepRMConfig
    from simulator.grid.record import GridRecord
    from workloads.grid_jobs import JobSets

__all__ = ["Simulation"]

_Weights = dict[str, NDArray[np.float32]]


class Simulation(SharedSimulation):
    """Runs episodes; a context manager. Who works, and how many, does not show in the results.

    Args:
        config: the settings of the training.
        workers: see ``check_workers``.

    Attributes:
        cpu_s: CPU time of all episodes so far, over all workers, s.
        own_s: CPU time that this process spent on that, s.

    Raises:
        WorkerError: there are no such workers.
    """

    def __init__(self, config: DeepRMConfig, workers: int | str = 1) -> None:
        super().__init__(config, workers)
        self._config = config
        self.own_s = 0.0

    def roll_out(
        self, network: nn.Module, sets: JobSets, iteration: int, first: int, random: np.random.Generator
    ) -> Episodes:
        """Run the episodes of some sets.

        Args:
            network: gives a score for each action.
            sets: of jobs.
            iteration: from 0.
            first: which of the iteration's sets the first of them is; no two calls may begin with the same.
            random: goes on if all sets run in one lock-step; is left alone else.

        Raises:
            NotFiniteError: the network gives scores that are no numbers.
            WorkerError: workers died.
        """
        begun = time.process_time()
        weights = {name: weight.numpy() for name, weight in copy_weights(network).items()}
        size, per_set = self._config.episodes.lockstep, self._config.episodes.per_set
        if size is None:
            work = [(first, sets, random)]
        else:
            seed = self._config.seed
            work = [
                (
                    first + place,
                    sets[place : place + size],
                    random_stream(seed, RandomStream.POLICY, iteration, first + place),
                )
                for place in range(0, len(sets), size)
            ]
        done = sorted(self._workers.map(partial(_roll_out, weights), work), key=lambda each: each.first)
        if size is None:
            random.bit_generator.state = done[0].random.bit_generator.state
        self.cpu_s += sum(each.cpu_s for each in done)
        joined = _join([each.flat for each in done], sets[np.repeat(np.arange(len(sets)), per_set)])
        self.own_s += time.process_time() - begun
        return joined


@dataclass(frozen=True, eq=False)
class _Seen:
    """What was seen in S steps, one after the other; as ``Steps`` or ``States`` have it.

    Attributes:
        counts: int64 [S]; how many there are of each step.
        episode: int64 [n].
        pictures: uint8 or float32 [n, H, W].
        allowed: bool [n, actions]; or None.
        action: int64 [n]; or None.
    """

    counts: NDArray[np.int64]
    episode: NDArray[np.int64]
    pictures: NDArray[np.uint8] | NDArray[np.float32]
    allowed: NDArray[np.bool_] | None = None
    action: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class _Flat:
    """Episodes as flat arrays, which travel fast."""

    steps: _Seen
    states: _Seen | None
    rewards: NDArray[np.float64]
    clock: NDArray[np.int32]
    record: GridRecord


# What the workers do.


class _Done(NamedTuple):
    first: int
    flat: _Flat
    random: np.random.Generator
    cpu_s: float


def _roll_out(
    weights: _Weights, config: DeepRMConfig, work: tuple[int, JobSets, np.random.Generator]
) -> _Done:
    begun = time.process_time()
    first, sets, random = work
    with torch.device("meta"):  # whose weights are nobody's luck
        network = config.policy.build()
    # From a store of objects they come as arrays that nobody may write to.
    network.load_state_dict({name: torch.tensor(array) for name, array in weights.items()}, assign=True)
    grid = Grid(config.grid.build(), sets[np.repeat(np.arange(len(sets)), config.episodes.per_set)])
    actor = Actor(network, random, mask=config.episodes.mask)
    run = roll_out(grid, actor, keep_states=config.update.algorithm == "a2c")
    return _Done(first, _flatten(run), random, time.process_time() - begun)


def _flatten(run: Episodes) -> _Flat:
    steps = _Seen(
        counts=np.array([len(step.episode) for step in run.steps], dtype=np.int64),
        episode=np.concatenate([step.episode for step in run.steps]),
        pictures=np.concatenate([step.pictures.numpy() for step in run.steps]),
        allowed=_none_or([step.allowed for step in run.steps]),
        action=np.concatenate([step.action.numpy() for step in run.steps]),
    )
    states = None
    if run.states:
        states = _Seen(
            counts=np.array([len(state.episode) for state in run.states], dtype=np.int64),
            episode=np.concatenate([state.episode for state in run.states]),
            pictures=np.concatenate([state.pictures.numpy() for state in run.states]),
        )
    return _Flat(steps, states, run.rewards, run.clock, run.record)


def _none_or(parts: list[Tensor | None]) -> NDArray[np.bool_] | None:
    some = [part.numpy() for part in parts if part is not None]
    return np.concatenate(some) if some else None


# As if all sets had run in one lock-step.


def _join(parts: list[_Flat], jobs: JobSets) -> Episodes:
    """All episodes, in order; who is over earlier than others has rewards of 0 and a clock that stands still."""
    length = max(len(part.rewards) for part in parts)
    sizes = [part.rewards.shape[1] for part in parts]
    offsets = (np.cumsum(sizes) - sizes).tolist()
    rewards = [np.pad(part.rewards, ((0, length - len(part.rewards)), (0, 0))) for part in parts]
    clock = [np.pad(part.clock, ((0, length + 1 - len(part.clock)), (0, 0)), mode="edge") for part in parts]
    record = replace(
        parts[0].record,
        jobs=jobs,
        start=np.concatenate([part.record.start for part in parts]),
        machine=np.concatenate([part.record.machine for part in parts]),
        dropped=np.concatenate([part.record.dropped for part in parts]),
        num_entered=np.concatenate([part.record.num_entered for part in parts]),
        clock=np.concatenate([part.record.clock for part in parts]),
    )
    return Episodes(
        steps=[
            Steps(episode, pictures, allowed, action)
            for episode, pictures, allowed, action in _by_step(
                [part.steps for part in parts], offsets, length
            )
            if action is not None
        ],
        rewards=np.concatenate(rewards, axis=1),
        clock=np.concatenate(clock, axis=1),
        record=record,
        states=[
            States(episode, pictures)
            for episode, pictures, _, _ in _by_step(
                [part.states for part in parts if part.states is not None], offsets, length
            )
        ],
    )


def _by_step(
    parts: Sequence[_Seen], offsets: Sequence[int], length: int
) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor | None, Tensor | None]]:
    """What all of them saw in each step: episodes, pictures, allowed, action; the episodes are numbered on."""
    ends = [np.append(0, np.cumsum(part.counts)) for part in parts]
    for step in range(length if parts else 0):
        here = [
            (part, slice(int(end[step]), int(end[step + 1])), offset)
            for part, end, offset in zip(parts, ends, offsets, strict=True)
            if step < len(part.counts)
        ]
        yield (
            np.concatenate([part.episode[own] + offset for part, own, offset in here]),
            torch.from_numpy(np.concatenate([part.pictures[own] for part, own, _ in here])),
            _tensor_or_none([None if part.allowed is None else part.allowed[own] for part, own, _ in here]),
            _tensor_or_none([None if part.action is None else part.action[own] for part, own, _ in here]),
        )


def _tensor_or_none(parts: Sequence[NDArray[Any] | None]) -> Tensor | None:
    some = [part for part in parts if part is not None]
    return torch.from_numpy(np.concatenate(some)) if some else None
