"""The interface of schedulers, and functions that many of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.errors import SchedulerError

if TYPE_CHECKING:
    from simulator.cluster.engine.rule import CompiledRule

__all__ = [
    "Decide", "FunctionScheduler", "Kind", "Scheduler", "SchedulerError", "all_offered", "check_positive",
    "last_resort", "move_cost_ms", "num_committed", "only_jobs",
]  # fmt: skip


def check_positive(**constants: float) -> None:
    """Check that all constants are positive.

    Raises:
        ValueError: a constant is not positive.
    """
    for name, value in constants.items():
        if not value > 0:
            raise ValueError(f"the {name} must be positive, got {value:g}")


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


class FunctionScheduler(Scheduler):
    """Scheduler that decides by a function without state."""

    def __init__(self, function: Decide) -> None:
        self._function = function

    def decide(self, observation: Observation) -> Decision | None:
        """Return the function's decision."""
        return self._function(observation)


def move_cost_ms(observation: Observation) -> float:
    """Return the moving delay, ms; 0 if idle executors are not offered again, so that waiting saves no move.

    The published simulator does not offer idle executors again.
    """
    config = observation.config
    return float(config.moving_delay_ms) if config.semantics.offer_idle_executors else 0.0


def all_offered(observation: Observation, stage: int) -> Decision:
    """Return the decision that gives a stage (index in the stage arrays) all offered executors that it can use."""
    job = int(observation.stage_job[stage])
    return Decision(stage, observation.held(job) + observation.offered)


def last_resort(observation: Observation) -> Decision | None:
    """Return a decision for the first job's next stage in the last offer before a standstill; otherwise None.

    Limits may leave all executors idle, because they count executors that are too small for their job's stages.
    """
    if not observation.last_call:
        return None
    stages = observation.next_stage
    return all_offered(observation, int(stages[stages >= 0][0]))


def num_committed(observation: Observation, decision: Decision) -> int:
    """Return the number of offered executors that a decision commits."""
    more = decision.limit - observation.held(int(observation.stage_job[decision.stage]))
    return min(more, observation.offered, int(observation.unclaimed_tasks[decision.stage]))


def only_jobs(observation: Observation, jobs: NDArray[np.bool_]) -> Observation:
    """Return a copy of an observation in which only stages of some jobs are schedulable.

    Args:
        observation: state of the cluster.
        jobs: mask of these jobs, bool [J].
    """
    rows, stages = observation.jobs.copy(), observation.stages.copy()
    stages["schedulable"] *= jobs[stages["job"]]
    rows["next_stage"][~jobs] = -1
    count = int(np.count_nonzero(stages["schedulable"]))
    return replace(observation, jobs=rows, stages=stages, num_schedulable=count)
