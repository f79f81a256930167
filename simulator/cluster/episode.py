"""Run an episode: one scheduler on one cluster with one sequence of jobs, on either engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import simulator
from simulator.cluster.base import BaseCluster
from simulator.cluster.cluster import Cluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence
from workloads.errors import ConfigError, check_instance

__all__ = ["DecidesStages", "make_cluster", "run_episode", "start_episode"]


class DecidesStages(Protocol):
    """Interface that a scheduler must have to run an episode. Five more attributes are optional.

    ``keeps_executors``: executors stay with their job without a decision, see ``BaseCluster.keeps_executors``.
    ``watch(cluster)``: called after ``reset``; may fork the cluster (``BaseCluster.fork``), must not change it.
    ``engine_rule()``: returns ``decide`` as a compiled rule, see ``simulator.cluster.engine.rule``. The engine then
    decides by itself, except if estimates have errors, with a signal, and in a last call (``BaseCluster.last_call``).
    ``num_guarded``: number of decisions that a guard changed, for the record.
    ``kept``: the scheduler's additions to the record, a ``Kept``.
    """

    def reset(self, config: ClusterConfig) -> None:
        """Prepare for a new episode on the cluster ``config``."""

    def decide(self, observation: Observation) -> Decision | None:
        """Choose a schedulable stage and its job's parallelism limit; None leaves the offered executors idle."""


def make_cluster(config: ClusterConfig, sequence: JobSequence) -> BaseCluster:
    """Return a new cluster on the engine that ``config.engine`` names, to which the jobs of a sequence will arrive.

    Raises:
        ConfigError: an argument has a wrong type, or no executor class can run some stage.
    """
    check_instance(config, ClusterConfig, "config", ConfigError)
    if config.engine == "simpy":
        return simulator.ReferenceCluster(config, sequence)  # imported only now
    return Cluster(config, sequence)


def start_episode(config: ClusterConfig, sequence: JobSequence, scheduler: DecidesStages) -> BaseCluster:
    """Reset a scheduler and return a new cluster for it to decide on.

    Raises:
        ConfigError: an argument has a wrong type, or no executor class can run some stage.
    """
    cluster = make_cluster(config, sequence)
    scheduler.reset(config)
    cluster.keeps_executors = getattr(scheduler, "keeps_executors", False)
    if callable(watch := getattr(scheduler, "watch", None)):
        watch(cluster)
    return cluster


def run_episode(config: ClusterConfig, sequence: JobSequence, scheduler: DecidesStages) -> EpisodeRecord:
    """Run a sequence of jobs under a scheduler, which decides only while some stage is schedulable.

    The scheduler is reset first.

    Raises:
        ConfigError: an argument has a wrong type, or no executor class can run some stage.
        SchedulingError: a decision cannot be carried out, or the episode stalls because all executors stay idle.
    """
    check_instance(config, ClusterConfig, "config", ConfigError)
    if isinstance(scheduler, type):
        raise ConfigError(f"scheduler must be an object, got the class {scheduler.__name__}: call it")
    if not (callable(getattr(scheduler, "decide", None)) and callable(getattr(scheduler, "reset", None))):
        raise ConfigError(
            f"scheduler must have the methods decide and reset, got {scheduler!r:.60}; "
            "decima.run_episode takes names and functions, too"
        )
    cluster = start_episode(config, sequence, scheduler)
    rule = getattr(scheduler, "engine_rule", None)
    if isinstance(cluster, Cluster) and callable(rule) and config.knowledge.is_exact and not config.signal:
        cluster.rule = rule()
    while not cluster.done:
        observation = cluster.observe()
        cluster.decide(scheduler.decide(observation) if observation.num_schedulable else None)
    num_guarded, kept = getattr(scheduler, "num_guarded", 0), getattr(scheduler, "kept", None)
    return replace(cluster.record(), num_guarded=num_guarded, kept=kept)
