"""The interface of a scheduler, and of rules that policies learn to deviate from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.errors import DecimaError

__all__ = [
    "AWAY_BY_RANK",
    "FARTHEST_AWAY",
    "NO_RULE",
    "STAYING",
    "WORTH_LEAVING",
    "WORTH_MOVING",
    "Decide",
    "FunctionScheduler",
    "Rule",
    "Scheduler",
    "SchedulerError",
    "all_offered",
    "check_positive",
    "num_committed",
    "only_jobs",
]

#: Distance from the rule's choice per rank, and the largest distance.
AWAY_BY_RANK, FARTHEST_AWAY = 0.5, 4.0
#: Least remaining work, in moving delays, that is worth a move of another job's executor, and of a free one.
WORTH_LEAVING, WORTH_MOVING = 8.0, 3.0
#: Weight of the source job's remaining work in the order of jobs.
STAYING = 0.6


def check_positive(**constants: float) -> None:
    """Raise ``ValueError`` unless all constants are positive."""
    for name, value in constants.items():
        if not value > 0:
            raise ValueError(f"the {name} must be positive, got {value:g}")


class SchedulerError(DecimaError, ValueError):
    """An unknown scheduler name. The message is one line."""


class Scheduler(ABC):
    """Chooses, at every scheduling event, the stage that runs next and its job's parallelism limit.

    A custom scheduler implements :meth:`decide`, and :meth:`reset` if it has state. Quantities derived from profiles of
    live jobs are cached in a ``PerJob``. Its name on the command line is ``module:Class``.
    """

    #: Whether executors stay with their job while it has a stage for them: if the ``source`` has a ``next_stage``, the
    #: decision is ``all_offered`` to it. The engine then takes these decisions itself, which is faster. A subclass
    #: that overrides ``decide`` or ``next_stage`` sets it anew.
    keeps_executors = False
    #: Whether the decisions were learned. The best heuristic of a comparison is the best scheduler without this mark.
    learned = False

    def __init_subclass__(cls) -> None:
        if {"decide", "next_stage"} & vars(cls).keys():
            cls.keeps_executors = vars(cls).get("keeps_executors", False)

    def reset(self, config: ClusterConfig) -> None:  # noqa: B027
        """Begin an episode on this cluster and drop all state of the last episode."""

    @abstractmethod
    def decide(self, observation: Observation) -> Decision | None:
        """Choose a schedulable stage and its job's parallelism limit, or ``None`` to leave the executors idle.

        The cluster calls it until all executors of the round are committed, as long as some stage is schedulable.
        """


#: A function with the signature of ``Scheduler.decide``.
Decide = Callable[[Observation], Decision | None]


class FunctionScheduler(Scheduler):
    """Scheduler that calls a function without state."""

    def __init__(self, function: Decide) -> None:
        self._function = function

    def decide(self, observation: Observation) -> Decision | None:
        """Return the function's decision."""
        return self._function(observation)


def all_offered(observation: Observation, stage: int) -> Decision:
    """Return the decision that gives a stage (place in the stage arrays) all offered executors that it can use."""
    job = int(observation.stage_job[stage])
    return Decision(stage, observation.held(job) + observation.offered)


def num_committed(observation: Observation, decision: Decision) -> int:
    """Return the number of offered executors that a decision commits."""
    more = decision.limit - observation.held(int(observation.stage_job[decision.stage]))
    return min(more, observation.offered, int(observation.unclaimed_tasks[decision.stage]))


def only_jobs(observation: Observation, jobs: NDArray[np.bool_]) -> Observation:
    """Return an observation where only stages of the jobs in a mask, bool [J], may be chosen; its rows are copies."""
    rows, stages = observation.jobs.copy(), observation.stages.copy()
    stages["schedulable"] *= jobs[stages["job"]]
    rows["next_stage"][~jobs] = -1
    count = int(np.count_nonzero(stages["schedulable"]))
    return replace(observation, jobs=rows, stages=stages, num_schedulable=count)


class Rule(NamedTuple):
    """The decision of a rule, and each stage's distance from it.

    Attributes:
        stage: the stage that runs next, place in the stage arrays; -1 to leave the executors idle.
        limits: int64 [J], parallelism limit of each live job.
        price: cost exponent of executors now; 0 if the rule has none.
        away: float64 [S], 0 for the first stage in the rule's order, up to ``FARTHEST_AWAY`` for later ones.
    """

    stage: int
    limits: NDArray[np.int64]
    price: float
    away: NDArray[np.float64]


#: Value without a rule.
NO_RULE = Rule(-1, np.zeros(0, np.int64), 0.0, np.zeros(0))
