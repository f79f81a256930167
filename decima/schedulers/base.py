"""The interface of a scheduler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.errors import DecimaError

__all__ = ["Decide", "FunctionScheduler", "Scheduler", "SchedulerError", "all_offered"]


class SchedulerError(DecimaError, ValueError):
    """A name that is no scheduler's. The message is one line."""


class Scheduler(ABC):
    """Decides, at every scheduling event, which stage runs next and how many executors its job may hold.

    A scheduler of your own implements :meth:`decide`, and :meth:`reset` if it remembers anything. What it works out of
    the live jobs' profiles it keeps in a ``PerJob``. On the command line it goes by ``module:Class``.
    """

    #: Whether executors stay with their job while it has a stage for them: wherever the ``source`` has a
    #: ``next_stage``, the decision is ``all_offered`` to it. Episodes are faster where that is known. A subclass that
    #: decides differently says so anew.
    keeps_executors = False
    #: Whether its decisions were learned. A comparison names the best of those that were not: the best heuristic.
    learned = False

    def __init_subclass__(cls) -> None:
        if {"decide", "next_stage"} & vars(cls).keys():
            cls.keeps_executors = vars(cls).get("keeps_executors", False)

    def reset(self, config: ClusterConfig) -> None:  # noqa: B027
        """Begin an episode on this cluster and drop all state of the last episode."""

    @abstractmethod
    def decide(self, observation: Observation) -> Decision | None:
        """Choose a schedulable stage and its job's parallelism limit, or ``None`` to leave the executors idle.

        It is asked while executors are offered and some stage is schedulable; again, until all executors of the
        round are committed.
        """


#: Decides as ``Scheduler.decide`` does.
Decide = Callable[[Observation], Decision | None]


class FunctionScheduler(Scheduler):
    """A scheduler that decides as a function does, which remembers nothing."""

    def __init__(self, function: Decide) -> None:
        self._function = function

    def decide(self, observation: Observation) -> Decision | None:
        """Return what the function does."""
        return self._function(observation)


def all_offered(observation: Observation, stage: int) -> Decision:
    """Give a stage (place in the stage arrays) as many of the offered executors as it can use."""
    job = int(observation.stage_job[stage])
    return Decision(stage, observation.held(job) + observation.offered)
