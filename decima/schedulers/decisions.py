"""Functions that rules share: decisions from an observation, and checks of their constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.observation import Decision, Observation

__all__ = ["all_offered", "check_positive", "last_resort", "move_cost_ms", "num_committed", "only_jobs"]


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


def check_positive(**constants: float) -> None:
    """Check that all constants are positive.

    Raises:
        ValueError: a constant is not positive.
    """
    for name, value in constants.items():
        if not value > 0:
            raise ValueError(f"the {name} must be positive, got {value:g}")
