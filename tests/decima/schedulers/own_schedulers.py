"""Custom schedulers, valid and invalid."""

import numpy as np

from decima.gym import PolicyScheduler, as_scheduler
from decima.schedulers import Scheduler
from simulator import Decision, Observation


class Greedy(Scheduler):
    """Gives all executors to the first schedulable stage."""

    def decide(self, observation: Observation) -> Decision | None:
        stage = int(np.flatnonzero(observation.schedulable)[0])
        return Decision(stage, observation.num_executors)


class Idle(Scheduler):
    """Leaves all executors idle forever."""

    def decide(self, observation: Observation) -> Decision | None:
        return None


class Faulty(Scheduler):
    """Raises an error."""

    def decide(self, observation: Observation) -> Decision | None:
        return 1 // 0  # type: ignore[return-value]


class Leaving(Scheduler):
    """Calls sys.exit."""

    def decide(self, observation: Observation) -> Decision | None:
        raise SystemExit(3)


def gym_policy() -> PolicyScheduler:
    """Return a Gymnasium policy as a scheduler."""
    return as_scheduler(lambda observation, mask: (mask.argmax(), 0))


class Undecided:
    """Is not a scheduler."""
