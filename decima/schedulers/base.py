"""The interfaces of schedulers, and of rules from which learned policies deviate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from simulator.compiled import inner
from workloads.errors import SchedulerError

if TYPE_CHECKING:
    from simulator.cluster.engine.rule import CompiledRule

__all__ = [
    "DISTANCE_PER_RANK", "LARGEST_DISTANCE", "LEAVE_MIN_DELAYS", "LOG_PRICES", "MOVE_MIN_DELAYS", "NO_RULE",
    "PRICES", "SOURCE_FACTOR", "Decide", "FunctionScheduler", "Kind", "Rule", "Scheduler", "SchedulerError",
    "all_offered", "between_prices", "bounded", "check_positive", "last_resort", "move_cost_ms",
    "num_committed", "only_jobs", "weighted_sum",
]  # fmt: skip

#: Distance of a stage from the rule's choice, per rank, and maximum distance.
DISTANCE_PER_RANK, LARGEST_DISTANCE = 0.5, 4.0
#: Minimum work, in moving delays, that justifies moving another job's executor, and moving a free executor.
LEAVE_MIN_DELAYS, MOVE_MIN_DELAYS = 8.0, 3.0
#: Prices: cost exponents of executors, see ``simulator.cluster.alone.useful_parallelism``.
PRICES = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
LOG_PRICES = np.log(np.array(PRICES))
#: Factor on the remaining work of the source job in the order of jobs; below 1, so that executors tend to stay.
SOURCE_FACTOR = 0.6


def check_positive(**constants: float) -> None:
    """Check that all constants are positive.

    Raises:
        ValueError: a constant is not positive.
    """
    for name, value in constants.items():
        if not value > 0:
            raise ValueError(f"the {name} must be positive, got {value:g}")


class Kind(StrEnum):
    """What makes a scheduler's decisions: a rule, a rule whose weights a search found, or a trained network."""

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
    keeps_executors = False
    #: What decides; the best heuristic of a comparison is the best of the schedulers that are no network.
    kind = Kind.RULE

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


class Rule(NamedTuple):
    """The decision of a rule, and the distance of each stage from it.

    Attributes:
        stage: stage that runs next, index in the stage arrays; -1 leaves the executors idle.
        limits: parallelism limit of each live job, int64 [J].
        price: current cost exponent of executors; 0 for a rule without a cost exponent.
        distances: distance of each stage from the first one in the rule's order, float64 [S], at most
            ``LARGEST_DISTANCE``.
    """

    stage: int
    limits: NDArray[np.int64]
    price: float
    distances: NDArray[np.float64]


#: Value for policies without a rule, and for observations without jobs.
NO_RULE = Rule(-1, np.zeros(0, np.int64), 0.0, np.zeros(0))


@inner
def between_prices(log_price):  # type: ignore[no-untyped-def]
    """Return the index of the largest price that is not above a price, and the place between it and the next one."""
    index = 0
    while index + 2 < len(LOG_PRICES) and LOG_PRICES[index + 1] <= log_price:
        index += 1
    between = (log_price - LOG_PRICES[index]) / (LOG_PRICES[index + 1] - LOG_PRICES[index])
    return index, min(max(between, 0.0), 1.0)


@inner
def weighted_sum(weights, features, first=0):  # type: ignore[no-untyped-def]
    """Return the weighted sum of features; the weight of the first feature has the index ``first``."""
    total = 0.0
    for index in range(min(len(features), len(weights) - first)):
        total += weights[first + index] * features[index]
    return total


@inner
def bounded(value, most):  # type: ignore[no-untyped-def]
    """Return a number, but not above ``most`` or below ``-most``."""
    return min(max(value, -most), most)
