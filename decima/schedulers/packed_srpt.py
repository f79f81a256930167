"""Shortest remaining work first on executors of several classes, with large executors for stages that need them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import AWAY_BY_RANK, FARTHEST_AWAY, NO_RULE, Rule
from decima.schedulers.srpt import (
    STAYING,
    WORTH_LEAVING,
    WORTH_MOVING,
    ProfiledSrpt,
    check_positive,
    lasting_executors,
)
from simulator.cluster.observation import Decision, Observation, PerJob

__all__ = ["PackedSrpt", "covering"]


class PackedSrpt(ProfiledSrpt):
    """Shortest remaining work first, limits as in profiled-srpt, with large executors for stages that need them.

    The key of a stage is its job's remaining work times ``covered ** waste``, where ``covered`` is the number of
    executors that are large enough for the stage. So stages that few executors can run come first. Only busy and moving
    executors count towards a job's limit, as idle executors may be too small for its remaining stages. No executor
    moves to another job to wait there. On a tie, ready stages come first, then stages that few executors can run, then
    stages farthest from the job's end.

    Args:
        thrift: cost exponent of executors, see ``ProfiledSrpt``.
        waste: exponent of the number of executors that can run a stage.
        staying: factor on the remaining work of the job whose executors are offered.
        worth_leaving: minimum work that justifies moving another job's executor, in moving delays.
        worth_moving: minimum work that justifies moving a free executor, in moving delays.

    Raises:
        ValueError: ``waste`` is negative, or another constant is not positive.
    """

    def __init__(
        self,
        thrift: float = 5.0,
        waste: float = 1.5,
        staying: float = STAYING,
        worth_leaving: float = WORTH_LEAVING,
        worth_moving: float = WORTH_MOVING,
    ) -> None:
        super().__init__(thrift)
        if not waste >= 0:
            raise ValueError(f"waste must not be negative, got {waste:g}")
        check_positive(staying=staying, worth_leaving=worth_leaving, worth_moving=worth_moving)
        self.waste, self.staying = waste, staying
        self.worth_leaving, self.worth_moving = worth_leaving, worth_moving
        self._height_ms = PerJob(lambda profile, _: profile.height_ms, np.concatenate)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the stage with the least key, see the class; stages of jobs below their limits come first."""
        rule = self.ask(observation)
        if rule.stage < 0:
            return None
        return Decision(rule.stage, int(rule.limits[observation.stage_job[rule.stage]]))

    def ask(self, observation: Observation) -> Rule:
        """Return the decision, each job's limit and each stage's distance from the decision.

        A job that has reached its own limit gets another limit: the number of executors that find lasting work there.
        """
        if not len(observation.jobs):
            return NO_RULE
        stages, job = observation.stages, observation.stage_job
        num_jobs, most = len(observation.jobs), observation.num_executors
        covered = covering(observation)
        work = observation.work_ms(observation.remaining_tasks)
        limit = np.minimum(self.limits(observation, work), most).astype(np.int64)
        claimed = observation.remaining_tasks - observation.unclaimed_tasks
        held = observation.job_executors.copy()
        if observation.source >= 0:
            held[observation.source] -= observation.offered
            work[observation.source] *= self.staying
        busy = np.bincount(job, observation.running_executors + claimed, minlength=num_jobs)
        busy = np.minimum(busy.astype(np.int64), held)
        lasting = lasting_executors(observation, self.worth_leaving, self.worth_moving)
        chosen = np.flatnonzero(stages["schedulable"])
        if not observation.last_call:
            chosen = chosen[(stages["ready_rank"][chosen] >= 0) | (job[chosen] == observation.source)]
        ready = stages["ready_rank"][chosen]
        key = work[job[chosen]] * covered[chosen] ** self.waste
        order = chosen[np.lexsort((-self._height_ms(observation)[chosen], covered[chosen], ready < 0, key))]
        own, all_lasting = (
            np.minimum(each, lasting).astype(np.int64) for each in (limit, np.full(num_jobs, most))
        )
        bound = np.where(busy < own, own, all_lasting)
        # First jobs below their limits, then jobs with lasting work, then other jobs.
        kinds = np.where(busy < own, 0, np.where(busy < all_lasting, 1, 2))[job[order]]
        order = order[np.argsort(kinds, kind="stable")]
        away = np.full(len(stages), FARTHEST_AWAY)
        away[order] = np.minimum(AWAY_BY_RANK * np.arange(len(order)), FARTHEST_AWAY)
        going = np.bincount(job[order], minlength=num_jobs) > 0
        limits = np.where(going, held + np.maximum(bound - busy, 0), held)
        stage = int(order[0]) if len(order) and kinds.min() < 2 else -1
        return Rule(stage, limits, 0.0, away)


def covering(observation: Observation) -> NDArray[np.int64]:
    """Return the number of executors that are large enough for each stage, int64 [S]."""
    classes, stages = observation.classes, observation.stages
    cpu, memory, executors = (classes[name][:, None] for name in ("cpu", "memory", "executors"))
    covers = (cpu >= stages["cpu"]) & (memory >= stages["memory"])
    covered: NDArray[np.int64] = (covers * executors).sum(axis=0)
    return covered
