"""Schedulers as a user may write them, right and wrong."""

from __future__ import annotations

import numpy as np

from decima.gym import PolicyScheduler, as_scheduler
from decima.schedulers import Scheduler
from simulator import Decision, Observation


class Greedy(Scheduler):
    """Gives the first schedulable stage everything."""

    def decide(self, observation: Observation) -> Decision | None:
        stage = int(np.flatnonzero(observation.schedulable)[0])
        return Decision(stage, observation.num_executors)


class Idle(Scheduler):
    """Leaves everything idle for ever."""

    def decide(self, observation: Observation) -> Decision | None:
        return None


class Faulty(Scheduler):
    """Has a bug."""

    def decide(self, observation: Observation) -> Decision | None:
        return 1 // 0  # type: ignore[return-value]


class Leaving(Scheduler):
    """Ends the program."""

    def decide(self, observation: Observation) -> Decision | None:
        raise SystemExit(3)


def gym_policy() -> PolicyScheduler:
    """Any Gymnasium policy as a scheduler."""
    return as_scheduler(lambda observation, mask: (mask.argmax(), 0))


class Undecided:
    """Is no scheduler."""
