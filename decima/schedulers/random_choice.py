"""Random decisions, a lower bound for comparisons."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.arrivals import RandomStream, random_stream

__all__ = ["RandomChoice"]


class RandomChoice(Scheduler):
    """Choose a schedulable stage and a parallelism limit uniformly at random.

    Args:
        seed: random seed; the random numbers are the same in each episode.
    """

    def __init__(self, seed: int = 0):
        self._seed = seed
        self._random = random_stream(seed, RandomStream.POLICY, seed)

    def reset(self, config: ClusterConfig) -> None:
        """Restart the sequence of random numbers."""
        self._random = random_stream(self._seed, RandomStream.POLICY, self._seed)

    def decide(self, observation: Observation) -> Decision | None:
        """Draw a schedulable stage and a number of offered executors."""
        stage = int(self._random.choice(np.flatnonzero(observation.schedulable)))
        held = observation.held(int(observation.stage_job[stage]))
        return Decision(stage, held + int(self._random.integers(1, observation.offered + 1)))
