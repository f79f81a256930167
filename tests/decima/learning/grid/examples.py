"""Small grids, job sets for them, and trainings that take a moment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.grid.config import DeepRMConfig
from decima.learning.grid.rollout import GridEpisodes, roll_out
from decima.policy.grid import GridActor, build_network
from decima.policy.grid_config import Mask, NetworkSection
from decima.settings import parse_settings
from simulator.grid import Grid, GridConfig
from tests.decima.learning.cluster.examples import merged
from tests.simulator.grid.naive import Written
from workloads.grid_jobs import JobDistribution, JobSets, draw_jobs

#: Three units of two resources for five steps, two visible jobs.
TINY: dict[str, Any] = {"units": 3, "visible_jobs": 2, "slot_width": 3, "horizon": 5, "backlog": 4}

#: Jobs so large that two rarely run at the same time on this grid.
TINY_JOBS = JobDistribution(slots=3, short=(1, 2), long=(4, 5), dominant=(2, 3), other=(1, 1))

#: A training of a fraction of a second, on the public code's jobs.
SMALL: dict[str, Any] = {
    "iterations": 3,
    "grid": {"visible_jobs": 2, "backlog": 10},
    "jobs": {"steps": 8, "load": 0.9},
    "network": {"hidden": [4]},
    "episodes": {"sets": 3, "per_set": 3, "at_once": 2},
    "update": {"learning_rate": 0.01, "final_learning_rate": 0.005, "entropy": 0.01},
    "validation": {"every": 2, "sets": 4},
    "checkpoint_every": 2,
}


def small(**changes: Any) -> DeepRMConfig:
    """Return the settings of the small training with changes."""
    return parse_settings(DeepRMConfig, merged(SMALL, changes), "small")


def grid_of(*sets: Sequence[Written], steps: int = 8, **changes: Any) -> Grid:
    """Return an episode of each job set on the tiny grid, with changes."""
    return Grid(GridConfig(**TINY | changes), JobSets.of(sets, steps))


def tiny_grid(sets: int, per_set: int = 1, *, seed: int = 1, **changes: Any) -> Grid:
    """Return episodes of sets drawn for the tiny grid; those of a set are consecutive."""
    jobs = draw_jobs(TINY_JOBS, rate=0.7, steps=8, sets=sets, seed=seed)
    return Grid(GridConfig(**TINY | changes), jobs[np.repeat(np.arange(sets), per_set)])


class Fixed(nn.Module):
    """Network that returns the same scores for every picture."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = torch.tensor(scores)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.scores.expand(len(pictures), -1)


def dense(network: nn.Module, pictures: Tensor) -> Tensor:
    """Return the outputs of a network with one hidden layer, float64 [n, outputs], by the textbook formula."""
    first, last = network[0], network[2]
    hidden = (pictures.double().flatten(1) @ first.weight.double() + first.bias.double()).relu()
    return hidden @ last.weight.double().T + last.bias.double()


def run(seed: int = 0, sets: int = 3, per_set: int = 4, mask: Mask = "startable", **changes: Any) -> GridEpisodes:
    """Return episodes of an untrained network."""
    grid = tiny_grid(sets, per_set, seed=seed, **changes)
    network = build_network(grid.config, grid.config.num_actions, NetworkSection())
    return roll_out(grid, GridActor(network, np.random.default_rng(seed), mask=mask).decide, mask)


def mean_of_others(returns: NDArray[np.float64], clock: NDArray[np.int32], per_set: int) -> NDArray[np.float64]:
    """Average the other episodes of a set by hand: the return of the first action at that time, 0 without one."""
    expected = np.zeros_like(returns)
    for step, episode in np.ndindex(returns.shape):
        first = episode // per_set * per_set
        for other in set(range(first, first + per_set)) - {episode}:
            then = np.flatnonzero(clock[: len(returns), other] == clock[step, episode])
            if then.size:
                expected[step, episode] += returns[then[0], other] / (per_set - 1)
    return expected
