"""Random decisions: the floor of every comparison."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from simulator import ClusterConfig, Decision, Observation
from workloads.arrivals import JobSequence, RandomStream, random_stream

__all__ = ["RandomChoice"]


class RandomChoice(Scheduler):
    """A schedulable stage and a parallelism limit, both drawn uniformly.

    Args:
        seed: with the sequence's own seed, it names the draws of an episode.
    """

    def __init__(self, seed: int = 0):
        self._seed = seed
        self._random = random_stream(seed, RandomStream.POLICY)

    def reset(self, config: ClusterConfig, sequence: JobSequence) -> None:
        """Begin this episode's draws."""
        self._random = random_stream(self._seed, RandomStream.POLICY, sequence.seed)

    def decide(self, observation: Observation) -> Decision | None:
        """Any schedulable stage with any number of the offered executors."""
        stage = int(self._random.choice(np.flatnonzero(observation.schedulable)))
        held = observation.held(int(observation.stage_job[stage]))
        return Decision(stage, held + int(self._random.integers(1, observation.offered + 1)))
