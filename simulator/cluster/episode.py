"""One scheduler, one cluster, one sequence of jobs: an episode from beginning to end, on either engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from simulator.cluster.base import BaseCluster
from simulator.cluster.cluster import Cluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.record import EpisodeRecord
from simulator.cluster.reference import ReferenceCluster
from workloads.arrivals import JobSequence
from workloads.errors import ConfigError, check_instance

__all__ = ["DecidesStages", "make_cluster", "run_episode", "start_episode"]

_ENGINES: dict[str, type[BaseCluster]] = {"compiled": Cluster, "simpy": ReferenceCluster}


class DecidesStages(Protocol):
    """What an episode needs of a scheduler. How many decisions it took back is kept if it has a ``num_guarded``.

    It may say so with an attribute ``keeps_executors`` that it gives the executors that a job offers to the job's next
    stages, as ``Observation.next_stage`` has them, as many as they can use. Then it is not asked about them.

    A scheduler with a method ``watch(cluster)`` is handed the cluster after ``reset``. It may fork the cluster
    (``BaseCluster.fork``) to simulate, and must not change it.
    """

    def reset(self, config: ClusterConfig) -> None:
        """An episode begins."""

    def decide(self, observation: Observation) -> Decision | None:
        """Choose a schedulable stage and its job's parallelism limit, or leave the offered executors idle."""


def make_cluster(config: ClusterConfig, sequence: JobSequence) -> BaseCluster:
    """A cluster on the engine that its settings ask for, and the jobs that will arrive.

    Raises:
        ConfigError: an argument of a wrong type, or a stage that no executor class can run.
    """
    check_instance(config, ClusterConfig, "config", ConfigError)
    check_instance(sequence, JobSequence, "sequence", ConfigError)
    return _ENGINES[config.engine](config, sequence)


def start_episode(config: ClusterConfig, sequence: JobSequence, scheduler: DecidesStages) -> BaseCluster:
    """Reset a scheduler and return the cluster that it will decide on.

    Raises:
        ConfigError: an argument of a wrong type, or a stage that no executor class can run.
    """
    scheduler.reset(config)
    cluster = make_cluster(config, sequence)
    cluster.keeps_executors = getattr(scheduler, "keeps_executors", False)
    if callable(watch := getattr(scheduler, "watch", None)):
        watch(cluster)
    return cluster


def run_episode(config: ClusterConfig, sequence: JobSequence, scheduler: DecidesStages) -> EpisodeRecord:
    """Let a scheduler run a sequence of jobs. It is asked only where it has a choice, see ``DecidesStages``.

    Raises:
        ConfigError: an argument of a wrong type, or a stage that no executor class can run.
        SchedulingError: the scheduler decides what cannot be done, or leaves everything idle for ever.
    """
    check_instance(config, ClusterConfig, "config", ConfigError)
    check_instance(sequence, JobSequence, "sequence", ConfigError)
    if isinstance(scheduler, type):
        raise ConfigError(f"scheduler must be an object, got the class {scheduler.__name__}: call it")
    if not (callable(getattr(scheduler, "decide", None)) and callable(getattr(scheduler, "reset", None))):
        raise ConfigError(f"scheduler must have the methods decide and reset, got {scheduler!r:.60}")
    cluster = start_episode(config, sequence, scheduler)
    while not cluster.done:
        observation = cluster.observe()
        cluster.decide(scheduler.decide(observation) if observation.num_schedulable else None)
    return replace(cluster.record(), num_guarded=getattr(scheduler, "num_guarded", 0))
