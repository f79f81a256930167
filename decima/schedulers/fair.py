"""Fair and weighted fair sharing of executors among jobs (Decima, section 7.1, baselines 3 to 5)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from simulator.cluster.engine.rule import CompiledRule, compiled_rule
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled

__all__ = ["Fair", "NaiveWeightedFair", "WeightedFair"]

#: Subtracted before rounding up, so that rounding errors do not increase an integer share.
_ROUNDING = 1e-9
#: Maximum absolute alpha; beyond it, the smallest or the largest job gets all executors anyway.
STEEPEST = 100
#: Maximum absolute exponent of a weight; beyond it, sums of weights would be infinite or zero.
OVERFLOW = 300.0


class WeightedFair(Scheduler):
    """Share executors by weight: job i with total work T_i gets the fraction T_i^alpha / sum of T_j^alpha.

    The sum is over jobs with unclaimed tasks, and shares are rounded up. Executors that become idle stay with their job
    while it has work; otherwise the first job in order of arrival that is below its share gets them. Executors left
    over go to the job with the fewest executors relative to its share. With alpha = 0 this is the published
    simulator's ``dynamic_partition``, with alpha = 1 naive weighted fair sharing.

    Args:
        alpha: exponent of the total work; negative values favour short jobs.

    Raises:
        ValueError: the absolute value of alpha exceeds ``STEEPEST``.
    """

    keeps_executors = True

    def __init__(self, alpha: float = 0.0):
        if not abs(alpha) <= STEEPEST:
            raise ValueError(f"alpha must be from -{STEEPEST} to {STEEPEST}, got {alpha:g}")
        self.alpha = alpha
        self._constants = np.array([float(alpha)])
        self._work_ms: PerJob[NDArray[np.float64]] = PerJob(lambda profile, _: profile.work_ms, np.array)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the source job's next stage for all offered executors, or else that of a job below its share."""
        jobs, stages = observation.jobs, self.next_stage(observation)
        if type(self).next_stage is not WeightedFair.next_stage:
            jobs = jobs.copy()
            jobs["next_stage"] = stages
        constants = self._constants
        if not observation.config.knowledge.is_exact:
            constants = np.append(constants, self._work_ms(observation))
        shown = observation.source, observation.offered, observation.num_executors
        return Decision(*_choose(jobs, observation.stages, *shown, constants))

    def engine_rule(self) -> CompiledRule:
        """Return ``decide`` as a compiled rule."""
        return compiled_rule(_choose, self._constants)

    def next_stage(self, observation: Observation) -> NDArray[np.int64]:
        """Return the next stage of each live job, int64 [J], index in the stage arrays; -1 for none."""
        return observation.next_stage


@compiled
def _choose(jobs, stages, source, offered, num_executors, constants):  # type: ignore[no-untyped-def]
    """Return the stage and the limit of a decision, see ``simulator.cluster.engine.rule``.

    ``constants``: alpha; then the work of each live job, ms, unless it is the work as estimated at the arrival.
    """
    if source >= 0 and jobs[source].next_stage >= 0:
        return jobs[source].next_stage, jobs[source].executors
    weights, total = np.empty(len(jobs)), 0.0
    for job in range(len(jobs)):
        work_ms = constants[1 + job] if len(constants) > 1 else jobs[job].first_work_ms
        weights[job] = constants[0] * math.log(max(work_ms, 1e-3))  # a job without work counts as tiny
    # Weights over their geometric mean, which avoids overflow.
    weights = np.exp(np.clip(weights - weights.mean(), -OVERFLOW, OVERFLOW))
    for job in range(len(jobs)):
        if jobs[job].unsaturated_stages > 0:
            total += weights[job]
    neediest, fewest = -1, math.inf
    for job in range(len(jobs)):
        if jobs[job].next_stage < 0:
            continue
        held = jobs[job].executors
        share = max(math.ceil(weights[job] * (num_executors / total) - _ROUNDING), 1)
        if held < share:
            return jobs[job].next_stage, share
        if held / share < fewest:
            neediest, fewest = job, held / share
    more = 0 if neediest == source else offered
    return jobs[neediest].next_stage, jobs[neediest].executors + more


class Fair(WeightedFair):
    """Fair sharing: equal shares of the executors for all live jobs."""

    def __init__(self) -> None:
        super().__init__(alpha=0.0)


class NaiveWeightedFair(WeightedFair):
    """Naive weighted fair sharing: shares in proportion to the jobs' total work."""

    def __init__(self) -> None:
        super().__init__(alpha=1.0)
