"""The interface of schedulers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.errors import SchedulerError

if TYPE_CHECKING:
    from simulator.cluster.engine.rule import CompiledRule

__all__ = ["Decide", "Kind", "Scheduler", "SchedulerError"]


class Kind(StrEnum):
    """Kind of a scheduler: a rule, a rule with weights that a search found, or a trained network."""

    RULE = "rule"
    TUNED_RULE = "rule with searched weights"
    NETWORK = "network"


class Scheduler(ABC):
    """Base class: a scheduler chooses, at each scheduling event, the next stage and its job's parallelism limit.

    A custom scheduler implements ``decide``, and ``reset`` if it has state. ``PerJob`` caches quantities that
    depend on the profiles of live jobs. The name of a custom scheduler on the command line is ``module:Class``.
    """

    #: Whether executors stay with their job while the job has a stage for them: if the ``source`` has a ``next_stage``,
    #: the decision is ``all_offered`` to this stage. The engine then makes these decisions itself, which is faster. In
    #: a subclass that overrides ``decide`` or ``next_stage``, the default is False again.
    keeps_executors: bool = False
    #: Kind of the scheduler. The best heuristic of a comparison is its best scheduler that is no network.
    kind: Kind = Kind.RULE

    #: Method that returns ``decide`` as a compiled rule, with which the engine decides by itself, see
    #: ``simulator.cluster.engine.rule``; None without such a rule. In a subclass that overrides ``decide`` or
    #: ``next_stage``, the default is None again.
    engine_rule: Callable[[], CompiledRule] | None = None

    def __init_subclass__(cls) -> None:
        if {"decide", "next_stage"} & vars(cls).keys():
            cls.keeps_executors = vars(cls).get("keeps_executors", False)
            cls.engine_rule = vars(cls).get("engine_rule")

    def reset(self, config: ClusterConfig) -> None:  # noqa: B027
        """Start an episode on a cluster, and delete all state of the last episode."""

    @abstractmethod
    def decide(self, observation: Observation) -> Decision | None:
        """Choose a schedulable stage and its job's parallelism limit, or ``None`` to leave the executors idle.

        In each round the cluster calls this method until all offered executors are committed, it returns ``None``, or
        no stage is schedulable.
        """


#: A function with the signature of ``Scheduler.decide``.
Decide = Callable[[Observation], Decision | None]
