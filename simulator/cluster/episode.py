"""One scheduler, one cluster, one sequence of jobs: an episode from beginning to end."""

from __future__ import annotations

from typing import Protocol

from simulator.cluster.cluster import Cluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence

__all__ = ["DecidesStages", "run_episode"]


class DecidesStages(Protocol):
    """What an episode needs of a scheduler."""

    def reset(self, config: ClusterConfig) -> None:
        """An episode begins."""

    def decide(self, observation: Observation) -> Decision | None:
        """Choose a schedulable stage and its job's parallelism limit, or leave the offered executors idle."""


def run_episode(config: ClusterConfig, sequence: JobSequence, scheduler: DecidesStages) -> EpisodeRecord:
    """Let a scheduler run a sequence of jobs. It is asked only where it has a choice.

    Raises:
        ConfigError: a stage that no executor class can run.
        SchedulingError: the scheduler decides what cannot be done, or leaves everything idle for ever.
    """
    scheduler.reset(config)
    cluster = Cluster(config, sequence)
    while not cluster.done:
        observation = cluster.observe()
        cluster.decide(scheduler.decide(observation) if observation.num_schedulable else None)
    return cluster.record()
